"""Ground costs: every one is filled, priced, bounded and differentiated as its formula says."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from groundmetric import Distributions, GroundMetric, kneighbors, pairwise_distances
from groundmetric._internal.parallel import Threads
from groundmetric.metrics.base import Cost
from groundmetric.transport import _core
from groundmetric.transport.pairs import pair_transport
from groundmetric.transport.problem import Masses

FORMULA = {Cost.EUCLIDEAN: "euclidean", Cost.MANHATTAN: "cityblock", Cost.SQUARED: "sqeuclidean"}
each_cost = pytest.mark.parametrize("cost", list(Cost), ids=lambda cost: cost.name.lower())
# 101 and 103: beyond the number of components from which constant ones are left out.
each_width = pytest.mark.parametrize("k", [1, 2, 5, 33, 101, 103])


def all_costs(x, y, cost):
    costs = np.empty((len(x), len(y)))
    _core.fill_costs(x, y, cost, costs)
    return costs


def cohort(k, *, seed=0, n=6):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n), random.integers(3, 12, n))
    points = random.normal(size=(groups.size, k)) + random.normal(size=(n, k))[groups]
    return Distributions(points, groups, weights=random.random(groups.size))


def placed(D, cost, **options):
    first, second = np.triu_indices(len(D), 1)
    pairs = pair_transport(Masses.of(D), first, second, D.shape[1], cost=cost, threads=Threads(1), **options)
    pairs.move_all(D.points)
    return pairs, np.arange(first.size)


@each_cost
@each_width
def test_costs_follow_their_formula(cost, k):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(7, k)), random.normal(size=(5, k))
    x[:, -1] = y[:, -1] = 0.0  # a component that nothing uses
    out = all_costs(x, y, int(cost))
    assert_allclose(out, cdist(x, y, FORMULA[cost]), rtol=1e-13)
    assert_allclose(cost.between(x, y), out, rtol=1e-12)


@each_cost
def test_sparse_points_cost_what_dense_ones_do(cost):
    x = np.random.default_rng(0).poisson(0.5, (6, 40)).astype(float)
    assert_allclose(cost.between(sparse.csr_matrix(x), sparse.csr_matrix(x)), cdist(x, x, FORMULA[cost]), atol=1e-12)


def test_where_no_component_is_used_all_costs_are_zero():
    assert_array_equal(all_costs(np.zeros((2, 40)), np.zeros((3, 40)), 0), np.zeros((2, 3)))


@each_cost
@each_width
def test_values_are_those_of_pot(cost, k):
    D = cohort(k)
    distances = pairwise_distances(D, metric=GroundMetric(np.eye(k), cost=cost))
    blocks = [slice(low, high) for low, high in zip(D.bounds[:-1], D.bounds[1:], strict=True)]
    for d, e in [(0, 1), (2, 5)]:
        costs = cdist(D.points[blocks[d]], D.points[blocks[e]], FORMULA[cost])
        assert distances[d, e] == pytest.approx(ot.emd2(D.weights[blocks[d]], D.weights[blocks[e]], costs), rel=1e-9)


@each_cost
@each_width
def test_the_pull_is_the_slope_of_the_value(cost, k):
    D = cohort(k, n=3)
    pairs, selected = placed(D, cost)
    coefficient = np.array([1.0, -2.0, 0.5])
    pairs.solve(selected)
    pull, step = pairs.pull(selected, coefficient), 1e-6
    for row, column in [(0, 0), (4, k - 1), (len(D.points) - 1, k // 2)]:
        values = []
        for sign in (1, -1):
            moved = D.points.copy()
            moved[row, column] += sign * step
            pairs.move_all(moved)
            values.append(coefficient @ pairs.solve(selected))
        assert pull[row, column] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)


@each_cost
@pytest.mark.parametrize("k", [1, 2, 5])
def test_bounds_bracket_the_values_while_points_move(cost, k):
    D = cohort(k)
    pairs, selected = placed(D, cost)
    pairs.solve(selected)
    random, useful = np.random.default_rng(0), 0
    for size in (1e-3, 0.03, 0.5):
        pairs.move_all(D.points + size * random.normal(size=D.points.shape))
        lower, upper, (fresh, _) = pairs.lower(selected), pairs.upper(selected), placed(D, cost)
        fresh.move_all(pairs._points.z)
        exact = fresh.solve(selected)
        assert (lower <= exact * (1 + 1e-12)).all()
        assert (exact <= upper * (1 + 1e-12)).all()
        useful += np.sum(lower > 0.9 * exact)
    assert useful > 0


@each_cost
@pytest.mark.parametrize("k", [1, 3, 40])
def test_neighbours_are_those_of_all_distances(cost, k):
    D, metric = cohort(k, n=14), GroundMetric(np.eye(k), cost=cost)
    distances = pairwise_distances(D, metric=metric)
    np.fill_diagonal(distances, np.inf)
    nearest, indices = kneighbors(D, n_neighbors=3, metric=metric)
    assert_array_equal(indices, np.argsort(distances, axis=1)[:, :3])
    assert_allclose(nearest, np.sort(distances, axis=1)[:, :3], rtol=1e-10)


@pytest.mark.parametrize("k", [2, 5])
def test_roots_of_squared_values_obey_the_triangle_inequality(k):
    root = np.sqrt(pairwise_distances(cohort(k, n=8), metric=GroundMetric(np.eye(k), cost="squared")))
    assert (root[:, None, :] <= root[:, :, None] + root[None] + 1e-12).all()


def test_an_unknown_cost_is_refused():
    with pytest.raises(ValueError, match=r"cost is 'cubic': expected one of \['euclidean', 'manhattan', 'squared'\]"):
        GroundMetric(np.eye(2), cost="cubic")
