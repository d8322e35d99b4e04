"""Masses as whole numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric.transport.problem import (
    TOTAL,
    Masses,
    balancing_factors,
    common_units,
    integer_masses,
    rounded_masses,
    whole_masses,
)

weight = st.one_of(st.just(0.0), st.floats(1e-12, 1e6), st.integers(1, 3).map(float))
weights = st.lists(weight, min_size=1, max_size=30).filter(any).map(np.array)


@given(weights)
def test_integer_masses_sum_to_the_total_and_none_is_negative(weights):
    units = integer_masses(weights)
    assert units.dtype == np.int64
    assert sum(units.tolist()) == TOTAL
    assert (units >= 0).all()


@given(weights)
def test_integer_masses_are_the_weights_to_the_precision_of_floats(weights):
    # The one largest mass takes the rounding of all others.
    units = integer_masses(weights)
    assert_allclose(units / TOTAL, weights / weights.sum(), rtol=1e-14, atol=2.0**-60)


@pytest.mark.parametrize("total", [1e-300, 1e300])
def test_integer_masses_do_not_depend_on_the_total_of_the_weights(total):
    assert_array_equal(integer_masses(total * np.array([0.25, 0.5, 0.25])), np.array([1, 2, 1]) * (TOTAL // 4))


@given(weights)
def test_zero_weights_stay_zero(weights):
    assert not integer_masses(weights)[weights == 0].any()


@pytest.mark.parametrize("size", [1, 3, 7, 1000, 100_003])
def test_equal_weights_stay_equal_but_for_the_remainder(size):
    units = integer_masses(np.full(size, 1.0 / size))
    assert sum(units.tolist()) == TOTAL
    assert np.unique(units).size <= 2
    assert np.ptp(units) <= size * 2**8


@given(st.integers(1, 10**4), st.integers(1, 10**4))
def test_equal_masses_are_the_smallest_that_balance(n, m):
    units = common_units(np.full(n, 1 / n), np.full(m, 1 / m))
    per_source, per_sink = int(units.a[0]), int(units.b[0])
    assert np.ptp(units.a) == np.ptp(units.b) == 0
    assert n * per_source == m * per_sink == math.lcm(n, m)


def test_masses_of_cohorts_lie_one_behind_the_other():
    A = gm.Distributions(np.zeros((3, 1)), samples=["a", "b", "b"], weights=[1.0, 1.0, 3.0])
    B = gm.Distributions(np.zeros((2, 1)), samples=["c", "c"])
    masses = Masses.of(A, B)
    assert len(masses) == 3
    assert_array_equal(masses.bounds, [0, 1, 3, 5])
    assert_array_equal(masses.weights, [1.0, 0.25, 0.75, 0.5, 0.5])
    assert_array_equal(masses.uniform, [True, False, True])


@given(st.lists(st.integers(0, 10**4), min_size=1, max_size=40).filter(any), st.floats(1e-6, 1e6))
def test_multiples_of_any_unit_are_found(multiples, unit):
    expected = np.array(multiples) // math.gcd(*multiples)
    assert_array_equal(whole_masses(np.array(multiples) * unit), expected)
    assert_array_equal(whole_masses(np.array(multiples) / sum(multiples)), expected)


def test_masses_of_no_common_unit_have_none():
    assert whole_masses(np.random.default_rng(0).uniform(size=50)) is None
    assert whole_masses(np.array([1.0, 1e-12, np.pi])) is None


@given(weights, weights)
def test_units_balance_and_what_is_left_of_the_masses_is_known(a, b):
    b = b * (a.sum() / b.sum())
    units = common_units(a, b)
    assert sum(units.a.tolist()) == sum(units.b.tolist()) == units.number
    assert (units.a >= 0).all()
    assert (units.b >= 0).all()
    for share, mass in zip(units.shares(), (a, b), strict=True):
        assert_allclose(share, mass / mass.sum(), rtol=1e-14)


def test_equal_masses_of_both_sides_are_equal_units():
    a = np.random.default_rng(0).uniform(size=1000)
    units = common_units(a, a[::-1].copy())
    assert_array_equal(units.a, units.b[::-1])


def balanced(first, second):
    times = balancing_factors(first.sum(keepdims=True), second.sum(keepdims=True))
    return [units * up[0] if up[0] else rounded_masses(units) for units, up in zip((first, second), times, strict=True)]


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=9), st.lists(st.integers(1, 2**40), min_size=1, max_size=9))
def test_balanced_masses_balance_and_keep_their_ratios(first, second):
    first, second = np.array(first), np.array(second)
    a, b = balanced(first, second)
    assert sum(a.tolist()) == sum(b.tolist())
    assert_allclose(a / a.sum(), first / first.sum(), rtol=1e-14, atol=2.0**-59)
    if math.lcm(int(first.sum()), int(second.sum())) < 2**62:
        assert [x * sum(first.tolist()) for x in a.tolist()] == [x * sum(a.tolist()) for x in first.tolist()]
