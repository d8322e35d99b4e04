"""Transport on a line: sort both sides, then ship in order. Exact, without a cost matrix."""

from __future__ import annotations

import numba
import numpy as np

from .costs import SQUARED


@numba.njit(nogil=True, cache=True)
def line_value(x, a, y, b, cost):
    """Transport cost between sorted points x, y on a line with integer masses a, b of equal total; mass 1 in all.

    Shipping in order is optimal for every convex cost of the step: the distance, and its square.
    """
    i, j = 0, 0
    left, room = a[0], b[0]
    moved, total = 0.0, 0
    while True:
        amount = min(left, room)
        step = abs(x[i] - y[j])
        moved += amount * (step * step if cost == SQUARED else step)
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
def line_pull(x, a, y, b, cost, coefficient, pull_x, pull_y):
    """Add coefficient times the gradient of `line_value` to pull_x and pull_y (in the sorted order)."""
    i, j = 0, 0
    left, room = a[0], b[0]
    total = a.sum()
    while True:
        amount = min(left, room)
        if x[i] != y[j]:
            share = coefficient * amount / total
            share *= 2.0 * (x[i] - y[j]) if cost == SQUARED else (1.0 if x[i] > y[j] else -1.0)
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


@numba.njit(nogil=True, cache=True)
def ship_in_order(a, b):
    """Senders, receivers and amounts when integer masses of equal sums ship in order."""
    limit = a.size + b.size - 1
    senders, receivers = np.empty(limit, np.int64), np.empty(limit, np.int64)
    amounts = np.empty(limit, np.int64)
    i, j, count = 0, 0, 0
    left, room = a[0], b[0]
    while True:
        amount = min(left, room)
        senders[count], receivers[count], amounts[count] = i, j, amount
        count += 1
        left -= amount
        room -= amount
        if left == 0:
            i += 1
        if room == 0:
            j += 1
        if i == a.size or j == b.size:
            return senders[:count], receivers[:count], amounts[:count]
        if left == 0:
            left = a[i]
        if room == 0:
            room = b[j]
