"""Laws of one transport problem."""

import numpy as np
import ot
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm

from .strategies import moving_problems, problems

# Coordinates are of size 10: smaller differences are rounding.
ROUNDING = {"rtol": 1e-12, "atol": 1e-14}


@given(moving_problems())
def test_warm_start_gives_the_cold_value(problem):
    before, after = problem
    basis = before.solve().basis
    assert_allclose(after.solve(start=basis).value, after.solve().value, **ROUNDING)


@given(problems())
def test_warm_start_takes_no_pivot_where_nothing_changed(problem):
    plan = problem.solve()
    repeated = problem.solve(start=plan.basis)
    assert repeated.pivots == 0
    assert repeated.value == plan.value
    assert_array_equal(repeated.mass, plan.mass)


@given(moving_problems())
def test_going_back_gives_the_first_value(problem):
    before, after = problem
    there = before.solve()
    back = before.solve(start=after.solve(start=there.basis).basis)
    assert_allclose(back.value, there.value, **ROUNDING)


@given(problems(), st.integers(-1000, 1000))
def test_common_shift_of_all_points_changes_nothing(problem, step):
    assert_allclose(problem.shifted(step).solve().value, problem.solve().value, rtol=1e-12, atol=1e-12)


@given(problems(), st.floats(1e-9, 1e9))
def test_scaling_the_costs_scales_the_value(problem, factor):
    value = gm.transport.solve(factor * problem.cost, problem.a, problem.b).value
    assert_allclose(value, factor * problem.solve().value, rtol=1e-12, atol=1e-14 * factor)


@given(problems(), st.integers(-40, 40))
def test_scaling_the_costs_by_a_power_of_two_scales_every_bit(problem, power):
    plan, scaled = problem.solve(), gm.transport.solve(2.0**power * problem.cost, problem.a, problem.b)
    assert scaled.value == 2.0**power * plan.value
    assert_array_equal(scaled.mass, plan.mass)


@given(problems(), st.floats(0.1, 100))
def test_scaling_the_masses_scales_the_value(problem, factor):
    value = gm.transport.solve(problem.cost, factor * problem.a, factor * problem.b).value
    assert_allclose(value, factor * problem.solve().value, **ROUNDING)


@given(problems(), st.floats(-10, 10))
def test_adding_to_all_costs_adds_to_the_value(problem, amount):
    value = gm.transport.solve(problem.cost + amount, problem.a, problem.b).value
    assert_allclose(value, problem.solve().value + amount, rtol=1e-12, atol=1e-13)


@given(problems(), st.data())
def test_splitting_a_point_into_halves_changes_nothing(problem, data):
    i = data.draw(st.integers(0, problem.a.size - 1))
    assert_allclose(problem.split(i).solve().value, problem.solve().value, **ROUNDING)


@given(problems(), st.randoms(use_true_random=False))
def test_permuting_the_points_permutes_the_plan(problem, random):
    rows, cols = (random.sample(range(side.size), side.size) for side in (problem.a, problem.b))
    plan = problem.permuted(rows, cols).solve()
    assert_allclose(plan.value, problem.solve().value, **ROUNDING)
    permuted_back = problem.cost[np.array(rows)[plan.rows], np.array(cols)[plan.cols]]
    assert_allclose(plan.mass @ permuted_back, plan.value, **ROUNDING)


@given(problems())
def test_transposing_gives_the_same_value(problem):
    assert_allclose(problem.transposed().solve().value, problem.solve().value, **ROUNDING)


@given(problems())
def test_potentials_prove_the_value(problem):
    plan = problem.solve()
    u, v = plan.potentials
    assert plan.optimal
    assert (u[:, None] + v <= problem.cost + 1e-12).all()
    assert_allclose(problem.a @ u + problem.b @ v, plan.value, rtol=1e-12, atol=1e-13)


@given(problems())
def test_plan_ships_the_masses_over_few_arcs(problem):
    plan = problem.solve()
    assert_allclose(np.bincount(plan.rows, plan.mass, problem.a.size), problem.a, rtol=1e-9, atol=1e-16)
    assert_allclose(np.bincount(plan.cols, plan.mass, problem.b.size), problem.b, rtol=1e-9, atol=1e-16)
    assert plan.mass.size <= np.count_nonzero(problem.a) + np.count_nonzero(problem.b) - 1


@given(problems(max_size=25))
def test_pot_finds_the_same_value(problem):
    expected = ot.emd2(problem.a, problem.b, problem.cost)
    assert_allclose(problem.solve().value, expected, rtol=1e-9, atol=1e-14)


@given(problems(), st.integers(0, 30))
def test_stopping_early_bounds_the_value_from_both_sides(problem, limit):
    value, plan = problem.solve().value, problem.solve(max_pivots=limit)
    u, v = plan.potentials
    assert (u[:, None] + v <= problem.cost + 1e-12).all()
    assert problem.a @ u + problem.b @ v - 1e-13 <= value <= plan.value + 1e-13
