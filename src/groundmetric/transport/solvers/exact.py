"""Solver interface, solvers by name, and the exact solver: the network simplex on validated costs and masses."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ..._internal.validation import check_number
from .. import _core
from ..plan import Basis, Plan, Status, scaled_basis, scaled_plan
from ..problem import ROUNDING, common_units, is_tall

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Costs are scaled if the binary exponent of the largest cost is outside ±940: multiplied by up to 2**62 units of mass,
# larger costs could overflow, and smaller costs could underflow.
_FAR = 940

Distances = Callable[[Any, Any], np.ndarray]


class Cloud(NamedTuple):  # one distribution, with points in the form that the distance function accepts
    points: Any
    masses: np.ndarray


class Solver:
    """Base class of solvers; their fields are options. They define `solve`, or for points, `prepare` and `compare`."""

    name: ClassVar[str]
    balanced: ClassVar[bool] = True  # both sides must have the same total mass
    on_points: bool = False  # the solver needs points with Euclidean distances

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        """Return the plan at `cost`, `a` and `b`, which `transport.solve` has checked; needs a solver on costs."""
        raise ValueError(
            f"solver {self.name!r} works on points, not on costs: use `transport.solve_points` or `pairwise_distances`"
        )

    def prepare(self, cloud: Cloud, distances: Distances) -> Any:
        """Return the data of one distribution that all its pairs share, for `compare`.

        `cloud` has the points with mass, and their masses, which sum to 1; `distances` is a function from two sets of
        points to the matrix of distances between them.
        """
        return cloud

    def compare(self, x: Any, y: Any, distances: Distances) -> Plan:
        """Return the plan between two distributions: `x` and `y` are results of `prepare` with the same `distances`."""
        return self.solve(distances(x.points, y.points), x.masses, y.masses)

    def _check(self, option: str, **limits: Any) -> None:
        """Raise unless an option is None, its default or a number within the limits of `check_number`."""
        value = getattr(self, option)
        if value is not None and value is not getattr(type(self), option):
            check_number(f"{option} of solver {self.name!r}", value, **limits)

    def __str__(self) -> str:
        options = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({', '.join(options)})"


SOLVERS = {
    "exact": "Exact", "partial": "Partial", "unbalanced": "Unbalanced", "coarse": "Coarse", "auto": "Auto",
}  # fmt: skip


def resolve_solver(solver: Any, options: dict[str, Any]) -> Solver:
    if isinstance(solver, Solver):
        passed = sorted(name for name, value in options.items() if value is not None)
        if passed:
            raise TypeError(
                f"options {passed} cannot be combined with a solver object: pass them to {type(solver).__name__}(…)"
            )
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}: expected one of {list(SOLVERS)}, or a solver object")
    kind = getattr(importlib.import_module("groundmetric.transport"), SOLVERS[solver])
    option_names = [option.name for option in fields(kind)]
    options = {name: value for name, value in options.items() if name in option_names or value is not None}
    unknown = sorted(set(options) - set(option_names))
    if unknown:
        raise TypeError(f"solver {solver!r} has no option {unknown[0]!r}: its options are {option_names}")
    return kind(**options)


def warn_of_status(status: Status, count: int) -> None:
    """Warn that `count` solves ended with this status; the text of the status is the advice."""
    if count:
        from sklearn.exceptions import ConvergenceWarning  # slow to import

        warnings.warn(f"{count} solves {status.value}", ConvergenceWarning, stacklevel=4)


@dataclass(frozen=True)
class Exact(Solver):
    """Exact solver: the optimal plan and a proof of optimality by dual potentials.

    Parameters
    ----------
    max_pivots : int or None, default=None
        Number of pivots after which the network simplex stops with status PIVOT_LIMIT. The default limit is never
        reached in practice.
    memory : float, default=1000.0
        Megabytes for the bases of pairs in learning, which give the next solves a warm start; pairs whose basis does
        not fit start cold every time.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve([[0.0, 1.0], [2.0, 0.0]], solver=gm.transport.Exact(max_pivots=100)).value
    0.0
    """

    max_pivots: int | None = None
    memory: float = 1000.0

    name: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        self._check("max_pivots", low=0, whole=True)
        self._check("memory", low=0.0)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        return solve_exact(cost, a, b, max_pivots=self.max_pivots)


def solve_exact(
    cost: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    *,
    start: Basis | None = None,
    max_pivots: int | None = None,
    cost_range: tuple[float, float] | None = None,
) -> Plan:
    """Solve exact optimal transport between masses of equal sums; single masses may be 0.

    The network simplex maintains a spanning tree and dual potentials u, v for which every tree arc has reduced cost
    ``cost[i, j] - u[i] - v[j] = 0``. While an arc has a negative reduced cost, it enters the tree and a tree arc of the
    resulting cycle leaves (a pivot). The tree and the masses determine the flows, the costs do not change them: the
    tree of an earlier plan is feasible for every problem with the same masses, and `start` (its tree and potentials) is
    a warm start after a change of the costs. The root of the tree is an artificial node: without it, the tree is a
    forest of real arcs.

    The simplex works on integers, which makes flows exact: `common_units` converts masses to integer units, and points
    of 0 units are excluded. Without ``units.residues``, the forest of the simplex is the answer. Otherwise, because at
    a cost of 10¹⁸ even a residue changes the value, the forest is evaluated at the given masses: `_without_rounding`
    removes arcs whose flow is only rounding error, masses below one unit are shipped along single arcs, and
    `true_flows` adds the flows of the residues. If another forest is optimal at the given masses, `unplaced` returns
    the number of units that violate them, and the upper bound is raised by the largest possible cost of the violation.

    Optimality is proved independently of the stopping rule of the simplex, by `lower_bound`. If the proof fails, the
    status is IMPRECISE; the bounds are valid with every status. `cost_range` is the smallest and the largest cost.
    """
    cost_range = _core.finite_range(cost) if cost_range is None else cost_range
    largest = max(cost_range[1], -cost_range[0])
    exponent = math.frexp(largest)[1]
    up = 0 if largest == 0.0 else max(exponent - _FAR, 0) + min(exponent + _FAR, 0)
    if up:  # sums of costs times units could overflow or underflow: divide the costs by 2**up
        scaled = np.ldexp(cost, -up)
        plan = scaled_plan(solve_exact(scaled, a, b, start=scaled_basis(start, -up), max_pivots=max_pivots), up)
        if np.array_equal(np.ldexp(scaled, up), cost):
            return plan
        lost = math.ldexp(float(a.sum()), up - 1022)  # costs below 2**-1022 lose digits: largest loss times all mass
        status = Status.IMPRECISE if plan.optimal and plan.value < 1e8 * lost else plan.status
        return replace(plan, status=status, bounds=(plan.bounds[0] - lost, plan.bounds[1] + lost))

    # The problem between points with mass, in integer units.
    units = common_units(a, b)
    rows, cols = np.flatnonzero(units.a), np.flatnonzero(units.b)
    all_points = rows.size == cost.shape[0] and cols.size == cost.shape[1]
    inner = cost if all_points else np.ascontiguousarray(cost[np.ix_(rows, cols)])
    limit = 2000 * sum(inner.shape) if max_pivots is None else max_pivots
    first = run_simplex(inner, units.a[rows], units.b[cols], start, limit, cost_range)
    forest, node_units, residues = first, np.concatenate([units.a[rows], units.b[cols]]), None
    if units.residues is not None:
        residues = np.concatenate([units.residues[0][rows], units.residues[1][cols]])
        forest, node_units, residues = _without_rounding(first, inner, node_units, residues, limit, cost_range)

    # Potentials of all points. The simplex stores -u for sources and v for sinks. Its potentials are feasible
    # (u + v <= cost) if it reached the optimum and no point was excluded; otherwise they are recomputed from v.
    n, m = inner.shape
    u, v = -forest.potential[:n], forest.potential[n : n + m].copy()
    if not (all_points and forest.optimal):
        u = (cost[:, cols] - v).min(axis=1)
        v_of_sinks, v = v, (cost - u[:, None]).min(axis=0)
        v[cols] = v_of_sinks
    potentials = u, v

    # Shipments at the given masses: the tree arcs with positive flow. The flow of a node is that of the arc to its
    # parent; the last node is the root and is omitted.
    flows, n_unplaced, shipments = forest.flow[:-1], 0.0, []
    if residues is not None and units.residues is not None:
        if not all_points:
            # Ship masses below one unit along the arc of least reduced cost to or from a point of the forest.
            small_rows = np.flatnonzero((units.residues[0] > 0.0) & (units.a == 0))
            small_cols = np.flatnonzero((units.residues[1] > 0.0) & (units.b == 0))
            heads = np.array([np.argmin(cost[i, cols] - v[cols]) for i in small_rows], np.intp)
            tails = np.array([np.argmin(cost[rows, j] - u[rows]) for j in small_cols], np.intp)
            amounts = np.concatenate([units.residues[0][small_rows], units.residues[1][small_cols]])
            np.subtract.at(residues, np.concatenate([n + heads, tails]), amounts)
            ends = np.concatenate([small_rows, rows[tails]]), np.concatenate([cols[heads], small_cols])
            shipments = [(*ends, amounts)]
        flows = true_flows(forest, residues)[:-1]
        n_unplaced = unplaced(forest, flows, node_units)
    nodes = forest.arcs[flows[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    shipments.insert(0, (rows[tails], cols[heads], flows[nodes]))
    senders, receivers, amounts = (np.concatenate(parts) for parts in zip(*shipments, strict=True))
    order = np.argsort(senders * cost.shape[1] + receivers)  # by sender, then receiver; no arc occurs twice

    # Value and proof for a total mass of 1. `cumsum` adds in the same order as the kernels for many pairs; `sum` adds
    # in another order and would differ from them in the last bits.
    number = float(units.number)
    value = float(np.cumsum(amounts * cost[senders, receivers])[-1]) / number
    lower, rounding = lower_bound(cost, *units.shares(), potentials, value)
    # Rerouting an unplaced unit removes one shipment and adds another, at most twice the largest cost. Usually no unit
    # is unplaced, and the pass over all costs is skipped.
    unplaced_cost = 2.0 * n_unplaced / number * float(np.abs(inner).max()) if n_unplaced else 0.0
    # The value is proved to a relative error of 10⁻⁸, or to 10⁻¹³ of a typical cost: the median over sources of the
    # smallest non-zero cost, which prohibitive costs do not change. If costs are huge, potentials can be much larger
    # than the value, and their rounding error can exceed the value: then the proof fails.
    small, error = 1e-8 * abs(value), rounding + unplaced_cost
    proved = abs(value - lower) <= small + rounding
    if proved and error > small:
        least = np.where(inner != 0.0, np.abs(inner), np.inf).min(axis=1)
        least = least[np.isfinite(least)]
        proved = bool(least.size) and error <= 1e-13 * float(np.median(least))
    doubt = rounding * (units.rounding > 0.0)  # integer masses have no rounding error
    return Plan(
        value=value * units.total,
        rows=senders[order],
        cols=receivers[order],
        mass=units.of_mass(amounts[order]),
        potentials=potentials,
        # `first` is feasible for the same masses in a later solve; the forest of `_without_rounding` may be infeasible,
        # because it was solved for other units.
        basis=Basis(first.parent, first.potential, n),
        status=Status.PIVOT_LIMIT if not forest.optimal else Status.OPTIMAL if proved else Status.IMPRECISE,
        pivots=first.pivots + (forest.pivots if forest is not first else 0),
        bounds=((min(lower, value) - doubt) * units.total, (max(value, lower) + doubt + unplaced_cost) * units.total),
    )


# Arcs without a significant flow are removed if they cost more than 100 times the most expensive arc with such a flow.
_DEAR = 100.0
# Rounding error of the arithmetic in this module, in units.
_NOISE = 2.0**-20


def _without_rounding(
    first: Forest,
    cost: np.ndarray,
    units: np.ndarray,
    residues: np.ndarray,
    limit: int,
    cost_range: tuple[float, float],
) -> tuple[Forest, np.ndarray, np.ndarray]:
    """Solve again without expensive arcs that carry rounding errors only; returns forest, units and residues.

    For example, masses that differ in their last digit only would otherwise use an arc with a prohibitive cost.
    Removing arcs divides the tree into parts. If changes within the last digits of the masses balance each part, the
    masses imply no flow over the arcs. While a part needs a larger change, its arc with the largest flow is kept.
    """
    carried = true_flows(first, residues)
    nodes = first.arcs[first.flow[first.arcs] > 0]
    little = np.abs(carried[nodes]) <= ROUNDING * units.sum() + _NOISE
    if not first.optimal or not little.any():  # the usual case
        return first, units, residues
    tails, heads = first.ends(nodes)
    prices = np.abs(cost[tails, heads])
    heads = heads + first.n_sources
    doubtful = little & (prices > _DEAR * prices[~little].max(initial=0.0))
    doubtful &= first.flow[nodes] < np.minimum(units[tails], units[heads])
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
        return first, units, residues
    units, residues = units.copy(), residues.copy()
    for ends in (tails[doubtful], heads[doubtful]):
        np.subtract.at(units, ends, first.flow[nodes[doubtful]])
        np.subtract.at(residues, ends, (carried - first.flow)[nodes[doubtful]])
    n = first.n_sources
    return run_simplex(cost, units[:n].copy(), units[n:].copy(), None, limit, cost_range), units, residues


def dual_value(a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the lower bound by weak duality for the cost of plans between masses a and b of sum 1."""
    u, v = potentials
    level = a @ u  # subtracted, because a large constant in all potentials would cancel digits of the sum
    return float(a @ (u - level) + b @ (v + level))


