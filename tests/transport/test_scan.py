"""The inner loop: the smallest entry of a row of reduced costs."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundmetric.transport._kernels.compiled import behind, pointer
from groundmetric.transport._kernels.scan import cheapest, next_at_most


@numba.njit
def cheapest_in_row(costs, i, levels):
    return cheapest(behind(pointer(costs), i * levels.size), pointer(levels), levels.size)


@numba.njit
def next_in_row(costs, i, levels, limit, start):
    return next_at_most(behind(pointer(costs), i * levels.size), pointer(levels), levels.size, limit, start)


def cheapest_of(row, v):
    """`cheapest` of a row in the midst of others that are lower."""
    costs = np.full((3, row.size), -9e9, np.float32)
    costs[1] = row
    return cheapest_in_row(costs, 1, v.astype(np.float32))


@given(st.integers(1, 200), st.integers(0, 2**32 - 1), st.sampled_from([2, 10, 10**6]))
def test_cheapest_is_the_first_of_the_smallest(size, seed, n_values):
    rng = np.random.default_rng(seed)
    row, v = rng.integers(-n_values, n_values, (2, size)).astype(float)
    assert cheapest_of(row, v) == np.argmin(row - v)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 130])
def test_cheapest_is_found_wherever_it_is(size):
    for place in range(size):
        row = np.ones(size)
        row[place] = -1.0
        assert cheapest_of(row, np.zeros(size)) == place


@pytest.mark.parametrize("size", [1, 16, 17, 33, 130])
def test_barred_columns_are_passed_over(size):
    for place in range(size):
        v = np.full(size, -np.inf)
        v[place] = 0.0
        assert cheapest_of(np.arange(float(size)), v) == place


@given(st.integers(1, 80), st.integers(0, 2**32 - 1))
def test_all_entries_up_to_a_limit_are_found_in_order(size, seed):
    rng = np.random.default_rng(seed)
    costs, levels = rng.integers(0, 5, (2, size)).astype(np.float32), rng.integers(0, 3, size).astype(np.float32)
    found, j = [], 0
    while (j := next_in_row(costs, 1, levels, np.float32(0.0), j)) < size:
        found.append(j)
        j += 1
    assert found == np.flatnonzero(costs[1] - levels <= 0.0).tolist()
