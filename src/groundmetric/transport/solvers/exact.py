"""What a solver is, solvers by name, and the exact one: the network simplex on checked costs and masses."""

from __future__ import annotations

import importlib
import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import _core
from ..basis import Forest, run_simplex, true_flows, unplaced, without_rounding
from ..plan import Basis, Plan, Status
from ..problem import ROUNDING, Units, common_units

# Largest costs with a binary exponent beyond this are scaled: times the units of all masses they would be out of range.
_FAR = 940


Distances = Callable[[Any, Any], np.ndarray]


class Cloud(NamedTuple):
    """One distribution: its points, as the distances between points take them, and their masses."""

    points: Any
    masses: np.ndarray


class Solver:
    """A way to compare two distributions, with its options as fields.

    Those that work on costs define `solve`. Those that work on points define `prepare`, what is worked out once for
    each distribution, and `compare`, what is left to do for a pair.
    """

    name: ClassVar[str]
    balanced: ClassVar[bool] = True  # do both sides need the same mass?
    on_points: bool = False  # does it need points in a space with Euclidean distances?

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        """Transport plan between masses at given costs; solvers that need points raise ValueError.

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
            The plan, and what is certain about its value.
        """
        raise ValueError(
            f"solver {self.name!r} works on points, not on costs: use `transport.solve_points` or `pairwise_distances`"
        )

    def prepare(self, cloud: Cloud, distances: Distances) -> Any:
        """Whatever can be computed for one distribution alone, once for all pairs that it is part of.

        Parameters
        ----------
        cloud : Cloud
            Points with mass, and their masses, which sum to 1.
        distances : callable
            Function of two sets of points that gives the matrix of distances between them.

        Returns
        -------
        object
            The distribution as `compare` takes it.
        """
        return cloud

    def compare(self, x: Any, y: Any, distances: Distances) -> Plan:
        """Transport plan between two distributions.

        Parameters
        ----------
        x, y : object
            Distributions as `prepare` of the same solver returns them.
        distances : callable
            The function that was given to `prepare`.

        Returns
        -------
        Plan
            The plan, and what is certain about its value.
        """
        return self.solve(distances(x.points, y.points), x.masses, y.masses)

    def __str__(self) -> str:
        options = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({', '.join(options)})"


def check_number(
    solver: Any, option: str, *, low: float, high: float = math.inf, whole: bool = False, open_low: bool = False
) -> None:
    """Raise unless an option is a number within its range; None means a default and passes."""
    value = getattr(solver, option)
    if value is None:
        return
    kind = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not low <= value <= high or (open_low and value == low) or value == math.inf:
        least = f"above {low}" if open_low else f"of at least {low}"
        most = "" if high == math.inf else f" and at most {high}"
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{option} of solver {solver.name!r} is {value!r}: expected {what} {least}{most}")


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
    """The solver object from its name and options."""
    if isinstance(solver, Solver):
        given = sorted(name for name, value in options.items() if value is not None)
        if given:
            raise TypeError(f"options {given} beside a solver object: give them to {type(solver).__name__}(…) itself")
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}: expected one of {list(SOLVERS)}, or a solver object")
    module, name = SOLVERS[solver]
    kind: type[Solver] = getattr(importlib.import_module(f"groundmetric.transport.{module}"), name)
    known = [option.name for option in fields(kind)]  # type: ignore[arg-type]
    options = {name: value for name, value in options.items() if name in known or value is not None}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"solver {solver!r} has no option {unknown[0]!r}: it has {known or 'none'}")
    return kind(**options)


def warn_of_pivot_limit(stopped: int) -> None:
    warn_of_status(Status.PIVOT_LIMIT, stopped)


def warn_of_status(status: Status, count: int) -> None:
    """Warn of so many solves that ended like this; the status is the advice."""
    if count:
        from sklearn.exceptions import ConvergenceWarning  # slow to import

        warnings.warn(f"{count} solves {status.value}", ConvergenceWarning, stacklevel=4)


