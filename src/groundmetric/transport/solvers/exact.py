"""Solver interface, solvers by name, and the exact solver: the network simplex on validated costs and masses."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..._internal.validation import check_number
from .. import _core
from ..basis import Forest, run_simplex, true_flows, unplaced, without_rounding
from ..plan import Basis, Plan, Status, scaled_basis, scaled_plan
from ..problem import ROUNDING, Units, common_units

# Costs are scaled if the binary exponent of the largest cost is outside ±940: multiplied by up to 2**62 units of mass,
# larger costs could overflow, and smaller costs could underflow.
_FAR = 940


Distances = Callable[[Any, Any], np.ndarray]


class Cloud(NamedTuple):
    """One distribution: points in the form that the distance function accepts, and their masses."""

    points: Any
    masses: np.ndarray


class Solver:
    """Base class of solvers; the options of a solver are its fields.

    Solvers on costs define `solve`. Solvers on points define `prepare`, which is called once for each distribution,
    and `compare`, which is called for each pair of prepared distributions.
    """

    name: ClassVar[str]
    balanced: ClassVar[bool] = True  # both sides must have the same total mass
    on_points: bool = False  # the solver needs points with Euclidean distances

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        """Return the transport plan between masses at given costs; solvers that need points raise ValueError.

        `groundmetric.transport.solve` checks the arguments before it calls this method.

        Parameters
        ----------
        cost : array of shape (n, m)
            Cost of moving a unit of mass from each source to each sink.
        a, b : array of shape (n,) and (m,)
            Masses of the sources and of the sinks.

        Returns
        -------
        Plan
            The plan with bounds of the optimal value.
        """
        raise ValueError(
            f"solver {self.name!r} works on points, not on costs: use `transport.solve_points` or `pairwise_distances`"
        )

    def prepare(self, cloud: Cloud, distances: Distances) -> Any:
        """Compute the data of one distribution that all its pairs share.

        Parameters
        ----------
        cloud : Cloud
            Points with mass, and their masses, which sum to 1.
        distances : callable
            Function of two sets of points that returns the matrix of distances between them.

        Returns
        -------
        object
            The distribution in the form that `compare` accepts.
        """
        return cloud

    def compare(self, x: Any, y: Any, distances: Distances) -> Plan:
        """Return the transport plan between two distributions.

        Parameters
        ----------
        x, y : object
            Distributions returned by `prepare` of the same solver.
        distances : callable
            The function that was passed to `prepare`.

        Returns
        -------
        Plan
            The plan with bounds of the optimal value.
        """
        return self.solve(distances(x.points, y.points), x.masses, y.masses)

    def _check(self, option: str, **limits: Any) -> None:
        """Raise unless an option is None, its default or a number within the limits of `check_number`."""
        value = getattr(self, option)
        if value is not None and value is not getattr(type(self), option):
            check_number(f"{option} of solver {self.name!r}", value, **limits)

    def __str__(self) -> str:
        options = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({', '.join(options)})"


def require_not_negative(cost: np.ndarray, name: str) -> None:
    if cost.min() < 0:
        i, j = np.unravel_index(np.argmin(cost), cost.shape)
        raise ValueError(f"cost is {cost[i, j]} at ({i}, {j}): solver {name!r} needs costs that are not negative")


# Module and class of each solver by name; modules of `groundmetric.transport`, imported when a solver is first used.
SOLVERS = {
    "exact": ("solvers.exact", "Exact"),
    "partial": ("solvers.partial", "Partial"),
    "unbalanced": ("solvers.partial", "Unbalanced"),
    "coarse": ("solvers.coarse", "Coarse"),
    "auto": ("solve", "Auto"),
}


def resolve_solver(solver: Any, options: dict[str, Any]) -> Solver:
    """Return the solver object for a name and options, or the given solver object."""
    if isinstance(solver, Solver):
        passed = sorted(name for name, value in options.items() if value is not None)
        if passed:
            raise TypeError(
                f"options {passed} cannot be combined with a solver object: pass them to {type(solver).__name__}(…)"
            )
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}: expected one of {list(SOLVERS)}, or a solver object")
    module, name = SOLVERS[solver]
    kind: type[Solver] = getattr(importlib.import_module(f"groundmetric.transport.{module}"), name)
    option_names = [option.name for option in fields(kind)]  # type: ignore[arg-type]
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
        not fit start cold every time. Distance matrices store no bases because each pair is solved once.

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
    of 0 units are excluded. There are two cases:

    - Masses that are whole multiples of one unit are represented exactly: the forest of the simplex is the answer.
    - Other masses are rounded to units of about 2⁻⁶⁰ of the total; ``units.residues`` has the rounding errors, in
      units. At a cost of 10¹⁸, even a residue changes the value. The forest of the rounded problem is therefore
      evaluated at the given masses: `_without_rounding` removes arcs whose flow is only rounding error, `_ship_small`
      ships masses below one unit, and `true_flows` adds the flows of the residues. If another forest is optimal at the
      given masses, `unplaced` returns the number of units that violate them, and the upper bound is raised by the
      largest possible cost of the violation.

    The optimality of the plan is proved independently of the stopping rule of the simplex: the potentials give a lower
    bound of the value (weak duality), `hidden_gain` corrects it for negative reduced costs smaller than the rounding of
    the potentials, and `Proof.holds` compares it with the cost of the plan. If the proof fails, the status is
    IMPRECISE; the bounds are valid with every status.

    `cost_range` is the smallest and the largest cost, if the caller has computed them.
    """
    cost_range = _core.finite_range(cost) if cost_range is None else cost_range
    up = far_exponent(cost_range)
    if up:  # sums of costs times units could overflow or underflow
        return _solve_scaled(cost, a, b, start, max_pivots, up)

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
    potentials = (u, v) if all_points and forest.optimal else feasible_potentials(cost, v, cols)

    # Shipments at the given masses: the tree arcs with positive flow. The flow of a node is that of the arc to its
    # parent; the last node is the root and is omitted.
    flows, n_unplaced, small = forest.flow[:-1], 0.0, []
    if residues is not None:
        small = [] if all_points else [_ship_small(cost, potentials, units, rows, cols, residues)]
        flows = true_flows(forest, residues)[:-1]
        n_unplaced = unplaced(forest, flows, node_units)
    nodes = forest.arcs[flows[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    shipments = [(rows[tails], cols[heads], flows[nodes]), *small]
    senders, receivers, amounts = (np.concatenate(parts) for parts in zip(*shipments, strict=True))
    order = np.argsort(senders * cost.shape[1] + receivers)  # by sender, then receiver; no arc occurs twice

    # Value and proof for a total mass of 1. `cumsum` adds in the same order as the kernels for many pairs; `sum` adds
    # in another order and would differ from them in the last bits.
    number = float(units.number)
    value = float(np.cumsum(amounts * cost[senders, receivers])[-1]) / number
    shares = units.shares()
    proof = Proof.of(value, *shares, potentials).less(hidden_gain(cost, *shares, potentials, value))
    # Rerouting an unplaced unit removes one shipment and adds another, at most twice the largest cost. Usually no unit
    # is unplaced, and the pass over all costs is skipped.
    unplaced_cost = 2.0 * n_unplaced / number * float(np.abs(inner).max()) if n_unplaced else 0.0
    doubt = proof.rounding * (units.rounding > 0.0)  # integer masses have no rounding error
    proved = proof.holds(inner, unplaced_cost)
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
        bounds=(
            (min(proof.lower, value) - doubt) * units.total,
            (max(value, proof.lower) + doubt + unplaced_cost) * units.total,
        ),
    )


def far_exponent(cost_range: tuple[float, float]) -> int:
    """Return the exponent e for which costs divided by 2**e are in the safe range; 0 for costs in this range."""
    largest = max(cost_range[1], -cost_range[0])
    exponent = math.frexp(largest)[1]
    return 0 if largest == 0.0 else max(exponent - _FAR, 0) + min(exponent + _FAR, 0)


def _solve_scaled(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, start: Basis | None, max_pivots: int | None, up: int
) -> Plan:
    """Solve at costs divided by 2**up, which is exact except for costs that become subnormal or 0."""
    scaled = np.ldexp(cost, -up)
    plan = scaled_plan(solve_exact(scaled, a, b, start=scaled_basis(start, -up), max_pivots=max_pivots), up)
    if np.array_equal(np.ldexp(scaled, up), cost):
        return plan
    lost = math.ldexp(float(a.sum()), up - 1022)  # costs below 2**-1022 lose digits: largest loss times all mass
    status = Status.IMPRECISE if plan.optimal and plan.value < 1e8 * lost else plan.status
    return replace(plan, status=status, bounds=(plan.bounds[0] - lost, plan.bounds[1] + lost))


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
    """
    settled = without_rounding(first, cost, units, residues) if first.optimal else None
    if settled is None:
        return first, units, residues
    units, residues = settled
    n = first.n_sources
    return run_simplex(cost, units[:n].copy(), units[n:].copy(), None, limit, cost_range), units, residues


def _ship_small(
    cost: np.ndarray,
    potentials: tuple[np.ndarray, np.ndarray],
    units: Units,
    rows: np.ndarray,
    cols: np.ndarray,
    residues: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ship masses below one unit along the arc of least reduced cost to or from a point of the forest, in units.

    Their amounts are subtracted, in place, from the residues at the other end of the arc.
    """
    assert units.residues is not None
    u, v = potentials
    small_rows = np.flatnonzero((units.residues[0] > 0.0) & (units.a == 0))
    small_cols = np.flatnonzero((units.residues[1] > 0.0) & (units.b == 0))
    heads = np.array([np.argmin(cost[i, cols] - v[cols]) for i in small_rows], np.intp)
    tails = np.array([np.argmin(cost[rows, j] - u[rows]) for j in small_cols], np.intp)
    amounts = np.concatenate([units.residues[0][small_rows], units.residues[1][small_cols]])
    np.subtract.at(residues, np.concatenate([rows.size + heads, tails]), amounts)
    return np.concatenate([small_rows, rows[tails]]), np.concatenate([cols[heads], small_cols]), amounts


def dual_value(a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the lower bound by weak duality for the cost of plans between masses a and b of sum 1."""
    u, v = potentials
    level = a @ u  # subtracted, because a large constant in all potentials would cancel digits of the sum
    return float(a @ (u - level) + b @ (v + level))


@dataclass(frozen=True)
class Proof:
    """Lower bound of the optimal value by potentials, for masses of sum 1."""

    value: float  # cost of the plan
    lower: float  # lower bound of the optimal value
    rounding: float  # largest error of `lower` from the rounding of masses and potentials

    @classmethod
    def of(cls, value: float, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> Proof:
        u, v = potentials
        level = a @ u
        rounding = ROUNDING * float(a @ np.abs(u - level) + b @ np.abs(v + level))
        return cls(value, dual_value(a, b, potentials), rounding)

    def less(self, gain: float) -> Proof:
        """Return the proof with `gain` subtracted from its lower bound."""
        return replace(self, lower=self.lower - gain) if gain else self

    def holds(self, cost: np.ndarray, missing: float) -> bool:
        """Return whether the value is proved to a relative error of 10⁻⁸, or to 10⁻¹³ of a typical cost.

        `missing` is the cost of unplaced units. If costs are huge, potentials can be much larger than the value,
        and the rounding error of the potentials can exceed the value: then the proof fails.
        """
        if abs(self.value - self.lower) > 1e-8 * abs(self.value) + self.rounding:
            return False
        doubt = self.rounding + missing
        return bool(doubt <= 1e-8 * abs(self.value) or doubt <= 1e-13 * typical_cost(cost))


def hidden_gain(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray], value: float
) -> float:
    """Return by how much the dual value must be lowered because potentials violate u + v <= cost within rounding.

    The simplex treats reduced costs below 2⁻⁴⁶ of the potentials as 0 (`kNoise` in _core/simplex.hpp). If a plan must
    use an arc of huge cost, potentials are huge, and a reduced cost below this threshold can be large relative to the
    value. A violation is repaired by lowering the potential of the end with less mass; the result is the sum of all
    corrections. If potentials are small, corrections are negligible, and the pass over all costs is skipped.
    """
    u, v = potentials
    if 2.0**-46 * (float(np.abs(u).max()) + float(np.abs(v).max())) <= 1e-10 * abs(value):
        return 0.0
    violation = np.maximum(u[:, None] + v - cost, 0.0)
    at_source = a[:, None] <= b
    rows, cols = np.where(at_source, violation, 0.0).max(axis=1), np.where(at_source, 0.0, violation).max(axis=0)
    return float(a @ rows + b @ cols)


def typical_cost(cost: np.ndarray) -> float:
    """Return the median over sources of the smallest non-zero cost, which prohibitive costs do not change."""
    size = np.abs(cost)
    least = np.where(size > 0.0, size, np.inf).min(axis=1)
    least = least[np.isfinite(least)]
    return float(np.median(least)) if least.size else 0.0


def feasible_potentials(cost: np.ndarray, v: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest potentials of all points that the costs and the potentials v of the sinks `cols` allow."""
    u = (cost[:, cols] - v).min(axis=1)
    full = (cost - u[:, None]).min(axis=0)
    full[cols] = v
    return u, full
