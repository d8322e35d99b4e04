"""The exact solver: the network simplex on costs and masses that have been checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .basis import Forest, run_simplex
from .masses import ROUNDING, Units, common_units
from .plan import Basis, Plan, Status
from .rounding import cheapest_ways, true_flows, unplaced, without_rounding
from .solver import Solver, check_number

# Largest costs with a binary exponent beyond this are scaled: times the units of all masses they would be out of range.
_FAR = 900


@dataclass(frozen=True)
class Exact(Solver):
    """The optimal plan and its proof.

    Parameters
    ----------
    max_pivots : int, optional
        Where to stop; the default is never reached in practice.
    """

    max_pivots: int | None = None

    name: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        check_number(self, "max_pivots", low=0, whole=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        return solve_exact(cost, a, b, max_pivots=self.max_pivots)


def solve_exact(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, *, start: Basis | None = None, max_pivots: int | None = None
) -> Plan:
    """Exact optimal transport between masses of equal sums, some of which may be 0."""
    up = far_exponent(cost)
    if up:  # sums of such costs would leave the range of numbers; a power of two takes no digits
        start = None if start is None else start.scaled(-up)
        return solve_exact(np.ldexp(cost, -up), a, b, start=start, max_pivots=max_pivots).scaled(up)
    units = common_units(a, b)
    rows, cols = np.flatnonzero(units.a), np.flatnonzero(units.b)
    whole = rows.size == cost.shape[0] and cols.size == cost.shape[1]
    inner = cost if whole else np.ascontiguousarray(cost[np.ix_(rows, cols)])
    limit = 2000 * sum(inner.shape) if max_pivots is None else max_pivots
    first = run_simplex(inner, units.a[rows], units.b[cols], start, limit)
    forest, flows, lacking = first, first.flow[:-1], 0.0
    if units.left is not None:
        forest, flows, lacking = _settle(first, inner, units, rows, cols, limit)
    n, m = inner.shape
    u, v = -forest.potential[:n], forest.potential[n : n + m].copy()
    potentials = (u, v) if whole and forest.optimal else feasible_potentials(cost, v, cols)
    number = float(units.number)
    senders, receivers, amounts = _shipments(forest, flows, rows, cols)
    if units.left is not None and not whole:
        senders, receivers, amounts = _with_small(cost, potentials, units, (senders, receivers, amounts))
    value = _in_turn(amounts * cost[senders, receivers]) / number
    order = np.lexsort((receivers, senders))
    missing = 2.0 * lacking / number * float(np.abs(inner).max())  # what any way to place the rest costs at most
    proof = Proof.of(value, *units.shares(), potentials)
    doubt = proof.rounding * (units.rounding > 0.0)
    proved = proof.holds(inner, missing)
    return Plan(
        value=value * units.total,
        rows=senders[order],
        cols=receivers[order],
        mass=units.of_mass(amounts[order]),
        potentials=potentials,
        basis=Basis(first.parent, first.potential, n),
        status=Status.PIVOT_LIMIT if not forest.optimal else Status.OPTIMAL if proved else Status.IMPRECISE,
        pivots=first.pivots + (forest.pivots if forest is not first else 0),
        bounds=(
            (min(proof.lower, value) - doubt) * units.total,
            (max(value, proof.lower) + doubt + missing) * units.total,
        ),
    )


def far_exponent(cost: np.ndarray) -> int:
    """The binary exponent of the largest cost where sums of such costs may be out of range; else 0."""
    largest = max(float(cost.max()), -float(cost.min()))
    exponent = math.frexp(largest)[1]
    return exponent if abs(exponent) > _FAR and largest > 0.0 else 0


def _settle(
    first: Forest, cost: np.ndarray, units: Units, rows: np.ndarray, cols: np.ndarray, limit: int
) -> tuple[Forest, np.ndarray, float]:
    """The forest when masses are what they were before they were rounded, what its arcs carry, and what they cannot."""
    assert units.left is not None
    forest, n = first, rows.size
    left = np.concatenate([units.left[0][rows], units.left[1][cols]])
    rounded = np.concatenate([units.a[rows], units.b[cols]])
    settled = without_rounding(first, cost, rounded, left)
    if settled is not None and first.optimal:
        rounded, left = settled
        forest = run_simplex(cost, rounded[:n].copy(), rounded[n:].copy(), None, limit)
    flows = true_flows(forest, left)[:-1]
    return forest, flows, unplaced(forest, flows, rounded)


def _shipments(
    forest: Forest, flows: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and amounts of the arcs that carry something."""
    nodes = forest.arcs[flows[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    return rows[tails], cols[heads], flows[nodes]


def _in_turn(numbers: np.ndarray) -> float:
    """Their sum, one after the other, as the kernels for many pairs add them."""
    return float(np.cumsum(numbers)[-1])


def _with_small(
    cost: np.ndarray,
    potentials: tuple[np.ndarray, np.ndarray],
    units: Units,
    shipped: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shipments, and those of masses that are too small for a unit."""
    assert units.left is not None
    left, counted = units.left, (units.a, units.b)
    rows, cols = (np.flatnonzero((rest > 0.0) & (number == 0)) for rest, number in zip(left, counted, strict=True))
    if not rows.size and not cols.size:
        return shipped
    tails, heads = cheapest_ways(cost, potentials, (rows, cols))
    amounts = np.concatenate([left[0][rows], left[1][cols]])
    tails, heads, amounts = (np.concatenate(parts) for parts in zip(shipped, (tails, heads, amounts), strict=True))
    arcs, place = np.unique(tails * cost.shape[1] + heads, return_inverse=True)
    return *np.divmod(arcs, cost.shape[1]), np.bincount(place, amounts)


def dual_value(a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """What the potentials prove: no plan between masses a and b, of sum 1, costs less."""
    u, v = potentials
    level = a @ u  # taken out, a common level of all potentials drowns nothing
    return float(a @ (u - level) + b @ (v + level))


@dataclass(frozen=True)
class Proof:
    """What potentials say about a value, for masses of sum 1."""

    value: float
    lower: float  # no plan costs less
    rounding: float  # what the last digits of masses and potentials may make of it

    @classmethod
    def of(cls, value: float, a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> Proof:
        u, v = potentials
        level = a @ u
        rounding = ROUNDING * float(a @ np.abs(u - level) + b @ np.abs(v + level))
        return cls(value, dual_value(a, b, potentials), rounding)

    def holds(self, cost: np.ndarray, missing: float) -> bool:
        """Is the value proved, to 8 digits or to 10⁻¹³ of a typical cost?

        Potentials can be far larger than the value, where some costs are huge; their rounding then hides it.
        """
        if abs(self.value - self.lower) > 1e-8 * abs(self.value) + self.rounding:
            return False
        doubt = self.rounding + missing
        return bool(doubt <= 1e-8 * abs(self.value) or doubt <= 1e-13 * typical_cost(cost))


def typical_cost(cost: np.ndarray) -> float:
    """The median over sources of the least cost that is not 0: arcs that are barred do not count, however many."""
    size = np.abs(cost)
    least = np.where(size > 0.0, size, np.inf).min(axis=1)
    least = least[np.isfinite(least)]
    return float(np.median(least)) if least.size else 0.0


def feasible_potentials(cost: np.ndarray, v: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Potentials for every point from those of the sinks with mass: the largest that the costs allow."""
    u = (cost[:, cols] - v).min(axis=1)
    full = (cost - u[:, None]).min(axis=0)
    full[cols] = v
    return u, full
