"""pertpy's machinery with the exact Wasserstein distance, against known answers and the package itself."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.spatial.distance import cdist

import groundmetric as gm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # those of its dependencies
    pytest.importorskip("pertpy", reason="pertpy is not installed: `make test-extras` installs it")
    from groundmetric.integrations.pertpy import ExactWasserstein, TransportDistance, TransportDistanceTest
from anndata import AnnData
from pertpy.tools import Distance
from pertpy.tools._distances._distances import AbstractDistance

GROUPS = ["none", "weak", "strong", "control"]  # in no order of their names
SHIFTS = dict(zip(GROUPS, [0.0, 3.0, 6.0, 0.0], strict=True))


@pytest.fixture
def cells():
    """Twelve cells of each group, moved along the first of three axes."""
    group = np.repeat(GROUPS, 12)
    points = np.random.RandomState(0).normal(size=(group.size, 3))
    points[:, 0] += [SHIFTS[name] for name in group]
    return AnnData(points, obs={"guide": group}, obsm={"X_pca": points}, layers={"scaled": points * 2.0})


def of(adata, name):
    return adata.obsm["X_pca"][adata.obs["guide"] == name]


def test_a_common_shift_costs_its_length():
    X = np.random.RandomState(0).normal(size=(30, 4))
    assert_allclose(ExactWasserstein()(X, X + np.array([3.0, 0.0, 4.0, 0.0])), 5.0, rtol=1e-12)


def test_it_is_a_distance_of_pertpy():
    assert isinstance(ExactWasserstein(), AbstractDistance)
    assert isinstance(TransportDistance(), Distance)


def test_the_ground_metric_is_the_one_given(cells):
    X, Y = of(cells, "control"), of(cells, "strong")
    metric = gm.GroundMetric([[0.5, 0.0, 0.0]])
    alone = np.abs(np.sort(X[:, 0]) - np.sort(Y[:, 0])).mean()  # in one dimension transport is a sort
    assert_allclose(ExactWasserstein(metric)(X, Y), 0.5 * alone, rtol=1e-12)
    assert_allclose(ExactWasserstein("cityblock")(X[:, :1], Y[:, :1]), alone, rtol=1e-12)


def test_options_go_to_the_solver(cells):
    X, Y = of(cells, "control"), of(cells, "strong")
    half = ExactWasserstein(solver="partial", share=0.5)(X, Y)
    assert half == ExactWasserstein()(X, Y, solver="partial", share=0.5)
    assert half < ExactWasserstein()(X, Y)


def test_distances_between_cells_give_the_same_as_the_cells(cells):
    X, Y = of(cells, "weak"), of(cells, "strong")[:7]
    combined = np.vstack([X, Y])
    first = np.arange(len(combined)) < len(X)
    distance = ExactWasserstein()
    assert_allclose(distance.from_precomputed(cdist(combined, combined), first), distance(X, Y), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_an_error(cells, bad):
    X, Y = of(cells, "weak"), of(cells, "strong")
    P, first = cdist(np.vstack([X, Y]), np.vstack([X, Y])), np.arange(24) < 12
    X[2, 1] = bad
    with pytest.raises(ValueError, match=f"{bad} at row 2, feature 1, of distribution 'X'"):
        TransportDistance()(X, Y)
    P[3, 20] = bad
    with pytest.raises(ValueError, match=rf"{bad} at \(3, 8\)"):
        ExactWasserstein().from_precomputed(P, first)


def test_pairwise_is_the_matrix_of_groundmetric(cells):
    table = TransportDistance().pairwise(cells, groupby="guide", show_progressbar=False)
    D = gm.Distributions(cells.obsm["X_pca"], cells.obs["guide"])
    assert list(table.index) == list(table.columns) == D.names
    assert_allclose(table.to_numpy(), gm.pairwise_distances(D), rtol=1e-12)
    scaled = TransportDistance(layer_key="scaled").pairwise(cells, groupby="guide", show_progressbar=False)
    assert_allclose(scaled.to_numpy(), 2.0 * table.to_numpy(), rtol=1e-12)


def test_a_sparse_layer_is_the_same_as_a_dense_one(cells):
    cells.layers["sparse"] = sparse.csr_matrix(cells.layers["scaled"])
    dense, result = (
        TransportDistance(layer_key=key).pairwise(cells, groupby="guide", show_progressbar=False)
        for key in ("scaled", "sparse")
    )
    assert_allclose(result, dense, rtol=1e-12)


def test_onesided_distances_are_a_row_of_the_pairwise_ones(cells):
    distance = TransportDistance()
    row = distance.onesided_distances(cells, groupby="guide", selected_group="control", show_progressbar=False)
    table = distance.pairwise(cells, groupby="guide", show_progressbar=False)
    assert_allclose(row, table["control"], rtol=1e-12)
    assert row["none"] < row["weak"] < row["strong"]


def test_the_bootstrap_has_a_mean_near_the_distance_and_a_variance(cells):
    X, Y = of(cells, "control"), of(cells, "strong")
    result = TransportDistance().bootstrap(X, Y, n_bootstrap=20, random_state=0)
    assert_allclose(result.mean, TransportDistance()(X, Y), atol=1.0)
    assert 0.0 < result.variance < 1.0


@pytest.mark.parametrize("categories", [None, ["strong", "control", "weak", "none"]])
def test_the_permutation_test_finds_the_group_that_differs(cells, categories):
    if categories is not None:
        cells.obs["guide"] = pd.Categorical(cells.obs["guide"], categories)
    test = TransportDistanceTest(TransportDistance(), n_perms=60)
    table = test(cells, groupby="guide", contrast="control", show_progressbar=False)
    assert_allclose(table.loc["strong", "distance"], TransportDistance()(of(cells, "strong"), of(cells, "control")))
    assert table.loc["strong", "pvalue"] == 1 / 60  # the minimum
    assert table.loc["none", "pvalue"] > 0.05


def test_the_test_says_what_it_needs():
    with pytest.raises(TypeError, match="expected a TransportDistance"):
        TransportDistanceTest("wasserstein")
    with pytest.raises(ValueError, match="layer_key 'counts', but pertpy's test reads cells from obsm"):
        TransportDistanceTest(TransportDistance(layer_key="counts"))
