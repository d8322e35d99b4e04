"""The network simplex over a list of candidate arcs, costs computed from the points: no matrix anywhere.

Nodes, trees and potentials are those of `simplex`; z holds the points of all nodes but the root.
"""

from __future__ import annotations

import numba
import numpy as np

from .candidates import noise_of, reduced_cost
from .costs import step_cost
from .simplex import ROWS, cut_idle_arcs, insert_arc, pivot
from .tree import lent, plant


@numba.njit(nogil=True, cache=True)
def _price(tree, n, z, cost, potential):
    """Potentials that make every arc of the tree tight; a component keeps its top source's level."""
    root = tree.parent.size - 1
    x = tree.next[root]
    while x >= 0:
        p = tree.parent[x]
        if p != root:
            length = step_cost(z, x, p, cost)
            potential[x] = potential[p] + length if x >= n else potential[p] - length
        x = tree.next[x]


@numba.njit(nogil=True, cache=True)
def _cheapest_candidate(candidates, i, potential):
    """Place of the cheapest candidate of a source, -1 where it has none."""
    lowest, best = np.inf, -1
    for k in range(candidates.number[i]):
        less = candidates.prices[i, k] - potential[candidates.sinks[i, k]]
        if less < lowest:
            lowest, best = less, k
    return best


@numba.njit(nogil=True, cache=True)
def _improve(tree, n, candidates, potential, budget):
    """Pivot until no candidate gains, as `simplex` does with all arcs; returns the number of pivots."""
    tree = lent(tree)
    rows, places, values = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64), np.empty(ROWS)
    pivots, clean, i = 0, 0, 0
    noise = noise_of(potential)
    while clean < n and pivots < budget:
        count = 0
        for _ in range(ROWS):
            k = _cheapest_candidate(candidates, i, potential)
            reduced = 0.0
            if k >= 0:
                reduced = reduced_cost(candidates.prices[i, k], potential, i, candidates.sinks[i, k], noise)
            if reduced < 0.0:
                insert_arc(rows, places, values, count, i, k, reduced)
                count += 1
            else:
                clean += 1
            i = i + 1 if i + 1 < n else 0
            if clean >= n:
                break
        for entry in range(count):
            source, k = rows[entry], places[entry]
            sink = candidates.sinks[source, k]
            reduced = reduced_cost(candidates.prices[source, k], potential, source, sink, noise)
            if reduced < 0.0 and pivots < budget:
                pivot(tree, source, sink, potential, reduced)
                pivots += 1
                clean = 0
    return pivots


@numba.njit(nogil=True, cache=True)
def optimise_candidates(z, cost, candidates, a, b, parent, flow, potential, max_pivots):
    """Take the basis in `parent` to the best that the candidates allow, in place; returns the number of pivots."""
    tree, _ = plant(parent, flow, a, b)
    pivots, done = 0, 1
    while done > 0 and pivots < max_pivots:
        # Pivots shift all levels a little, and rounding adds up: from time to time both begin anew.
        potential[:-1] -= potential[:-1].mean()
        _price(tree, a.size, z, cost, potential)
        done = _improve(tree, a.size, candidates, potential, min(max_pivots - pivots, 10 * potential.size))
        pivots += done
    _price(tree, a.size, z, cost, potential)
    return pivots


@numba.njit(nogil=True, cache=True)
def paid_costs(z, cost, parent, flow):
    """Flow times cost summed over the arcs of the tree, and the dearest arc that carries flow."""
    total, dearest = 0.0, 0.0
    for x in range(parent.size - 1):
        if flow[x] > 0:
            length = step_cost(z, x, parent[x], cost)
            total += flow[x] * length
            dearest = max(dearest, length)
    return total, dearest


@numba.njit(nogil=True, cache=True)
def drop_idle_arcs(a, b, parent, flow, potential, paid):
    """`simplex.cut_idle_arcs` for the basis in `parent`."""
    tree, _ = plant(parent, flow, a, b)
    return cut_idle_arcs(tree, a.size, potential, paid)
