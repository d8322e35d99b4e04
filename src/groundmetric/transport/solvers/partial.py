"""Partial and unbalanced transport: not all of the mass has to move. Exact, by dummy points; with "kl", by POT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp, rel_entr

from ..plan import Plan, Status
from .exact import Solver, check_number, require_not_negative, solve_exact
from .pot import LARGEST_EXPONENT, c_transforms, import_pot, require_finite, without_plan


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

    The value includes the penalty. Costs must not be negative, and masses of the two sides may have other sums.

    ``penalty="tv"``: every unit created or destroyed costs `price`, so nothing moves farther than twice the price.
    Exact, and without POT.

    ``penalty="kl"``: `price` times the Kullback-Leibler divergence of the moved masses from the given ones, on each
    side. POT (extra `pot`) finds it nearly, with bounds.

    Parameters
    ----------
    price : float
        Price of mass that is created or destroyed, in units of the costs; required. The higher, the closer to exact
        transport.
    penalty : {"tv", "kl"}, default="tv"
        Total variation or Kullback-Leibler divergence, see above.
    epsilon : float or None, default=None
        For "kl": strength of the entropy, in units of the costs. None: a hundredth of a typical cost. At least a 500th
        of the largest cost is used.
    tol : float, default=1e-4
        For "kl": the share by which the scalings of POT may still change at the end.
    max_iter : int, default=5000
        For "kl": iterations after which to stop; `status` says if they were too few.
    max_pivots : int or None, default=None
        Pivots of the network simplex after which to stop, and `status` says so; the default is never reached in
        practice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve([[0.0, 9.0], [9.0, 9.0]], solver="unbalanced", price=1.0).value
    1.0
    >>> plan = gm.transport.solve([[0.0, 9.0], [9.0, 9.0]], solver="unbalanced", price=1.0, penalty="kl")
    >>> [round(bound, 3) for bound in plan.bounds]
    [0.989, 0.989]
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
        assert self.price is not None
        problem = cost, a, b, float(self.price)
        if self.penalty == "tv":
            plan = solve_total_variation(*problem, max_pivots=self.max_pivots)
        else:
            limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "max_pivots": self.max_pivots}
            plan = solve_kullback_leibler(*problem, self.epsilon, **limits)
        return replace(plan, solver=self.name)


def solve_total_variation(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, price: float, *, max_pivots: int | None = None
) -> Plan:
    """Transport where every unit of mass created or destroyed costs `price`; masses need not have the same sum.

    It is transport at the costs min(c, 2 price), plus a dummy point on the lighter side.
    """
    n, m = cost.shape
    surplus = a.sum() - b.sum()
    if abs(surplus) <= 1e-12 * (a.sum() + b.sum()):  # rounding
        surplus = 0.0
    capped = np.full((n + (surplus < 0), m + (surplus > 0)), price)
    np.minimum(cost, 2.0 * price, out=capped[:n, :m])
    sources, sinks = (np.append(a, -surplus), b) if surplus < 0 else (a, np.append(b, surplus) if surplus else b)
    plan = solve_exact(capped, sources, sinks, max_pivots=max_pivots)
    inside = (plan.rows < n) & (plan.cols < m)
    rows, cols, mass = plan.rows[inside], plan.cols[inside], plan.mass[inside]
    worth = cost[rows, cols] <= 2.0 * price  # what is farther is destroyed here and created there
    assert plan.potentials is not None
    u, v = plan.potentials
    level = u[n] if surplus < 0 else -v[m] if surplus > 0 else 0.0  # the dummy's potential becomes 0
    potentials = u[:n] - level, v[:m] + level
    return replace(plan, rows=rows[worth], cols=cols[worth], mass=mass[worth], potentials=potentials, basis=None)


def solve_kullback_leibler(
    cost: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    price: float,
    epsilon: float | None,
    *,
    tol: float,
    max_iter: int,
    max_pivots: int | None = None,
) -> Plan:
    """Transport plus `price` times the divergences of the moved masses from a and b, which may have other sums.

    The potentials of POT imply what is sent and received, a exp(-f/price) and b exp(-g/price). What the exact plan
    between these costs in all is `value`, and bounds the optimal one from above; the potentials, made feasible, bound
    it from below.
    """
    rows, cols = (np.flatnonzero(mass >= 2.0**-60 * mass.sum()) for mass in (a, b))  # POT's kernel has no room for less
    inner, p, q = cost[np.ix_(rows, cols)], a[rows], b[cols]
    epsilon = epsilon or 0.01 * float(p @ inner @ q) / float(p.sum() * q.sum()) or 1.0
    f, g, iterations, converged = sinkhorn_unbalanced(inner, p, q, price, epsilon, tol, max_iter)
    u, v = at_best_level(*c_transforms(cost, g, cols), a, b, price)
    lower = price * float(a @ -np.expm1(-u / price) + b @ -np.expm1(-v / price))
    sent, received = p * np.exp(-f / price), q * np.exp(-g / price)
    plan, value = without_plan("unbalanced", 0.0, (0.0, 0.0)), price * float(p.sum() + q.sum())
    if min(sent.sum(), received.sum()) > 1e-250:  # else nothing is worth its way
        plan = solve_exact(inner, sent, received, max_pivots=max_pivots)
        # Of all multiples of the plan the cheapest: where the potentials add up to its cost.
        share = np.exp((sent @ f + received @ g - plan.value) / (2.0 * price * sent.sum()))
        value = float(share * plan.value + price * (divergence(share * sent, p) + divergence(share * received, q)))
        plan = replace(plan, rows=rows[plan.rows], cols=cols[plan.cols], mass=share * plan.mass)
    status = Status.APPROXIMATE if plan.optimal else plan.status
    status = status if converged else Status.ITERATION_LIMIT
    bounds = min(lower, value), value
    return replace(plan, value=value, potentials=(u, v), basis=None, status=status, pivots=iterations, bounds=bounds)


def sinkhorn_unbalanced(
    cost: np.ndarray, p: np.ndarray, q: np.ndarray, price: float, epsilon: float, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Potentials where masses may be left or exceeded at a price; how many iterations, and whether they converged."""
    epsilon = max(epsilon, float(cost.max()) / LARGEST_EXPONENT)
    # Unlike plain iterations, these do not take longer at higher prices.
    options = {"method": "sinkhorn_translation_invariant", "numItermax": max_iter, "stopThr": tol, "log": True}
    pot = import_pot("unbalanced")
    with np.errstate(all="ignore"):
        # Potentials of other masses differ by a level only, and scalings of sums of 1 stay within the range of floats.
        _, log = pot.unbalanced.sinkhorn_unbalanced(p / p.sum(), q / q.sum(), cost, epsilon, price, **options)
        f, g = at_best_level(epsilon * log["logu"], epsilon * log["logv"], p, q, price)
    require_finite(f"'unbalanced' at epsilon={epsilon:.3g} and costs up to {cost.max():.3g}", f, g)
    return f, g, len(log["err"]), bool(log["err"][-1] <= tol)


def at_best_level(
    u: np.ndarray, v: np.ndarray, a: np.ndarray, b: np.ndarray, price: float
) -> tuple[np.ndarray, np.ndarray]:
    """Potentials u + t and v - t that send as much as they receive: of all levels t, this proves the most."""
    shift = price * (logsumexp(-u / price, b=a) - logsumexp(-v / price, b=b)) / 2
    return u + shift, v - shift


def divergence(p: np.ndarray, a: np.ndarray) -> float:
    """Kullback-Leibler divergence of masses p from masses a, whose sums may differ; p is 0 where a is."""
    return float(np.sum(rel_entr(p, a) - p + a))
