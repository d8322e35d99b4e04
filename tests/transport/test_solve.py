"""One problem at a time: the value, the plan and the proof that comes with it."""

from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric.transport import Status

from .problems import COSTS, MASSES, planted, problem

# 16 columns are scanned at a time, or 64, so the sizes around these matter.
SHAPES = [(1, 1), (1, 9), (9, 1), (6, 6), (8, 12), (17, 5), (20, 64), (33, 65), (70, 129)]
CASES = [(costs, masses, shape) for costs in COSTS for masses in MASSES for shape in SHAPES]


def plan_matrix(plan, shape):
    matrix = np.zeros(shape)
    np.add.at(matrix, (plan.rows, plan.cols), plan.mass)
    return matrix


def assert_marginals(plan, task):
    matrix = plan_matrix(plan, task.cost.shape)
    total = task.a.sum()
    assert (plan.mass > 0).all()
    assert_allclose(matrix.sum(axis=1), task.a, rtol=1e-9, atol=1e-15 * total)
    assert_allclose(matrix.sum(axis=0), task.b, rtol=1e-9, atol=1e-15 * total)


def assert_feasible(potentials, cost):
    u, v = potentials
    assert (u[:, None] + v - cost).max() <= 1e-9 * np.abs(cost).max()


def assert_proved(plan, task):
    """Assert that the plan ships the masses, `value` is its cost, and the potentials prove it optimal."""
    u, v = plan.potentials
    assert plan.status is Status.OPTIMAL
    assert_marginals(plan, task)
    assert_feasible((u, v), task.cost)
    assert_allclose(plan.mass @ task.cost[plan.rows, plan.cols], plan.value, rtol=1e-12, atol=1e-14 * task.scale)
    assert_allclose(task.a @ u + task.b @ v, plan.value, rtol=1e-9, atol=1e-12 * task.scale)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2][0]}x{case[2][1]}")
def task(request):
    return problem(*request.param)


@pytest.fixture(scope="module")
def plan(task):
    return gm.transport.solve(task.cost, task.a, task.b)


def test_value_is_the_oracle_s(task, plan):
    assert_allclose(plan.value, task.value, rtol=1e-9, atol=1e-13 * task.scale)


def test_plan_comes_with_its_proof(task, plan):
    assert_proved(plan, task)


def test_plan_is_sparse_and_names_every_arc_once(task, plan):
    n, m = np.count_nonzero(task.a), np.count_nonzero(task.b)
    assert plan.mass.size <= n + m - 1
    assert len(set(zip(plan.rows, plan.cols, strict=True))) == plan.mass.size


@pytest.mark.parametrize("total", [1e-300, 1e-9, 1e-3, 7.5, 1e6, 1e300])
@pytest.mark.parametrize("masses", ["equal", "random", "some zero"])
def test_total_mass_need_not_be_one(masses, total):
    task = problem("plane", masses, (12, 17), total)
    plan = gm.transport.solve(task.cost, task.a, task.b)
    assert_allclose(plan.value, task.value, rtol=1e-9)
    assert_proved(plan, task)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 4), (30, 41), (90, 60)])
@pytest.mark.parametrize("slack", [1.0, 1e-6])
def test_planted_answer_is_found(shape, slack):
    for seed in range(5):
        task = planted(np.random.default_rng(seed), *shape, slack)
        plan = gm.transport.solve(task.cost, task.a, task.b)
        assert_allclose(plan.value, task.value, rtol=1e-9, atol=1e-12 * task.scale)
        assert_proved(plan, task)


