"""First bases of the network simplex: quick feasible plans, as the parents of all nodes.

See `simplex` for what its nodes and arcs are.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from .compiled import behind, glued, inner, kernel, pointer, vectorised
from .scan import cheapest
from .tree import NOBODY, thread


@glued
def first_forest(prices, a, b, tree, room, keys):
    """The better of two quick plans, into the parents of a tree: to the cheapest sinks, or in order along a line.

    Points that spread along one direction more than along others, as under a metric that was learned for two classes,
    are close to a line, where shipping in order is optimal and shipping to the nearest is poor; else it is the other
    way round. The cheaper plan needs about half the pivots of the other. What a tree needs beside its parents is used
    as room, and so are `room` (m,) of int64 and `keys` (n,) of float32.
    """
    other = tree.last
    cheapest_first = _greedy_forest(prices, a, b, tree.parent, room)
    in_order = _sorted_forest(prices, a, b, other, keys, tree.place, tree.next)
    if in_order < cheapest_first:
        for x in range(tree.root + 1):
            tree.parent[x] = other[x]


@glued
def _hang_all(parent, root):
    for x in range(root):
        parent[x] = root
    parent[root] = NOBODY


@vectorised
def _greedy_forest(prices, a, b, parent, room):
    """Every source in turn ships to the cheapest sinks that have room left. Returns the cost of the plan.

    At any time a component has at most one sink with room, and that sink is the component's root. A component whose
    masses balance hangs from the root of all by the source that closed it.
    """
    n, m, closed = prices.n, prices.m, prices.levels
    _hang_all(parent, n + m)
    for j in range(m):
        room[j] = b[j]
        closed[j] = 0.0  # minus infinity bars a full sink
    total = 0.0
    for i in range(n):
        left, row = a[i], behind(prices.rough, i * prices.width)
        while True:
            j = cheapest(row, closed, m)
            if left < room[j]:
                total += left * row[j]
                room[j] -= left
                parent[i] = n + j
                break
            total += room[j] * row[j]
            left -= room[j]
            closed[j] = -np.inf
            parent[n + j] = i
            if left == 0:
                break
    return total


@inner
def _sorted_forest(prices, a, b, parent, keys, sources, sinks):
    """Sources and sinks ship in the order of their distance from a sink at one end of the line that they lie on.

    The end is found by looking for the farthest point from the farthest point. Returns the cost of the plan.
    """
    n, m, width, costs = prices.n, prices.m, prices.width, prices.rough
    _hang_all(parent, n + m)
    far = _farthest(costs, m, 1)
    far = _farthest(behind(costs, far), n, width)
    far = _farthest(behind(costs, far * width), m, 1)
    near = 0
    for i in range(n):
        keys[i] = costs[i * width + far]
        near = i if keys[i] < keys[near] else near
    sort_places(keys, n, sources)
    sort_places(behind(costs, near * width), m, sinks)
    i, j = 0, 0
    left, room = a[sources[0]], b[sinks[0]]
    total = 0.0
    while True:
        source, sink = sources[i], sinks[j]
        if left < room:
            total += left * costs[source * width + sink]
            parent[source] = n + sink
            room -= left
            left = 0
        else:
            total += room * costs[source * width + sink]
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


@inner
def _farthest(costs, count, stride):
    """The first of the largest of every `stride`-th cost."""
    far = 0
    for k in range(1, count):
        if costs[k * stride] > costs[far * stride]:
            far = k
    return far


@inner
def sort_places(keys, count, order):
    """The places of numbers in their order, by Shell's sort: short, so that it is compiled quickly."""
    for k in range(count):
        order[k] = k
    gap = 1
    while 3 * gap + 1 < count:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, count):
            place, at = order[k], k
            while at >= gap and keys[place] < keys[order[at - gap]]:
                order[at] = order[at - gap]
                at -= gap
            order[at] = place
        gap //= 3


@kernel
def fill_tree_flows(parent, flow, room):
    """Make masses of any sign, which need not balance, what the arc of each node to its parent carries.

    Returns whether all nodes hang from the root, the last one; all parents must be nodes. `room`: (4, nodes) of int32.
    """
    root = parent.size - 1
    nodes, parents, child = root + 1, pointer(parent), pointer(room)
    order = behind(child, 3 * nodes)
    if thread(parents, root, child, behind(child, nodes), behind(child, 2 * nodes), order) < nodes:
        return False
    for k in range(root, 0, -1):  # children before their parents
        x = order[k]
        p = parents[x]
        if p != root:
            flow[p] -= flow[x]
    return True


def tree_flows(parent: np.ndarray, mass: np.ndarray) -> np.ndarray | None:
    """What the arc of each node to its parent carries at these masses, of any sign; None if `parent` is no tree."""
    flow = mass.copy()
    return flow if fill_tree_flows(parent, flow, np.empty((4, parent.size), np.int32)) else None


def planted_flows(parent: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """The flows that integer masses imply; None where they are not feasible."""
    flow = tree_flows(parent, np.concatenate([a, b, [0]]))
    if flow is None or (flow < 0).any() or flow[:-1][parent[:-1] == parent.size - 1].any():
        return None
    return flow


def hung_forest(arcs: np.ndarray, n: int, m: int) -> np.ndarray:
    """The parents of all nodes when every tree of a forest of arcs (source, sink) hangs from the root by a source."""
    root = n + m
    _, tree = connected_components(_graph(arcs, root + 1), directed=False)
    _, tops = np.unique(tree[:n], return_index=True)  # the first source of each tree
    hung = np.concatenate([arcs, np.stack([np.full(tops.size, root), tops], axis=1)])
    parent = breadth_first_order(_graph(hung, root + 1), root, directed=False)[1].astype(np.int32)
    parent[root] = NOBODY
    return parent


def _graph(arcs: np.ndarray, n_nodes: int) -> csr_array:
    return csr_array((np.ones(len(arcs), np.int8), (arcs[:, 0], arcs[:, 1])), shape=(n_nodes, n_nodes))