@dataclass(frozen=True)
class Exact(Solver):
    """The optimal plan and its proof.

    Parameters
    ----------
    max_pivots : int or None, default=None
        Pivots of the network simplex after which to stop, and `status` says so; the default is never reached in
        practice.
    memory : float, default=1000.0
        Megabytes that the bases of pairs may take in learning, from which the next solves start warm; pairs beyond
        that start cold every time. A distance matrix is solved once and needs none.

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
        check_number(self, "max_pivots", low=0, whole=True)
        check_number(self, "memory", low=0.0)

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
    """Solve exact optimal transport between masses of equal sums, of which some may be 0.

    The simplex works on integers, so that flows are exact: masses become integer units (`common_units`), and points of
    0 units are left out. Two cases follow:

    - Masses that are whole multiples of one unit are represented exactly, and the optimal forest is the answer.
    - Other masses are rounded to units of about 2⁻⁶⁰ of the total; ``units.left`` has the residues, in units. Beside a
      cost of 10¹⁸, even a residue matters. The forest of the rounded problem is therefore evaluated at the given
      masses: `_without_rounding` removes arcs that carry rounding errors only, `_ship_small` ships masses below one
      unit, and `true_flows` adds the flows that the residues imply. If the given masses would need another forest,
      `unplaced` measures by how many units, and the bounds are widened by what these cost at most.

    Optimality is not taken from the simplex but proved: the potentials give a lower bound of the value (weak duality),
    corrected for arcs whose reduced cost is hidden by rounding (`hidden_gain`), and `Proof.holds` compares it with the
    cost of the plan. If the proof fails, the status is IMPRECISE; the bounds hold in any case.

    `cost_range` is the smallest and the largest cost, if the caller knows them.
    """
    cost_range = _core.finite_range(cost) if cost_range is None else cost_range
    up = far_exponent(cost_range)
    if up:  # sums of such costs would leave the range of numbers
        return _solve_scaled(cost, a, b, start, max_pivots, up)

    # The problem between points with mass, in integer units.
    units = common_units(a, b)
    rows, cols = np.flatnonzero(units.a), np.flatnonzero(units.b)
    all_points = rows.size == cost.shape[0] and cols.size == cost.shape[1]
    inner = cost if all_points else np.ascontiguousarray(cost[np.ix_(rows, cols)])
    limit = 2000 * sum(inner.shape) if max_pivots is None else max_pivots
    first = run_simplex(inner, units.a[rows], units.b[cols], start, limit, cost_range)
    forest, node_units, residues = first, np.concatenate([units.a[rows], units.b[cols]]), None
    if units.left is not None:
        residues = np.concatenate([units.left[0][rows], units.left[1][cols]])
        forest, node_units, residues = _without_rounding(first, inner, node_units, residues, limit, cost_range)

    # Potentials of all points. Those of the simplex are feasible if it is optimal and no point was left out.
    n, m = inner.shape
    u, v = -forest.potential[:n], forest.potential[n : n + m].copy()
    potentials = (u, v) if all_points and forest.optimal else feasible_potentials(cost, v, cols)

    # Shipments at the given masses.
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

    # Value and proof for a total mass of 1. `cumsum` adds in order, as the kernels for many pairs do: `sum` would give
    # other last bits.
    number = float(units.number)
    value = float(np.cumsum(amounts * cost[senders, receivers])[-1]) / number
    shares = units.shares()
    proof = Proof.of(value, *shares, potentials).less(hidden_gain(cost, *shares, potentials, value))
    # Moving an unplaced unit out of and into its place costs at most twice the largest cost. Mostly there is none,
    # and the pass over all costs is saved.
    unplaced_cost = 2.0 * n_unplaced / number * float(np.abs(inner).max()) if n_unplaced else 0.0
    doubt = proof.rounding * (units.rounding > 0.0)  # whole numbers as masses are exact
    proved = proof.holds(inner, unplaced_cost)
    return Plan(
        value=value * units.total,
        rows=senders[order],
        cols=receivers[order],
        mass=units.of_mass(amounts[order]),
        potentials=potentials,
        # The basis of the rounded problem fits the same masses in another solve; that of `_without_rounding` may not.
        basis=Basis(first.parent, first.potential, n),
        status=Status.PIVOT_LIMIT if not forest.optimal else Status.OPTIMAL if proved else Status.IMPRECISE,
        pivots=first.pivots + (forest.pivots if forest is not first else 0),
        bounds=(
            (min(proof.lower, value) - doubt) * units.total,
            (max(value, proof.lower) + doubt + unplaced_cost) * units.total,
        ),
    )


def far_exponent(cost_range: tuple[float, float]) -> int:
    """Return the binary digits by which the largest cost is out of the range in which sums of costs are safe, or 0."""
    largest = max(cost_range[1], -cost_range[0])
    exponent = math.frexp(largest)[1]
    return 0 if largest == 0.0 else max(exponent - _FAR, 0) + min(exponent + _FAR, 0)


def _solve_scaled(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, start: Basis | None, max_pivots: int | None, up: int
) -> Plan:
    """Solve at costs divided by 2**up. This is exact, but for costs so small that they lose digits or become 0."""
    scaled = np.ldexp(cost, -up)
    start = None if start is None else start.scaled(-up)
    plan = solve_exact(scaled, a, b, start=start, max_pivots=max_pivots).scaled(up)
    if np.array_equal(np.ldexp(scaled, up), cost):
        return plan
    lost = math.ldexp(float(a.sum()), up - 1022)  # no cost has lost more than this, for all mass
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

    For example, masses that match but for their last digit would otherwise pay for a barred arc.
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

    Their amounts are subtracted from the residues of these points, in place.
    """
    assert units.left is not None
    u, v = potentials
    small_rows = np.flatnonzero((units.left[0] > 0.0) & (units.a == 0))
    small_cols = np.flatnonzero((units.left[1] > 0.0) & (units.b == 0))
    heads = np.array([np.argmin(cost[i, cols] - v[cols]) for i in small_rows], np.intp)
    tails = np.array([np.argmin(cost[rows, j] - u[rows]) for j in small_cols], np.intp)
    amounts = np.concatenate([units.left[0][small_rows], units.left[1][small_cols]])
    np.subtract.at(residues, np.concatenate([rows.size + heads, tails]), amounts)
    return np.concatenate([small_rows, rows[tails]]), np.concatenate([cols[heads], small_cols]), amounts


