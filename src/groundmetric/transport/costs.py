"""Distances between the points of two distributions, into a buffer that is used again and again."""

from __future__ import annotations

import math

import numba


@numba.njit(nogil=True, cache=True)
def fill_distances(x, y_columns, out):
    """Euclidean distances between the rows of x (n, k) and the columns of y_columns (k, m), into out (n, m).

    One coordinate at a time over a whole row: the row stays in the cache and every loop vectorises.
    """
    for i in range(x.shape[0]):
        row = out[i]
        for j in range(row.size):
            step = x[i, 0] - y_columns[0, j]
            row[j] = step * step
        for c in range(1, x.shape[1]):
            for j in range(row.size):
                step = x[i, c] - y_columns[c, j]
                row[j] += step * step
        for j in range(row.size):
            row[j] = math.sqrt(row[j])