def lower_bound(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray], value: float
) -> tuple[float, float]:
    """Return a lower bound of the optimal value for masses of sum 1, and its largest rounding error.

    The simplex treats reduced costs below 2⁻⁴⁶ of the potentials as 0 (`kNoise` in _core/simplex.hpp), which is much
    relative to the value if a plan must use an arc of huge cost. A violation of u + v <= cost is then repaired by
    lowering the potential of the end with less mass, and the sum of the corrections is subtracted from the dual value.
    """
    u, v = potentials
    level = a @ u
    rounding = ROUNDING * float(a @ np.abs(u - level) + b @ np.abs(v + level))
    lower = dual_value(a, b, potentials)
    if 2.0**-46 * (float(np.abs(u).max()) + float(np.abs(v).max())) > 1e-10 * abs(value):
        violation = np.maximum(u[:, None] + v - cost, 0.0)
        at_source = a[:, None] <= b
        rows, cols = np.where(at_source, violation, 0.0).max(axis=1), np.where(at_source, 0.0, violation).max(axis=0)
        lower -= float(a @ rows + b @ cols)
    return lower, rounding


_UNFIT = "start does not fit these masses: use the basis of a plan with the same masses, or none"
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
    if start is not None:
        # Validate the basis, in the types of the kernels.
        parent, potential = np.asarray(start.parent), np.asarray(start.potential)
        if parent.ndim != 1 or parent.size != n + m + 1 or start.n_sources != n:
            raise ValueError(
                f"start is a basis of {start.n_sources} × {parent.size - 1 - start.n_sources} points with mass, "
                f"but this problem has {n} × {m}"
            )
        if not np.issubdtype(parent.dtype, np.integer):
            raise ValueError(f"start.parent has dtype {parent.dtype}: expected integers; {_REMEDY}")
        # The parents of sources are sinks or the root, and the parents of sinks are sources.
        root, is_source = n + m, np.arange(n + m) < n
        low, high = np.where(is_source, n, 0), np.where(is_source, root, n - 1)
        invalid = np.flatnonzero((parent[:-1] < low) | (parent[:-1] > high))
        if invalid.size:
            node = invalid[0]
            expected = f"the parent of a {'source' if node < n else 'sink'} is from {low[node]} to {high[node]} here"
            raise ValueError(f"start.parent[{node}] is {parent[node]}: {expected}; {_REMEDY}")
        if parent[root] != -1:
            raise ValueError(f"start.parent[{root}] is {parent[root]}: expected -1 for the root; {_REMEDY}")
        parent = parent.astype(np.int32)
        if not _core.fill_tree_flows(parent, np.zeros(parent.size, np.int64)):
            raise ValueError(f"start.parent is not a tree: it contains a cycle; {_REMEDY}")
        if potential.shape != parent.shape or not np.issubdtype(potential.dtype, np.floating):
            given = f"shape {potential.shape} and dtype {potential.dtype}"
            raise ValueError(f"start.potential has {given}: expected {parent.size} floats; {_REMEDY}")
        if not np.isfinite(potential).all():
            node = int(np.argmin(np.isfinite(potential)))
            raise ValueError(f"start.potential[{node}] is {potential[node]}: expected finite numbers; {_REMEDY}")
        start = Basis(parent, potential.astype(np.float64), n)
    if is_tall(n, m):  # solve the transposed problem, which is faster
        if start is not None:
            start = Basis(*_turned(start.parent, planted_flows(start.parent, a, b), start.potential, n, m), m)
        turned = run_simplex(np.ascontiguousarray(cost.T), b, a, start, max_pivots, cost_range)
        parent, potential = _turned(turned.parent, turned.flow, turned.potential, m, n)
        return Forest(parent, planted_flows(parent, a, b), potential, n, turned.pivots, turned.optimal)
    parent, potential = np.empty(n + m + 1, np.int32), np.zeros(n + m + 1)
    flow, is_warm = np.empty(n + m + 1, np.int64), start is not None
    if start is not None:
        # A path of the tree has at most n + m arcs, which bounds the difference of optimal potentials. Larger
        # potentials would only cause cancellation.
        bound = (n + m) * max(cost_range[1], -cost_range[0], 1e-300)
        parent, potential = start.parent.copy(), np.clip(start.potential, -bound, bound)
    pivots, optimal = _core.solve_matrix(cost, cost_range, a, b, parent, flow, potential, is_warm, max_pivots)
    if pivots < 0:
        raise ValueError(_UNFIT)
    return Forest(parent, flow, potential, n, pivots, optimal)


