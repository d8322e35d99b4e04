"""Transport between points without a matrix of costs: the value of `solve`, with its proof."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric.transport import Status, solve, solve_points
from groundmetric.transport import large as descent
from groundmetric.transport.large import grouped, halving_order

METRICS = {"euclidean": "euclidean", "manhattan": "cityblock", "squared": "sqeuclidean"}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """Let also small problems go all the way from groups of groups down to points."""
    monkeypatch.setattr(descent, "DENSE", 15 * 15)
    monkeypatch.setattr(descent, "FEW", 8)


def assert_solved(x, y, a=None, b=None, cost="euclidean", rtol=1e-10):
    """The value of the dense solver, masses that balance, potentials that prove it."""
    costs = cdist(x, y, METRICS[cost])
    plan, exact = solve_points(x, y, a, b, cost=cost), solve(costs, a, b)
    size = np.median(costs) * (1.0 if a is None else np.sum(a))
    assert_allclose(plan.value, exact.value, rtol=rtol, atol=1e-12 * size)
    assert plan.status is Status.OPTIMAL
    assert plan.pivots < 100 * sum(costs.shape)  # rounding makes no pivots
    assert plan.gap <= 1e-9 * plan.value + 1e-11 * size
    a, b = (np.full(len(side), 1 / len(side)) if mass is None else np.asarray(mass) for side, mass in ((x, a), (y, b)))
    assert_allclose(np.bincount(plan.rows, plan.mass, len(x)), a, rtol=1e-9, atol=1e-15 * a.sum())
    assert_allclose(np.bincount(plan.cols, plan.mass, len(y)), b, rtol=1e-9, atol=1e-15 * b.sum())
    assert_allclose(plan.mass @ costs[plan.rows, plan.cols], plan.value, rtol=1e-10, atol=1e-12 * size)
    u, v = plan.potentials
    assert (u[:, None] + v - costs).max() <= 1e-12 * (np.abs(u).max() + np.abs(v).max() + costs.max())
    assert_allclose(a @ u + b @ v, plan.value, rtol=1e-8, atol=1e-11 * costs.max() * a.sum())
    return plan


@pytest.mark.parametrize("cost", METRICS)
@pytest.mark.parametrize("k", [1, 2, 5, 40])
@pytest.mark.parametrize("shape", [(50, 50), (130, 77), (3, 700), (513, 400)])
def test_scattered_points(shape, k, cost):
    rng = np.random.default_rng([*shape, k])
    assert_solved(rng.normal(size=(shape[0], k)), rng.normal(size=(shape[1], k)) + 0.5, cost=cost)


@pytest.mark.parametrize("n", [1000, 2000])
def test_many_points(n):
    rng = np.random.default_rng(n)
    assert_solved(rng.normal(size=(n, 3)), rng.normal(size=(n, 3)) * 2.0)


@pytest.mark.parametrize("shape", [(60, 60), (300, 211)])
def test_masses_of_every_kind(shape):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(size, 3)) for size in shape)
    for a, b in (
        (rng.uniform(0.1, 1.0, shape[0]), rng.uniform(0.1, 1.0, shape[1])),
        (rng.integers(1, 4, shape[0]).astype(float), rng.integers(1, 4, shape[1]).astype(float)),
        (10.0 ** rng.uniform(-12, 0, shape[0]), 10.0 ** rng.uniform(-12, 0, shape[1])),
        (rng.integers(0, 2, shape[0]) + 0.0, rng.integers(0, 3, shape[1]) + 0.0),  # many have none
    ):
        assert_solved(x, y, a / a.sum() * 7.0, b / b.sum() * 7.0)


@pytest.mark.parametrize("cost", METRICS)
def test_points_on_a_lattice_tie(cost):
    rng = np.random.default_rng(0)
    assert_solved(rng.integers(0, 5, (400, 2)), rng.integers(0, 5, (300, 2)), cost=cost)
    grid = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), -1).reshape(-1, 2)
    assert_solved(grid, grid + np.array([3.0, 0.0]), cost=cost)


def test_equal_sides_cost_nothing():
    x = np.random.default_rng(0).normal(size=(500, 4))
    plan = solve_points(x, x[::-1].copy())
    assert plan.value == 0.0
    assert_array_equal(plan.cols, 499 - plan.rows)
    assert plan.status is Status.OPTIMAL


def test_all_points_in_one_place():
    plan = solve_points(np.zeros((200, 2)), np.full((300, 2), [3.0, 4.0]))
    assert_allclose(plan.value, 5.0, rtol=1e-14)
    assert plan.status is Status.OPTIMAL


def test_points_on_a_line_in_space():
    rng = np.random.default_rng(0)
    line = np.array([1.0, 2.0, -2.0]) / 3.0
    s, t = rng.normal(size=400), rng.normal(size=300) + 1.0
    plan = assert_solved(s[:, None] * line, t[:, None] * line)
    assert_allclose(plan.value, solve_points(s[:, None], t[:, None]).value, rtol=1e-10)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_clusters_far_apart(far):
    """Within the clusters the masses balance: the distances between them must not drown those within."""
    rng = np.random.default_rng(0)
    centres = far * rng.normal(size=(5, 3))
    x, y = (rng.normal(size=(400, 3)) + np.repeat(centres, 80, axis=0) for _ in range(2))
    assert_solved(x, y, rtol=1e-8)
    assert_solved(x, np.concatenate([y[:70], y]), rtol=1e-8)


def test_small_steps_far_from_the_origin():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))
    assert_allclose(solve_points(x + 1e6, y + 1e6).value, solve_points(x, y).value, rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_values_scale_with_the_points(scale):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(200, 2))
    assert_allclose(solve_points(x * scale, y * scale).value, scale * solve_points(x, y).value, rtol=1e-10)


def test_float32_and_integers_are_taken_as_they_are():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(200, 3)).astype(np.float32) for _ in range(2))
    assert solve_points(x, y).value == solve_points(x.astype(np.float64), y.astype(np.float64)).value
    assert solve_points([[0, 0]], [[3, 4]]).value == 5.0


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60), st.integers(1, 4), st.booleans(), st.booleans()
)
def test_any_points(seed, n, m, k, lattice, weighted):
    rng = np.random.default_rng(seed)
    draw = (lambda size: rng.integers(-2, 3, size) + 0.0) if lattice else (lambda size: rng.normal(size=size))
    a, b = (rng.integers(1, 5, size) / 1.0 if weighted else np.ones(size) for size in (n, m))
    assert_solved(draw((n, k)), draw((m, k)), a / a.sum(), b / b.sum())


def test_the_basis_starts_the_dense_solver():
    rng = np.random.default_rng(0)
    x, y, a = rng.normal(size=(90, 2)), rng.normal(size=(70, 2)), rng.integers(0, 3, 90)
    plan = solve_points(x, y, a / a.sum(), np.full(70, 1 / 70))
    assert solve(cdist(x, y), a / a.sum(), np.full(70, 1 / 70), start=plan.basis).pivots == 0


def test_a_limit_on_pivots_leaves_a_plan_with_its_gap():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 1.0
    exact = solve_points(x, y).value
    for limit in (0, 10, 300):
        plan = solve_points(x, y, max_pivots=limit)
        assert plan.status is Status.PIVOT_LIMIT
        assert plan.value - plan.gap <= exact * (1 + 1e-12) <= plan.value * (1 + 2e-12)
        assert_allclose(np.bincount(plan.rows, plan.mass, 300), 1 / 300)


@pytest.mark.parametrize("tolerance", [0.5, 0.1, 0.01])
def test_a_tolerance_is_kept(tolerance):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(900, 3)), rng.normal(size=(700, 3)) + 0.2
    exact, plan = solve_points(x, y), solve_points(x, y, tolerance=tolerance)
    assert plan.gap <= tolerance * plan.value
    assert plan.value - plan.gap <= exact.value * (1 + 1e-12)
    assert exact.value <= plan.value * (1 + 1e-12)
    assert plan.pivots < exact.pivots
    assert plan.status in (Status.TOLERANCE, Status.OPTIMAL)
    u, v = plan.potentials
    assert (u[:, None] + v - cdist(x, y)).max() <= 1e-12
    assert_allclose(plan.value - (u.mean() + v.mean()), plan.gap, atol=1e-12)


@given(st.integers(1, 700), st.integers(1, 3), st.integers(0, 10**6))
def test_halving_orders_all_points_and_groups_keep_mass_and_mean(n, k, seed):
    rng = np.random.default_rng(seed)
    points, units = rng.normal(size=(n, k)), rng.integers(1, 9, n)
    order = halving_order(points)
    assert_array_equal(np.sort(order), np.arange(n))
    centres, sums = grouped(points[order], units[order])
    assert sums.sum() == units.sum()
    assert_allclose(sums @ centres, units @ points, atol=1e-9)


def test_runs_of_the_halving_order_are_compact():
    points = np.random.default_rng(0).uniform(size=(4096, 2))
    runs = points[halving_order(points)].reshape(64, 64, 2)
    assert np.ptp(runs, axis=1).max() < 0.3  # 64 cells of width 1/8 in a perfect world


@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        ([[np.nan]], [[0.0]], {}, r"x contains NaN or infinity: nan at \(0, 0\)"),
        ([[0.0]], [[0.0], [np.inf]], {}, r"y contains NaN or infinity: inf at \(1, 0\)"),
        ([0.0, 1.0], [[0.0]], {}, r"x has shape \(2,\): expected \(points, columns\)"),
        (np.empty((0, 2)), [[0.0, 1.0]], {}, r"x has shape \(0, 2\)"),
        ([[0.0]], [[0.0, 1.0]], {}, "x has 1 columns, y has 2"),
        ([["far"]], [["near"]], {}, "x must be numbers"),
        ([[0.0]], [[1.0]], {"cost": "cubed"}, "cost is 'cubed'"),
        ([[0.0]], [[1.0]], {"tolerance": -0.1}, "tolerance is -0.1"),
        ([[0.0]], [[1.0]], {"tolerance": np.nan}, "tolerance is nan"),
        ([[0.0]], [[1.0]], {"a": [1.0], "b": [2.0]}, "masses do not balance"),
        ([[0.0]], [[1.0]], {"a": [-1.0]}, r"a\[0\] is -1.0"),
        ([[0.0]], [[1.0]], {"a": [1.0, 1.0]}, r"a has shape \(2,\)"),
    ],
)
def test_bad_input_is_refused(x, y, more, message):
    with pytest.raises(ValueError, match=message):
        gm.transport.solve_points(x, y, **more)
