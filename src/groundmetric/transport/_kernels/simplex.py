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

import numba
import numpy as np

from .scan import best_of_near, borrowed, gaining_arc, lent_prices, price, set_levels
from .tree import NOBODY, find_cycle, lent, plant, push, rehang, resize

# Rounding in a reduced cost c - u - v is a few units in the last place of its largest term; what is below this share of
# them is noise, not an improvement.
NOISE = 2.0**-46
# Rows that are looked at before the best of their arcs enter.
ROWS = 32
_ENDLESS = np.iinfo(np.int64).max


@numba.njit(nogil=True, cache=True)
def _tighten(tree, n, prices, potential):
    """Potentials that make every arc of the tree tight, from the root down; a component keeps its top source's level.

    Returns how far any potential moved at most.
    """
    root = tree.parent.size - 1
    moved = 0.0
    x = tree.next[root]
    while x >= 0:
        p = tree.parent[x]
        if p != root:
            tight = potential[p] + price(prices, p, x - n) if x >= n else potential[p] - price(prices, x, p - n)
            moved = max(moved, abs(tight - potential[x]))
            potential[x] = tight
        x = tree.next[x]
    return moved


@numba.njit(nogil=True, cache=True, inline="always")
def _leaving(tree, steps_up, steps_down):
    """The arc that blocks flow around the cycle, by its place on its side, and how much flow it lets pass.

    Sources and sinks take turns on a path, so only every other arc loses flow: those of sources on the source's side,
    of sinks on the sink's. Strict on the source's side, not strict on the sink's: the last blocking arc in the
    direction of the cycle, seen from where the two sides meet. That is what keeps the tree strongly feasible.
    """
    passing, place, below_source = _ENDLESS, -1, True
    for k in range(0, steps_up, 2):
        if tree.flow[tree.up[k]] < passing:
            passing, place = tree.flow[tree.up[k]], k
    for k in range(0, steps_down, 2):
        if tree.flow[tree.down[k]] <= passing:
            passing, place, below_source = tree.flow[tree.down[k]], k, False
    return passing, place, below_source


@numba.njit(nogil=True, cache=True, inline="always")
def _shift(tree, below, potential, shift):
    """Shift the potentials of a subtree; or, where that is less work, all others the other way."""
    x = below
    if 2 * tree.size[below] <= potential.size:
        for _ in range(tree.size[below]):
            potential[x] += shift
            x = tree.next[x]
        return
    x = tree.next[potential.size - 1]
    while x != NOBODY:
        if x == below:
            x = tree.next[tree.last[below]]
            continue
        potential[x] -= shift
        x = tree.next[x]


@numba.njit(nogil=True, cache=True, inline="always")
def pivot(tree, source, sink, potential, reduced):
    """Bring the arc source → sink, of negative reduced cost, into the `lent` tree."""
    source, sink = np.uint32(source), np.uint32(sink)
    steps_up, steps_down = find_cycle(tree, source, sink)
    passing, place, below_source = _leaving(tree, steps_up, steps_down)
    if passing > 0:
        push(tree, steps_up, steps_down, passing)
    resize(tree, below_source, place, steps_up, steps_down)
    if below_source:
        rehang(tree, source, sink, passing, tree.up[place])
        _shift(tree, source, potential, -reduced)
    else:
        rehang(tree, sink, source, passing, tree.down[place])
        _shift(tree, sink, potential, reduced)


@numba.njit(nogil=True, cache=True, inline="always")
def _reduced(prices, potential, n, i, j):
    """The reduced cost of the arc from source i to sink j; 0 where it is not below 0 by more than rounding."""
    cost = price(prices, i, j)
    reduced = cost - potential[n + j] + potential[i]
    noise = NOISE * (abs(cost) + abs(potential[i]) + abs(potential[n + j]))
    return reduced if reduced < -noise else 0.0


@numba.njit(nogil=True, cache=True)
def _centre(potential):
    """Bring potentials back to about 0: shifts lift all of them, and rounding is in proportion to their size.

    Not where some are near 0 as they are, which may be small beside the others: they would drown.
    """
    nodes = potential[:-1]
    lowest, highest = nodes.min(), nodes.max()
    middle = 0.5 * lowest + 0.5 * highest
    if abs(middle) > highest - lowest:
        nodes -= middle


