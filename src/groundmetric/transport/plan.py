"""Results: the plan of one solve with its status, and a matrix of distances with bounds."""

from __future__ import annotations

import enum
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .solvers.exact import Solver


class Status(enum.Enum):  # numpydoc ignore=PR01
    """Status of a solve; the value of each member is a text with advice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.Status.PIVOT_LIMIT.value
    'stopped at the pivot limit before the plan was optimal; raise `max_pivots`'
    """

    OPTIMAL = ""
    IMPRECISE = (
        "not proved optimal: the costs, or costs and masses together, span too many orders of magnitude; scale or cap "
        "the largest. `bounds` hold"
    )
    PIVOT_LIMIT = "stopped at the pivot limit before the plan was optimal; raise `max_pivots`"
    TOLERANCE = "stopped within the tolerance that was asked for; `gap` bounds the error"
    APPROXIMATE = "not exact, by choice of the solver: `bounds` say where the exact value lies"


@dataclass(frozen=True)
class Basis:
    """Spanning tree and dual potentials at the end of a solve, for a warm start with the same masses.

    Nodes 0 to n - 1 are the n sources with mass, the next m nodes are the sinks with mass, and the last node is the
    artificial root.

    Parameters
    ----------
    parent : array of shape (n + m + 1,)
        Parent of each node in the spanning tree; -1 for the root.
    potential : array of shape (n + m + 1,)
        Potential of each node: -u of a source, v of a sink, with u + v equal to the cost on arcs of the tree.
    n_sources : int
        Number n of sources.

    Examples
    --------
    >>> import groundmetric as gm
    >>> basis = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]]).basis
    >>> gm.transport.solve([[0.0, 3.0], [2.0, 1.0]], start=basis).pivots
    0
    """

    parent: np.ndarray
    potential: np.ndarray
    n_sources: int


@dataclass(frozen=True)
class Plan:
    """Transport plan with a proof of optimality, or with bounds of the optimal value.

    Parameters
    ----------
    value : float
        Value computed by the solver. For exact transport, it is the cost of the plan: the optimal value if `status` is
        OPTIMAL, otherwise an upper bound, up to rounding.
    rows, cols : array of shape (n_shipments,)
        Source and sink of each shipment.
    mass : array of shape (n_shipments,)
        Mass of each shipment: ``mass[k]`` goes from source ``rows[k]`` to sink ``cols[k]``. Partial and unbalanced
        transport may ship less than the given masses. The arrays are empty for functions of POT that return a number.
    potentials : tuple of two arrays, or None
        Arrays (u, v) of shapes (n,) and (m,) with ``u[i] + v[j] <= cost[i, j]``; None if the solver computes none.
        Exact transport: ``a @ u + b @ v`` is a lower bound of the optimal value, and equal to an OPTIMAL one.
    basis : Basis or None
        Warm start for another exact solve with the same masses; None for solvers without a basis.
    status : Status
        Status of the solve.
    pivots : int
        Number of pivots of the network simplex.
    solver : str, default="exact"
        Name of the solver.
    bounds : tuple of two floats, default=(-inf, inf)
        Proved lower and upper bound of the optimal value, up to rounding: that of partial or unbalanced transport for
        these two solvers, that of exact transport for all others.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]])
    >>> plan.value, plan.mass.tolist(), plan.optimal, plan.gap
    (0.5, [0.5, 0.5], True, 0.0)
    """

    value: float
    rows: np.ndarray
    cols: np.ndarray
    mass: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray] | None
    basis: Basis | None
    status: Status
    pivots: int
    solver: str = "exact"
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def optimal(self) -> bool:
        """Whether `status` is OPTIMAL."""
        return self.status is Status.OPTIMAL

    @property
    def gap(self) -> float:
        """Largest possible difference between `value` and the optimal value."""
        return max(self.value - self.bounds[0], self.bounds[1] - self.value)


def scaled_basis(basis: Basis | None, up: int) -> Basis | None:  # at costs multiplied by 2**up
    with np.errstate(over="ignore"):
        return None if basis is None else replace(basis, potential=np.ldexp(basis.potential, up))


def scaled_plan(plan: Plan, up: int) -> Plan:
    """Return the plan at costs multiplied by 2**up, which is exact unless numbers overflow or underflow."""
    with np.errstate(over="ignore"):
        value, low, high = (float(number) for number in np.ldexp([plan.value, *plan.bounds], up))
        potentials = plan.potentials
        if potentials is not None:
            potentials = np.ldexp(potentials[0], up), np.ldexp(potentials[1], up)
    if not math.isfinite(value):
        raise ValueError(
            f"the value is {plan.value} · 2^{up}, which is larger than the largest float: divide the costs, or the "
            "points, by a constant"
        )
    return replace(plan, value=value, potentials=potentials, basis=scaled_basis(plan.basis, up), bounds=(low, high))


def embedded(plan: Plan, rows: np.ndarray, cols: np.ndarray, total: float) -> Plan:
    """Return a plan between the points `rows` and `cols`, for a total mass of 1, as a plan between all points."""
    return replace(
        plan,
        value=plan.value * total,
        rows=rows[plan.rows],
        cols=cols[plan.cols],
        mass=plan.mass * total,
        bounds=(plan.bounds[0] * total, plan.bounds[1] * total),
    )


@dataclass(frozen=True)
class BoundedDistances:
    """Distances between distributions with proved bounds; the result of `pairwise`.

    Parameters
    ----------
    solver : Solver
        Solver; for "auto", the selected solver.
    reason : str
        Why "auto" selected this solver; empty for other solvers.
    distances : array of shape (len(A), len(B))
        Distances.
    lower, upper : array of shape (len(A), len(B))
        Bounds of the optimal values, up to rounding.
    statuses : Counter of Status
        Number of pairs that ended with each status.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [5.0], [6.0]], samples=["a", "a", "b", "b"])
    >>> gm.transport.pairwise(D).gap
    0.0
    """

    solver: Solver
    reason: str
    distances: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    statuses: Counter[Status]

    @property
    def gap(self) -> float:
        """Largest possible difference between a distance and the optimal value."""
        return float(np.max(np.maximum(self.distances - self.lower, self.upper - self.distances), initial=0.0))

    def __str__(self) -> str:
        because = f", because {self.reason}" if self.reason else ""
        mean = float(self.distances.mean()) if self.distances.size else 0.0
        share = f" ({self.gap / mean:.2g} of the mean distance)" if mean > 0 else ""
        return f"{self.solver}{because}; {self.distances.size} pairs, error at most {self.gap:.3g}{share}"
