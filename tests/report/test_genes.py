"""Genes of a report: where they are higher, in which cells they differ, and on which of the axes that are shown."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric.ensemble.views import TransportView
from groundmetric.report import summary
from groundmetric.report.genes import by_members, direction_of, gene_table, types_of
from groundmetric.report.plans import MOST_AXES, _bags, draw_cells, relevance, type_relevance, type_table
from groundmetric.report.run import Steps
from groundmetric.report.scores import Cohort


@pytest.fixture(scope="module")
def run():
    cells = gm.datasets.make_cohort(
        6, 60, 100, n_markers=5, n_programme_genes=10, programme_strength=3.0, random_state=0
    )
    gm.tl.learn(cells, "sample", "condition", n_members=2, max_epochs=2, genes="all")
    return gm.report.Run(cells, gm.tl.samples(cells), cells, {})


@pytest.fixture(scope="module")
def content(run):
    return gm.report.collect(run, evaluation=False)


def test_genes_of_the_programme_are_higher_in_disease_and_differ_in_their_cells(run):
    genes = [f"PROG{k:02d}" for k in range(1, 11)]
    truth = run.cells.uns["truth"]
    fields, higher = direction_of(run)
    differs = types_of(Cohort(run, None), "cell_type", genes, Steps())
    assert [field.name for field in fields] == ["Higher in", "Difference"]
    assert {higher(gene)[0] for gene in genes} == {"disease"}
    assert differs == dict.fromkeys(genes, truth["programme_type"])


def test_the_difference_is_that_of_label_means_of_samples(run):
    _, higher = direction_of(run)
    X = run.samples.to_df()
    ill = (run.samples.obs["condition"] == "disease").to_numpy()
    spread = np.sqrt(run.stored.metric.variances[run.stored.features.index("PROG03")])
    expected = (X.loc[ill, "PROG03"].mean() - X.loc[~ill, "PROG03"].mean()) / spread
    assert higher("PROG03")[1] == pytest.approx(expected, rel=1e-5)


def test_nothing_is_said_of_axes_that_are_not_shown(content):
    shown = {axis.name for axis in content.axes}
    assert 2 <= len(shown) <= MOST_AXES < content.n_axes
    column = [field.name for field in content.genes.fields].index("Axis")
    assert {row[column] for row in content.genes.rows} <= shown
    assert not [note for note in content.left_out if f"axis {MOST_AXES + 1}" in note]


def test_an_axis_names_the_cells_that_move_along_it(content, run):
    first = content.axes[0]
    assert first.types[0][0] == run.cells.uns["truth"]["programme_type"]
    assert first.genes[0][0].startswith("PROG")
    assert first.types[0][0] in content.summary["Which cells?"]


def test_without_axes_the_table_says_what_is_known_at_once(run):
    table = gene_table(run, None, by_members(run))
    assert not {"Axis", "Differs most in"} & {field.name for field in table.fields}
    assert len(table.rows) == 100
    assert table.rows[0][2] == run.stored.metric.importance().max()


def test_relevance_is_of_the_drawn_cells_and_sums_to_the_difference(run):
    drawn = draw_cells(run)
    found = relevance(run, drawn, "cell_type", Steps())
    assert np.array_equal(np.flatnonzero(np.isfinite(found)), np.sort(drawn.places))
    active = run.cells.obs["programme"].to_numpy(dtype=bool)
    assert np.nanmean(found[active]) > np.nanmean(found[~active])
    np.testing.assert_array_equal(drawn.D.points, np.asarray(run.cells.obsm["X_groundmetric"])[drawn.places])


def test_cell_types_are_compared_by_members_and_by_the_cells_that_these_have_drawn(run):
    """The values of the drawn cells are known from the file: so it is seen that types are those of the same cells."""
    types, names, bags = _bags(run, draw_cells(run), "cell_type")
    views = [view for _, view in run.predictor.views if isinstance(view, TransportView)]
    members = [member for view in views for member in view.members]
    assert len(bags) == len(members) > 1
    scaling = run.predictor.scalings[""]
    for bag, member in zip(bags[::7], members[::7], strict=True):
        column = int(member.columns[0])
        gene = run.stored.features[column]
        assert [str(name) for name in names] == run.predictor.names
        points = bag.D.points[:, 0] * scaling.scale[column] + scaling.centre[column]
        for d, name in enumerate(names):
            cells = run.cells[run.cells.obs["sample"] == name]
            known = list(zip(cells.obs["cell_type"].astype(str), np.round(cells.obs_vector(gene), 5), strict=True))
            part = slice(bag.D.bounds[d], bag.D.bounds[d + 1])
            drawn = zip(np.array(types)[bag.kinds[part]], np.round(points[part].astype(np.float32), 5), strict=True)
            assert all((kind, value) in known for kind, value in drawn)
    found = type_relevance(run, draw_cells(run), "cell_type", Steps())
    assert found["out_of_bag"]
    assert "out of bag" in type_table(run, "cell_type", found).caption


def test_where_labels_are_not_surely_farther_no_type_gets_a_share(run):
    types = list(run.cells.obs["cell_type"].cat.categories)
    found = {
        "values": types, "share": [1.0] * 5, "low": [-9.0] * 5, "high": [9.0] * 5, "relevance": [0.1] * 5,
        "out_of_bag": True, "sure": False,
    }  # fmt: skip
    table = type_table(run, "cell_type", found)
    assert {value for row in table.rows for value in row[1:4]} == {None}
    assert "not sure" in table.note
    assert "no cell type can be said to carry" in summary.describe_types(table)
