"""The network simplex for transport: exact, and able to restart from the basis of an earlier solve.

Nodes 0 … n-1 are sources, n … n+m-1 sinks, and n+m the root, which stands outside the problem. A basis is a spanning
tree, kept as one array: the parent of every node. Everything else (flows, potentials, subtree sizes) follows from it,
the masses and the costs. All arcs run from a source to a sink, so a node's own kind says which way its arc to the
parent points: up if the node is a source.

Masses are integers, so flows are exact and ties are ties. The tree is kept strongly feasible (an arc without flow
points towards the root), which rules out cycling; the root's own arcs come from sources, carry nothing for ever, and
only fix the level of the potentials of the subtree below.

Potentials are kept per node, -u for a source and v for a sink: an arc is tight where its sink's potential exceeds its
source's by the cost, and a whole subtree shifts by one number.

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
def _plant(parent, flow, a, b):
    """The tree behind a parent array with the flows that the masses imply, and whether these are feasible."""
    n, root = a.size, parent.size - 1
    size, last = np.ones(root + 1, np.int32), np.arange(root + 1).astype(np.int32)
    following, previous = np.full(root + 1, -1, np.int32), np.full(root + 1, -1, np.int32)
    tree = Tree(parent, flow, size, following, previous, last)
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
def _price(tree, cost, potential):
    """Potentials that make every arc of the tree tight, from the root down; a component keeps its top source's level.

    Returns how far any potential moved at most.
    """
    n, root = cost.shape[0], tree.parent.size - 1
    moved = 0.0
    x = tree.next[root]
    while x >= 0:
        p = tree.parent[x]
        if p != root:
            tight = potential[p] + cost[p, x - n] if x >= n else potential[p] - cost[x, p - n]
            moved = max(moved, abs(tight - potential[x]))
            potential[x] = tight
        x = tree.next[x]
    return moved


@numba.njit(nogil=True, cache=True)
def _meet(tree, x, y):
    """The lowest node above both x and y. The one with the smaller subtree cannot be above the other: move it up."""
    while x != y:
        if tree.size[x] < tree.size[y]:
            x = tree.parent[x]
        else:
            y = tree.parent[y]
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
def _resize(tree, x, meet, amount):
    """Add to the subtree sizes from x up to, but without, `meet`."""
    while x != meet:
        tree.size[x] += amount
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _new_end(tree, x, old, new):
    """Subtrees from x upwards that ended with the node `old` end with `new` from now on."""
    while x >= 0 and tree.last[x] == old:
        tree.last[x] = new
        x = tree.parent[x]


@numba.njit(nogil=True, cache=True)
def _follow(tree, x, y):
    """Let y stand behind x in the list."""
    tree.next[x] = y
    if y >= 0:
        tree.previous[y] = x


@numba.njit(nogil=True, cache=True)
def _take_out(tree, x):
    """Take x's subtree out of the list; its piece then ends the list."""
    before, last = tree.previous[x], tree.last[x]
    _new_end(tree, tree.parent[x], last, before)
    _follow(tree, before, tree.next[last])
    tree.next[last] = -1


@numba.njit(nogil=True, cache=True)
def _turn(tree, x, parent, flow, leave):
    """Turn the path from x up to `leave` upside down, so that x becomes the top, below `parent`; returns the new end.

    In the list: x's piece comes first, then what is left of its old parent's piece, and so on up to `leave`.
    """
    moved = tree.size[leave]
    above, hung, end = parent, 0, -1  # hung: nodes that are off the path already; end: of the new piece so far
    inner_last, inner_before = -1, -1  # the end of the piece that was just taken out, and the node before it
    while True:
        old_parent, old_flow, old_size, old_last = tree.parent[x], tree.flow[x], tree.size[x], tree.last[x]
        before = tree.previous[x]
        last = inner_before if old_last == inner_last else old_last
        if x != leave:
            _follow(tree, before, tree.next[last])
        if end >= 0:
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


@numba.njit(nogil=True, cache=True)
def _rehang(tree, x, parent, flow, leave, meet):
    """Cut the tree above `leave` and hang the part below by its node x under `parent`."""
    moved = tree.size[leave]
    _resize(tree, tree.parent[leave], meet, -moved)
    _resize(tree, parent, meet, moved)
    _take_out(tree, leave)
    end = _turn(tree, x, parent, flow, leave)
    _follow(tree, end, tree.next[parent])
    _follow(tree, parent, x)
    _new_end(tree, parent, parent, end)


@numba.njit(nogil=True, cache=True)
def _shift(tree, below, potential, shift):
    """Shift the potentials of a subtree; or, where that is less work, all others the other way."""
    x = below
    if 2 * tree.size[below] <= potential.size:
        for _ in range(tree.size[below]):
            potential[x] += shift
            x = tree.next[x]
        return
    x = tree.next[potential.size - 1]
    while x >= 0:
        if x == below:
            x = tree.next[tree.last[below]]
            continue
        potential[x] -= shift
        x = tree.next[x]


@numba.njit(nogil=True, cache=True)
def _pivot(tree, n, i, j, potential, reduced):
    """Bring the arc i → j, of negative reduced cost, into the tree."""
    source, sink = i, n + j
    meet = _meet(tree, source, sink)
    passing, leave, below_source = _leaving(tree, n, source, sink, meet)
    if passing > 0:
        _push(tree, n, source, sink, meet, passing)
    if below_source:
        _rehang(tree, source, sink, passing, leave, meet)
        _shift(tree, source, potential, -reduced)
    else:
        _rehang(tree, sink, source, passing, leave, meet)
        _shift(tree, sink, potential, reduced)


@numba.njit(nogil=True, cache=True)
def _improve(tree, cost, potential, budget):
    """Pivot until a whole round over the rows finds no arc to gain by; returns the number of pivots.

    A row is worked until it is clean before the next is looked at: it is in the cache by then.
    """
    n, m = cost.shape
    v = potential[n : n + m]
    pivots, clean, i = 0, 0, 0
    while clean < n and pivots < budget:
        lowest, j = cheapest(cost[i], v)
        reduced = lowest + potential[i]
        if reduced < -_NOISE * (abs(cost[i, j]) + abs(potential[i]) + abs(v[j])):
            _pivot(tree, n, i, j, potential, reduced)
            pivots += 1
            clean = 0
        else:
            clean += 1
            i = i + 1 if i + 1 < n else 0
    return pivots


@numba.njit(nogil=True, cache=True)
def optimise(cost, a, b, parent, flow, potential, max_pivots):
    """Take the basis in `parent` to optimality, in place, with its flows and potentials.

    `potential` gives the levels of the components to start from. Returns (pivots, optimal, feasible): not feasible
    means that the basis does not fit these masses, and nothing was done.
    """
    tree, feasible = _plant(parent, flow, a, b)
    if not feasible:
        return 0, False, False
    _price(tree, cost, potential)
    pivots = 0
    while pivots < max_pivots:
        done = _improve(tree, cost, potential, max_pivots - pivots)
        pivots += done
        # Shifts add rounding errors; if fresh potentials differ from the shifted ones, look once more.
        drift = _price(tree, cost, potential)
        if pivots < max_pivots and (done == 0 or drift <= _NOISE * np.abs(potential).max()):
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
