"""Starting from an earlier basis, and stopping early."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import groundmetric as gm
from groundmetric.transport import Status
from groundmetric.transport import problem as units

from .problems import problem
from .test_solve import assert_feasible, assert_marginals, assert_proved


def moved(task, amount, seed=1):
    rng = np.random.default_rng(seed)
    return task.cost + amount * rng.normal(size=task.cost.shape)


@pytest.mark.parametrize("masses", ["equal", "random", "multiples", "1e-12", "some zero", "all but one zero"])
@pytest.mark.parametrize("amount", [1e-6, 0.01, 10.0])
def test_warm_start_gives_the_cold_value(masses, amount):
    task = problem("plane", masses, (30, 41))
    basis = gm.transport.solve(task.cost, task.a, task.b).basis
    for seed in range(5):
        cost = moved(task, amount, seed)
        warm = gm.transport.solve(cost, task.a, task.b, start=basis)
        assert_allclose(warm.value, gm.transport.solve(cost, task.a, task.b).value, rtol=1e-12)
        basis = warm.basis


def test_small_changes_need_fewer_pivots_than_a_cold_start():
    task = problem("plane", "equal", (60, 60))
    basis = gm.transport.solve(task.cost).basis
    cost = moved(task, 1e-3)
    assert gm.transport.solve(cost, start=basis).pivots < gm.transport.solve(cost).pivots


@pytest.mark.parametrize("costs", ["plane", "integers", "equal", "duplicates"])
@pytest.mark.parametrize("masses", ["equal", "random", "some zero"])
def test_start_is_not_modified(costs, masses):
    task = problem(costs, masses, (15, 20))
    start = gm.transport.solve(task.cost, task.a, task.b).basis
    before = repr(astuple(start))
    assert gm.transport.solve(moved(task, 1.0), task.a, task.b, start=start).pivots > 0
    assert repr(astuple(start)) == before


def test_later_changes_to_a_plan_leave_its_basis_alone():
    task = problem("plane", "random", (15, 20))
    plan = gm.transport.solve(task.cost, task.a, task.b)
    before = repr(astuple(plan.basis))
    for array in (*plan.potentials, plan.rows, plan.cols, plan.mass):
        array[:] = 99
    assert repr(astuple(plan.basis)) == before


@pytest.mark.parametrize("costs", ["plane", "integers", "equal", "duplicates"])
@pytest.mark.parametrize("masses", ["equal", "random", "multiples"])
def test_basis_is_strongly_feasible(costs, masses):
    """An arc without flow points towards the root, which is what rules out cycling: it starts at a source."""
    for seed in range(5):
        task = problem(costs, masses, (24, 36), seed=seed)
        plan = gm.transport.solve(task.cost, task.a, task.b)
        parent, n = plan.basis.parent, task.a.size
        shipped = set(zip(plan.rows.tolist(), (n + plan.cols).tolist(), strict=True))
        for node in range(n, parent.size - 1):
            assert (parent[node], node) in shipped


def test_start_from_an_unfinished_plan_reaches_the_optimum():
    task = problem("plane", "random", (30, 30))
    unfinished = gm.transport.solve(task.cost, task.a, task.b, max_pivots=5)
    plan = gm.transport.solve(task.cost, task.a, task.b, start=unfinished.basis)
    assert_proved(plan, task)
    assert_allclose(plan.value, task.value, rtol=1e-9)


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (6, 4), (5, 7)])
def test_start_of_another_size_is_refused(shape):
    start = gm.transport.solve(np.ones(shape)).basis
    with pytest.raises(ValueError, match=rf"start is a basis of {shape[0]} × {shape[1]} .* has 5 × 6"):
        gm.transport.solve(np.ones((5, 6)), start=start)


def test_start_of_other_masses_is_refused():
    cost = np.array([[0.0, 1.0], [1.0, 0.0]])
    start = gm.transport.solve(cost, [0.9, 0.1], [0.5, 0.5]).basis
    with pytest.raises(ValueError, match="start does not fit these masses"):
        gm.transport.solve(cost, [0.1, 0.9], [0.5, 0.5], start=start)


def test_start_of_equal_masses_is_refused_where_they_are_not():
    task = problem("plane", "random", (8, 8))
    start = gm.transport.solve(task.cost).basis
    with pytest.raises(ValueError, match="start does not fit these masses"):
        gm.transport.solve(task.cost, task.a, task.b, start=start)


def test_start_with_other_points_without_mass_is_refused():
    cost = np.ones((2, 2))
    start = gm.transport.solve(cost, [1.0, 0.0], [0.5, 0.5]).basis
    with pytest.raises(ValueError, match="start is a basis of 1 × 2"):
        gm.transport.solve(cost, start=start)


def test_start_that_is_no_tree_is_refused():
    start = gm.transport.solve(np.ones((1, 1))).basis
    loop = replace(start, parent=np.array([1, 0, -1], start.parent.dtype))
    with pytest.raises(ValueError, match="start"):
        gm.transport.solve(np.ones((1, 1)), start=loop)


def broken(**changes):
    """The basis of a 3 × 4 problem with entries or whole arrays replaced."""
    start = solve_basis()
    arrays = {}
    for name, change in changes.items():
        arrays[name] = change(getattr(start, name).copy())
    return replace(start, **arrays)


def solve_basis():
    return gm.transport.solve(problem("plane", "equal", (3, 4)).cost).basis


def entry(index, value):
    def change(array):
        array[index] = value
        return array

    return change


BROKEN = {
    "floats": ({"parent": lambda p: p.astype(float)}, "start.parent has dtype float64"),
    "index too large": (
        {"parent": entry(0, 10**6)},
        r"parent\[0\] is 1000000: the parent of a source is from 3 to 7",
    ),
    "index negative": ({"parent": entry(4, -7)}, r"start.parent\[4\] is -7: the parent of a sink is from 0 to 2"),
    "sink below the root": ({"parent": entry(5, 7)}, r"start.parent\[5\] is 7"),
    "source below a source": ({"parent": entry(0, 1)}, r"start.parent\[0\] is 1"),
    "root below a node": ({"parent": entry(7, 0)}, r"start.parent\[7\] is 0: expected -1 for the root"),
    "cycle": ({"parent": lambda p: np.array([3, 4, 5, 0, 1, 2, 0, -1], p.dtype)}, "start.parent is not a tree"),
    "too short": ({"parent": lambda p: p[1:]}, "start is a basis of 3 × 3"),
    "two dimensions": ({"parent": lambda p: p.reshape(2, 4)}, "start is a basis of"),
    "potential too short": ({"potential": lambda v: v[1:]}, r"start.potential has shape \(7,\)"),
    "potential whole": ({"potential": lambda v: v.astype(int)}, "start.potential has shape .* and dtype int64"),
    "potential NaN": ({"potential": entry(2, np.nan)}, r"start.potential\[2\] is nan"),
    "potential infinite": ({"potential": entry(0, -np.inf)}, r"start.potential\[0\] is -inf"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_basis_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        gm.transport.solve(problem("plane", "equal", (3, 4)).cost, start=broken(**changes))


def test_a_start_that_is_no_basis_is_refused():
    with pytest.raises(TypeError, match="start is a list: expected the `basis` of a plan"):
        gm.transport.solve(np.ones((1, 1)), start=[0, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64])
def test_parents_of_any_integer_type_are_taken(dtype):
    start = broken(parent=lambda p: p.astype(dtype))
    assert gm.transport.solve(problem("plane", "equal", (3, 4)).cost, start=start).pivots == 0


@pytest.mark.parametrize("level", [1e20, 1e300, -1e308])
def test_levels_that_are_out_of_place_do_no_harm(level):
    task = problem("plane", "equal", (3, 4))
    plan = gm.transport.solve(task.cost, start=broken(potential=entry(slice(0, 2), level)))
    assert_proved(plan, task)


@pytest.mark.parametrize("masses", ["equal", "random", "multiples", "some zero"])
def test_very_many_sources_are_solved_the_other_way_round(masses, monkeypatch):
    task = problem("plane", masses, (170, 5))
    plain = gm.transport.solve(task.cost, task.a, task.b)
    monkeypatch.setattr(units, "_MANY", 20)
    plan = gm.transport.solve(task.cost, task.a, task.b)
    assert_proved(plan, task)
    assert_allclose(plan.value, plain.value, rtol=1e-12)
    assert gm.transport.solve(task.cost, task.a, task.b, start=plan.basis).pivots == 0
    assert gm.transport.solve(task.cost, task.a, task.b, start=plain.basis).pivots == 0
    moved_cost = moved(task, 0.01)
    warm = gm.transport.solve(moved_cost, task.a, task.b, start=plan.basis)
    cold = gm.transport.solve(moved_cost, task.a, task.b)
    assert_allclose(warm.value, cold.value, rtol=1e-12)
    monkeypatch.undo()
    assert gm.transport.solve(task.cost, task.a, task.b, start=plan.basis).pivots == 0


@pytest.mark.parametrize("masses", ["equal", "random", "1e-12", "some zero"])
@pytest.mark.parametrize("limit", [0, 1, 7])
def test_pivot_limit_gives_a_feasible_plan_and_bounds(masses, limit):
    task = problem("plane", masses, (40, 50))
    plan = gm.transport.solve(task.cost, task.a, task.b, max_pivots=limit)
    u, v = plan.potentials
    assert plan.status is Status.PIVOT_LIMIT
    assert not plan.optimal
    assert plan.pivots == limit
    assert_marginals(plan, task)
    assert_feasible((u, v), task.cost)
    assert task.a @ u + task.b @ v <= task.value * (1 + 1e-12)
    assert plan.value > task.value
    assert_allclose(plan.mass @ task.cost[plan.rows, plan.cols], plan.value, rtol=1e-12)


def test_value_never_rises_with_more_pivots():
    task = problem("plane", "random", (20, 20))
    needed = gm.transport.solve(task.cost, task.a, task.b).pivots
    plans = [gm.transport.solve(task.cost, task.a, task.b, max_pivots=limit) for limit in range(needed + 2)]
    values = np.array([plan.value for plan in plans])
    assert (np.diff(values) <= 1e-15).all()
    assert plans[-1].optimal
    assert not plans[needed // 2].optimal


def test_status_says_what_to_do():
    assert "max_pivots" in Status.PIVOT_LIMIT.value
