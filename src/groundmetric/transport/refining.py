"""From a plan between groups of points to a plan between the points: a first basis that is good already."""

from __future__ import annotations

import numba
import numpy as np


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
    return _hung(arcs[:count], a.size, b.size)


@numba.njit(nogil=True, cache=True)
def _hung(arcs, n, m):
    """The parents of all nodes when every tree of a forest hangs from the root by its first source."""
    root = n + m
    ends = np.zeros(root + 1, np.int64)
    for k in range(arcs.shape[0]):
        ends[arcs[k, 0] + 1] += 1
        ends[arcs[k, 1] + 1] += 1
    ends = np.cumsum(ends)
    neighbours, place = np.empty(2 * arcs.shape[0], np.int64), ends[:-1].copy()
    for k in range(arcs.shape[0]):
        for end in range(2):
            x = arcs[k, end]
            neighbours[place[x]] = arcs[k, 1 - end]
            place[x] += 1
    parent = np.full(root + 1, -2, np.int32)
    parent[root] = -1
    stack = np.empty(root, np.int64)
    for source in range(n):
        if parent[source] != -2:
            continue
        parent[source] = root
        stack[0], top = source, 1
        while top > 0:
            top -= 1
            x = stack[top]
            for y in neighbours[ends[x] : ends[x + 1]]:
                if parent[y] == -2:
                    parent[y] = x
                    stack[top] = y
                    top += 1
    return parent