@pytest.mark.parametrize("barred", [1e3, 1e6, 1e9, 1e12, 1e15])
def test_a_large_number_bars_an_arc_and_costs_no_precision(barred):
    for seed in range(20):
        task = planted(np.random.default_rng(seed), 25, 30, barred=barred)
        plan = gm.transport.solve(task.cost, task.a, task.b)
        u, v = plan.potentials
        assert plan.optimal
        assert task.cost[plan.rows, plan.cols].max() < barred
        assert_allclose(plan.value, task.value, rtol=1e-9, atol=1e-9)
        assert_allclose(task.a @ u + task.b @ v, task.value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("costs", COSTS)
def test_many_sizes_against_the_oracle(costs):
    for seed in range(20):
        n, m = np.random.default_rng(seed).integers(1, 25, 2)
        task = problem(costs, "random" if seed % 2 else "equal", (int(n), int(m)), seed=seed)
        plan = gm.transport.solve(task.cost, task.a, task.b)
        assert_allclose(plan.value, task.value, rtol=1e-9, atol=1e-13 * task.scale)
        assert_proved(plan, task)


def test_masses_default_to_equal_ones_of_sum_one():
    task = problem("plane", "equal", (6, 10))
    plan, explicit = gm.transport.solve(task.cost), gm.transport.solve(task.cost, task.a, task.b)
    assert plan.value == explicit.value
    assert_array_equal(plan.mass, explicit.mass)
    assert_allclose(plan.mass.sum(), 1.0)


def test_one_side_may_have_default_masses():
    task = problem("plane", "equal", (6, 10))
    b = np.arange(1.0, 11.0) / 55
    assert gm.transport.solve(task.cost, b=b).value == gm.transport.solve(task.cost, task.a, b).value


def test_assignment_of_a_permuted_set_is_the_permutation():
    rng = np.random.default_rng(0)
    x, order = rng.normal(size=(50, 3)), rng.permutation(50)
    cost = np.linalg.norm(x[:, None] - x[order], axis=2)
    plan = gm.transport.solve(cost)
    assert plan.value == 0.0
    assert_array_equal(order[plan.cols], plan.rows)


def test_zero_masses_neither_send_nor_receive():
    task = problem("plane", "some zero", (12, 15))
    plan = gm.transport.solve(task.cost, task.a, task.b)
    assert (task.a[plan.rows] > 0).all()
    assert (task.b[plan.cols] > 0).all()


def test_costs_of_points_without_mass_do_not_matter():
    task = problem("plane", "some zero", (12, 15))
    changed = task.cost.copy()
    changed[task.a == 0] = -1e6
    changed[:, task.b == 0] = 1e6
    plan = gm.transport.solve(changed, task.a, task.b)
    assert plan.value == gm.transport.solve(task.cost, task.a, task.b).value
    assert_feasible(plan.potentials, changed)


def test_equal_masses_ship_exact_fractions():
    plan = gm.transport.solve(problem("plane", "equal", (6, 9)).cost)
    units = plan.mass * 18
    assert_allclose(units, np.rint(units), rtol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_costs_over_200_orders_of_magnitude_are_solved_exactly(seed):
    """Against every plan there is, in rational arithmetic."""
    cost = 10.0 ** np.random.default_rng(seed).uniform(-100, 100, (5, 5))
    exact = [[Fraction(entry) for entry in row] for row in cost.tolist()]
    least = min(sum(row[j] for row, j in zip(exact, order, strict=True)) for order in permutations(range(5))) / 5
    plan = gm.transport.solve(cost)
    assert plan.optimal
    assert plan.value == pytest.approx(float(least), rel=1e-12)


def least_cost(cost, plan):
    """Relative to the plan's: cycles that gain are cancelled in whole numbers until none is left (Bellman, Ford)."""
    (n, m), nodes = cost.shape, sum(cost.shape)
    prices = [[int(Fraction(entry) * 2**1100) for entry in row] for row in cost.tolist()]
    shipped = dict.fromkeys(((i, j) for i in range(n) for j in range(m)), 0)
    for i, j, mass in zip(plan.rows.tolist(), plan.cols.tolist(), plan.mass.tolist(), strict=True):
        shipped[i, j] = round(mass * n * m)
    first = sum(prices[i][j] * units for (i, j), units in shipped.items())

    def cycle():
        arcs = [(i, n + j, prices[i][j]) for i, j in shipped]
        arcs += [(n + j, i, -prices[i][j]) for (i, j), units in shipped.items() if units]
        lengths, before = [0] * nodes, [-1] * nodes
        for _ in range(nodes):
            changed = -1
            for x, y, price in arcs:
                if lengths[x] + price < lengths[y]:
                    lengths[y], before[y], changed = lengths[x] + price, x, y
            if changed < 0:
                return []
        for _ in range(nodes):
            changed = before[changed]
        path = [before[changed], changed]
        while path[0] != changed:
            path.insert(0, before[path[0]])
        return list(pairwise(path))

    while steps := cycle():
        units = min(shipped[y, x - n] for x, y in steps if x >= n)
        for x, y in steps:
            shipped[(x, y - n) if x < n else (y, x - n)] += units if x < n else -units
    return float(Fraction(sum(prices[i][j] * units for (i, j), units in shipped.items()), first))


@pytest.mark.parametrize(("decades", "seed"), [(100, 0), (150, 2), (150, 18), (200, 4), (300, 7), (300, 13)])
def test_what_is_called_optimal_is_however_many_orders_of_magnitude_costs_span(decades, seed):
    rng = np.random.default_rng(seed)
    cost = 10.0 ** rng.uniform(-decades, decades, rng.integers(2, 30, 2))
    plan = gm.transport.solve(cost)
    assert plan.optimal
    assert least_cost(cost, plan) == pytest.approx(1.0, rel=1e-12)


def test_costs_over_too_many_orders_of_magnitude_are_not_called_optimal():
    """One of two among 3000 such problems in which rounding hides whether the last pivot gains."""
    rng = np.random.default_rng(16)
    plan = gm.transport.solve(10.0 ** rng.uniform(-300, 300, rng.integers(2, 30, 2)))
    assert plan.status is gm.transport.Status.IMPRECISE
    assert not plan.optimal


def test_masses_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match="sum is infinite"):
        gm.transport.solve(np.ones((2, 2)), [1e308, 1e308], [1e308, 1e308])


def test_a_value_far_below_the_potentials_is_still_proved():
    """Nearly all mass stays where it is; the rest, 10⁻¹² of it, travels as far as any cost."""
    cost = np.array([[0.0], [0.3], [0.5], [0.02], [0.66]])
    a = np.array([1.0, 1e-12, 1e-12, 1e-12, 1e-12])
    plan = gm.transport.solve(cost, a, [a.sum()])
    assert plan.status is Status.OPTIMAL
    assert_allclose(plan.value, a @ cost[:, 0], rtol=1e-6)
