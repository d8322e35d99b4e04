"""Genes are marked, cells are drawn, and raw counts are noticed."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc

import groundmetric as gm
from groundmetric._internal.validation import ParameterError

RAW = r"adata\.X holds whole numbers, which look like raw counts"


def test_the_rule_of_the_paper_marks_genes_and_copies_nothing(cohort):
    matrix = cohort.X
    assert gm.pp.select_genes(cohort) is None
    variance = cohort.X.toarray().astype(float).var(axis=0)
    assert np.array_equal(cohort.var["selected_genes"], variance > variance.mean())
    assert cohort.uns["selected_genes"]["method"] == "variance"
    assert cohort.X is matrix


def test_the_rule_works_in_backed_mode(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    gm.pp.select_genes(backed, key_added="mine")
    gm.pp.select_genes(cohort)
    assert np.array_equal(backed.var["mine"], cohort.var["selected_genes"])
    backed.file.close()


@pytest.mark.parametrize("layer", [None, "counts"])
def test_the_advice_for_raw_counts_works_and_keeps_the_counts(cohort, layer):
    cohort.X = counts = cohort.layers["counts"].copy()
    with pytest.warns(UserWarning, match="raw counts") as caught:
        gm.pp.select_genes(cohort, layer=layer)
    with pytest.warns(UserWarning, match="raw counts"):
        gm.tl.learn(cohort, "sample", "condition", layer=layer, n_members=1, kinds=["univariate"])
    for line in str(caught[0].message).splitlines()[1:]:
        exec(line.strip(), {"adata": cohort, "sc": sc})
    gm.pp.select_genes(cohort, layer="log1p" if layer is None else "counts_log1p")  # without a warning
    for matrix in (cohort.X, cohort.layers["counts"]):
        assert (matrix != counts).nnz == 0


def test_subsample_cuts_in_place_or_copies(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    by_columns = cohort.copy()
    by_columns.X = by_columns.X.tocsc()
    by_columns.write_h5ad(tmp_path / "by_columns.h5ad")
    part = gm.pp.subsample(cohort, "sample", 40, random_state=3, copy=True)
    sizes = cohort.obs["sample"].value_counts()
    assert part.obs["sample"].value_counts().to_dict() == sizes.clip(upper=40).to_dict()
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match="copy=True"):
        gm.pp.subsample(backed, "sample", 40)
    from_file = gm.pp.subsample(backed, "sample", 40, random_state=3, copy=True)
    backed.file.close()
    backed = ad.read_h5ad(tmp_path / "by_columns.h5ad", backed="r")
    stored_by_columns = gm.pp.subsample(backed, "sample", 40, random_state=3, copy=True)
    backed.file.close()
    assert gm.pp.subsample(cohort, "sample", 40, random_state=3) is None
    for drawn in (part, from_file, stored_by_columns):
        pd.testing.assert_frame_equal(drawn.obs, cohort.obs)
        pd.testing.assert_frame_equal(drawn.var, cohort.var)
        assert (cohort.X != drawn.X).nnz == 0
        assert (cohort.layers["counts"] != drawn.layers["counts"]).nnz == 0
    assert gm.pp.subsample(cohort, "sample", 10_000) is None
    assert cohort.n_obs == part.n_obs


@pytest.mark.parametrize("function", [gm.pp.select_genes, gm.pp.subsample, gm.pp.spatial])
def test_a_path_is_refused_with_the_remedy(function):
    with pytest.raises(TypeError, match=r"adata is a str: .* anndata\.read_h5ad\(path\)"):
        function("cells.h5ad", *([] if function is gm.pp.select_genes else ["sample"]))


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "many"])
def test_impossible_numbers_of_cells(cohort, n):
    with pytest.raises(ParameterError) as caught:
        gm.pp.subsample(cohort, "sample", n)
    assert (caught.value.parameter, caught.value.value) == ("n", n)
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", n_cells=n)
    assert (caught.value.parameter, caught.value.value) == ("n_cells", n)


def tissue(n=12, side=8, turn=False, seed=0):
    """Slides with the same cells of two types at the same places: sorted into halves, or mixed."""
    random = np.random.default_rng(seed)
    kind = np.arange(side * side) % 2
    expression = np.where(kind[:, None] == 1, 3.0, 0.0) * [1.0, 0.0, 0.0] + random.normal(size=(side * side, 3))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2).astype(float)
    blocks, coordinates = [], []
    for k in range(n):
        half = grid[:, 0] < side / 2 if k % 2 else random.permutation(kind) == 0
        where = np.empty_like(grid)
        where[kind == 0], where[kind == 1] = (random.permutation(grid[mask]) for mask in (half, ~half))
        angle = random.uniform(0, 2 * np.pi) if turn else 0.0
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        blocks.append(expression)
        coordinates.append(where @ rotation.T * random.uniform(1, 100) + random.uniform(-1e3, 1e3, 2))
    sample = np.repeat([f"slide{k}" for k in range(n)], side * side)
    sorted_ = np.repeat(np.array(["mixed", "sorted"])[np.arange(n) % 2], side * side)
    obs = pd.DataFrame({"sample": sample, "tissue": sorted_}, index=[f"c{k}" for k in range(sample.size)])
    adata = ad.AnnData(np.vstack(blocks), obs=obs)
    adata.obsm["spatial"] = np.vstack(coordinates)
    return adata


def slides(adata, weight, **options):
    gm.pp.spatial(adata, "sample", weight=weight, **options)
    return gm.Distributions(adata.obsm["X_spatial"], adata.obs["sample"].to_numpy())


def left_out(D, y):
    """Accuracy of the nearest other slide."""
    distances = gm.pairwise_distances(D) + np.diag(np.full(len(D), np.inf))
    return np.mean(y[distances.argmin(axis=1)] == y)


def test_the_same_cells_in_another_arrangement_are_told_apart_by_space_alone():
    adata, y = tissue(), np.arange(12) % 2
    assert gm.pairwise_distances(slides(adata, 0.0)).max() < 1e-9
    D = slides(adata, 0.3)
    distances = gm.pairwise_distances(D)
    between = distances[np.ix_(y == 0, y == 1)].mean()
    assert between > 1.3 * distances[np.ix_(y == 1, y == 1)].sum() / 30
    assert left_out(D, y) > 0.9


def test_neighbourhoods_describe_the_arrangement_of_rotated_slides():
    adata, y = tissue(16, turn=True), np.arange(16) % 2
    assert left_out(slides(adata, 0.5, n_neighbors=6), y) == 1.0
    ensemble = gm.GroundMetricEnsemble(4, kinds=["univariate", "anova"], random_state=0)
    space = ensemble.fit(gm.Distributions(adata.obsm["X_spatial"], adata.obs["sample"].to_numpy()), y)
    assert np.mean(space.held_out_.argmax(axis=1) == y) == 1.0
    assert space.importances_.mean(axis=0)[3:].sum() > 0.8  # means of neighbours
    assert space.metric_.importance().argmax() == 3  # in the gene of the types


def test_a_learner_finds_the_weight_of_coordinates():
    adata, y = tissue(), np.arange(12) % 2
    D = slides(adata, 0.3)
    learner = gm.GroundMetricLearner(2, init="random", max_epochs=40, random_state=0).fit(D[:8], y[:8])
    importance = learner.metric_.importance()
    assert importance[[0, 3]].sum() > 0.8  # the gene of the types, and the direction that sorts them
    nearest, new = learner.distances(D[8:], D[:8]), y[8:]
    assert np.array_equal(y[nearest.argmin(axis=1)], new)


def test_space_goes_with_a_representation_or_with_marked_genes():
    adata = tissue(4)
    adata.obsm["X_pca"] = adata.X[:, :2]
    gm.pp.spatial(adata, "sample", use_rep="X_pca", key_added="X_both")
    assert adata.obsm["X_both"].shape == (256, 4)
    assert adata.uns["X_both"] == {"weight": 0.2, "use_rep": "X_pca", "spatial_key": "spatial", "n_values": 2}
    adata.var["selected_genes"] = [True, False, True]
    gm.pp.spatial(adata, "sample", n_neighbors=3)
    assert adata.obsm["X_spatial"].shape == (256, 4)
    assert adata.uns["X_spatial"]["n_neighbors"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -0.1}, "weight is -0.1: expected a number of at least 0"),
        ({"weight": 1.5}, "weight is 1.5: expected a number of at least 0 and at most 1"),
        ({"n_neighbors": 0}, "n_neighbors is 0"),
        ({"spatial_key": "X_spatial"}, "spatial_key is 'X_spatial', but obsm has no such entry: there are 'spatial'"),
        ({"use_rep": "X_pca"}, "use_rep is 'X_pca', but obsm has no such entry"),
        ({"use_rep": "spatial", "layer": "log"}, "which excludes layer"),
        ({"spatial_key": "line"}, r"has shape \(128, 1\): expected \(n_cells, 2 or 3\)"),
        ({"spatial_key": "hole"}, "NaN or infinity for 1 of 128 cells, e.g. in row 7"),
    ],
)
def test_invalid_options_of_spatial_are_refused(options, message):
    adata = tissue(2)
    if "spatial_key" in options and options["spatial_key"] != "X_spatial":
        coordinates = adata.obsm["spatial"]
        adata.obsm["line"] = coordinates[:, :1]
        adata.obsm["hole"] = np.where(np.arange(128)[:, None] == 7, np.nan, coordinates)
    with pytest.raises(ValueError, match=message):
        gm.pp.spatial(adata, "sample", **options)


def test_spatial_warns_about_raw_counts(cohort):
    cohort.X = np.random.default_rng(0).poisson(0.5, cohort.shape).astype(float)
    cohort.obsm["spatial"] = np.random.default_rng(0).uniform(size=(cohort.n_obs, 2))
    with pytest.warns(UserWarning, match=RAW):
        gm.pp.spatial(cohort, "sample")
