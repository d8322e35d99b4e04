"""Groups of points that lie close together, and the plan between groups as a first basis between their points.

Points are halved along their widest axis, the halves again, and so on (`halving_order`). Cuts fall on multiples of the
largest group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are plain
ranges.

Nodes and bases are those of `simplex`.
"""

from __future__ import annotations

import numpy as np

from .compiled import inner, kernel, larger, pointer, smaller
from .forest import hung_forest, sort_places

GROUP = 8
# So few points are not grouped: nothing would be left of them.
FEW = 64


def group_size(n_points: int) -> int:
    return GROUP if n_points > FEW else 1


def halving_order(points: np.ndarray) -> np.ndarray:
    """The order itself: the points' places, one behind the other."""
    n = points.shape[0]
    order = np.arange(n)
    # Room for the piece at hand, its coordinates and its order; and for the ends of pieces.
    fill_halving_order(
        points, order, np.empty(n, np.int64), np.empty(n), np.empty(n, np.int32), np.empty(128, np.int32)
    )
    return order


@kernel
def fill_halving_order(points, order, piece, keys, places, stack):
    """`halving_order`, from all places in any order."""
    k, z, todo, top = points.shape[1], pointer(points), pointer(stack), 2
    here, coordinates, sorting = pointer(piece), pointer(keys), pointer(places)
    todo[0], todo[1] = 0, points.shape[0]
    while top > 0:
        top -= 2
        low, high = np.int64(todo[top]), np.int64(todo[top + 1])
        size = high - low
        if size <= GROUP:
            continue
        unit = GROUP
        while unit * GROUP < size:
            unit *= GROUP
        for i in range(size):
            here[i] = order[low + i]
        axis = _widest_axis(z, k, here, size)
        for i in range(size):
            coordinates[i] = z[here[i] * k + axis]
        sort_places(coordinates, size, sorting)
        for i in range(size):
            order[low + i] = here[sorting[i]]
        middle = low + unit * (((size + unit - 1) // unit + 1) // 2)
        todo[top], todo[top + 1], todo[top + 2], todo[top + 3] = low, middle, middle, high
        top += 4


@inner
def _widest_axis(points, k, here, size):
    widest, axis = -1.0, 0
    for c in range(k):
        lowest, highest = np.inf, -np.inf
        for i in range(size):
            coordinate = points[here[i] * k + c]
            lowest, highest = smaller(coordinate, lowest), larger(coordinate, highest)
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


def refined_basis(
    parent: np.ndarray, flow: np.ndarray, a: np.ndarray, b: np.ndarray, size_a: int, size_b: int
) -> np.ndarray:
    """A basis for sources of mass a and sinks of mass b from the basis of their groups, runs of size_a and of size_b.

    What one group ships to another, its points ship in order. The arcs of a basis form a forest, and so do these: the
    shipments of one arc are a chain, and two chains share at most a point, where their arcs share a group.
    """
    arcs = np.empty((a.size + b.size + parent.size, 2), np.int64)
    fronts = np.arange(0, a.size, size_a), np.arange(0, b.size, size_b)
    count = fill_arcs(parent, flow, a.copy(), b.copy(), *fronts, arcs)
    return hung_forest(arcs[:count], a.size, b.size)


@kernel
def fill_arcs(parent, flow, left, room, front_a, front_b, arcs):
    """The arcs of `refined_basis`; returns their number. Fronts: of each group, the first point with something left."""
    n_groups, count = front_a.size, 0
    for node in range(parent.size - 1):
        amount, above = flow[node], parent[node]
        tail, head = (node, above - n_groups) if node < n_groups else (above, node - n_groups)
        while amount > 0:
            while left[front_a[tail]] == 0:
                front_a[tail] += 1
            while room[front_b[head]] == 0:
                front_b[head] += 1
            i, j = front_a[tail], front_b[head]
            shipped = left[i] if left[i] < room[j] else room[j]
            shipped = amount if amount < shipped else shipped
            amount -= shipped
            left[i] -= shipped
            room[j] -= shipped
            arcs[count, 0], arcs[count, 1] = i, left.size + j
            count += 1
    return count
