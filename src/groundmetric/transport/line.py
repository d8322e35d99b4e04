"""Transport on a line: sort both sides, then ship in order. Exact, without a cost matrix."""

from __future__ import annotations

import numba


@numba.njit(nogil=True, cache=True)
def line_value(x, a, y, b):
    """Transport cost between sorted points x, y on a line with integer masses a, b of equal total; mass 1 in all."""
    i, j = 0, 0
    left, room = a[0], b[0]
    moved, total = 0.0, 0
    while True:
        amount = min(left, room)
        moved += amount * abs(x[i] - y[j])
        total += amount
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == x.size:
                return moved / total
            left = a[i]
        if room == 0:
            j += 1
            if j == y.size:
                return moved / total
            room = b[j]


@numba.njit(nogil=True, cache=True)
def line_pull(x, a, y, b, coefficient, pull_x, pull_y):
    """Add coefficient times the gradient of `line_value` to pull_x and pull_y (in the sorted order)."""
    i, j = 0, 0
    left, room = a[0], b[0]
    total = a.sum()
    while True:
        amount = min(left, room)
        if x[i] != y[j]:
            share = coefficient * amount / total * (1.0 if x[i] > y[j] else -1.0)
            pull_x[i] += share
            pull_y[j] -= share
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == x.size:
                return
            left = a[i]
        if room == 0:
            j += 1
            if j == y.size:
                return
            room = b[j]