def _turned(
    parent: np.ndarray, flow: np.ndarray, potential: np.ndarray, n: int, m: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return parents and potentials of the transposed problem, from the arcs with flow between n sources and m sinks.

    Arcs without flow are omitted: the simplex allows them in one direction relative to the root, and the transposition
    reverses this direction. The potentials keep the relative levels of the resulting trees.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    parents = parent[nodes]
    tails, heads = np.minimum(nodes, parents), np.maximum(nodes, parents) - n
    return hung_forest(heads, m + tails, m, n), np.concatenate([-potential[n : n + m], -potential[:n], [0.0]])


def true_flows(forest: Forest, residues: np.ndarray) -> np.ndarray:
    """Return the flow of each node's arc at the given masses, in units; negative if another tree would be optimal."""
    carried = np.append(residues, 0.0)
    _core.fill_tree_flows(forest.parent, carried)
    return forest.flow + carried


def unplaced(forest: Forest, flows: np.ndarray, units: np.ndarray) -> float:
    """Return the units of negative flows, and of surpluses of trees of the forest, beyond the last digits of masses."""
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
    from scipy.sparse.csgraph import connected_components  # slow to import

    return connected_components(_graph(tails, heads, size), directed=False)[1]


def planted_flows(parent: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the flows of a tree at integer masses; raise if the tree is infeasible for them."""
    flow = np.concatenate([a, b, [0]])
    _core.fill_tree_flows(parent, flow)
    if (flow < 0).any() or flow[:-1][parent[:-1] == parent.size - 1].any():
        raise ValueError(_UNFIT)
    return flow


def hung_forest(tails: np.ndarray, heads: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the parents of all nodes of a forest of arcs; one source per tree is a child of the root, n + m."""
    from scipy.sparse.csgraph import breadth_first_order  # slow to import

    root = n + m
    _, tops = np.unique(_parts(tails, heads, root + 1)[:n], return_index=True)  # the first source of each tree
    hung = _graph(np.append(tails, np.full(tops.size, root)), np.append(heads, tops), root + 1)
    parent = breadth_first_order(hung, root, directed=False)[1].astype(np.int32)
    parent[root] = -1
    return parent


def _graph(tails: np.ndarray, heads: np.ndarray, n_nodes: int) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array((np.ones(tails.size, np.int8), (tails, heads)), shape=(n_nodes, n_nodes))
