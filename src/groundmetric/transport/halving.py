"""Points in an order in which neighbours stand together, and groups of them as points of their own.

The points are halved along their widest axis, the halves again, and so on. Cuts fall on multiples of the largest
group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are plain ranges.
"""

from __future__ import annotations

import numba
import numpy as np

GROUP = 8
# So few points are not grouped: nothing would be left of them.
FEW = 64


def group_size(n_points: int) -> int:
    return GROUP if n_points > FEW else 1


@numba.njit(nogil=True, cache=True)
def halving_order(points):
    """The order itself: the points' places, one behind the other."""
    order = np.arange(points.shape[0])
    todo = [(0, points.shape[0])]
    while len(todo) > 0:
        low, high = todo.pop()
        if high - low <= GROUP:
            continue
        unit = GROUP
        while unit * GROUP < high - low:
            unit *= GROUP
        here = order[low:high].copy()
        order[low:high] = here[np.argsort(points[here, _widest_axis(points, here)])]
        pieces = (high - low + unit - 1) // unit
        middle = low + unit * ((pieces + 1) // 2)
        todo.append((low, middle))
        todo.append((middle, high))
    return order


@numba.njit(nogil=True, cache=True)
def _widest_axis(points, here):
    widest, axis = -1.0, 0
    for c in range(points.shape[1]):
        lowest, highest = np.inf, -np.inf
        for i in here:
            lowest, highest = min(lowest, points[i, c]), max(highest, points[i, c])
        if highest - lowest > widest:
            widest, axis = highest - lowest, c
    return axis


def grouped(points: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and masses of the groups of points that stand in `halving_order`."""
    size = group_size(units.size)
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums
