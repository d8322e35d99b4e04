"""Bases of the network simplex: validate a warm start, run the simplex, evaluate its tree at the given masses.

The simplex works on integer units of about 2⁻⁶⁰ of all mass, and floats have a relative error of 2⁻⁵³. With costs of
10¹⁸ both errors are visible in the value. Therefore the optimal tree of the rounded masses is evaluated at the given
masses (`true_flows`), and expensive arcs whose flow is only rounding error are removed (`without_rounding`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _core
from .plan import Basis
from .problem import ROUNDING, is_tall

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNFIT = "start does not fit these masses: use the basis of a plan with the same masses, or none"
_REMEDY = "use the unmodified `basis` of a plan, or none"


class Forest(NamedTuple):
    """Result of the simplex. Nodes are numbered as in `_core/tree.hpp`: sources, then sinks, then the root."""

    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    n_sources: int
    pivots: int
    optimal: bool

    @property
    def arcs(self) -> np.ndarray:
        """Nodes whose arc to the parent is an arc of the problem; arcs to the root are artificial."""
        return np.flatnonzero(self.parent[:-1] < self.parent.size - 1)

    def ends(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the source and the sink of the arcs between these nodes and their parents."""
        parents = self.parent[nodes]
        return np.minimum(nodes, parents), np.maximum(nodes, parents) - self.n_sources


def run_simplex(
    cost: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    start: Basis | None,
    max_pivots: int,
    cost_range: tuple[float, float],
) -> Forest:
    """Return the optimal forest between integer masses, all of them above 0, at costs within `cost_range`."""
    n, m = cost.shape
    if is_tall(n, m):
        if start is not None:
            start = checked_basis(start, n, m)
            _check_tree(start.parent, n)
            start = turned_basis(start, a, b)
        return turned_forest(run_simplex(np.ascontiguousarray(cost.T), b, a, start, max_pivots, cost_range), a, b)
    parent, potential = np.empty(n + m + 1, np.int32), np.zeros(n + m + 1)
    if start is not None:
        start = checked_basis(start, n, m)
        # A path of the tree has at most n + m arcs, which bounds the difference of optimal potentials. Larger
        # potentials would only cause cancellation.
        bound = (n + m) * max(cost_range[1], -cost_range[0], 1e-300)
        parent, potential = start.parent.copy(), np.clip(start.potential, -bound, bound)
    flow = np.empty(n + m + 1, np.int64)
    warm = start is not None
    pivots, optimal = _core.solve_matrix(cost, cost_range, a, b, parent, flow, potential, warm, max_pivots)
    if pivots < 0:
        if start is not None:
            _check_tree(start.parent, n)  # raises an error that names the invalid node
        raise ValueError(UNFIT)
    return Forest(parent, flow, potential, n, pivots, optimal)


def checked_basis(start: Basis, n: int, m: int) -> Basis:
    """Return a basis of n × m points with mass in the types of the kernels, which check that it is a tree."""
    parent, potential = np.asarray(start.parent), np.asarray(start.potential)
    if parent.ndim != 1 or parent.size != n + m + 1 or start.n_sources != n:
        raise ValueError(
            f"start is a basis of {start.n_sources} × {parent.size - 1 - start.n_sources} points with mass, "
            f"but this problem has {n} × {m}"
        )
    if not np.issubdtype(parent.dtype, np.integer):
        raise ValueError(f"start.parent has dtype {parent.dtype}: expected integers; {_REMEDY}")
    if parent.dtype != np.int32:
        _check_tree(parent, n)  # before the conversion truncates large numbers
    parent = parent.astype(np.int32)
    if potential.shape != parent.shape or not np.issubdtype(potential.dtype, np.floating):
        raise ValueError(
            f"start.potential has shape {potential.shape} and dtype {potential.dtype}: expected {parent.size} floats; "
            f"{_REMEDY}"
        )
    if not np.isfinite(potential).all():
        node = int(np.argmin(np.isfinite(potential)))
        raise ValueError(f"start.potential[{node}] is {potential[node]}: expected finite numbers; {_REMEDY}")
    return Basis(parent, potential.astype(np.float64), n)


def _check_tree(parent: np.ndarray, n: int) -> None:
    """Raise unless sources have sinks or the root as parents, sinks have sources, and the arcs form no cycle."""
    root = parent.size - 1
    node = np.arange(root)
    parents = parent[:-1]
    is_valid = np.where(node < n, (parents >= n) & (parents <= root), (parents >= 0) & (parents < n))
    if not is_valid.all():
        wrong = int(np.argmin(is_valid))
        kind, low, high = ("source", n, root) if wrong < n else ("sink", 0, n - 1)
        raise ValueError(
            f"start.parent[{wrong}] is {parents[wrong]}: the parent of a {kind} is from {low} to {high} here; {_REMEDY}"
        )
    if parent[root] != -1:
        raise ValueError(f"start.parent[{root}] is {parent[root]}: expected -1 for the root; {_REMEDY}")
    if tree_flows(parent.astype(np.int32), np.zeros(parent.size, np.int64)) is None:
        raise ValueError(f"start.parent is not a tree: it contains a cycle; {_REMEDY}")


def turned_basis(start: Basis, a: np.ndarray, b: np.ndarray) -> Basis:
    """Return the basis of the transposed problem; a and b are the masses before the transposition."""
    flow = planted_flows(start.parent, a, b)
    if flow is None:
        raise ValueError(UNFIT)
    n, m = a.size, b.size
    return Basis(_turned_parents(start.parent, flow, n, m), _turned_potentials(start.potential, n, m), m)


