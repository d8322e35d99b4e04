"""From groups of points to points: orders in which neighbours stand together, and plans refined to a first basis.

The points are halved along their widest axis, the halves again, and so on. Cuts fall on multiples of the largest
group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are plain ranges.
"""

from __future__ import annotations

import numba
import numpy as np

from .tree import hung_forest

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


@numba.njit(nogil=True, cache=True)
def refined_basis(parent, flow, a, b, size_a, size_b):
    """A basis for sources of mass a and sinks of mass b from the basis of their groups, runs of size_a and of size_b.

    What one group ships to another, its points ship in order. The arcs of a basis form a forest, and so do these: the
    shipments of one arc are a chain, and two chains share at most a point, where their arcs share a group.
    """
    n_groups = (a.size + size_a - 1) // size_a
    left, room = a.copy(), b.copy()
    front_a = np.arange(n_groups) * size_a
    front_b = np.arange((b.size + size_b - 1) // size_b) * size_b
    arcs = np.empty((a.size + b.size + parent.size, 2), np.int64)
    count = 0
    for node in range(parent.size - 1):
        amount, above = flow[node], parent[node]
        tail, head = (node, above - n_groups) if node < n_groups else (above, node - n_groups)
        while amount > 0:
            while left[front_a[tail]] == 0:
                front_a[tail] += 1
            while room[front_b[head]] == 0:
                front_b[head] += 1
            i, j = front_a[tail], front_b[head]
            shipped = min(amount, left[i], room[j])
            amount -= shipped
            left[i] -= shipped
            room[j] -= shipped
            arcs[count] = i, a.size + j
            count += 1
    return hung_forest(arcs[:count], a.size, b.size)
