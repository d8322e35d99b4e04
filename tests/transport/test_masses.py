"""Masses as whole numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric.transport.masses import TOTAL, Masses, equal_masses, integer_masses

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


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_equal_masses_are_the_smallest_that_balance(n, m):
    per_source, per_sink = equal_masses(n, m)
    assert n * per_source == m * per_sink == math.lcm(n, m)


def test_masses_of_cohorts_lie_one_behind_the_other():
    A = gm.Distributions(np.zeros((3, 1)), groups=["a", "b", "b"], weights=[1.0, 1.0, 3.0])
    B = gm.Distributions(np.zeros((2, 1)), groups=["c", "c"])
    masses = Masses.of(A, B)
    assert len(masses) == 3
    assert_array_equal(masses.bounds, [0, 1, 3, 5])
    assert_array_equal(masses.weights, [1.0, 0.25, 0.75, 0.5, 0.5])
    assert_array_equal(masses.uniform, [True, False, True])
