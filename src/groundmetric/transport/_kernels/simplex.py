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

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .compiled import glued, inner, larger, shared, vectorised
from .scan import best_of_near, gaining_arc, price, set_levels
from .tree import find_cycle, hangs_below, plant, rehang, send_around

# Rounding in a reduced cost c - u - v is a few units in the last place of its largest term; what is below this share of
# them is noise, not an improvement.
NOISE = 2.0**-46
# Rows that are looked at before the best of their arcs enter.
ROWS = 32
_ENDLESS = np.iinfo(np.int64).max


class Entering(NamedTuple):
    """Room for the arcs that are to enter the basis, as pointers; sorted by value."""

    rows: Any  # (ROWS,) int64
    cols: Any
    values: Any  # float64


@glued
def _leaving(tree, steps_up, steps_down):
    """The arc that blocks flow around the cycle, by its place on its side, and how much flow it lets pass.

    Sources and sinks take turns on a path, so only every other arc loses flow: those of sources on the source's side,
    of sinks on the sink's. Strict on the source's side, not strict on the sink's: the last blocking arc in the
    direction of the cycle, seen from where the two sides meet. That is what keeps the tree strongly feasible.
    """
    flow, up, down = tree.flow, tree.up, tree.down
    passing, place, below_source = np.int64(_ENDLESS), -1, True
    for k in range(0, steps_up, 2):
        if flow[up[k]] < passing:
            passing, place = flow[up[k]], k
    for k in range(0, steps_down, 2):
        if flow[down[k]] <= passing:
            passing, place, below_source = flow[down[k]], k, False
    return passing, place, below_source


@glued
def _shift(tree, top, potential, shift):
    """Shift the potentials of a subtree."""
    x, last = top, tree.last[top]
    potential[x] += shift
    while x != last:
        x = tree.next[x]
        potential[x] += shift


@shared
def pivot(tree, source, sink, potential, reduced):
    """Bring the arc source → sink, of negative reduced cost, into the tree.

    A source without flow to its parent can send nothing back from there: where that arc is on the cycle, it leaves, and
    nobody needs to know the rest of the cycle. Where all masses are equal, nineteen pivots of twenty are of this kind.
    """
    passing, leave, top, above, shift = 0, source, source, sink, -reduced
    if tree.flow[source] > 0 or hangs_below(tree, sink, source):
        steps_up, steps_down = find_cycle(tree, source, sink)
        passing, place, below_source = _leaving(tree, steps_up, steps_down)
        if passing > 0:
            send_around(tree, steps_up, steps_down, passing)
        leave = tree.up[place] if below_source else tree.down[place]
        if not below_source:
            top, above, shift = sink, source, reduced
    rehang(tree, top, above, passing, leave)
    _shift(tree, top, potential, shift)


@glued
def reduced_cost(prices, potential, i, j):
    """The reduced cost of the arc from source i to sink j; 0 where it is not below 0 by more than rounding."""
    cost, sink = price(prices, i, j), prices.n + j
    reduced = cost - potential[sink] + potential[i]
    noise = NOISE * (abs(cost) + abs(potential[i]) + abs(potential[sink]))
    return reduced if reduced < -noise else 0.0


@glued
def _centre(potential, root):
    """Bring potentials back to about 0: shifts lift all of them, and rounding is in proportion to their size.

    Not where some are near 0 as they are, which may be small beside the others: they would drown.
    """
    lowest, highest = potential[0], potential[0]
    for x in range(root):
        lowest = potential[x] if potential[x] < lowest else lowest
        highest = potential[x] if potential[x] > highest else highest
    middle = 0.5 * lowest + 0.5 * highest
    if abs(middle) > highest - lowest:
        for x in range(root):
            potential[x] -= middle


@glued
def insert_arc(entering, count, i, j, value):
    """Put an arc into its place among the first `count`, which are sorted by value."""
    rows, cols, values = entering
    k = count
    while k > 0 and values[k - 1] > value:
        rows[k], cols[k], values[k] = rows[k - 1], cols[k - 1], values[k - 1]
        k -= 1
    rows[k], cols[k], values[k] = i, j, value


