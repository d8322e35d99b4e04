"""Unbalanced transport: mass may be created and destroyed at a price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .exact import solve_exact
from .plan import Plan, Status
from .sinkhorn import balance, feasible, sinkhorn
from .solver import Solver, check_number, require_not_negative


@dataclass(frozen=True)
class Unbalanced(Solver):
    """Transport where mass may be created and destroyed: outliers and missing types need not be matched.

    ``penalty="tv"``: every unit created or destroyed costs `price`, so nothing moves farther than twice the price.
    Exact: it is transport at the costs min(c, 2 price), plus a dummy point on the lighter side.

    ``penalty="kl"``: `price` times the Kullback-Leibler divergence of the moved masses from the given ones, on each
    side. Solved with a little entropy (`epsilon`), then without: `value` is what the plan costs in all, and potentials
    bound the optimal value from below.

    Parameters
    ----------
    price : float
        In units of the costs. The higher, the closer to exact transport.
    penalty : {"tv", "kl"}
    epsilon, tol, max_iter : for "kl", as in `Entropic`; epsilon None means a hundredth of a typical cost
    max_pivots : int, optional
    """

    price: float | None = None
    penalty: str = "tv"
    epsilon: float | None = None
    tol: float = 1e-4
    max_iter: int = 5000
    max_pivots: int | None = None

    name: ClassVar[str] = "unbalanced"
    balanced: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.price is None:
            raise ValueError(
                "solver 'unbalanced' needs a price: what creating or destroying a unit of mass costs, in units of the "
                "costs, e.g. price=1.0; nothing moves farther than twice that"
            )
        for option in ("price", "epsilon", "tol"):
            check_number(self, option, low=0.0, open_low=True)
        check_number(self, "max_iter", low=1, whole=True)
        check_number(self, "max_pivots", low=0, whole=True)
        if self.penalty not in ("tv", "kl"):
            raise ValueError(f"penalty of solver 'unbalanced' is {self.penalty!r}: expected 'tv' or 'kl'")

    def at_scale(self, typical: Callable[[], float]) -> Unbalanced:
        if self.penalty == "tv" or self.epsilon is not None:
            return self
        return replace(self, epsilon=0.01 * typical() or 1.0)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        require_not_negative(cost, self.name)
        return self._total_variation(cost, a, b) if self.penalty == "tv" else self._kullback_leibler(cost, a, b)

    def _total_variation(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        n, m = cost.shape
        assert self.price is not None
        surplus = a.sum() - b.sum()
        if abs(surplus) <= 1e-12 * (a.sum() + b.sum()):  # rounding
            surplus = 0.0
        capped = np.full((n + (surplus < 0), m + (surplus > 0)), float(self.price))
        np.minimum(cost, 2.0 * self.price, out=capped[:n, :m])
        sources, sinks = (np.append(a, -surplus), b) if surplus < 0 else (a, np.append(b, surplus) if surplus else b)
        plan = solve_exact(capped, sources, sinks, max_pivots=self.max_pivots)
        inside = (plan.rows < n) & (plan.cols < m)
        rows, cols, mass = plan.rows[inside], plan.cols[inside], plan.mass[inside]
        worth = cost[rows, cols] <= 2.0 * self.price  # what is farther is destroyed here and created there
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

    def _kullback_leibler(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        assert self.price is not None
        rows, cols = np.flatnonzero(a), np.flatnonzero(b)
        inner = np.ascontiguousarray(cost[np.ix_(rows, cols)])
        p, q = a[rows], b[cols]
        epsilon = self.epsilon or 0.01 * float(p @ inner @ q) / (p.sum() * q.sum()) or 1.0
        ended = sinkhorn(inner, p, q, epsilon, price=self.price, tol=self.tol, max_iter=self.max_iter)
        u, v = feasible(cost, ended.g, cols)
        balance(a, b, u, v, float(self.price))  # of all levels, the one that proves the most
        lower = self.price * float(a @ -np.expm1(-u / self.price) + b @ -np.expm1(-v / self.price))
        # What the best potentials send and receive is optimal, and the exact plan between the two is the cheapest.
        sent, received = a * np.exp(-u / self.price), b * np.exp(-v / self.price)
        plan = solve_exact(cost, sent, received, max_pivots=self.max_pivots)
        paid = self.price * (divergence(sent, a) + divergence(received, b))
        value = plan.value + paid
        return Plan(
            value=value,
            rows=plan.rows,
            cols=plan.cols,
            mass=plan.mass,
            potentials=(u, v),
            basis=None,
            status=Status.APPROXIMATE if ended.converged else Status.ITERATION_LIMIT,
            pivots=ended.iterations,
            solver=self.name,
            bounds=(min(lower, value), value),
        )


def divergence(p: np.ndarray, a: np.ndarray) -> float:
    """Kullback-Leibler divergence of masses p from masses a, whose sums may differ; p is 0 where a is."""
    ratio = np.divide(p, a, out=np.ones_like(p), where=p > 0)
    return float(np.sum(p * np.log(ratio) - p + a))
