"""The spanning tree of the network simplex: first feasible trees, and trees that are walked, cut and rehung.

See `simplex` for what its nodes and arcs are.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from .scan import borrowed, cheapest

# The node above the root and behind the last one, as `lent` trees know it.
NOBODY = np.uint32(2**32 - 1)


class Tree(NamedTuple):
    """A rooted spanning tree with the flow on each node's arc to its parent.

    `next` and `previous` thread all nodes in an order in which every subtree is one piece: it begins with its top node
    and ends with that node's `last`. A walk over a subtree is then a walk along a list.
    """

    parent: np.ndarray  # (n + m + 1,) int32, like the others
    flow: np.ndarray  # int64
    size: np.ndarray  # number of nodes in the subtree
    next: np.ndarray  # -1 after the last node of all
    previous: np.ndarray
    last: np.ndarray
    up: np.ndarray  # room for the two sides of a cycle, see `find_cycle`
    down: np.ndarray


@numba.njit(nogil=True, cache=True)
def _thread(parent):
    """An order of the nodes in which every subtree is one piece, as a list; shorter if `parent` is not a tree."""
    size = parent.size
    child, sibling = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    for x in range(size):
        if parent[x] >= 0:
            sibling[x] = child[parent[x]]
            child[parent[x]] = x
    order, stack = np.empty(size, np.int32), np.empty(size, np.int32)
    count, top = 0, 1
    stack[0] = size - 1
    while top > 0:
        top -= 1
        order[count] = stack[top]
        x = child[order[count]]
        count += 1
        while x >= 0:
            stack[top] = x
            top += 1
            x = sibling[x]
    return order[:count]


@numba.njit(nogil=True, cache=True)
def plant(parent, flow, a, b):
    """The tree behind a parent array with the flows that the masses imply, and whether these are feasible."""
    n, root = a.size, parent.size - 1
    size, last = np.ones(root + 1, np.int32), np.arange(root + 1).astype(np.int32)
    following, previous = np.full(root + 1, -1, np.int32), np.full(root + 1, -1, np.int32)
    up, down = np.empty(root + 1, np.int32), np.empty(root + 1, np.int32)
    tree = Tree(parent, flow, size, following, previous, last, up, down)
    order = _thread(parent)
    if order.size <= root:
        return tree, False
    flow[:n] = a
    flow[n:root] = b
    flow[root] = 0
    feasible = True
    for k in range(root, 0, -1):  # children before their parents
        x, p = order[k], parent[order[k]]
        previous[x], following[order[k - 1]] = order[k - 1], x
        size[p] += size[x]
        if last[p] == p:
            last[p] = last[x]
        if p != root:
            flow[p] -= flow[x]
        feasible = feasible and flow[x] >= 0 and (p != root or flow[x] == 0)
    return tree, feasible


@numba.njit(nogil=True, cache=True)
def tree_flows(parent, mass):
    """What the arc of each node to its parent carries at these masses, of any sign; they need not balance."""
    root = parent.size - 1
    flow, order = mass.copy(), _thread(parent)
    for k in range(root, 0, -1):  # children before their parents
        x, p = order[k], parent[order[k]]
        if p != root:
            flow[p] -= flow[x]
    return flow


@numba.njit(nogil=True, cache=True)
def is_tree(parent):
    """Do all nodes hang from the root, the last one? All parents must be nodes."""
    return _thread(parent).size == parent.size


@numba.njit(nogil=True, cache=True, inline="always")
def lent(tree):
    """The same tree for pivots: references to its arrays not counted, see `borrowed`, and its numbers not negative.

    numba asks of every index that may be negative whether it is; beside a walk from node to node, that takes long.
    """
    return Tree(
        _unsigned(tree.parent),
        borrowed(tree.flow),
        _unsigned(tree.size),
        _unsigned(tree.next),
        _unsigned(tree.previous),
        _unsigned(tree.last),
        _unsigned(tree.up),
        _unsigned(tree.down),
    )


@numba.njit(nogil=True, cache=True, inline="always")
def _unsigned(nodes):
    return borrowed(nodes.view(np.uint32))


@numba.njit(nogil=True, cache=True, inline="always")
def find_cycle(tree, source, sink):
    """Lay down the cycle that an arc closes: nodes from source and sink up to, but without, the node above both.

    The one with the smaller subtree cannot be above the other: it moves up. Later walks along the cycle read its nodes
    from `up` and `down` side by side, which is faster than from parent to parent. Returns the numbers of nodes.
    """
    x, y = source, sink
    steps_up, steps_down = 0, 0
    while x != y:
        if tree.size[x] < tree.size[y]:
            tree.up[steps_up] = x
            steps_up += 1
            x = tree.parent[x]
        else:
            tree.down[steps_down] = y
            steps_down += 1
            y = tree.parent[y]
    return steps_up, steps_down


@numba.njit(nogil=True, cache=True, inline="always")
def push(tree, steps_up, steps_down, amount):
    """Send `amount` around the cycle: on both sides, every other arc loses what those between gain."""
    for k in range(steps_up):
        tree.flow[tree.up[k]] += amount if k % 2 else -amount
    for k in range(steps_down):
        tree.flow[tree.down[k]] += amount if k % 2 else -amount


@numba.njit(nogil=True, cache=True, inline="always")
def resize(tree, below_source, place, steps_up, steps_down):
    """Subtree sizes along the cycle after the subtree at a place on one side has moved to the foot of the other."""
    moved = tree.size[tree.up[place] if below_source else tree.down[place]]
    for k in range(place + 1 if below_source else 0, steps_up):
        tree.size[tree.up[k]] += -moved if below_source else moved
    for k in range(0 if below_source else place + 1, steps_down):
        tree.size[tree.down[k]] += moved if below_source else -moved


@numba.njit(nogil=True, cache=True, inline="always")
def _new_end(tree, x, old, new):
    """Subtrees from x upwards that ended with the node `old` end with `new` from now on."""
    while x != NOBODY and tree.last[x] == old:
        tree.last[x] = new
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True, inline="always")
def _follow(tree, x, y):
    """Let y stand behind x in the list."""
    tree.next[x] = y
    if y != NOBODY:
        tree.previous[y] = x


@numba.njit(nogil=True, cache=True, inline="always")
def _take_out(tree, x):
    """Take x's subtree out of the list; its piece then ends the list."""
    before, last = tree.previous[x], tree.last[x]
    _new_end(tree, tree.parent[x], last, before)
    _follow(tree, before, tree.next[last])
    tree.next[last] = NOBODY


