"""Partial transport: only a share of the mass has to move, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .exact import solve_exact
from .plan import Plan
from .solver import Solver, check_number, require_not_negative


@dataclass(frozen=True)
class Partial(Solver):
    """The cheapest way to move a share of the mass; what is farthest from everything stays behind.

    Exact: a dummy point on each side takes for nothing what stays behind. The potentials are those of the real points,
    at the level where both dummies have the same, -h: h is the price at which leaving a unit behind would pay.

    Parameters
    ----------
    share : float
        Of the smaller side's mass. 1 is exact transport where both sides have the same mass.
    max_pivots : int, optional
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
