"""Costs between the points of two distributions, into a buffer that is used again and again."""

from __future__ import annotations

import math

import numba
import numpy as np

from ...metrics.base import Cost

# As plain numbers, for compiled code.
MANHATTAN, SQUARED = int(Cost.MANHATTAN), int(Cost.SQUARED)
# Beyond so many components, four are added at a time: the row is then read and written less often.
FEW_COMPONENTS = 32


@numba.njit(nogil=True, cache=True)
def fill_costs(x, y, cost, out):
    """What a step from each row of x (n, k) to each row of y (m, k) costs, into out (n, m)."""
    if cost == MANHATTAN:
        fill_manhattan(x, y.T.copy(), out)
    elif 0 < x.shape[1] <= FEW_COMPONENTS:
        fill_distances(x, y.T.copy(), cost == SQUARED, out)
    else:
        used = used_components(x, y)
        fill_wide_distances(x[:, used], y[:, used].T.copy(), cost == SQUARED, out)


@numba.njit(nogil=True, cache=True)
def fill_distances(x, y_columns, squared, out):
    """Euclidean distances between the rows of x (n, k) and the columns of y_columns (k, m), into out (n, m).

    A few coordinates at a time over a whole row: the row stays in the cache and every loop vectorises. The last loop
    takes roots too, which are slow, while it adds.
    """
    k = x.shape[1]
    single = 1 + (k - 1) % 4
    for i in range(x.shape[0]):
        row = out[i]
        for j in range(row.size):
            step = x[i, 0] - y_columns[0, j]
            row[j] = step * step
        for c in range(1, single):
            for j in range(row.size):
                step = x[i, c] - y_columns[c, j]
                row[j] += step * step
        for c in range(single, k, 4):
            root = c + 4 == k and not squared
            for j in range(row.size):
                s, t = x[i, c] - y_columns[c, j], x[i, c + 1] - y_columns[c + 1, j]
                u, v = x[i, c + 2] - y_columns[c + 2, j], x[i, c + 3] - y_columns[c + 3, j]
                total = (((row[j] + s * s) + t * t) + u * u) + v * v
                row[j] = math.sqrt(total) if root else total
        if k < 5 and not squared:
            for j in range(row.size):
                row[j] = math.sqrt(row[j])


@numba.njit(nogil=True, cache=True)
def fill_wide_distances(x, y_columns, squared, out):
    """`fill_distances` for many components (or none)."""
    k = x.shape[1]
    for i in range(x.shape[0]):
        row = out[i]
        row[:] = 0.0
        for c in range(0, k - 3, 4):
            for j in range(row.size):
                s, t = x[i, c] - y_columns[c, j], x[i, c + 1] - y_columns[c + 1, j]
                u, v = x[i, c + 2] - y_columns[c + 2, j], x[i, c + 3] - y_columns[c + 3, j]
                row[j] += (s * s + t * t) + (u * u + v * v)
        for c in range(k - k % 4, k):
            for j in range(row.size):
                step = x[i, c] - y_columns[c, j]
                row[j] += step * step
        if not squared:
            for j in range(row.size):
                row[j] = math.sqrt(row[j])


@numba.njit(nogil=True, cache=True)
def fill_manhattan(x, y_columns, out):
    """Sums of absolute differences between the rows of x (n, k) and the columns of y_columns (k, m)."""
    for i in range(x.shape[0]):
        row = out[i]
        row[:] = 0.0
        for c in range(x.shape[1]):
            for j in range(row.size):
                row[j] += abs(x[i, c] - y_columns[c, j])


@numba.njit(nogil=True, cache=True)
def used_components(x, y):
    """Components in which any point is not at 0: features of weight 0 cost no time."""
    used = np.zeros(x.shape[1], np.bool_)
    for points in (x, y):
        for i in range(points.shape[0]):
            for c in range(points.shape[1]):
                used[c] |= points[i, c] != 0.0
    return np.flatnonzero(used)


@numba.njit(nogil=True, cache=True)
def step_cost(z, i, j, cost):
    """What the step between two rows of z costs."""
    return step_between(z, i, z, j, cost)


@numba.njit(nogil=True, cache=True)
def step_between(x, i, y, j, cost):
    """What the step from a row of x to a row of y costs."""
    total = 0.0
    if cost == MANHATTAN:
        for c in range(x.shape[1]):
            total += abs(x[i, c] - y[j, c])
        return total
    for c in range(x.shape[1]):
        step = x[i, c] - y[j, c]
        total += step * step
    return total if cost == SQUARED else math.sqrt(total)


@numba.njit(nogil=True, cache=True)
def slope_divisor(length, cost):
    """The slope of a step's cost is the step (for Manhattan: its signs) divided by this."""
    if cost == MANHATTAN:
        return 1.0
    return 0.5 if cost == SQUARED else length
