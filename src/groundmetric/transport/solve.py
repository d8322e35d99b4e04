"""Solve one transport problem between costs (`solve`) or points (`solve_points`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._internal.types import PointsLike
from .plan import Basis, Plan, embedded
from .problem import check_cost, check_masses, check_points
from .solvers.exact import Cloud, Exact, Solver, resolve_solver, solve_exact

if TYPE_CHECKING:
    from ..metrics.base import Cost

# Seconds of an exact cold start of n × m points: a fit to sizes from 30 to 2000 on one core of a cloud machine.
_CALL, _SECONDS, _GROWTH = 1e-4, 2e-8, 1.05
# Largest number of entries of a cost matrix (3.2 GB).
_MOST_COSTS = 4e8
# Smallest number of groups that "auto" selects.
_FEWEST_GROUPS = 30


@dataclass(frozen=True)
class Auto(Solver):
    """Exact transport if it fits into a time budget, otherwise coarsened transport with the most groups that fit.

    The time is estimated from the numbers of points: the same data give the same result on every machine. Costs, and
    points with other than Euclidean distances, are always solved exactly.

    Parameters
    ----------
    seconds : float, default=60.0
        Approximate time for all pairs on one core.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver=gm.transport.Auto(seconds=1.0)).solver
    'exact'
    """

    seconds: float = 60.0

    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        self._check("seconds", low=0.0, above=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        return solve_exact(cost, a, b)  # points are unknown, and cannot be grouped


def pick_solver(auto: Auto, n: np.ndarray, m: np.ndarray, *, on_points: bool) -> tuple[Solver, str]:
    """Return the solver for pairs of n and m points, and the reason for the choice as a clause for messages.

    `on_points`: whether the points can be grouped, that is, have Euclidean distances.
    """
    needed = _exact_seconds(n, m)
    largest = int(np.max(n * m, initial=0))
    if needed <= auto.seconds and largest <= _MOST_COSTS:
        return Exact(), f"exact transport takes about {needed:.1g} s of {auto.seconds:g}"
    why = f"exact transport would take about {needed:.2g} s of {auto.seconds:g}"
    if needed <= auto.seconds:
        why = f"the largest pair has {largest:.1g} costs, too many to keep"
    if not on_points:
        return Exact(), f"{why}, but only points with Euclidean distances can be grouped"
    from .solvers.coarse import Coarse  # slow to import

    # The largest number of groups that fits into the time budget, by bisection.
    low, high = _FEWEST_GROUPS, int(max(n.max(), m.max(), _FEWEST_GROUPS + 1))
    while high - low > 1:
        groups = (low + high) // 2
        sizes = np.minimum(n, groups), np.minimum(m, groups)
        fits = _exact_seconds(*sizes) <= auto.seconds and np.max(sizes[0] * sizes[1]) <= _MOST_COSTS
        low, high = (groups, high) if fits else (low, groups)
    return Coarse(low), why


def _exact_seconds(n: np.ndarray, m: np.ndarray) -> float:
    return float(np.sum(_CALL + _SECONDS * (n * m.astype(np.float64)) ** _GROWTH))


def solve(
    cost: ArrayLike,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    solver: str | Solver = "exact",
    start: Basis | None = None,
    **options: Any,
) -> Plan:
    """Solve optimal transport between the masses `a` and `b` at the given costs, exactly or by another solver.

    Parameters
    ----------
    cost : array of shape (n, m)
        Cost of moving a unit of mass from each source to each sink.
    a, b : array of shape (n,) and (m,), or None, default=None
        Masses of the sources and of the sinks, not negative, with equal sums unless the solver is partial or
        unbalanced. None: equal masses that sum to 1.
    solver : {"exact", "partial", "unbalanced", "auto"} or Solver, default="exact"
        Name, or object of a class in `groundmetric.transport`. Solvers that need points raise ValueError.
    start : Basis or None, default=None
        Basis of an earlier exact plan with the same masses, as a warm start for the exact solver: few pivots are needed
        after a small change of the costs. It is not modified.
    **options : object
        Options of the solver, e.g. ``max_pivots`` of "exact"; see the classes in `groundmetric.transport`.

    Returns
    -------
    Plan
        Value, shipments, potentials, and bounds of the optimal value.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (0.5, [0, 1], [0, 1])
    >>> gm.transport.solve([[0.0, 2.0], [2.0, 1.0]], solver="partial", share=0.5).value
    0.0
    """
    is_plain = solver == "exact" and not options  # the usual call skips the lookup of solvers
    chosen = Exact() if is_plain else resolve_solver(solver, options)
    cost, cost_range = check_cost(cost)
    a, b = check_masses(a, b, cost.shape, balanced=chosen.balanced)
    if not isinstance(start, Basis | None):
        raise TypeError(f"start is a {type(start).__name__}: expected the `basis` of a plan")
    if isinstance(chosen, Exact):
        return solve_exact(cost, a, b, start=start, max_pivots=chosen.max_pivots, cost_range=cost_range)
    if start is not None:
        raise ValueError(f"start is for the exact solver, but solver is {chosen.name!r}: leave it out")
    return chosen.solve(cost, a, b)


def solve_points(
    x: PointsLike,
    y: PointsLike,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    solver: str | Solver = "exact",
    cost: Cost | str = "euclidean",
    tolerance: float = 0.0,
    **options: Any,
) -> Plan:
    """Solve optimal transport between the points x and y; the exact solver needs memory linear in the number of points.

    Parameters
    ----------
    x, y : array of shape (n, k) and (m, k)
        Points. For a learned metric, the points projected by `metric.project`.
    a, b : array of shape (n,) and (m,), or None, default=None
        Masses of the points, not negative, with equal sums unless the solver is partial or unbalanced. None: equal
        masses that sum to 1.
    solver : str or Solver, default="exact"
        "exact", "partial", "unbalanced", "coarse", "auto", or an object of a class in `groundmetric.transport`. Solvers
        on costs hold a matrix of all costs.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of the step from one point to another: its length, the sum of its absolute entries, or its squared length.
        Solvers on points support "euclidean" only.
    tolerance : float, default=0.0
        For the exact solver: stop when the gap between plan and optimum is proved to be at most this share of the cost
        of the plan. Up to about 1500 × 1500 points, the plan is always optimal.
    **options : object
        Options of the solver, e.g. ``n_groups`` of "coarse"; see the classes in `groundmetric.transport`.

    Returns
    -------
    Plan
        Value, shipments, potentials, and bounds of the optimal value.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve_points([[0.0, 0.0], [3.0, 4.0]], [[0.0, 1.0], [3.0, 3.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (1.0, [0, 1], [0, 1])
    >>> gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver="coarse", n_groups=1).bounds
    (5.0, 5.0)
    """
    from ..metrics.base import Cost
    from .large import solve_large

    chosen = resolve_solver(solver, options)
    x, y = check_points(x, "x"), check_points(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns, y has {y.shape[1]}: both need the same")
    if not 0.0 <= tolerance < np.inf:
        raise ValueError(f"tolerance is {tolerance}: expected a share of the value, 0 or more")
    step = Cost.named(cost)
    if isinstance(chosen, Auto):
        sizes = np.array([x.shape[0]]), np.array([y.shape[0]])
        chosen = pick_solver(chosen, *sizes, on_points=step is Cost.EUCLIDEAN)[0]
    if isinstance(chosen, Exact):
        return solve_large(x, y, a, b, step, chosen.max_pivots, tolerance)
    if tolerance:
        raise ValueError(f"tolerance is for the exact solver, but solver is {chosen.name!r}: leave it out")
    if chosen.on_points and step is not Cost.EUCLIDEAN:
        raise ValueError(f"cost is {step.name.lower()!r}: solver {chosen.name!r} is for Euclidean distances only")
    a, b = check_masses(a, b, (x.shape[0], y.shape[0]), balanced=chosen.balanced)
    if not chosen.balanced:
        return chosen.solve(np.ascontiguousarray(step.between(x, y)), a, b)
    # Other solvers compare points with mass, for a total mass of 1.
    rows, cols = (np.flatnonzero(mass >= 2.0**-60 * mass.sum()) for mass in (a, b))
    first, second = (
        chosen.prepare(Cloud(np.ascontiguousarray(z[kept]), mass[kept] / mass[kept].sum()), step.between)
        for z, mass, kept in ((x, a, rows), (y, b, cols))
    )
    plan = embedded(chosen.compare(first, second, step.between), rows, cols, float(a.sum()))
    has_all_points = rows.size == a.size and cols.size == b.size
    return plan if has_all_points else replace(plan, potentials=None)  # points without mass have no potentials
