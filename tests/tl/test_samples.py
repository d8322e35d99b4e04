"""tl.samples and tl.trajectory: a row per sample, ready for scanpy."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy.stats import spearmanr

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.tl.samples import _distances, pseudotime, set_neighbors


@pytest.fixture(scope="module")
def table(learned):
    return gm.tl.samples(learned)


def test_distances_are_those_of_the_learned_metric(learned, table):
    metric = gm.get.metric(learned)
    drawn = learned[learned.obs["groundmetric_sampled"], metric.features]
    D = gm.Distributions(drawn.X, drawn.obs["sample"], features=metric.features)
    assert table.obs_names.tolist() == D.names
    expected = gm.pairwise_distances(D.equalize(), metric=metric)
    np.testing.assert_allclose(table.obsp["groundmetric_in_sample"], expected, rtol=1e-9)
    np.testing.assert_array_equal(table.obsm["X_groundmetric_distances"], table.obsp["groundmetric_distances"])


def test_pairs_of_training_samples_are_compared_out_of_bag(learned, table):
    entry = learned.uns["groundmetric"]["ensemble"]
    assert entry["samples"].tolist() == table.obs_names.tolist()
    result = table.obsp["groundmetric_distances"]
    assert table.uns["groundmetric"]["out_of_bag"]
    np.testing.assert_allclose(result.mean(), table.obsp["groundmetric_in_sample"].mean())
    np.testing.assert_allclose(result / result.mean(), entry["out_of_bag"] / entry["out_of_bag"].mean())
    assert table.obs["groundmetric_held_out"].tolist() == entry["predicted"].tolist()
    np.testing.assert_array_equal(table.obs["groundmetric_held_out_probability"], entry["held_out"].max(axis=1))


def test_samples_that_were_not_learned_from_have_the_distances_of_the_metric(cohort):
    cohort.obs["partial"] = cohort.obs["condition"].astype(object).where(cohort.obs["sample"] != "S03")
    with pytest.warns(UserWarning, match="samples without a label in .*: 1 of 10"):
        gm.tl.learn(cohort, "sample", "partial", n_cells=30, n_members=2)
    table = gm.tl.samples(cohort)
    new = table.obs_names.get_loc("S03")
    in_sample, distances = table.obsp["groundmetric_distances"], table.obsp["groundmetric_in_sample"]
    np.testing.assert_array_equal(in_sample[new], distances[new])
    training = np.delete(np.arange(10), new)
    assert not np.allclose(in_sample[np.ix_(training, training)], distances[np.ix_(training, training)])
    assert table.obs["groundmetric_held_out"].isna().tolist() == (table.obs_names == "S03").tolist()


def test_a_single_learner_has_no_distances_out_of_bag(learned_by_one):
    table = gm.tl.samples(learned_by_one)
    assert "groundmetric_in_sample" not in table.obsp
    assert not table.uns["groundmetric"]["out_of_bag"]
    assert "groundmetric_held_out" not in table.obs


def test_means_of_genes_of_a_layer_in_a_file(cohort, tmp_path):
    cohort.layers["log1p"], cohort.X = cohort.X, cohort.layers["counts"]
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    options = {"layer": "log1p", "n_cells": 30, "n_members": 1, "kinds": ["univariate"]}
    from_file, in_memory = (
        gm.tl.samples(gm.tl.learn(source, "sample", "condition", **options))
        for source in (tmp_path / "cells.h5ad", cohort)
    )
    np.testing.assert_allclose(from_file.X, in_memory[:, from_file.var_names].X, rtol=1e-6)


def test_the_order_of_cells_makes_no_difference(learned, table):
    mixed = learned[np.random.default_rng(0).permutation(learned.n_obs)].copy()
    result = gm.tl.samples(mixed)
    assert result.obs_names.tolist() == mixed.obs["sample"].unique().tolist() != table.obs_names.tolist()
    reordered = result[table.obs_names]
    np.testing.assert_allclose(
        reordered.obsp["groundmetric_distances"], table.obsp["groundmetric_distances"], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(reordered.X, table.X, rtol=1e-6)
    assert reordered.obs["n_cells"].equals(table.obs["n_cells"])
    assert reordered.obs["condition"].equals(table.obs["condition"])
    assert reordered.obsm["cell_types"].equals(table.obsm["cell_types"])


def test_what_is_the_same_for_all_cells_of_a_sample_is_carried_over(learned, table):
    held_out_columns = {"groundmetric_held_out", "groundmetric_held_out_probability"}
    assert set(table.obs) == {"sample", "patient", "condition", "batch", "n_cells"} | held_out_columns
    sizes = learned.obs["sample"].value_counts()
    assert table.obs["n_cells"].to_dict() == sizes.to_dict()
    assert table.obs["condition"].dtype == learned.obs["condition"].dtype
    counts = pd.crosstab(learned.obs["sample"], learned.obs["cell_type"])
    assert table.obsm["cell_types"]["B|plasma"].tolist() == counts.loc[table.obs_names, "B/plasma"].tolist()
    assert (table.obsm["cell_types"].sum(axis=1) == table.obs["n_cells"]).all()


def test_the_number_of_cells_is_that_of_the_file_whatever_was_drawn(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    options = {"n_members": 1, "kinds": ["univariate"]}
    part = gm.tl.learn(tmp_path / "cells.h5ad", "sample", "condition", n_cells=20, **options)
    sizes = cohort.obs["sample"].value_counts().to_dict()
    assert part.obs["sample"].value_counts().max() == 20 < min(sizes.values())
    part.write_h5ad(tmp_path / "part.h5ad")
    for result in (gm.tl.samples(part), gm.tl.samples(tmp_path / "part.h5ad")):
        assert result.obs["n_cells"].to_dict() == sizes
    by_patient = gm.tl.samples(part, sample_key="patient").obs["n_cells"]
    assert by_patient.to_dict() == part.obs["patient"].value_counts().to_dict()


def test_values_are_means_of_the_drawn_cells(learned, table):
    drawn = learned[learned.obs["groundmetric_sampled"], table.var_names]
    expected = drawn.to_df().groupby(drawn.obs["sample"], observed=True).mean().loc[table.obs_names]
    np.testing.assert_allclose(table.X, expected, rtol=1e-5)
    assert table.var_names.tolist() == gm.get.metric(learned).features


@pytest.mark.parametrize(("n", "k"), [(20, 15), (40, 7), (8, 7), (5, 2)])
def test_the_graph_is_the_one_that_scanpy_would_make(n, k):
    z = np.random.default_rng(n).normal(size=(n, 3))
    distances = np.linalg.norm(z[:, None] - z, axis=2)
    mine, theirs = (ad.AnnData(obs=pd.DataFrame(index=[str(i) for i in range(n)])) for _ in range(2))
    theirs.obsm["X_distances"] = distances
    sc.pp.neighbors(theirs, k, use_rep="X_distances", metric="precomputed", transformer="sklearn")
    set_neighbors(mine, distances, k, "X_distances")
    assert mine.uns["neighbors"] == theirs.uns["neighbors"]
    np.testing.assert_array_equal(mine.obsp["distances"].toarray(), theirs.obsp["distances"].toarray())
    np.testing.assert_allclose(
        mine.obsp["connectivities"].toarray(), theirs.obsp["connectivities"].toarray(), atol=1e-5
    )


def test_samples_that_coincide_make_a_graph():
    mine = ad.AnnData(obs=pd.DataFrame(index=list("abcd")))
    set_neighbors(mine, np.zeros((4, 4)), 3, "X")
    assert np.isfinite(mine.obsp["connectivities"].data).all()


def test_scanpy_runs_on_it_as_it_is(table, capsys):
    table = table.copy()
    sc.tl.umap(table)
    sc.tl.leiden(table, flavor="igraph", n_iterations=2, directed=False)
    sc.tl.diffmap(table, n_comps=5)
    table.uns["iroot"] = 0
    sc.tl.dpt(table, n_dcs=5)
    assert table.obsm["X_umap"].shape == (10, 2)
    assert np.isfinite(table.obs["dpt_pseudotime"]).all()
    assert pd.crosstab(table.obs["leiden"], table.obs["condition"]).gt(0).sum(axis=1).eq(1).all()
    assert not any("WARNING" in text for text in capsys.readouterr())


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_it_survives_files(table, suffix, tmp_path, write_zarr):
    path = tmp_path / f"samples{suffix}"
    table.write_h5ad(path) if suffix == ".h5ad" else write_zarr(table, path)
    back = ad.read_h5ad(path) if suffix == ".h5ad" else ad.read_zarr(path)
    np.testing.assert_array_equal(back.obsp["groundmetric_distances"], table.obsp["groundmetric_distances"])
    assert back.obsm["cell_types"].equals(table.obsm["cell_types"])
    gm.tl.trajectory(back, "control")


def test_it_can_be_made_from_a_file(learned, table, tmp_path):
    learned.write_h5ad(tmp_path / "cells.h5ad")
    reordered = gm.tl.samples(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(reordered.obsp["groundmetric_distances"], table.obsp["groundmetric_distances"])
    np.testing.assert_allclose(reordered.X, table.X, rtol=1e-12)


def test_results_without_values_can_be_compared_too(learned, table):
    bare = ad.AnnData(obs=learned.obs, obsm=dict(learned.obsm), uns=dict(learned.uns))
    result = gm.tl.samples(bare, n_neighbors=4)
    np.testing.assert_array_equal(result.obsp["groundmetric_distances"], table.obsp["groundmetric_distances"])
    assert result.X is None
    assert result.uns["neighbors"]["params"]["n_neighbors"] == 4


def test_another_column_of_samples_and_of_types(trained):
    trained.obs["half"] = np.where(np.arange(trained.n_obs) % 2, "odd", "even")
    table = gm.tl.samples(trained, sample_key="half", cell_type_key="condition")
    assert table.obs_names.tolist() == ["even", "odd"]
    assert table.obsm["cell_types"].columns.tolist() == ["control", "disease"]
    assert "neighbors" not in table.uns  # two samples make no graph
    with pytest.raises(ParameterError) as caught:
        gm.tl.samples(trained, cell_type_key="kind")
    assert (caught.value.parameter, caught.value.value) == ("cell_type_key", "kind")
    with pytest.raises(ParameterError) as caught:
        gm.tl.samples(trained, n_neighbors=1)
    assert (caught.value.parameter, caught.value.value) == ("n_neighbors", 1)
    with pytest.raises(ParameterError) as caught:
        gm.tl.samples(trained, n_landmarks=0)
    assert (caught.value.parameter, caught.value.value) == ("n_landmarks", 0)


def test_samples_without_drawn_cells_are_named(trained):
    trained.obs["groundmetric_sampled"] &= trained.obs["sample"] != "S03"
    with pytest.raises(ValueError, match="sample 'S03' lacks drawn cells"):
        gm.tl.samples(trained)


def test_results_of_samples_are_not_cells(table, trained):
    for function in (gm.tl.samples, gm.get.metric, gm.tl.cell_relevance):
        with pytest.raises(ValueError, match="adata has a row per sample and no metric: give the cells"):
            function(table.copy())
    del trained.obs["groundmetric_sampled"]
    with pytest.raises(ValueError, match=r"adata lacks .* obs\['groundmetric_sampled'\]: run tl\.learn"):
        gm.tl.samples(trained)


def test_cells_that_nothing_was_learned_on(cohort):
    with pytest.raises(ValueError, match=r"no metric in uns\['groundmetric'\]: run tl\.learn first"):
        gm.tl.samples(cohort)


def test_stages_of_a_disease_come_in_their_order():
    cohort = gm.datasets.make_cohort(
        5, 50, 120, conditions=["well", "mild", "severe"], cell_types=["A", "B"], n_markers=5, n_programme_genes=15,
        programme_strength=3.0, batch_strength=0.0, random_state=0,
    )  # fmt: skip
    gm.tl.learn(cohort, "sample", "condition", max_epochs=15, n_members=4)
    table = gm.tl.samples(cohort)
    gm.tl.trajectory(table, "well")
    stage = table.obs["condition"].map({"well": 0, "mild": 1, "severe": 2}).astype(int)
    assert spearmanr(table.obs["groundmetric_pseudotime"], stage).statistic > 0.85
    root = table.uns["groundmetric_pseudotime"]["root"]
    assert table.obs.loc[root, "groundmetric_pseudotime"] == 0.0
    assert table.obs.loc[root, "condition"] == "well"
    gm.tl.trajectory(table, root, key_added="again")
    np.testing.assert_array_equal(table.obs["again"], table.obs["groundmetric_pseudotime"])


def test_roots_that_cannot_be(table, learned):
    with pytest.raises(
        ValueError, match=r"root is 'contrl', which is neither a sample nor a label: there are 'control'"
    ):
        gm.tl.trajectory(table.copy(), "contrl")
    with pytest.raises(ValueError, match=r"pass the AnnData that tl\.samples returns"):
        gm.tl.trajectory(learned, "control")


def test_pseudotime_along_a_line_is_the_order_on_it():
    position = np.sort(np.random.default_rng(0).uniform(0, 10, 40))
    time = pseudotime(np.abs(position[:, None] - position), 0, 5)
    assert time[0] == 0.0
    assert time.max() == 1.0
    assert spearmanr(time, position).statistic > 0.999


def test_pseudotime_follows_a_bend_rather_than_the_straight_way():
    angle = np.linspace(0, 1.8 * np.pi, 60)  # nearly a circle: the end is near the start
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    time = pseudotime(np.linalg.norm(z[:, None] - z, axis=2), 0, 3)
    assert spearmanr(time, angle).statistic > 0.99


def test_pseudotime_bridges_any_gap():
    position = np.concatenate([np.linspace(0, 1, 10), np.linspace(1e4, 1e4 + 1, 10)])
    time = pseudotime(np.abs(position[:, None] - position), 0, 3)
    assert np.isfinite(time).all()
    assert time[:10].max() < time[10:].min()


def test_distances_of_many_samples_are_interpolated_from_landmarks():
    random = np.random.default_rng(0)
    points = random.normal(size=(300, 1, 3)) + 0.3 * random.normal(size=(300, 4, 3))
    cells = gm.Distributions(list(points))
    landmarks, distances = _distances(cells, 60, None, 0)
    exact = gm.pairwise_distances(cells)
    assert landmarks.size == 60
    np.testing.assert_allclose(distances[:, landmarks], exact[:, landmarks])
    assert np.corrcoef(distances.ravel(), exact.ravel())[0, 1] > 0.97
    landmarks, distances = _distances(cells[:20], 60, None, 0)
    np.testing.assert_allclose(distances, exact[:20, :20], rtol=1e-12)
    assert landmarks.size == 20
