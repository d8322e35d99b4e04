"""First feasible bases for the network simplex: forests whose components hang from the root by a source."""

import numba
import numpy as np

from .scan import cheapest


@numba.njit(nogil=True, cache=True)
def first_forest(cost, a, b, parent):
    """The better of two quick plans, as a basis in `parent`: to the cheapest sinks, or in order along a line.

    Points that spread along one direction more than along others, as under a metric that was learned for two classes,
    are close to a line, where shipping in order is optimal and shipping to the nearest is poor; else it is the other
    way round. The cheaper plan needs about half the pivots of the other.
    """
    other = np.empty_like(parent)
    cheapest_first = _greedy_forest(cost, a, b, parent)
    in_order = _sorted_forest(cost, a, b, other)
    if in_order < cheapest_first:
        parent[:] = other


@numba.njit(nogil=True, cache=True)
def _greedy_forest(cost, a, b, parent):
    """Every source in turn ships to the cheapest sinks that have room left. Returns the cost of the plan.

    At any time a component has at most one sink with room, and that sink is the component's root. A component whose
    masses balance hangs from the root of all by the source that closed it.
    """
    n, m = cost.shape
    parent[:] = n + m
    parent[n + m] = -1
    room = b.copy()
    closed = np.zeros(m, np.float32)  # minus infinity bars a full sink
    total = 0.0
    for i in range(n):
        left = a[i]
        while True:
            j = cheapest(cost, i, closed)
            total += min(left, room[j]) * cost[i, j]
            if left < room[j]:
                room[j] -= left
                parent[i] = n + j
                break
            left -= room[j]
            closed[j] = -np.inf
            parent[n + j] = i
            if left == 0:
                break
    return total


@numba.njit(nogil=True, cache=True)
def _sorted_forest(cost, a, b, parent):
    """Sources and sinks ship in the order of their distance from a sink at one end of the line that they lie on.

    The end is found by looking for the farthest point from the farthest point. Returns the cost of the plan.
    """
    n, m = cost.shape
    parent[:] = n + m
    parent[n + m] = -1
    far = np.argmax(cost[np.argmax(cost[:, np.argmax(cost[0])])])
    sources, sinks = np.argsort(cost[:, far]), np.argsort(cost[np.argmin(cost[:, far])])
    i, j = 0, 0
    left, room = a[sources[0]], b[sinks[0]]
    total = 0.0
    while True:
        source, sink = sources[i], sinks[j]
        total += min(left, room) * cost[source, sink]
        if left < room:
            parent[source] = n + sink
            room -= left
            left = 0
        else:
            parent[n + sink] = source
            left -= room
            room = 0
        if left == 0:
            i += 1
            if i == n:
                return total
            left = a[sources[i]]
        if room == 0:
            j += 1
            if j == m:
                return total
            room = b[sinks[j]]


@numba.njit(nogil=True, cache=True)
def hung_forest(arcs, n, m):
    """The parents of all nodes when every tree of a forest of arcs (source, sink) hangs from the root by a source."""
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
