"""Entropic transport: blurred plans by Sinkhorn's iterations, with bounds on the exact value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .exact import dual_value
from .plan import Plan, Status
from .sinkhorn import entropic_plan, feasible, own_value, rounded, sinkhorn
from .solver import Cloud, Distances, Solver, check_number


class Blurred(NamedTuple):
    """A distribution and its entropic cost to itself (0 where that is not asked for)."""

    points: Any
    masses: np.ndarray
    own: float
    fits: bool


@dataclass(frozen=True)
class Entropic(Solver):
    """Transport with `epsilon` times the entropy of the plan on top of its cost.

    The plan is rounded to one that fits the masses, so its cost, which is `value`, bounds the exact value from above;
    the potentials, made feasible, bound it from below.

    Parameters
    ----------
    epsilon : float, optional
        In units of the costs; the smaller, the closer to exact transport and the slower. Default: a twentieth of a
        typical cost (of the cohort, in `pairwise_distances`).
    debiased : bool
        The Sinkhorn divergence: the entropic value, less the mean of both distributions' values to themselves. Not
        negative, 0 for equal distributions. Needs points, not costs.
    tol : float
        Share of the mass that may be in the wrong place at the end.
    max_iter : int
    """

    epsilon: float | None = None
    debiased: bool = False
    tol: float = 1e-4
    max_iter: int = 5000

    name: ClassVar[str] = "entropic"

    def __post_init__(self) -> None:
        check_number(self, "epsilon", low=0.0, open_low=True)
        check_number(self, "tol", low=0.0, open_low=True)
        check_number(self, "max_iter", low=1, whole=True)

    def at_scale(self, typical: Callable[[], float]) -> Entropic:
        return self if self.epsilon is not None else replace(self, epsilon=0.05 * typical() or 1.0)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        if self.debiased:
            raise ValueError(
                "debiased=True needs the costs within each side too: use `transport.solve_points` or "
                "`pairwise_distances`"
            )
        return self._plan(cost, a, b)[0]

    def prepare(self, cloud: Cloud, distances: Distances) -> Blurred:
        if not self.debiased:
            return Blurred(*cloud, 0.0, True)
        assert self.epsilon is not None
        cost = np.ascontiguousarray(distances(cloud.points, cloud.points))
        own, fits = own_value(cost, cloud.masses, self.epsilon, tol=self.tol, max_iter=self.max_iter)
        return Blurred(*cloud, own, fits)

    def compare(self, x: Blurred, y: Blurred, distances: Distances) -> Plan:
        plan, blurred_value = self._plan(np.ascontiguousarray(distances(x.points, y.points)), x.masses, y.masses)
        if not self.debiased:
            return plan
        fits = x.fits and y.fits
        divergence = max(blurred_value - (x.own + y.own) / 2, 0.0)
        return replace(plan, value=divergence, status=plan.status if fits else Status.ITERATION_LIMIT)

    def _plan(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[Plan, float]:
        """The rounded plan, and the entropic value before rounding."""
        total = float(a.sum())
        rows, cols = np.flatnonzero(a), np.flatnonzero(b)
        inner = np.ascontiguousarray(cost[np.ix_(rows, cols)])
        p, q = a[rows] / total, b[cols] / b.sum()
        epsilon = self.epsilon or 0.05 * float(p @ inner @ q) or 1.0
        ended = sinkhorn(inner, p, q, epsilon, tol=self.tol, max_iter=self.max_iter)
        plan = rounded(entropic_plan(inner, p, q, epsilon, ended), p, q)
        u, v = feasible(cost, ended.g, cols)
        value = float(np.vdot(plan, inner))
        lower = dual_value(p, q, (u[rows], v[cols]))
        tails, heads = np.nonzero(plan)
        result = Plan(
            value=value * total,
            rows=rows[tails],
            cols=cols[heads],
            mass=plan[tails, heads] * total,
            potentials=(u, v),
            basis=None,
            status=Status.APPROXIMATE if ended.converged else Status.ITERATION_LIMIT,
            pivots=ended.iterations,
            solver=self.name,
            bounds=(min(lower, value) * total, value * total),
        )
        return result, dual_value(p, q, (ended.f, ended.g)) * total
