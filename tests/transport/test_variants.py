"""Variants of transport between costs: known answers, and convergence to exact transport at the limit of an option."""

import subprocess
import sys

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric.transport import POT, Status

from .problems import problem

CASES = [("plane", "equal", (9, 12)), ("plane", "random", (20, 15)), ("duplicates", "multiples", (12, 12)),
         ("integers", "some zero", (14, 9)), ("huge", "random", (11, 8)), ("tiny", "random", (8, 11)),
         ("plane", "random", (1, 7)), ("plane", "equal", (1, 1)), ("zero", "random", (5, 4))]  # fmt: skip


@pytest.fixture(params=CASES, ids=str)
def task(request):
    return problem(*request.param)


def solve(task, solver, **options):
    return gm.transport.solve(task.cost, task.a, task.b, solver=solver, **options)


def marginals(plan, task):
    sent, received = np.zeros(task.a.size), np.zeros(task.b.size)
    np.add.at(sent, plan.rows, plan.mass)
    np.add.at(received, plan.cols, plan.mass)
    return sent, received


def paid(plan, task):
    return plan.mass @ task.cost[plan.rows, plan.cols]


def near(task, rtol=1e-9):
    return {"rtol": rtol, "atol": rtol * (task.scale or 1.0)}


def assert_potentials_feasible(plan, task):
    u, v = plan.potentials
    assert (u[:, None] + v <= task.cost + 1e-9 * (1e-9 + np.abs(task.cost).max())).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_partial_transport_is_that_of_pot(task, share):
    plan = solve(task, "partial", share=share)
    scale = task.cost.max() or 1.0  # POT is at its best with costs of size 1
    expected = scale * ot.partial.partial_wasserstein2(task.a, task.b, task.cost / scale, m=share)
    assert_allclose(plan.value, expected, **near(task, 1e-7))
    assert_allclose(plan.mass.sum(), share, rtol=1e-9)
    sent, received = marginals(plan, task)
    assert (sent <= task.a + 1e-12).all()
    assert (received <= task.b + 1e-12).all()
    assert_allclose(paid(plan, task), plan.value, **near(task))
    assert plan.bounds[0] <= plan.value == plan.bounds[1]
    assert_allclose(plan.gap, 0.0, **near(task))
    assert_potentials_feasible(plan, task)


def test_all_of_the_mass_is_exact_transport(task):
    assert_allclose(solve(task, "partial", share=1).value, task.value, **near(task))


def test_partial_value_grows_with_the_share(task):
    values = [solve(task, "partial", share=share).value for share in (0.2, 0.5, 0.8, 1.0)]
    assert (np.diff(values) >= -1e-9 * task.scale).all()


def test_partial_transport_between_unequal_masses_moves_a_share_of_the_smaller():
    task = problem("plane", "random", (9, 12))
    plan = gm.transport.solve(task.cost, 3.0 * task.a, task.b, solver="partial", share=0.5)
    expected = ot.partial.partial_wasserstein2(3.0 * task.a, task.b, task.cost, m=0.5)
    assert_allclose(plan.value, expected, rtol=1e-7)


def test_partial_leaves_the_outlier():
    cost = cdist([[0.0], [1.0], [1000.0]], [[0.5], [1.5], [2.0]])
    plan = gm.transport.solve(cost, solver="partial", share=2 / 3)
    assert_allclose(plan.value, 1 / 3, rtol=1e-9)
    assert set(plan.rows) == {0, 1}


def by_pot_with_a_dummy(task, a, b, price):
    """Mass may be created and destroyed at a price: POT with a point on each side that takes all."""
    wider = np.pad(task.cost, ((0, 1), (0, 1)), constant_values=price)
    wider[-1, -1] = 0.0
    scale = wider.max()
    total = a.sum() + b.sum()
    masses = np.append(a, b.sum()) / total, np.append(b, a.sum()) / total
    return scale * total * ot.emd2(*masses, wider / scale, numItermax=10**6)


