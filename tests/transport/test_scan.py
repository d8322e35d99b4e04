"""The inner loop: the smallest entry of a row of reduced costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundmetric.transport.scan import cheapest


def cheapest_of(row, v):
    """`cheapest` with the row and its levels in the midst of others that are lower."""
    cost, levels = np.full((3, row.size), -9e9), np.full(row.size + 2, 9e9)
    cost[1], levels[1:-1] = row, v
    return cheapest(cost, 1, levels, 1)


def assert_first_smallest(row, v):
    lowest, place = cheapest_of(row, v)
    assert lowest == (row - v).min()
    assert place == np.argmin(row - v)


@given(st.integers(1, 200), st.integers(0, 2**32 - 1), st.sampled_from([2, 10, 10**6]))
def test_cheapest_is_the_first_of_the_smallest(size, seed, n_values):
    rng = np.random.default_rng(seed)
    row, v = rng.integers(-n_values, n_values, (2, size)).astype(float)
    assert_first_smallest(row, v)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 130])
def test_cheapest_is_found_wherever_it_is(size):
    for place in range(size):
        row = np.ones(size)
        row[place] = -1.0
        assert cheapest_of(row, np.zeros(size)) == (-1.0, place)


@pytest.mark.parametrize("size", [1, 16, 17, 33, 130])
def test_barred_columns_are_passed_over(size):
    for place in range(size):
        v = np.full(size, -np.inf)
        v[place] = 0.0
        assert cheapest_of(np.arange(float(size)), v) == (place, place)
