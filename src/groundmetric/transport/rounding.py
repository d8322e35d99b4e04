"""What is left over when masses are rounded to units: given back to the arcs, or dropped where it is rounding itself.

Units are about 2⁻⁶⁰ of all mass, and floats are known to 2⁻⁵³ of themselves. Beside costs of 10¹⁸ both show. The plan
is found in units. Then the tree is asked what its arcs carry at the masses themselves; what a dear arc carries because
of the last digits of masses that should match is not shipped at all.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .basis import Forest
from .masses import ROUNDING
from .tree import tree_flows

# An arc that costs so much more than all that carry something is worth being rid of.
_DEAR = 100.0
# In units: what the arithmetic here may be wrong by.
_NOISE = 2.0**-20


def true_flows(forest: Forest, left: np.ndarray) -> np.ndarray:
    """What the arc of each node carries at the given masses, in units; below 0 where another tree would be right.

    `left` is what rounding has left of the masses of all nodes.
    """
    return forest.flow + tree_flows(forest.parent, np.append(left, 0.0))


def without_rounding(
    forest: Forest, cost: np.ndarray, units: np.ndarray, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Units of all nodes, and what is left of their masses, such that dear arcs carry no rounding.

    Without such an arc the tree falls apart. If masses on either side, together, would only have to change within their
    last digits to make up for what the arc carried, then nobody can say that it has to carry anything. None where there
    is no such arc.
    """
    carried = true_flows(forest, left)
    nodes = forest.arcs[forest.flow[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    little = np.abs(carried[nodes]) <= ROUNDING * units.sum() + _NOISE
    prices = np.abs(cost[tails, heads])
    doubtful = little & (prices > _DEAR * prices[~little].max(initial=0.0))
    doubtful &= forest.flow[nodes] < np.minimum(units[tails], units[forest.n_sources + heads])
    heads = heads + forest.n_sources
    while doubtful.any():
        keep, drop = ~doubtful, np.flatnonzero(doubtful)
        part = _parts(tails[keep], heads[keep], units.size)
        sent, received = part[tails[drop]], part[heads[drop]]
        size = part.max() + 1
        change = np.bincount(sent, carried[nodes[drop]], size) - np.bincount(received, carried[nodes[drop]], size)
        too_much = np.abs(change) > ROUNDING * np.bincount(part, units, size) + _NOISE
        wrong = drop[too_much[sent] | too_much[received]]
        if not wrong.size:
            break
        doubtful[wrong[np.argmax(np.abs(carried[nodes[wrong]]))]] = False
    if not doubtful.any():
        return None
    units, left = units.copy(), left.copy()
    for ends in (tails[doubtful], heads[doubtful]):
        np.subtract.at(units, ends, forest.flow[nodes[doubtful]])
        np.subtract.at(left, ends, (carried - forest.flow)[nodes[doubtful]])
    return units, left


def unplaced(forest: Forest, flows: np.ndarray, units: np.ndarray) -> float:
    """Units that arcs would carry backwards, and that whole parts of the forest lack, beyond the last digits of masses.

    Where there are any, another forest would be right at the given masses, and `flows` fit them only without these.
    """
    nodes = forest.arcs
    tails, heads = forest.ends(nodes)
    heads = heads + forest.n_sources
    backwards = -flows[nodes] - ROUNDING * np.minimum(units[tails], units[heads])
    part = _parts(tails, heads, units.size)
    tops = np.flatnonzero(forest.parent[:-1] == units.size)
    lacking = np.abs(flows[tops]) - ROUNDING * np.bincount(part, units)[part[tops]]
    return float(sum(np.maximum(amount - _NOISE, 0.0).sum() for amount in (backwards, lacking)))


def _parts(tails: np.ndarray, heads: np.ndarray, size: int) -> np.ndarray:
    """The part that each of so many nodes belongs to when these arcs connect them."""
    links = sparse.coo_array((np.ones(tails.size), (tails, heads)), (size, size))
    return connected_components(links, directed=False)[1]