@numba.njit(nogil=True, cache=True)
def _improve(tree, n, prices, potential, budget):
    """Pivot until a whole round over the rows finds no arc to gain by; returns the number of pivots.

    The best arcs of some rows are collected; then they enter in the order of what they promised, if they still gain.
    Looking at many rows for each pivot would save pivots, but cost more than it saves. The last round is careful: it
    prices every arc of which rounding does not allow to say that it cannot gain.
    """
    tree, prices, potential = lent(tree), lent_prices(prices), borrowed(potential)
    rows, cols, values = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64), np.empty(ROWS)
    pivots, clean, i, careful = 0, 0, 0, False
    while pivots < budget:
        if i < ROWS and pivots > 0:  # once a round
            _centre(potential)
        count = 0
        highest = set_levels(prices.rough, potential)
        for _ in range(ROWS):
            if careful:
                j = best_of_near(prices, i, potential, highest)
                gain = _reduced(prices, potential, n, i, j)
            else:
                gain, j = gaining_arc(prices.rough, i, potential, highest)
            if gain < 0.0:
                insert_arc(rows, cols, values, count, i, j, gain)
                count += 1
            else:
                clean += 1
            i = i + 1 if i + 1 < n else 0
            if clean >= n:
                break
        for k in range(count):
            reduced = _reduced(prices, potential, n, rows[k], cols[k])
            if reduced < 0.0 and pivots < budget:
                pivot(tree, rows[k], n + cols[k], potential, reduced)
                pivots += 1
                clean = 0  # what was clean before may not be now
        if clean >= n:
            if careful:
                break
            clean, careful = 0, True
    return pivots


@numba.njit(nogil=True, cache=True)
def insert_arc(rows, cols, values, count, i, j, value):
    """Put an arc into its place among the first `count`, which are sorted by value."""
    k = count
    while k > 0 and values[k - 1] > value:
        rows[k], cols[k], values[k] = rows[k - 1], cols[k - 1], values[k - 1]
        k -= 1
    rows[k], cols[k], values[k] = i, j, value


@numba.njit(nogil=True, cache=True)
def optimise(prices, a, b, parent, flow, potential, max_pivots):
    """Take the basis in `parent` to optimality, in place, with its flows and potentials.

    `potential` gives the levels of the components to start from. Returns (pivots, optimal, feasible): not feasible
    means that the basis does not fit these masses, and nothing was done.
    """
    n = a.size
    tree, feasible = plant(parent, flow, a, b)
    if not feasible:
        return 0, False, False
    _centre(potential)
    _tighten(tree, n, prices, potential)
    pivots, may_cut = 0, True
    while pivots < max_pivots:
        done = _improve(tree, n, prices, potential, max_pivots - pivots)
        pivots += done
        # Shifts add rounding errors; if fresh potentials differ from the shifted ones, look once more.
        drift = _tighten(tree, n, prices, potential)
        settled = done == 0 or drift <= NOISE * np.abs(potential).max()
        if pivots < max_pivots and settled:
            if not (may_cut and cut_idle_arcs(tree, n, potential, _dearest(tree, n, prices))):
                return pivots, True, True
            may_cut = False
            tree, _ = plant(parent, flow, a, b)
            _tighten(tree, n, prices, potential)
    return pivots, False, True


@numba.njit(nogil=True, cache=True)
def _dearest(tree, n, prices):
    """The largest cost that is paid."""
    paid = 0.0
    for x in range(tree.parent.size - 1):
        if tree.flow[x] > 0:
            paid = max(paid, abs(_price_to_parent(prices, n, x, tree.parent[x])))
    return paid


@numba.njit(nogil=True, cache=True, inline="always")
def _price_to_parent(prices, n, x, parent):
    return price(prices, x, parent - n) if x < n else price(prices, parent, x - n)


@numba.njit(nogil=True, cache=True)
def cut_idle_arcs(tree, n, potential, paid):
    """Cut the arcs without flow, if potentials are far larger than the costs that are paid; returns whether they were.

    Where a huge cost bars an arc, the arc may stand in the tree idly, and potentials beyond it are as huge: what is
    left of their digits is too few for the small costs. Cut off, the parts begin again at level 0.
    """
    if np.abs(potential).max() <= 100.0 * paid:
        return False
    root = tree.parent.size - 1
    for x in range(n):  # in a strongly feasible tree, only a source's arc to its parent can be idle
        if tree.flow[x] == 0:
            tree.parent[x] = root
            potential[x] = 0.0
    return True


@numba.njit(nogil=True, cache=True)
def shipping_cost(prices, n, parent, flow):
    """Flow times cost, summed over the arcs of the tree in node order."""
    total = 0.0
    for x in range(parent.size - 1):
        if flow[x] > 0:
            total += flow[x] * _price_to_parent(prices, n, x, parent[x])
    return total
