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

    The solution is exact: a dummy point on each side receives the unmoved mass at cost 0. The potentials are shifted by
    a constant that gives both dummy points the same potential -h: moving one unit less would save 2 h. Costs must not
    be negative.

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
        assert plan.potentials is not None
        u, v = plan.potentials
        plan = _without_dummies(plan, cost, np.inf, float(u[n] - v[m]) / 2, self.name)
        value = float(plan.mass @ cost[plan.rows, plan.cols])
        return replace(plan, value=value, bounds=(min(plan.bounds[0], value), value))


@dataclass(frozen=True)
class Unbalanced(Solver):
    """Transport in which mass may be created and destroyed: outliers and missing types need not be matched.

    The value includes the cost of creation and destruction. The solution is exact: it is exact transport at the costs
    min(c, 2 price) with a dummy point on the side with less mass. Costs must not be negative, and the total masses of
    the two sides may differ.

    Parameters
    ----------
    price : float
        Cost of creating or destroying a unit of mass, required. Mass is moved only at costs up to twice the price.

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
        assert plan.potentials is not None
        u, v = plan.potentials
        # The shift gives the dummy point the potential 0.
        level = float(u[n]) if surplus < 0 else -float(v[m]) if surplus > 0 else 0.0
        # At higher costs than twice the price, mass is destroyed at the source and created at the sink.
        return _without_dummies(plan, cost, 2.0 * price, level, self.name)


def _without_dummies(plan: Plan, cost: np.ndarray, most: float, level: float, solver: str) -> Plan:
    """Return the plan between real points at costs up to `most`, with potentials shifted by `level`."""
    n, m = cost.shape
    is_real = np.flatnonzero((plan.rows < n) & (plan.cols < m))
    moved = is_real[cost[plan.rows[is_real], plan.cols[is_real]] <= most]
    rows, cols, mass = (values[moved] for values in (plan.rows, plan.cols, plan.mass))
    assert plan.potentials is not None
    potentials = plan.potentials[0][:n] - level, plan.potentials[1][:m] + level
    return replace(plan, rows=rows, cols=cols, mass=mass, potentials=potentials, basis=None, solver=solver)


def _require_not_negative(cost: np.ndarray, name: str) -> None:
    if cost.min() < 0:
        i, j = np.unravel_index(np.argmin(cost), cost.shape)
        raise ValueError(f"cost is {cost[i, j]} at ({i}, {j}): solver {name!r} needs costs that are not negative")
