"""The inner loop: the smallest entry of a row of reduced costs."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundmetric.transport._kernels.compiled import behind, pointer
from groundmetric.transport._kernels.scan import PIECE, cheapest, lowest_piece, next_at_most, width_of


@numba.njit
def cheapest_in_row(costs, levels, m):
    return cheapest(behind(pointer(costs), costs.shape[1]), pointer(levels), m)


@numba.njit
def next_in_row(costs, levels, m, limit, start):
    return next_at_most(behind(pointer(costs), costs.shape[1]), pointer(levels), m, limit, start)


@numba.njit
def lowest_in_row(costs, levels):
    return lowest_piece(behind(pointer(costs), costs.shape[1]), pointer(levels), costs.shape[1])


def in_midst(row, v):
    """A row as rough costs have it, in the midst of others that are lower; and levels."""
    width = -(-row.size // PIECE) * PIECE
    costs, levels = np.full((3, width), -9e9, np.float32), np.zeros(width, np.float32)
    costs[1] = np.inf
    costs[1, : row.size], levels[: row.size] = row, v
    return costs, levels


def cheapest_of(row, v):
    return cheapest_in_row(*in_midst(row, v), row.size)


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
    row, v = rng.integers(0, 5, size), rng.integers(0, 3, size)
    found, j = [], 0
    while (j := next_in_row(*in_midst(row, v), size, np.float32(0.0), j)) < size:
        found.append(j)
        j += 1
    assert found == np.flatnonzero(row - v <= 0).tolist()


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from([2, 10**6]))
def test_the_first_piece_with_the_lowest_entry(size, seed, n_values):
    rng = np.random.default_rng(seed)
    row, v = rng.integers(-n_values, n_values, (2, size))
    lowest, piece = lowest_in_row(*in_midst(row, v))
    assert lowest == (row - v).min()
    assert piece == np.argmin(row - v) // PIECE * PIECE


@pytest.mark.parametrize(("m", "width"), [(1, 64), (64, 64), (65, 128), (1000, 1024)])
def test_rows_take_whole_pieces(m, width):
    assert numba.njit(lambda m: width_of(m))(m) == width