@numba.njit(nogil=True, cache=True, inline="always")
def _turn(tree, x, parent, flow, leave):
    """Turn the path from x up to `leave` upside down, so that x becomes the top, below `parent`; returns the new end.

    In the list: x's piece comes first, then what is left of its old parent's piece, and so on up to `leave`.
    """
    moved = tree.size[leave]
    above, hung = parent, np.uint32(0)  # hung: nodes that are off the path already
    end = NOBODY  # of the new piece so far
    inner_last, inner_before = NOBODY, NOBODY  # the end of the piece that was just taken out, and the node before it
    while True:
        old_parent, old_flow, old_size, old_last = tree.parent[x], tree.flow[x], tree.size[x], tree.last[x]
        before = tree.previous[x]
        last = inner_before if old_last == inner_last else old_last
        if x != leave:
            _follow(tree, before, tree.next[last])
        if end != NOBODY:
            _follow(tree, end, x)
        end = last
        tree.parent[x], tree.flow[x], tree.size[x] = above, flow, moved - hung
        if x == leave:
            break
        above, flow, hung, x = x, old_flow, old_size, old_parent
        inner_last, inner_before = old_last, before
    while x != parent:  # every subtree on the path now reaches to the end
        tree.last[x] = end
        x = tree.parent[x]
    return end


@numba.njit(nogil=True, cache=True, inline="always")
def rehang(tree, x, parent, flow, leave):
    """Cut the tree above `leave` and hang the part below by its node x under `parent`; sizes above are not changed."""
    _take_out(tree, leave)
    end = _turn(tree, x, parent, flow, leave)
    _follow(tree, end, tree.next[parent])
    _follow(tree, parent, x)
    _new_end(tree, parent, parent, end)


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
