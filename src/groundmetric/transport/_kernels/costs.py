"""Costs of steps between points: one step, or all steps between two sets of points, into a buffer."""

from __future__ import annotations

import math

import numpy as np

from ...metrics.base import Cost
from .compiled import behind, glued, inner, larger, vectorised

# As plain numbers, for compiled code.
EUCLIDEAN, MANHATTAN, SQUARED = int(Cost.EUCLIDEAN), int(Cost.MANHATTAN), int(Cost.SQUARED)
# Beyond so many components, those that nothing uses are looked for and left out.
FEW_COMPONENTS = 100


@inner
def step_cost(x, y, k, cost):
    """What the step from a point x to a point y of k components costs."""
    total = 0.0
    if cost == MANHATTAN:
        for c in range(k):
            total += abs(x[c] - y[c])
        return total
    for c in range(k):
        step = x[c] - y[c]
        total += step * step
    return total if cost == SQUARED else math.sqrt(total)


@glued
def reach_of(points, centre, n, k, cost):
    """The largest distance of n points from a centre."""
    reach = 0.0
    for i in range(n):
        total = 0.0
        for c in range(k):
            step = points[i * k + c] - centre[c]
            total += abs(step) if cost == MANHATTAN else step * step
        reach = larger(reach, total)
    return reach if cost == MANHATTAN else math.sqrt(reach)


@vectorised
def fill_costs(rows, n, m, k, cost, width, columns, out):
    """What a step from each of the first n rows to each of the m behind them costs, into out (n, width).

    Rows have k components; `columns` has room for those of `width` rows. Rows may be overwritten. Costs behind the m
    are infinite.
    """
    if cost != MANHATTAN and k > FEW_COMPONENTS:
        k = keep_used(rows, n + m, k, columns)
    for c in range(k):
        for j in range(width):
            columns[c * width + j] = rows[(n + j) * k + c] if j < m else np.inf
    if cost == MANHATTAN:
        fill_manhattan(rows, columns, n, width, k, out)
    elif k > 0:
        fill_distances(rows, columns, n, width, k, cost == SQUARED, out)
    else:
        for place in range(n * width):
            out[place] = 0.0


@vectorised
def keep_used(rows, n, k, marks):
    """Move the components in which any row is not 0 together; returns their number. Others cost no time then.

    `marks` has room for k numbers.
    """
    for c in range(k):
        marks[c] = 0.0
    for i in range(n):
        for c in range(k):
            if rows[i * k + c] != 0.0:
                marks[c] = 1.0
    place = 0
    for i in range(n):
        for c in range(k):
            if marks[c] != 0.0:
                rows[place] = rows[i * k + c]
                place += 1
    return place // n


@glued
def fill_distances(x, columns, n, m, k, squared, out):
    """Euclidean distances between the rows of x (n, k) and the columns of `columns` (k, m), into out (n, m).

    A few coordinates at a time over a whole row: the row stays in the cache and every loop vectorises. The last loop
    takes roots too, which are slow, while it adds.
    """
    single = 1 + (k - 1) % 4
    for i in range(n):
        point, row = behind(x, i * k), behind(out, i * m)
        p = point[0]
        for j in range(m):
            step = p - columns[j]
            row[j] = step * step
        for c in range(1, single):
            p, column = point[c], behind(columns, c * m)
            for j in range(m):
                step = p - column[j]
                row[j] += step * step
        for c in range(single, k, 4):
            _add_four(behind(point, c), behind(columns, c * m), m, c + 4 == k and not squared, row)
        if k < 5 and not squared:
            for j in range(m):
                row[j] = math.sqrt(row[j])


@glued
def _add_four(point, columns, m, root, row):
    """Add the squares of four steps to a row of sums of squares, from the first to the last; then take the roots."""
    p, q, r, t = point[0], point[1], point[2], point[3]
    for j in range(m):
        a, b, c, d = p - columns[j], q - columns[m + j], r - columns[2 * m + j], t - columns[3 * m + j]
        total = (((row[j] + a * a) + b * b) + c * c) + d * d
        row[j] = math.sqrt(total) if root else total


@vectorised
def fill_manhattan(x, columns, n, m, k, out):
    """Sums of absolute differences between the rows of x (n, k) and the columns of `columns` (k, m)."""
    for i in range(n):
        row = behind(out, i * m)
        for j in range(m):
            row[j] = 0.0
        for c in range(k):
            p, column = x[i * k + c], behind(columns, c * m)
            for j in range(m):
                row[j] += abs(p - column[j])
