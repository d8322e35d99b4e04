"""Partial and unbalanced transport: not all of the mass has to move. Exact, by dummy points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..plan import Plan
from .exact import Solver, check_number, require_not_negative, solve_exact


@dataclass(frozen=True)
class Partial(Solver):
    """The cheapest way to move a share of the mass; what is farthest from everything stays behind.

    Exact: a dummy point on each side takes for nothing what stays behind. The potentials are those of the real points,
    at the level where both dummies have the same, -h: h is the price at which leaving a unit behind would pay. Costs
    must not be negative.

    Parameters
    ----------
    share : float, default=0.9
        Share of the smaller side's mass that moves, above 0. 1 is exact transport where both sides have the same mass.
    max_pivots : int or None, default=None
        Pivots of the network simplex after which to stop, and `status` says so; the default is never reached in
        practice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[1.0, 9.0], [9.0, 4.0]], solver=gm.transport.Partial(share=0.5))
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (0.5, [0], [0])
    """

    share: float = 0.9
    max_pivots: int | None = None

    name: ClassVar[str] = "partial"
    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number(self, "share", low=0.0, high=1.0, open_low=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        require_not_negative(cost, self.name)
        n, m = cost.shape
        total_a, total_b = a.sum(), b.sum()
        moved = self.share * min(total_a, total_b)
        wider = np.zeros((n + 1, m + 1))
        wider[:n, :m] = cost
        wider[n, m] = cost.max() or 1.0  # from dummy to dummy would move more than asked for, at this price on top
        left_a, left_b = max(total_a - moved, 0.0), max(total_b - moved, 0.0)
        plan = solve_exact(wider, np.append(a, left_b), np.append(b, left_a), max_pivots=self.max_pivots)
        real = (plan.rows < n) & (plan.cols < m)
        assert plan.potentials is not None
        u, v = plan.potentials
        level = (u[n] - v[m]) / 2
        value = float(plan.mass[real] @ cost[plan.rows[real], plan.cols[real]])
        return Plan(
            value=value,
            rows=plan.rows[real],
            cols=plan.cols[real],
            mass=plan.mass[real],
            potentials=(u[:n] - level, v[:m] + level),
            basis=None,
            status=plan.status,
            pivots=plan.pivots,
            solver=self.name,
            bounds=(min(plan.bounds[0], value), value),
        )


@dataclass(frozen=True)
class Unbalanced(Solver):
    """Transport where mass may be created and destroyed: outliers and missing types need not be matched.

    Every unit created or destroyed costs `price`, so nothing moves farther than twice the price; the value includes
    that. Exact: it is transport at the costs min(c, 2 price), plus a dummy point on the lighter side. Costs must not be
    negative, and masses of the two sides may have other sums.

    Parameters
    ----------
    price : float
        Price of mass that is created or destroyed, in units of the costs; required. The higher, the closer to exact
        transport.
    max_pivots : int or None, default=None
        Pivots of the network simplex after which to stop, and `status` says so; the default is never reached in
        practice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve([[0.0, 9.0], [9.0, 9.0]], solver="unbalanced", price=1.0).value
    1.0
    """

    price: float | None = None
    max_pivots: int | None = None

    name: ClassVar[str] = "unbalanced"
    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.price is None:
            raise ValueError(
                "solver 'unbalanced' needs a price: what creating or destroying a unit of mass costs, in units of the "
                "costs, e.g. price=1.0; nothing moves farther than twice that"
            )
        check_number(self, "price", low=0.0, open_low=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        require_not_negative(cost, self.name)
        assert self.price is not None
        price, (n, m) = float(self.price), cost.shape
        surplus = a.sum() - b.sum()
        if abs(surplus) <= 1e-12 * (a.sum() + b.sum()):  # rounding
            surplus = 0.0
        capped = np.full((n + (surplus < 0), m + (surplus > 0)), price)
        np.minimum(cost, 2.0 * price, out=capped[:n, :m])
        sources, sinks = (np.append(a, -surplus), b) if surplus < 0 else (a, np.append(b, surplus) if surplus else b)
        plan = solve_exact(capped, sources, sinks, max_pivots=self.max_pivots)
        inside = (plan.rows < n) & (plan.cols < m)
        rows, cols, mass = plan.rows[inside], plan.cols[inside], plan.mass[inside]
        worth = cost[rows, cols] <= 2.0 * price  # what is farther is destroyed here and created there
        assert plan.potentials is not None
        u, v = plan.potentials
        level = u[n] if surplus < 0 else -v[m] if surplus > 0 else 0.0  # the dummy's potential becomes 0
        return replace(
            plan,
            rows=rows[worth],
            cols=cols[worth],
            mass=mass[worth],
            potentials=(u[:n] - level, v[:m] + level),
            basis=None,
            solver=self.name,
        )