def dual_value(a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """Lower bound of the cost of all plans between masses a and b, of sum 1, by weak duality."""
    u, v = potentials
    level = a @ u  # without it, a large common level of all potentials would take digits from the sum
    return float(a @ (u - level) + b @ (v + level))


@dataclass(frozen=True)
class Proof:
    """Lower bound of the optimal value by potentials, for masses of sum 1."""

    value: float  # cost of the plan
    lower: float  # lower bound of the optimal value
    rounding: float  # error of `lower` by the rounding of masses and potentials, at most

    @classmethod
    def of(cls, value: float, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> Proof:
        u, v = potentials
        level = a @ u
        rounding = ROUNDING * float(a @ np.abs(u - level) + b @ np.abs(v + level))
        return cls(value, dual_value(a, b, potentials), rounding)

    def less(self, gain: float) -> Proof:
        """The proof with a lower bound that is lower by `gain`."""
        return replace(self, lower=self.lower - gain) if gain else self

    def holds(self, cost: np.ndarray, missing: float) -> bool:
        """Whether the value is proved to a relative error of 10⁻⁸, or to 10⁻¹³ of a typical cost.

        `missing` is the cost of unplaced units. Where some costs are huge, potentials can be far larger than the value,
        and their rounding hides it: then the proof fails.
        """
        if abs(self.value - self.lower) > 1e-8 * abs(self.value) + self.rounding:
            return False
        doubt = self.rounding + missing
        return bool(doubt <= 1e-8 * abs(self.value) or doubt <= 1e-13 * typical_cost(cost))


def hidden_gain(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray], value: float
) -> float:
    """Return by how much the dual value must be lowered because potentials violate u + v <= cost within rounding.

    The simplex takes reduced costs below 2⁻⁴⁶ of the potentials for 0 (`kNoise` in _core/simplex.hpp). If an arc has to
    be used that is barred by a huge cost, potentials are huge, too, and such a reduced cost may matter beside the
    value. A violation is repaired by lowering the potential of the end with less mass; the result is the sum of these
    corrections. If potentials are small, none can matter, and the pass over all costs is saved.
    """
    u, v = potentials
    if 2.0**-46 * (float(np.abs(u).max()) + float(np.abs(v).max())) <= 1e-10 * abs(value):
        return 0.0
    over = np.maximum(u[:, None] + v - cost, 0.0)
    at_source = a[:, None] <= b
    rows, cols = np.where(at_source, over, 0.0).max(axis=1), np.where(at_source, 0.0, over).max(axis=0)
    return float(a @ rows + b @ cols)


def typical_cost(cost: np.ndarray) -> float:
    """Return the median over sources of the smallest cost that is not 0, which barred arcs do not change."""
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