@vectorised
def improve(tree, prices, potential, budget, entering):
    """Pivot until a whole round over the rows finds no arc to gain by; returns the number of pivots.

    The best arcs of some rows are collected; then they enter in the order of what they promised, if they still gain.
    Looking at many rows for each pivot would save pivots, but cost more than it saves. The last round is careful: it
    prices every arc of which rounding does not allow to say that it cannot gain.
    """
    n = prices.n
    pivots, clean, careful = 0, 0, False
    i = 0
    while pivots < budget:
        if i < ROWS and pivots > 0:  # once a round
            _centre(potential, tree.root)
        count = 0
        highest = set_levels(prices, potential)
        for _ in range(ROWS):
            if careful:
                j = best_of_near(prices, i, potential, highest)
                gain = reduced_cost(prices, potential, i, j)
            else:
                gain, j = gaining_arc(prices, i, potential, highest)
            if gain < 0.0:
                insert_arc(entering, count, i, j, gain)
                count += 1
            else:
                clean += 1
            i = i + 1 if i + 1 < n else 0
            if clean >= n:
                break
        for k in range(count):
            source, j = entering.rows[k], entering.cols[k]
            reduced = reduced_cost(prices, potential, source, j)
            if reduced < 0.0 and pivots < budget:
                pivot(tree, source, n + j, potential, reduced)
                pivots += 1
                clean = 0  # what was clean before may not be now
        if clean >= n:
            if careful:
                break
            clean, careful = 0, True
    return pivots


@inner
def _tighten(tree, prices, potential):
    """Potentials that make every arc of the tree tight, from the root down; a component keeps its top source's level.

    Returns how far any potential moved at most.
    """
    n, moved = prices.n, 0.0
    x = tree.next[tree.root]
    while x >= 0:
        p = tree.parent[x]
        if p != tree.root:
            cost = price_to_parent(prices, x, p)
            tight = potential[p] + cost if x >= n else potential[p] - cost
            moved = larger(moved, abs(tight - potential[x]))
            potential[x] = tight
        x = tree.next[x]
    return moved


@glued
def price_to_parent(prices, x, parent):
    """What the arc between a node and its parent costs."""
    n = prices.n
    return price(prices, x, parent - n) if x < n else price(prices, parent, x - n)


@glued
def optimise(tree, prices, a, b, potential, max_pivots, entering):
    """Take the basis in the parents of the tree to optimality, in place, with its flows and potentials.

    `potential` gives the levels of the components to start from. Returns the number of pivots and whether the basis is
    optimal; -1 where the basis does not fit these masses, and nothing was done.
    """
    pivots, done, planted, may_cut = 0, 0, False, True
    while True:  # every function is called in one place, so that it is compiled in one
        fresh = not planted
        if fresh:
            if not plant(tree, prices.n, a, b):
                return -1, False
            planted = True
            if may_cut:
                _centre(potential, tree.root)
        # Shifts add rounding errors; if fresh potentials differ from the shifted ones, look once more.
        drift = _tighten(tree, prices, potential)
        settled = done == 0 or drift <= NOISE * largest(potential, tree.root + 1)
        if settled and not fresh and pivots < max_pivots:
            if not (may_cut and cut_idle_arcs(tree, prices.n, potential, paid_costs(tree, prices)[1])):
                return pivots, True
            may_cut, planted = False, False
            continue
        if pivots >= max_pivots:
            return pivots, False
        done = improve(tree, prices, potential, max_pivots - pivots, entering)
        pivots += done


@glued
def largest(numbers, count):
    """The largest size of any of the numbers."""
    size = 0.0
    for k in range(count):
        size = larger(size, abs(numbers[k]))
    return size


@glued
def cut_idle_arcs(tree, n, potential, paid):
    """Cut the arcs without flow, if potentials are far larger than the costs that are paid; returns whether they were.

    Where a huge cost bars an arc, the arc may stand in the tree idly, and potentials beyond it are as huge: what is
    left of their digits is too few for the small costs. Cut off, the parts begin again at level 0.
    """
    if largest(potential, tree.root + 1) <= 100.0 * paid:
        return False
    for x in range(n):  # in a strongly feasible tree, only a source's arc to its parent can be idle
        if tree.flow[x] == 0:
            tree.parent[x] = tree.root
            potential[x] = 0.0
    return True


@inner
def paid_costs(tree, prices):
    """Flow times cost, summed over the arcs of the tree in node order; and the dearest arc that carries flow."""
    total, dearest = 0.0, 0.0
    for x in range(tree.root):
        if tree.flow[x] > 0:
            cost = price_to_parent(prices, x, tree.parent[x])
            total += tree.flow[x] * cost
            dearest = larger(dearest, abs(cost))
    return total, dearest
