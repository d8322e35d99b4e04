"""The network simplex for transport: exact, and able to restart from the basis of an earlier solve.

Nodes 0 … n-1 are sources, n … n+m-1 sinks, and n+m the root, which stands outside the problem. A basis is a spanning
tree, kept as one array: the parent of every node. Everything else (flows, potentials, depths) follows from it, the
masses and the costs. All arcs run from a source to a sink, so a node's own kind says which way its arc to the parent
points: up if the node is a source.

Masses are integers, so flows are exact and ties are ties. The tree is kept strongly feasible (an arc without flow
points towards the root), which rules out cycling; the root's own arcs come from sources, carry nothing for ever, and
only fix the level of the potentials of the subtree below.

When only the costs change, an optimal tree of before is still feasible: start from it and a few pivots suffice.
"""

from typing import NamedTuple

import numba
import numpy as np

from .scan import cheapest

# Rounding in a reduced cost c - u - v is a few units in the last place of its largest term; what is below this share of
# them is noise, not an improvement.
_NOISE = 2.0**-46
_ENDLESS = np.iinfo(np.int64).max


class Tree(NamedTuple):
    """A rooted spanning tree with the flow on each node's arc to its parent."""

    parent: np.ndarray  # (n + m + 1,) int32
    flow: np.ndarray  # (n + m + 1,) int64
    depth: np.ndarray
    child: np.ndarray  # first child, or -1; children are a doubly linked list
    next: np.ndarray
    previous: np.ndarray
    stack: np.ndarray  # scratch for walks


@numba.njit(nogil=True, cache=True)
def greedy_forest(cost, a, b, parent):
    """A first feasible basis: every source in turn ships to the cheapest sinks that have room left.

    At any time a component has at most one sink with room, and that sink is the component's root. A component whose
    masses balance hangs from the root of all by the source that closed it.
    """
    n, m = cost.shape
    parent[:] = n + m
    parent[n + m] = -1
    room = b.copy()
    closed = np.zeros(m)  # minus infinity bars a full sink
    for i in range(n):
        left = a[i]
        while True:
            _, j = cheapest(cost[i], closed)
            if left < room[j]:
                room[j] -= left
                parent[i] = n + j
                break
            left -= room[j]
            closed[j] = -np.inf
            parent[n + j] = i
            if left == 0:
                break


@numba.njit(nogil=True, cache=True)
def _unlink(tree, x):
    before, after = tree.previous[x], tree.next[x]
    if before >= 0:
        tree.next[before] = after
    else:
        tree.child[tree.parent[x]] = after
    if after >= 0:
        tree.previous[after] = before


@numba.njit(nogil=True, cache=True)
def _link(tree, x, parent):
    tree.parent[x] = parent
    head = tree.child[parent]
    tree.next[x], tree.previous[x] = head, -1
    if head >= 0:
        tree.previous[head] = x
    tree.child[parent] = x


@numba.njit(nogil=True, cache=True)
def _plant(parent, flow):
    """The tree behind a parent array; flows are still to be set."""
    size = parent.size
    tree = Tree(
        parent,
        flow,
        np.zeros(size, np.int32),
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int32),
        np.empty(size, np.int32),
    )
    for x in range(size):
        if parent[x] >= 0:
            _link(tree, x, parent[x])
    return tree


@numba.njit(nogil=True, cache=True)
def _price(tree, cost, u, v):
    """Potentials that make every arc of the tree tight, u[i] + v[j] = cost[i, j], and depths, from the root down.

    A component keeps the level that its top source has in `u`. Returns how far the potentials moved at most.
    """
    n, root = u.size, tree.parent.size - 1
    moved = 0.0
    top = 1
    tree.stack[0] = root
    while top > 0:
        top -= 1
        p = tree.stack[top]
        x = tree.child[p]
        while x >= 0:
            tree.depth[x] = tree.depth[p] + 1
            if x >= n:
                potential = cost[p, x - n] - u[p]
                moved = max(moved, abs(potential - v[x - n]))
                v[x - n] = potential
            elif p != root:
                potential = cost[x, p - n] - v[p - n]
                moved = max(moved, abs(potential - u[x]))
                u[x] = potential
            tree.stack[top] = x
            top += 1
            x = tree.next[x]
    return moved


@numba.njit(nogil=True, cache=True)
def _set_flows(tree, a, b):
    """The flows that the tree and the masses imply. Returns whether they are feasible: none negative."""
    n, root = a.size, tree.parent.size - 1
    tree.flow[:n] = a
    tree.flow[n:root] = b
    tree.flow[root] = 0
    filled = 1  # `stack` as a queue: parents stand before their children
    tree.stack[0] = root
    for head in range(tree.parent.size):
        if head >= filled:
            return False  # not a tree: some nodes hang from nowhere
        x = tree.child[tree.stack[head]]
        while x >= 0:
            tree.stack[filled] = x
            filled += 1
            x = tree.next[x]
    feasible = True
    for k in range(root, 0, -1):
        x = tree.stack[k]
        p = tree.parent[x]
        if p != root:
            tree.flow[p] -= tree.flow[x]
        elif tree.flow[x] != 0:
            feasible = False
        if tree.flow[x] < 0:
            feasible = False
    return feasible


