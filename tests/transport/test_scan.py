"""The innermost loop: the smallest entry of a row of reduced costs, in float32 and in int16."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundmetric.transport import _core

BLOCK = 64
KINDS = {"float32": (np.float32, np.inf, -np.inf), "int16": (np.int16, 32767, -16384)}
each_kind = pytest.mark.parametrize("kind", KINDS)


def scan(kind, row, levels, limit=0):
    """Lowest difference, start of its block, its position, and all positions up to the limit; rows are padded."""
    dtype, padding, _ = KINDS[kind]
    width = -(-len(row) // BLOCK) * BLOCK
    costs, heights = np.full(width, padding, dtype), np.zeros(width, dtype)
    costs[: len(row)], heights[: len(row)] = row, levels
    return _core.scan_row(costs, heights, limit)


@each_kind
@given(size=st.integers(1, 300), seed=st.integers(0, 2**32 - 1), n_values=st.sampled_from([2, 10, 8000]))
def test_the_position_is_that_of_the_first_minimum(kind, size, seed, n_values):
    row, levels = np.random.default_rng(seed).integers(-n_values, n_values, (2, size))
    value, block, position, _ = scan(kind, row, levels)
    first = np.argmin(row - levels)
    assert (value, block, position) == ((row - levels).min(), first // BLOCK * BLOCK, first)


@each_kind
@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 130])
def test_the_minimum_is_found_at_every_position(kind, size):
    for expected in range(size):
        row = np.ones(size)
        row[expected] = -1
        assert scan(kind, row, np.zeros(size))[2] == expected


@each_kind
@pytest.mark.parametrize("size", [1, 16, 17, 33, 130])
def test_closed_sinks_are_skipped(kind, size):
    for expected in range(size):
        levels = np.full(size, KINDS[kind][2])
        levels[expected] = 0
        assert scan(kind, np.arange(size), levels)[2] == expected


@each_kind
@given(size=st.integers(1, 200), seed=st.integers(0, 2**32 - 1))
def test_all_entries_up_to_a_limit_are_returned_in_order(kind, size, seed):
    rng = np.random.default_rng(seed)
    row, levels = rng.integers(0, 5, size), rng.integers(0, 3, size)
    assert scan(kind, row, levels)[3] == np.flatnonzero(row - levels <= 0).tolist()


@each_kind
def test_a_row_with_nan_or_padding_only_stays_inside_its_blocks(kind):
    row = np.full(70, np.nan if kind == "float32" else 32767)
    _, block, position, positions = scan(kind, row, np.zeros(70))
    assert 0 <= block <= position < 128
    assert positions == []


@pytest.mark.parametrize("size", [0, 1, 63, 65])
def test_rows_without_whole_blocks_are_rejected(size):
    with pytest.raises(ValueError, match="whole blocks"):
        _core.scan_row(np.zeros(size, np.float32), np.zeros(size, np.float32), 0.0)
