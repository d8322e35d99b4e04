"""Matrices of distances between distributions."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

import groundmetric as gm

from .cohorts import ALL_WEIGHTS, block, cohort
from .problems import oracle

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 6))
METRIC = gm.GroundMetric(W)


def by_pot(A, B, point_distances):
    values = np.empty((len(A), len(B)))
    for d, e in np.ndindex(values.shape):
        (x, a), (y, b) = block(A, d), block(B, e)
        values[d, e] = oracle(point_distances(x, y), a, b)
    return values


def mahalanobis(x, y):
    return cdist(x @ W.T, y @ W.T)


METRICS = {
    "euclidean": ("euclidean", cdist),
    "cityblock": ("cityblock", lambda x, y: cdist(x, y, "cityblock")),
    "cosine": ("cosine", lambda x, y: cdist(x, y, "cosine")),
    "ground": (METRIC, mahalanobis),
    "one component": (gm.GroundMetric(W[:1]), lambda x, y: cdist(x @ W[:1].T, y @ W[:1].T)),
    "many components": (gm.GroundMetric(np.vstack(12 * [W])), lambda x, y: np.sqrt(12) * mahalanobis(x, y)),
    "zero": (gm.GroundMetric(0 * W), lambda x, y: 0 * cdist(x, y)),
    "blend": (
        METRIC.blend(gm.GroundMetric.euclidean(6), 0.3),
        lambda x, y: 0.7 * mahalanobis(x, y) + 0.3 * cdist(x, y),
    ),
}


@pytest.fixture(params=ALL_WEIGHTS)
def cohorts(request):
    rng = np.random.default_rng(1)
    return tuple(cohort(rng, sizes, 6, request.param) for sizes in ([1, 9, 4, 12], [7, 1, 5]))


@pytest.mark.parametrize(("metric", "point_distances"), METRICS.values(), ids=METRICS)
def test_distances_are_those_of_pot(cohorts, metric, point_distances):
    A, B = cohorts
    assert_allclose(gm.pairwise_distances(A, B, metric), by_pot(A, B, point_distances), rtol=1e-9)
    assert_allclose(gm.pairwise_distances(A, metric=metric), by_pot(A, A, point_distances), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("metric", "_"), METRICS.values(), ids=METRICS)
def test_distances_within_a_cohort_are_symmetric_and_zero_on_the_diagonal(cohorts, metric, _):
    distances = gm.pairwise_distances(cohorts[0], metric=metric)
    assert distances.shape == (4, 4)
    assert_array_equal(distances, distances.T)
    assert_array_equal(np.diag(distances), 0.0)


@pytest.mark.parametrize(("metric", "_"), METRICS.values(), ids=METRICS)
def test_two_threads_give_the_same_bits_as_one(cohorts, metric, _):
    one, two = (gm.pairwise_distances(*cohorts, metric, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert_array_equal(one, two)


@pytest.mark.parametrize("k", [1, 2])
def test_two_threads_give_the_same_bits_for_large_distributions(k):
    D = cohort(np.random.default_rng(0), [250, 300, 280, 320, 290, 310, 270, 330], k)
    assert_array_equal(gm.pairwise_distances(D, n_jobs=1), gm.pairwise_distances(D, n_jobs=2))


def test_the_shape_is_that_of_the_cohorts(cohorts):
    A, B = cohorts
    assert gm.pairwise_distances(A, B).shape == (4, 3)
    assert gm.pairwise_distances(A[[0]], B).shape == (1, 3)
    assert_array_equal(gm.pairwise_distances(A[[0]]), [[0.0]])


def test_rows_of_an_array_are_distributions_of_one_point():
    x, y = RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))
    assert_allclose(gm.pairwise_distances(x, y), cdist(x, y), rtol=1e-12)
    assert_allclose(gm.pairwise_distances(x), cdist(x, x), rtol=1e-12)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", "blend", "ground"])
@pytest.mark.parametrize("n_features", [6, 60])
def test_sparse_points_give_the_distances_of_dense_ones(kind, metric, n_features):
    points = np.random.default_rng(0).poisson(0.6, (20, n_features)).astype(float)
    points[:, 0] += 1  # no point without direction
    groups = np.repeat([0, 1, 2, 3], 5)
    if metric in METRICS and not isinstance(METRICS[metric][0], str):
        learned = gm.GroundMetric(RNG.normal(size=(3, n_features)))
        metric = learned if metric == "ground" else learned.blend(gm.GroundMetric.euclidean(n_features), 0.3)
    dense, thin = gm.Distributions(points, groups), gm.Distributions(kind(points), groups)
    expected = gm.pairwise_distances(dense, metric=metric)
    assert_allclose(gm.pairwise_distances(thin, metric=metric), expected, rtol=1e-9)
    assert_allclose(gm.pairwise_distances(thin, dense, metric), gm.pairwise_distances(dense, dense, metric), atol=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", METRIC], ids=str)
def test_float32_points_give_nearly_the_distances_of_float64(metric):
    D = cohort(np.random.default_rng(0), [5, 9, 1, 12], 6, "both")
    single = gm.Distributions(D.points.astype(np.float32), np.repeat(D.names, D.sizes), weights=D.weights)
    assert single.points.dtype == np.float32
    distances = gm.pairwise_distances(single, metric=metric)
    assert distances.dtype == np.float64
    assert_allclose(distances, gm.pairwise_distances(D, metric=metric), rtol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@pytest.mark.parametrize("k", [1, 2, 40])
def test_points_without_weight_are_ignored(metric, k):
    D = cohort(np.random.default_rng(0), [5, 9, 3], k, "both")
    order = np.argsort(np.append(np.repeat(D.names, D.sizes), [0, 1, 1]), kind="stable")
    points = np.vstack([D.points, np.full((3, k), 1e6)])[order]
    groups = np.append(np.repeat(D.names, D.sizes), [0, 1, 1])[order]
    more = gm.Distributions(points, groups, weights=np.append(D.weights, [0.0, 0.0, 0.0])[order])
    assert_allclose(gm.pairwise_distances(more, metric=metric), gm.pairwise_distances(D, metric=metric), rtol=1e-12)


def test_scale_of_the_weights_does_not_matter():
    D = cohort(np.random.default_rng(0), [5, 9, 3], 2, "random")
    groups = np.repeat(D.names, D.sizes)
    scaled = gm.Distributions(D.points, groups, weights=D.weights * np.array([3.0, 1e-9, 1e9])[groups])
    assert_allclose(gm.pairwise_distances(scaled), gm.pairwise_distances(D), rtol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_distances_between_single_points_are_those_of_the_points(metric):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 40)), rng.normal(size=(20, 40))
    np.testing.assert_allclose(gm.pairwise_distances(x, y, metric), cdist(x, y, metric), rtol=1e-9)
    np.testing.assert_allclose(gm.pairwise_distances(x, metric=metric), cdist(x, x, metric), rtol=1e-9, atol=1e-12)


def test_an_empty_cohort_is_refused():
    D = gm.Distributions(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="no distributions"):
        gm.pairwise_distances(D[[]])


def test_memory_does_not_grow_with_the_bases_of_all_pairs():
    many = gm.Distributions(RNG.normal(size=(5600, 2)), np.repeat(np.arange(280), 20))
    tracemalloc.start()
    try:
        gm.pairwise_distances(many)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 15 * 2**20  # 9 MB; with the bases of all pairs 30 MB