@numba.njit(nogil=True, cache=True)
def _meet(tree, x, y):
    """The lowest node above both x and y."""
    while x != y:
        if tree.depth[x] > tree.depth[y]:
            x = tree.parent[x]
        elif tree.depth[y] > tree.depth[x]:
            y = tree.parent[y]
        else:
            x, y = tree.parent[x], tree.parent[y]
    return x


@numba.njit(nogil=True, cache=True)
def _leaving(tree, n, source, sink, meet):
    """The arc that blocks flow around the cycle, named by its lower node, and how much flow it lets pass.

    Strict on the source's side, not strict on the sink's: the last blocking arc in the direction of the cycle, seen
    from where the two sides meet. That is what keeps the tree strongly feasible.
    """
    passing, leave, below_source = _ENDLESS, -1, True
    x = source
    while x != meet:
        if x < n and tree.flow[x] < passing:
            passing, leave = tree.flow[x], x
        x = tree.parent[x]
    x = sink
    while x != meet:
        if x >= n and tree.flow[x] <= passing:
            passing, leave, below_source = tree.flow[x], x, False
        x = tree.parent[x]
    return passing, leave, below_source


@numba.njit(nogil=True, cache=True)
def _push(tree, n, source, sink, meet, amount):
    """Send `amount` from source to sink and back through the tree."""
    x = source
    while x != meet:
        tree.flow[x] += -amount if x < n else amount
        x = tree.parent[x]
    x = sink
    while x != meet:
        tree.flow[x] += amount if x < n else -amount
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _rehang(tree, x, parent, flow, leave):
    """Hang the part below `leave` by its node x under `parent`, turning the path from x to `leave` upside down."""
    while True:
        old_parent, old_flow = tree.parent[x], tree.flow[x]
        _unlink(tree, x)
        _link(tree, x, parent)
        tree.flow[x] = flow
        if x == leave:
            return
        parent, flow, x = x, old_flow, old_parent


@numba.njit(nogil=True, cache=True)
def _shift(tree, top_node, u, v, shift):
    """Shift the potentials of a subtree (u up, v down) and set its depths anew."""
    n = u.size
    top = 1
    tree.stack[0] = top_node
    while top > 0:
        top -= 1
        x = tree.stack[top]
        if x < n:
            u[x] += shift
        else:
            v[x - n] -= shift
        tree.depth[x] = tree.depth[tree.parent[x]] + 1
        x = tree.child[x]
        while x >= 0:
            tree.stack[top] = x
            top += 1
            x = tree.next[x]


@numba.njit(nogil=True, cache=True)
def _pivot(tree, i, j, u, v, reduced):
    """Bring the arc i → j, of negative reduced cost, into the tree."""
    n = u.size
    source, sink = i, n + j
    meet = _meet(tree, source, sink)
    passing, leave, below_source = _leaving(tree, n, source, sink, meet)
    if passing > 0:
        _push(tree, n, source, sink, meet, passing)
    if below_source:
        _rehang(tree, source, sink, passing, leave)
        _shift(tree, source, u, v, reduced)
    else:
        _rehang(tree, sink, source, passing, leave)
        _shift(tree, sink, u, v, -reduced)


@numba.njit(nogil=True, cache=True)
def _improve(tree, cost, u, v, budget):
    """Pivot until a whole round over the rows finds no arc to gain by; returns the number of pivots.

    A row is worked until it is clean before the next is looked at: it is in the cache by then.
    """
    n = u.size
    pivots, clean, i = 0, 0, 0
    while clean < n and pivots < budget:
        lowest, j = cheapest(cost[i], v)
        reduced = lowest - u[i]
        if reduced < -_NOISE * (abs(cost[i, j]) + abs(u[i]) + abs(v[j])):
            _pivot(tree, i, j, u, v, reduced)
            pivots += 1
            clean = 0
        else:
            clean += 1
            i = i + 1 if i + 1 < n else 0
    return pivots


@numba.njit(nogil=True, cache=True)
def optimise(cost, a, b, parent, flow, u, v, max_pivots):
    """Take the basis in `parent` to optimality, in place, with its flows and potentials.

    `u` gives the levels of the components to start from. Returns (pivots, optimal, feasible): not feasible means that
    the basis does not fit these masses, and nothing was done.
    """
    tree = _plant(parent, flow)
    if not _set_flows(tree, a, b):
        return 0, False, False
    _price(tree, cost, u, v)
    pivots = 0
    while pivots < max_pivots:
        done = _improve(tree, cost, u, v, max_pivots - pivots)
        pivots += done
        # Shifts add rounding errors; if fresh potentials differ from the shifted ones, look once more.
        drift = _price(tree, cost, u, v)
        if pivots < max_pivots and (done == 0 or drift <= _NOISE * (np.abs(u).max() + np.abs(v).max())):
            return pivots, True, True
    return pivots, False, True


@numba.njit(nogil=True, cache=True)
def shipping_cost(cost, parent, flow):
    """Flow times cost, summed over the arcs of the tree in node order."""
    n = cost.shape[0]
    root = parent.size - 1
    total = 0.0
    for x in range(root):
        if flow[x] > 0:
            p = parent[x]
            total += flow[x] * (cost[x, p - n] if x < n else cost[p, x - n])
    return total
