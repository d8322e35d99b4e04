"""Partial and unbalanced transport, solved exactly by exact transport with dummy points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..plan import Plan
from .exact import Solver, solve_exact


@dataclass(frozen=True)
class Partial(Solver):
    """Transport of a share of the mass at the lowest cost; the mass with the highest costs is not moved.

    The solution is exact: a dummy point on each side receives the unmoved mass at cost 0. The potentials are those of
    the real points, shifted by a constant that gives both dummy points the same potential -h: moving one unit
    less would save 2 h. Costs must not be negative.

    Parameters
    ----------
    share : float, default=0.9
        Share of the smaller side's mass that moves, above 0. 1 is exact transport if both sides have the same mass.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[1.0, 9.0], [9.0, 4.0]], solver=gm.transport.Partial(share=0.5))
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (0.5, [0], [0])
    """

    share: float = 0.9

    name: ClassVar[str] = "partial"
    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._check("share", low=0.0, high=1.0, above=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        _require_not_negative(cost, self.name)
        n, m = cost.shape
        total_a, total_b = a.sum(), b.sum()
        moved = self.share * min(total_a, total_b)
        wider = np.zeros((n + 1, m + 1))
        wider[:n, :m] = cost
        wider[n, m] = cost.max() or 1.0  # a shipment between the dummy points would force more than `moved` to move
        unmoved_a, unmoved_b = max(total_a - moved, 0.0), max(total_b - moved, 0.0)
        plan = solve_exact(wider, np.append(a, unmoved_b), np.append(b, unmoved_a))
        real = (plan.rows < n) & (plan.cols < m)
        assert plan.potentials is not None
        u, v = plan.potentials
        level = (u[n] - v[m]) / 2
        value = float(plan.mass[real] @ cost[plan.rows[real], plan.cols[real]])
        return replace(
            plan,
            value=value,
            rows=plan.rows[real],
            cols=plan.cols[real],
            mass=plan.mass[real],
            potentials=(u[:n] - level, v[:m] + level),
            basis=None,
            solver=self.name,
            bounds=(min(plan.bounds[0], value), value),
        )


@dataclass(frozen=True)
class Unbalanced(Solver):
    """Transport in which mass may be created and destroyed: outliers and missing types need not be matched.

    Every unit created or destroyed costs `price`, and the value includes this cost. Mass is moved only at costs up to
    twice the price. The solution is exact: it is exact transport at the costs min(c, 2 price) with a dummy point on the
    side with less mass. Costs must not be negative, and the total masses of the two sides may differ.

    Parameters
    ----------
    price : float
        Cost of creating or destroying a unit of mass, in units of the costs; required. High prices approach exact
        transport.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve([[0.0, 9.0], [9.0, 9.0]], solver="unbalanced", price=1.0).value
    1.0
    """

    price: float | None = None

    name: ClassVar[str] = "unbalanced"
    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.price is None:
            raise ValueError(
                "solver 'unbalanced' needs a price: the cost of creating or destroying a unit of mass, in units of the "
                "costs, e.g. price=1.0; mass is moved only at costs up to twice the price"
            )
        self._check("price", low=0.0, above=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        _require_not_negative(cost, self.name)
        assert self.price is not None
        price, (n, m) = float(self.price), cost.shape
        surplus = a.sum() - b.sum()
        if abs(surplus) <= 1e-12 * (a.sum() + b.sum()):
            surplus = 0.0
        capped = np.full((n + (surplus < 0), m + (surplus > 0)), price)
        np.minimum(cost, 2.0 * price, out=capped[:n, :m])
        sources, sinks = (np.append(a, -surplus), b) if surplus < 0 else (a, np.append(b, surplus) if surplus else b)
        plan = solve_exact(capped, sources, sinks)
        is_real = (plan.rows < n) & (plan.cols < m)
        rows, cols, mass = plan.rows[is_real], plan.cols[is_real], plan.mass[is_real]
        # At higher costs, mass is destroyed at the source and created at the sink.
        is_moved = cost[rows, cols] <= 2.0 * price
        assert plan.potentials is not None
        u, v = plan.potentials
        level = u[n] if surplus < 0 else -v[m] if surplus > 0 else 0.0  # shifts the potential of the dummy point to 0
        return replace(
            plan,
            rows=rows[is_moved],
            cols=cols[is_moved],
            mass=mass[is_moved],
            potentials=(u[:n] - level, v[:m] + level),
            basis=None,
            solver=self.name,
        )


def _require_not_negative(cost: np.ndarray, name: str) -> None:
    if cost.min() < 0:
        i, j = np.unravel_index(np.argmin(cost), cost.shape)
        raise ValueError(f"cost is {cost[i, j]} at ({i}, {j}): solver {name!r} needs costs that are not negative")
