"""From a plan between groups of points to a plan between the points: a first basis that is good already."""

from __future__ import annotations

import numba
import numpy as np

from .forests import hung_forest


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
