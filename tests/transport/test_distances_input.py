"""What distances take, refuse and warn of; cohorts that are large or awkward."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from groundmetric.metrics.base import euclidean

from .cohorts import cohort, search_neighbors


@pytest.fixture
def D():
    return cohort(np.random.default_rng(0), [5, 9, 3], 4)


@pytest.mark.parametrize("function", [gm.pairwise_distances, lambda A, B: gm.kneighbors(A, B, 1)])
def test_other_numbers_of_features_are_refused(D, function):
    other = cohort(np.random.default_rng(0), [5, 9, 3], 5)
    with pytest.raises(ValueError, match="A has 4 features, B has 5"):
        function(D, other)


@pytest.mark.parametrize("n_features", [3, 5])
def test_a_metric_for_other_features_is_refused(D, n_features):
    for metric in (gm.GroundMetric(np.ones((2, n_features))), gm.GroundMetric.euclidean(n_features)):
        with pytest.raises(ValueError, match=f"4 features, but the metric was made for {n_features}"):
            gm.pairwise_distances(D, metric=metric)


def test_features_of_other_names_are_refused():
    A, B = (gm.Distributions(np.eye(2), [0, 1], features=names) for names in (["x", "y"], ["y", "x"]))
    with pytest.raises(ValueError, match="different feature names"):
        gm.pairwise_distances(A, B)


def test_a_metric_with_other_feature_names_is_refused():
    A = gm.Distributions(np.eye(2), [0, 1], features=["x", "y"])
    with pytest.raises(ValueError, match="feature 0 is 'x', the metric has 'y'"):
        gm.pairwise_distances(A, metric=gm.GroundMetric(np.eye(2), ["y", "x"]))
    with pytest.raises(ValueError, match="feature 0 is 'x', the metric has 'y'"):
        gm.pairwise_distances(np.eye(2), A, gm.GroundMetric(np.eye(2), ["y", "x"]))


def test_an_unknown_metric_is_refused(D):
    with pytest.raises(ValueError, match="nonsense"):
        gm.pairwise_distances(D, metric="nonsense")
    for metric in (3, None, np.eye(4)):
        with pytest.raises(TypeError, match=r"(?s)metric is .*expected a GroundMetric"):
            gm.pairwise_distances(D, metric=metric)


def test_an_unknown_solver_is_refused(D):
    with pytest.raises(ValueError, match="solver is 'guess'"):
        gm.pairwise_distances(D, solver="guess")


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_pivot_limit_warns_and_bounds_from_above(metric):
    D = cohort(np.random.default_rng(0), [20, 30, 25], 2)
    with pytest.warns(ConvergenceWarning, match="3 solves stopped at the pivot limit.*max_pivots"):
        stopped = gm.pairwise_distances(D, metric=metric, max_pivots=1)
    assert (stopped >= gm.pairwise_distances(D, metric=metric)).all()


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_pivot_limit_warns_in_the_search_too(metric):
    D = cohort(np.random.default_rng(0), [20, 30, 25], 2)
    with pytest.warns(ConvergenceWarning, match="max_pivots"):
        gm.kneighbors(D, n_neighbors=1, metric=metric, max_pivots=1)


@pytest.mark.parametrize("n_features", [2, 16, 17, 300])
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e8])
def test_point_distances_are_accurate_between_near_duplicates(n_features, offset):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, n_features)) + offset
    y = np.vstack([x[:10], x[10:20] + 1e-3 * rng.normal(size=(10, n_features)), rng.normal(size=(10, n_features))])
    assert_allclose(euclidean(x, y), cdist(x, y), rtol=1e-9)


def test_point_distances_are_accurate_at_every_closeness():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 100))
    y = x + 10.0 ** np.linspace(-15, 1, 60)[:, None] * rng.normal(size=x.shape)
    assert_allclose(euclidean(x, y), cdist(x, y), rtol=1e-9)


def test_distances_are_accurate_far_from_the_origin():
    rng = np.random.default_rng(0)
    for k in (1, 2, 40):
        D = cohort(rng, [5, 9, 3], k)
        lattice = np.round(D.points * 1024) / 1024  # the shift causes no rounding
        near_origin, shifted = (
            gm.Distributions(lattice + shift, np.repeat(D.names, D.sizes)) for shift in (0.0, 2.0**30)
        )
        assert_allclose(gm.pairwise_distances(shifted), gm.pairwise_distances(near_origin), rtol=1e-7)


@pytest.mark.parametrize(("n", "k"), [(600, 1), (600, 2), (80, 40)])
def test_hundreds_of_single_points(n, k):
    x = np.random.default_rng(0).normal(size=(n, k))
    assert_allclose(gm.pairwise_distances(x), cdist(x, x), rtol=1e-9, atol=1e-12)


def test_neighbours_of_queries_among_thousands_of_single_points():
    rng = np.random.default_rng(0)
    x, queries = rng.normal(size=(3000, 2)), rng.normal(size=(40, 2))
    distances, indices, solves = search_neighbors(queries, x, 5)
    expected = cdist(queries, x)
    assert_allclose(distances, np.sort(expected, axis=1)[:, :5], rtol=1e-9)
    assert_allclose(np.take_along_axis(expected, indices, axis=1), distances, rtol=1e-9)
    assert solves < expected.size / 10


def test_thousands_of_tiny_distributions():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 3000)
    D = gm.Distributions(rng.normal(size=(sizes.sum(), 2)), np.repeat(np.arange(3000), sizes))
    distances = gm.pairwise_distances(D[:10], D)
    assert distances.shape == (10, 3000)
    assert_allclose(distances[:, :10], gm.pairwise_distances(D[:10]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_features", [2, 40])
def test_coordinates_whose_squares_leave_the_range_of_numbers_are_refused(n_features):
    points = 1e160 * np.random.default_rng(0).normal(size=(8, n_features))
    D = gm.Distributions(points, np.repeat([0, 1], 4))
    for distances in (gm.pairwise_distances, lambda D: gm.kneighbors(D, n_neighbors=1)):
        with pytest.raises(ValueError, match=r"out of range: divide the points"):
            distances(D)


@pytest.mark.parametrize("scale", [1e-148, 1e148])
def test_coordinates_whose_squares_are_within_the_range_of_numbers_have_distances(scale):
    points = np.random.default_rng(0).normal(size=(8, 2))
    plain, scaled = (gm.pairwise_distances(gm.Distributions(s * points, np.repeat([0, 1], 4))) for s in (1.0, scale))
    assert_allclose(scaled / scale, plain, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("points", "metric"), [(np.full((2, 40), 1e200) * [[1.0], [-1.0]], "euclidean"), (np.ones((3, 4)), "correlation")]
)
def test_single_points_without_a_finite_distance_are_refused(points, metric):
    with pytest.raises(ValueError, match=r"out of range: divide the points|gave nan as a distance"):
        gm.pairwise_distances(points, metric=metric)


@pytest.mark.parametrize("fill_value", [1e14, 1e36, 1e150])
@pytest.mark.parametrize("cost", ["euclidean", "manhattan", "squared"])
@pytest.mark.parametrize("k", [1, 2, 17, 40])
def test_distances_do_not_depend_on_other_distributions(fill_value, cost, k):
    """A fill value in one distribution does not change distances between other distributions."""
    D = cohort(np.random.default_rng(0), [5, 9, 3, 4], k)
    points = D.points.copy()
    points[D.bounds[2] : D.bounds[3]] = fill_value
    spoiled = gm.Distributions(points, np.repeat(D.names, D.sizes))
    metric = gm.GroundMetric(np.eye(k), cost=cost)
    plain = gm.pairwise_distances(D[[0, 1, 3]], metric=metric)
    # Very large coordinates are scaled by a power of two: another optimal plan may result, summed in another order.
    tolerance = {"rtol": 0.0 if fill_value < 1e100 else 1e-15}
    assert_allclose(gm.pairwise_distances(spoiled, metric=metric)[np.ix_([0, 1, 3], [0, 1, 3])], plain, **tolerance)
    distances, indices = gm.kneighbors(spoiled, n_neighbors=1, metric=metric)
    np.fill_diagonal(plain, np.inf)
    assert_allclose(distances[[0, 1, 3], 0], plain.min(axis=1), **tolerance)
    assert_array_equal(indices[[0, 1, 3], 0], np.array([0, 1, 3])[plain.argmin(axis=1)])


@pytest.mark.parametrize("solver", ["partial", "coarse"])
def test_variants_do_not_depend_on_other_distributions(solver):
    D = cohort(np.random.default_rng(0), [5, 9, 3], 2)
    points = D.points.copy()
    points[D.bounds[2] :] = 1e20
    spoiled = gm.Distributions(points, np.repeat(D.names, D.sizes))
    with_fill_value, alone = (
        gm.pairwise_distances(distributions, solver=solver)[0, 1] for distributions in (spoiled, D[:2])
    )
    assert_allclose(with_fill_value, alone, rtol=1e-12)


def test_distances_between_points_beside_one_that_is_far_away():
    x = np.random.default_rng(0).normal(size=(30, 40))
    expected = cdist(x, x)
    x[7] = 1e30
    is_near = np.arange(30) != 7
    assert_allclose(euclidean(x, x)[np.ix_(is_near, is_near)], expected[np.ix_(is_near, is_near)], rtol=1e-9)


def test_a_distribution_that_is_out_of_range_is_named():
    D = gm.Distributions([[0.0], [1.0], [1e200]], ["ann", "bob", "zoe"])
    with pytest.raises(ValueError, match=r"distribution 'zoe' reach 1.0e\+200"):
        gm.pairwise_distances(D)


class Own(gm.GroundMetric):
    """Metric that returns `bad_value` as the distance from the point 0."""

    bad_value = -1.0

    def distances(self, x, y=None):
        distances = super().distances(x, y)
        distances[(x == 0).all(axis=1)] = self.bad_value
        return distances


@pytest.mark.parametrize("solver", ["exact", "partial"])
@pytest.mark.parametrize("bad_value", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("size", [1, 3])
def test_bad_distances_of_a_metric_name_the_distribution(solver, bad_value, size):
    points = np.random.default_rng(0).normal(size=(3 * size, 2))
    points[size] = 0.0
    D = gm.Distributions(points, np.repeat(["ann", "bob", "zoe"], size))
    metric = Own(np.eye(2))
    metric.bad_value = bad_value
    options = {"share": 0.5} if solver == "partial" else {}
    with pytest.raises(ValueError, match=rf"'bob'.*metric Own.* gave {bad_value:g} as a distance"):
        gm.pairwise_distances(D, metric=metric, solver=solver, **options)
    with pytest.raises(ValueError, match="'bob'"):
        gm.kneighbors(D, n_neighbors=1, metric=metric)
    with pytest.raises(ValueError, match="'bob'"):
        gm.pairwise_distances(D, metric=metric.blend(gm.GroundMetric.euclidean(2)))


def test_a_constant_point_has_no_correlation():
    points = np.random.default_rng(0).normal(size=(9, 4))
    points[4] = 2.0
    D = gm.Distributions(points, np.repeat(["ann", "bob", "zoe"], 3))
    with pytest.raises(ValueError, match=r"distribution 'bob': metric 'correlation' gave nan .*left out"):
        gm.pairwise_distances(D, metric="correlation")
    assert gm.pairwise_distances(D[[0, 2]], metric="correlation")[0, 1] > 0