@pytest.mark.parametrize("factor", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("more", [1.0, 1.7, 0.4])
def test_unbalanced_transport_is_that_of_pot_with_a_dummy(task, factor, more):
    price = factor * (task.cost.mean() or 1.0)
    a = more * task.a
    plan = gm.transport.solve(task.cost, a, task.b, solver="unbalanced", price=price)
    assert_allclose(plan.value, by_pot_with_a_dummy(task, a, task.b, price), **near(task, 1e-7))
    destroyed = a.sum() + task.b.sum() - 2 * plan.mass.sum()
    assert_allclose(plan.value, paid(plan, task) + price * destroyed, **near(task))
    assert_potentials_feasible(plan, task)
    u, v = plan.potentials
    assert_allclose(a @ u + task.b @ v, plan.value, **near(task))


def test_a_high_price_is_exact_transport(task):
    price = 2.0 * (task.cost.max() or 1.0)
    assert_allclose(solve(task, "unbalanced", price=price).value, task.value, **near(task))


def test_unbalanced_and_partial_meet_at_the_price_of_the_last_unit():
    task = problem("plane", "random", (20, 15))
    tv = solve(task, "unbalanced", price=0.4)
    moved = tv.mass.sum()
    assert 0.1 < moved < 0.99
    partial = solve(task, "partial", share=moved)
    assert_allclose(partial.value + 0.4 * 2 * (1 - moved), tv.value, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
@pytest.mark.parametrize("function", [ot.solve, ot.sinkhorn])
def test_bounds_around_pot_hold_the_exact_value(task, function, epsilon):
    scale = task.cost.max() or 1.0
    options = {"warn": False, "method": "sinkhorn_log"} if function is ot.sinkhorn else {"max_iter": 100_000}
    plan = solve(task, POT(function, reg=epsilon * scale, **options))
    rounding = 1e-9 * task.scale
    assert plan.bounds[0] - rounding <= task.value <= plan.bounds[1] + rounding
    assert (plan.solver, plan.status) == ("pot", Status.APPROXIMATE)
    if function is ot.sinkhorn:
        assert_allclose(paid(plan, task), plan.value, **near(task))


def test_potentials_of_pot_make_the_bounds_tight():
    task = problem("plane", "random", (20, 15))
    gaps = [np.diff(solve(task, POT(ot.solve, reg=reg)).bounds)[0] for reg in (0.3, 0.1, 0.05)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.1 * task.value


def test_plan_and_value_are_those_of_pot():
    task = problem("plane", "random", (20, 15))
    plan = solve(task, POT(ot.sinkhorn, reg=0.1, stopThr=1e-12))
    matrix = np.zeros(task.cost.shape)
    matrix[plan.rows, plan.cols] = plan.mass
    expected = ot.sinkhorn(task.a, task.b, task.cost, 0.1, stopThr=1e-12)
    assert_allclose(matrix, expected, atol=1e-12)
    result = ot.solve(task.cost, task.a, task.b, unbalanced=1.0, unbalanced_type="KL")
    kl = solve(task, POT(ot.solve, unbalanced=1.0, unbalanced_type="KL"))
    assert_allclose(kl.value, result.value)
    assert_allclose(kl.mass.sum(), result.plan.sum())
    assert kl.bounds[0] <= task.value <= kl.bounds[1]


def test_numbers_out_of_range_are_an_error():
    with pytest.raises(FloatingPointError):
        solve(problem("plane", "equal", (9, 12)), POT(lambda M, a, b: np.nan))


def test_points_without_mass_are_left_out():
    task = problem("plane", "random", (20, 15))
    cost = np.vstack([task.cost, task.cost.mean(axis=0)])
    solver = POT(ot.sinkhorn, reg=0.1)
    plan = gm.transport.solve(cost, np.append(task.a, 0.0), task.b, solver=solver)
    assert_allclose(plan.value, solve(task, solver).value, rtol=1e-12)


def test_functions_and_options_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="no option 'epsilon'"):
        POT(ot.solve, epsilon=0.1)
    with pytest.raises(TypeError, match="leave out `log`"):
        solve(problem("plane", "equal", (9, 12)), POT(ot.emd, log=True))


def test_solvers_of_our_own_do_without_pot():
    script = """
import sys
sys.modules["ot"] = None
import groundmetric as gm
for solver in ("exact", "partial", gm.transport.Unbalanced(price=1.0), "coarse", "auto"):
    gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver=solver)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_exact_bounds_meet(task):
    plan = solve(task, "exact")
    assert plan.solver == "exact"
    assert plan.bounds[0] <= plan.value <= plan.bounds[1]  # as far apart as the last digits of the masses
    assert_allclose(plan.bounds[1], plan.value, rtol=1e-13, atol=1e-14 * task.scale)
    assert_allclose(plan.bounds[0], task.value, **near(task))


@pytest.mark.parametrize("seconds", [60.0, 1e-9])
def test_auto_is_exact_on_costs_which_have_no_groups(task, seconds):
    plan = solve(task, "auto", seconds=seconds)
    assert plan.solver == "exact"
    assert_allclose(plan.value, task.value, **near(task))


@pytest.mark.parametrize(
    ("solver", "options"),
    [("partial", {"share": 0.6}), ("unbalanced", {"price": 0.5})],
)
def test_swapping_the_sides_changes_nothing(solver, options):
    task = problem("plane", "random", (20, 15))
    there = solve(task, solver, **options)
    back = gm.transport.solve(task.cost.T, task.b, task.a, solver=solver, **options)
    assert_allclose(there.value, back.value, rtol=1e-6)


REFUSED = {
    "unknown solver": ({"solver": "guess"}, ValueError, r"solver is 'guess': expected one of \['exact', 'partial'"),
    "no solver": ({"solver": None}, ValueError, "solver is None"),
    "unknown option": ({"solver": "partial", "epsilon": 1.0}, TypeError, r"are \['share'"),
    "option of none": ({"share": 0.5}, TypeError, "solver 'exact' has no option 'share'"),
    "share of 0": ({"solver": "partial", "share": 0.0}, ValueError, "share of solver 'partial' is 0.0"),
    "share above 1": ({"solver": "partial", "share": 1.1}, ValueError, "share of solver 'partial' is 1.1"),
    "share of words": ({"solver": "partial", "share": "all"}, ValueError, "share of solver 'partial' is 'all'"),
    "no price": ({"solver": "unbalanced"}, ValueError, "needs a price"),
    "negative price": ({"solver": "unbalanced", "price": -1.0}, ValueError, "price of solver 'unbalanced' is -1.0"),
    "infinite price": ({"solver": "unbalanced", "price": np.inf}, ValueError, "price of solver 'unbalanced' is inf"),
    "pot out of balance": ({"solver": POT(ot.sinkhorn, reg=0.1), "a": np.ones(2)}, ValueError, "do not balance"),
    "function of points": ({"solver": POT(ot.solve_sample)}, ValueError, "works on points, not on costs"),
    "points needed": ({"solver": "coarse"}, ValueError, "works on points, not on costs"),
    "start": ({"solver": "partial", "start": gm.transport.solve(np.ones((2, 3))).basis}, ValueError, "start is for"),
    "object and options": ({"solver": gm.transport.Partial(0.5), "share": 0.2}, TypeError, r"options \['share'\]"),
    "negative costs": ({"solver": "partial", "cost": -np.ones((2, 3))}, ValueError, r"cost is -1.0 at \(0, 0\)"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_options_are_refused_and_the_culprit_named(arguments, error, message):
    with pytest.raises(error, match=message):
        gm.transport.solve(**{"cost": np.ones((2, 3)), **arguments})


def test_a_solver_object_is_as_good_as_its_name():
    task = problem("plane", "random", (9, 12))
    by_object = solve(task, gm.transport.Partial(share=0.4))
    assert by_object.value == solve(task, "partial", share=0.4).value
    assert by_object.solver == "partial"