def turned_forest(forest: Forest, a: np.ndarray, b: np.ndarray) -> Forest:
    """Return the forest of the transposed problem; a and b are the masses after the transposition."""
    n, m = a.size, b.size
    parent = _turned_parents(forest.parent, forest.flow, m, n)
    flow = planted_flows(parent, a, b)
    assert flow is not None  # the same plan
    return Forest(parent, flow, _turned_potentials(forest.potential, m, n), n, forest.pivots, forest.optimal)


def _turned_parents(parent: np.ndarray, flow: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the parents of the transposed forest, from its arcs with flow.

    Arcs without flow are omitted: the simplex allows them in one direction relative to the root, and the transposition
    reverses this direction. The potentials keep the relative levels of the resulting trees.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    parents = parent[nodes]
    tails, heads = np.minimum(nodes, parents), np.maximum(nodes, parents) - n
    return hung_forest(np.stack([heads, m + tails], axis=1).astype(np.int64), m, n)


def _turned_potentials(potential: np.ndarray, n: int, m: int) -> np.ndarray:
    return np.concatenate([-potential[n : n + m], -potential[:n], [0.0]])


# Arcs without a significant flow are removed if they cost more than 100 times the most expensive arc with such a flow.
_DEAR = 100.0
# Rounding error of the arithmetic in this module, in units.
_NOISE = 2.0**-20


def true_flows(forest: Forest, residues: np.ndarray) -> np.ndarray:
    """Return the flow of each node's arc at the given masses, in units; negative if another tree would be optimal.

    `residues` are the masses of all nodes minus their units, in units.
    """
    carried = tree_flows(forest.parent, np.append(residues, 0.0))
    assert carried is not None
    return forest.flow + carried


def without_rounding(
    forest: Forest, cost: np.ndarray, units: np.ndarray, residues: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return units and residues of all nodes for which expensive arcs carry no rounding errors; None without such arcs.

    Removing an arc divides the tree into two parts, and the masses of each part must balance. An arc is removed if
    changes within the last digits of the masses balance each part: then the masses do not imply any flow over the arc.
    All candidate arcs are removed together. While a part needs a larger change, the arc with the largest flow at this
    part is kept.
    """
    carried = true_flows(forest, residues)
    arcs = forest.arcs
    nodes = arcs[forest.flow[arcs] > 0]
    little = np.abs(carried[nodes]) <= ROUNDING * units.sum() + _NOISE
    if not little.any():  # the usual case
        return None
    tails, heads = forest.ends(nodes)
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
    units, residues = units.copy(), residues.copy()
    for ends in (tails[doubtful], heads[doubtful]):
        np.subtract.at(units, ends, forest.flow[nodes[doubtful]])
        np.subtract.at(residues, ends, (carried - forest.flow)[nodes[doubtful]])
    return units, residues


def unplaced(forest: Forest, flows: np.ndarray, units: np.ndarray) -> float:
    """Return the units by which `flows` violate the given masses, beyond their last digits.

    Violations are negative flows, and surpluses of trees of the forest. If the result is positive, another forest is
    optimal at the given masses.
    """
    nodes = forest.arcs
    tails, heads = forest.ends(nodes)
    heads = heads + forest.n_sources
    backwards = -flows[nodes] - ROUNDING * np.minimum(units[tails], units[heads])
    tops = np.flatnonzero(forest.parent[:-1] == units.size)
    lacking = np.abs(flows[tops])
    if lacking.max(initial=0.0) > _NOISE:  # otherwise every tree of the forest balances
        part = _parts(tails, heads, units.size)
        lacking -= ROUNDING * np.bincount(part, units)[part[tops]]
    return float(sum(np.maximum(amount - _NOISE, 0.0).sum() for amount in (backwards, lacking)))


def _parts(tails: np.ndarray, heads: np.ndarray, size: int) -> np.ndarray:
    """Return the connected component of each of `size` nodes under these arcs."""
    from scipy import sparse  # slow to import
    from scipy.sparse.csgraph import connected_components

    links = sparse.coo_array((np.ones(tails.size), (tails, heads)), (size, size))
    return connected_components(links, directed=False)[1]


# Spanning trees as arrays of parents.

# Parent of the root.
NO_PARENT = -1


def tree_flows(parent: np.ndarray, mass: np.ndarray) -> np.ndarray | None:
    """Return the flow of each node's arc to its parent at these masses, of any sign; None if `parent` is not a tree."""
    flow = mass.copy()
    return flow if _core.fill_tree_flows(parent, flow) else None


def planted_flows(parent: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return the flows of a tree at integer masses; None if the tree is infeasible for them."""
    flow = tree_flows(parent, np.concatenate([a, b, [0]]))
    if flow is None or (flow < 0).any() or flow[:-1][parent[:-1] == parent.size - 1].any():
        return None
    return flow


def hung_forest(arcs: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the parents of all nodes of a forest of arcs (source, sink); one source per tree is a child of root."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components  # slow to import

    root = n + m
    _, tree = connected_components(_graph(arcs, root + 1), directed=False)
    _, tops = np.unique(tree[:n], return_index=True)  # the first source of each tree
    hung = np.concatenate([arcs, np.stack([np.full(tops.size, root), tops], axis=1)])
    parent = breadth_first_order(_graph(hung, root + 1), root, directed=False)[1].astype(np.int32)
    parent[root] = NO_PARENT
    return parent


def _graph(arcs: np.ndarray, n_nodes: int) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(arcs), np.int8), (arcs[:, 0], arcs[:, 1])), shape=(n_nodes, n_nodes))
