"""Points in groups: the widest group is split again and again, then a few rounds of k-means."""

from __future__ import annotations

import numba
import numpy as np

_ROUNDS = 5


def group_points(points: np.ndarray, masses: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many groups of nearby points: their centres (weighted means), and each point's group.

    Nothing is drawn at random: the same points have the same groups. Points that coincide stay together.

    >>> centres, groups = group_points(np.array([[0.0], [9.0], [1.0]]), np.ones(3), 2)
    >>> centres.ravel().tolist(), groups.tolist()
    ([0.5, 9.0], [0, 1, 0])
    """
    points = np.require(points, np.float64, ["C", "A", "W"])
    masses = np.require(masses, np.float64, ["C", "A", "W"])
    groups = _split(points, masses, n_groups)
    for _ in range(_ROUNDS if points.shape[0] > n_groups else 0):
        centres = centres_of(points, masses, groups)
        nearest = _nearest(points, centres)
        if np.array_equal(nearest, groups):
            break
        groups = np.unique(nearest, return_inverse=True)[1]  # a group that lost all its points is gone
    return centres_of(points, masses, groups), groups


def centres_of(points: np.ndarray, masses: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Weighted mean of each group; a single point is its own centre, to the last bit."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    anchors = points[order[starts]]
    steps = (points - anchors[groups])[order] * masses[order][:, None]
    return anchors + np.add.reduceat(steps, starts, axis=0) / np.add.reduceat(masses[order], starts)[:, None]


@numba.njit(nogil=True, cache=True)
def _widest_axis(points, masses, rows):
    """The axis along which rows scatter most, their mean there, and the scatter."""
    total = masses[rows].sum()
    best, mean, scatter = 0, 0.0, -1.0
    for c in range(points.shape[1]):
        first = points[rows[0], c]
        centre = 0.0
        for i in rows:
            centre += masses[i] * (points[i, c] - first)
        centre = first + centre / total
        spread = 0.0
        for i in rows:
            spread += masses[i] * (points[i, c] - centre) ** 2
        if spread > scatter:
            best, mean, scatter = c, centre, spread
    return best, mean, scatter


@numba.njit(nogil=True, cache=True)
def _split(points, masses, n_groups):
    """Split the group that scatters most at its mean, until there are enough groups or nothing is left to split."""
    n = points.shape[0]
    order = np.arange(n)
    low, high = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    axis, cut, scatter = np.zeros(n_groups, np.int64), np.zeros(n_groups), np.full(n_groups, -1.0)
    high[0] = n
    axis[0], cut[0], scatter[0] = _widest_axis(points, masses, order)
    count = 1
    while count < n_groups:
        g = int(np.argmax(scatter[:count]))
        if scatter[g] <= 0.0:
            break
        rows = order[low[g] : high[g]].copy()
        left = _below(points, rows, axis[g], cut[g])
        middle = low[g] + left.sum()
        if middle == low[g] or middle == high[g]:  # scatter that is only rounding
            scatter[g] = 0.0
            continue
        order[low[g] : middle] = rows[left]
        order[middle : high[g]] = rows[~left]
        low[count], high[count] = middle, high[g]
        high[g] = middle
        for part in (g, count):
            axis[part], cut[part], scatter[part] = _widest_axis(points, masses, order[low[part] : high[part]])
        count += 1
    groups = np.empty(n, np.int64)
    for g in range(count):
        groups[order[low[g] : high[g]]] = g
    return groups


@numba.njit(nogil=True, cache=True)
def _below(points, rows, axis, cut):
    below = np.empty(rows.size, np.bool_)
    for k in range(rows.size):
        below[k] = points[rows[k], axis] <= cut
    return below


@numba.njit(nogil=True, cache=True)
def _nearest(points, centres):
    """The nearest centre of each point."""
    columns = centres.T.copy()
    nearest = np.empty(points.shape[0], np.int64)
    squared = np.empty(centres.shape[0])
    for i in range(points.shape[0]):
        squared[:] = 0.0
        for c in range(points.shape[1]):
            for g in range(squared.size):
                step = points[i, c] - columns[c, g]
                squared[g] += step * step
        nearest[i] = np.argmin(squared)
    return nearest
