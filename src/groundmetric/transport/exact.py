"""The exact solver: the network simplex on costs and masses that have been checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from .forests import first_forest
from .masses import equal_masses, integer_masses
from .plan import Basis, Plan, Status
from .prices import matrix_prices
from .simplex import optimise, shipping_cost
from .solver import Solver, check_number


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
    units_a, units_b, total = integer_units(a, b)
    rows, cols = np.flatnonzero(units_a), np.flatnonzero(units_b)
    whole = rows.size == cost.shape[0] and cols.size == cost.shape[1]
    inner = cost if whole else np.ascontiguousarray(cost[np.ix_(rows, cols)])
    n, m = inner.shape
    parent, potential = _first_basis(n, m, start)
    flow = np.empty(n + m + 1, np.int64)
    limit = 2000 * (n + m) if max_pivots is None else max_pivots
    task = inner, units_a[rows], units_b[cols], parent, flow, potential
    pivots, optimal, feasible, paid = _optimise_matrix(*task, start is None, limit)
    if not feasible:
        raise ValueError("start does not fit these masses: use the basis of a plan with the same masses, or none")
    units = float(units_a.sum())
    u, v = -potential[:n], potential[n : n + m].copy()
    value = paid / units
    proved = _is_proved(value, units_a[rows] / units, u, units_b[cols] / units, v, inner)
    tails, heads, shipped = shipments(parent, flow, n)
    potentials = (u, v) if whole and optimal else feasible_potentials(cost, v, cols)
    lower = dual_value(units_a / units, units_b / units, potentials)
    return Plan(
        value=float(value * total),
        rows=rows[tails],
        cols=cols[heads],
        mass=shipped / units * total,
        potentials=potentials,
        basis=Basis(parent, potential, n),
        status=Status.PIVOT_LIMIT if not optimal else Status.OPTIMAL if proved else Status.IMPRECISE,
        pivots=int(pivots),
        bounds=(float(min(lower, value) * total), float(value * total)),
    )


def dual_value(a: np.ndarray, b: np.ndarray, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """What the potentials prove: no plan between masses a and b, of sum 1, costs less."""
    u, v = potentials
    level = a @ u  # taken out, a common level of all potentials drowns nothing
    return float(a @ (u - level) + b @ (v + level))


def feasible_potentials(cost: np.ndarray, v: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Potentials for every point from those of the sinks with mass: the largest that the costs allow."""
    u = (cost[:, cols] - v).min(axis=1)
    full = (cost - u[:, None]).min(axis=0)
    full[cols] = v
    return u, full


def integer_units(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Masses in integer units that balance, and the total mass that all units together stand for."""
    if np.all(a == a[0]) and np.all(b == b[0]):
        per_source, per_sink = equal_masses(a.size, b.size)
        return np.full(a.size, per_source, np.int64), np.full(b.size, per_sink, np.int64), float(a.sum())
    return integer_masses(a), integer_masses(b), float(a.sum())


def _first_basis(n: int, m: int, start: Basis | None) -> tuple[np.ndarray, np.ndarray]:
    """Parents and potentials to start from; where there is no start, only room for them."""
    if start is None:
        return np.empty(n + m + 1, np.int32), np.zeros(n + m + 1)
    if start.parent.size != n + m + 1 or start.n_sources != n:
        raise ValueError(
            f"start is a basis of {start.n_sources} × {start.parent.size - 1 - start.n_sources} points with mass, "
            f"but this problem has {n} × {m}"
        )
    return start.parent.copy(), start.potential.copy()


@numba.njit(nogil=True, cache=True)
def _optimise_matrix(cost, a, b, parent, flow, potential, cold, max_pivots):  # type: ignore[no-untyped-def]
    """`optimise` for a matrix of costs, where `parent` is a basis unless cold; returns the plan's cost too."""
    prices = matrix_prices(cost)
    if cold:
        first_forest(prices.rough.costs, a, b, parent)
    pivots, optimal, feasible = optimise(prices, a, b, parent, flow, potential, max_pivots)
    return pivots, optimal, feasible, shipping_cost(prices, a.size, parent, flow) if feasible else 0.0


def _is_proved(value: float, a: np.ndarray, u: np.ndarray, b: np.ndarray, v: np.ndarray, cost: np.ndarray) -> bool:
    """Do the potentials prove the value, to 8 digits or to 10⁻¹³ of a typical cost?

    Potentials can be far larger than the value, where some costs are huge; their rounding then hides it.
    """
    level = a @ u  # taken out, a common level of all potentials drowns nothing
    rounding = 2.0**-50 * (a @ np.abs(u - level) + b @ np.abs(v + level))
    gap = abs(value - (a @ (u - level) + b @ (v + level)))
    if gap > 1e-8 * abs(value) + rounding:
        return False
    return bool(rounding <= 1e-8 * abs(value) or rounding <= 1e-13 * np.median(np.abs(cost)))


def shipments(parent: np.ndarray, flow: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and amounts of the arcs that carry flow, by sender and then receiver."""
    used = np.flatnonzero(flow[:-1] > 0)
    above = parent[used]
    tails, heads = np.minimum(used, above), np.maximum(used, above) - n
    order = np.lexsort((heads, tails))
    return tails[order], heads[order], flow[used][order]
