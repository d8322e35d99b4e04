"""Genes, axes, cell types and cells of a report."""

import dataclasses

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.ensemble.members import TransportView
from groundmetric.report.page import describe_types, gene_table, make_page, type_table
from groundmetric.report.results import (
    MAX_AXES,
    Cohort,
    Run,
    cell_relevance,
    collect,
    gene_cell_types,
    gene_importance,
    patient_changes,
    study_plan,
    type_bags,
)


@pytest.fixture(scope="module")
def run():
    cells = gm.datasets.make_cohort(
        6, 60, 100, n_markers=5, n_programme_genes=10, programme_strength=3.0, random_state=0
    )
    gm.tl.learn(cells, "sample", "condition", n_members=2, max_epochs=2, genes="all")
    return Run(cells, gm.tl.samples(cells), cells, {})


@pytest.fixture(scope="module")
def results(run):
    return collect(run, evaluation=False)


def test_genes_of_the_programme_are_higher_in_disease_and_differ_in_their_cell_type(run):
    genes = [f"PROG{k:02d}" for k in range(1, 11)]
    assert set(gene_importance(run).loc[genes, "highest"]) == {"disease"}
    types = gene_cell_types(Cohort(run, "cell_type"), genes)
    assert types == dict.fromkeys(genes, run.cells.uns["truth"]["programme_type"])


def test_the_effect_is_the_difference_of_label_means_of_samples(run):
    X = run.samples.to_df()
    ill = (run.samples.obs["condition"] == "disease").to_numpy()
    spread = np.sqrt(run.stored.metric.variances[run.stored.features.index("PROG03")])
    expected = (X.loc[ill, "PROG03"].mean() - X.loc[~ill, "PROG03"].mean()) / spread
    assert gene_importance(run).loc["PROG03", "effect"] == pytest.approx(expected, rel=1e-5)


def test_genes_are_ranked_by_importance_on_the_axes_that_are_shown(results, run):
    n = len(results.axes.share)
    assert 2 <= n <= MAX_AXES < results.axes.n_all
    table = gene_table(results)
    names = [field.name for field in table.fields]
    assert {row[names.index("Axis")] for row in table.rows} <= set(range(1, n + 1))
    assert len(table.rows) == 100
    assert table.rows[0][names.index("Importance")] == run.stored.metric.importance().max()


def test_the_first_axis_has_the_genes_and_the_cell_type_of_the_programme(results, run):
    acting = run.cells.uns["truth"]["programme_type"]
    assert results.axes.active_types(0)[0][0] == acting
    assert results.axes.genes(0, run.stored.features)[0][0].startswith("PROG")
    assert results.axes.ends(0) in (("control", "disease"), ("disease", "control"))
    start = f"Largest share of the difference between labels: {acting}, "
    assert make_page(results).summary["Cell types"].startswith(start)


def test_relevance_is_computed_for_the_drawn_cells(run):
    cohort = Cohort(run, "cell_type")
    drawn, relevance = cohort.cells, cell_relevance(cohort)
    assert np.array_equal(np.flatnonzero(np.isfinite(relevance)), np.sort(drawn.places))
    active = run.cells.obs["programme"].to_numpy(dtype=bool)
    assert np.nanmean(relevance[active]) > np.nanmean(relevance[~active])
    np.testing.assert_array_equal(drawn.D.points, np.asarray(run.cells.obsm["X_groundmetric"])[drawn.places])


def test_cell_types_of_members_are_those_of_their_cells(run, results):
    """Values identify cells: the type of each can be looked up in the file."""
    types, names, bags = type_bags(Cohort(run, "cell_type"))
    views = [view for _, view in run.predictor.views if isinstance(view, TransportView)]
    members = [member for view in views for member in view.members]
    assert len(bags) == len(members) > 1
    scaling = run.predictor.scalings[""]
    for bag, member in zip(bags[::7], members[::7], strict=True):
        if member.kind == "linear":
            continue  # points are combinations of all genes
        column = int(member.columns[0])
        gene = run.stored.features[column]
        assert [str(name) for name in names] == run.predictor.names
        points = bag.D.points[:, 0] / member.weights[0] * scaling.scale[column] + scaling.centre[column]
        for d, name in enumerate(names):
            cells = run.cells[run.cells.obs["sample"] == name]
            pairs = list(zip(cells.obs["cell_type"].astype(str), np.round(cells.obs_vector(gene), 5), strict=True))
            part = slice(bag.D.bounds[d], bag.D.bounds[d + 1])
            drawn = zip(np.array(types)[bag.kinds[part]], np.round(points[part].astype(np.float32), 5), strict=True)
            assert all((kind, value) in pairs for kind, value in drawn)
    assert results.types["out_of_bag"]
    assert "out-of-bag" in type_table(results).caption


def test_cell_types_get_no_share_of_an_uncertain_difference(results, run):
    from dataclasses import replace

    uncertain = replace(results, types={**results.types, "certain": False})
    table = type_table(uncertain)
    assert [field.name for field in table.fields[:2]] == ["Cell type", "Relevance"]
    assert describe_types(uncertain.types) == ["No cell type can be said to carry the difference between labels."]


def test_changes_of_the_clearest_patients_are_the_programme_in_its_cell_type(run, results):
    changes = patient_changes(Cohort(run, "cell_type"))
    held_out = dict(zip(run.results.samples, run.results.held_out.max(axis=1), strict=True))
    assert [patient["label"] for patient in changes] == ["control", "disease"]
    assert {patient["patient"] for patient in changes} <= set(held_out)
    for patient, sign in zip(changes, (1, -1), strict=True):
        kind, gene, change, low, high, p = patient["rows"][0]
        assert kind == run.cells.uns["truth"]["programme_type"]
        assert gene.startswith("PROG")
        assert sign * change > 0
        assert low < change < high
        assert p <= 0.05
    results = dataclasses.replace(results, changes=changes)
    first, _ = make_page(results).changes
    assert first.caption == f"{changes[0]['patient']} (control): changes to disease"
    assert first.rows[0][0] == f"{changes[0]['rows'][0][1]}, {run.cells.uns['truth']['programme_type']}"


def test_the_plan_extrapolates_from_the_cohort(run, results):
    plan = study_plan(Cohort(run, "cell_type"))
    table = make_page(dataclasses.replace(results, plan=plan)).plan
    assert table.rows[0][0] == 12  # the patients of the cohort
    assert all(low <= value <= high for row in table.rows for value, low, high in (row[2], row[4]))
    assert np.all(np.diff([row[3] for row in table.rows]) >= 0)  # power
    assert "12 patients" in plan["text"]
