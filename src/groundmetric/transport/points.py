"""The door for points: as for costs, and for solvers that need to know where the points are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..point_distances import Cost
from .checks import check_masses, check_points
from .choice import Auto, resolve_solver
from .exact import Exact
from .large import solve_points as solve_exactly
from .plan import Plan
from .solver import Cloud, Solver


def solve_points(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    *,
    solver: str | Solver = "exact",
    cost: Cost | str = "euclidean",
    tolerance: float = 0.0,
    max_pivots: int | None = None,
    **options: Any,
) -> Plan:
    """Optimal transport between the points x and y: exact, in memory that grows with the points, or a variant.

    Parameters
    ----------
    x, y : arrays of shape (n, k) and (m, k)
        Under a learned metric: as `metric.project` gives them.
    a, b : masses of the points, optional
        Not negative, with equal sums (unless the solver is partial or unbalanced). Default: equal masses that sum to 1.
    solver : {"exact", "partial", "unbalanced", "entropic", "sliced", "gaussian", "mixture", "coarse", "auto"}, or an
        object from `groundmetric.transport`
    cost : what a step costs: "euclidean", "manhattan" or "squared"; some solvers are for the first only
    tolerance : float, for the exact solver
        Stop when the plan is proved to cost no more than this share above the optimum. 0: the optimal plan. Very many
        points are then compared by way of groups of them, as far down as the tolerance asks.
    max_pivots : int, optional
        Where to stop; the default is never reached in practice. `plan.status` says if it was.
    **options : of the solver, e.g. ``n_groups`` of "coarse"; see the classes in `groundmetric.transport`

    Returns
    -------
    Plan, of which `gap` says how far `value` is from the optimum at most

    >>> import groundmetric as gm
    >>> plan = gm.transport.solve_points([[0.0, 0.0], [3.0, 4.0]], [[0.0, 1.0], [3.0, 3.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (1.0, [0, 1], [0, 1])
    >>> gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver="coarse", n_groups=1).bounds
    (5.0, 5.0)
    """
    chosen = resolve_solver(solver, {**options, "max_pivots": max_pivots})
    x, y = check_points(x, "x"), check_points(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns, y has {y.shape[1]}: both need the same")
    step = Cost.named(cost)
    if isinstance(chosen, Auto):
        chosen = chosen.pick(np.array([x.shape[0]]), np.array([y.shape[0]]), on_points=step is Cost.EUCLIDEAN)[0]
    if isinstance(chosen, Exact):
        return solve_exactly(x, y, a, b, cost=step, tolerance=tolerance, max_pivots=chosen.max_pivots)
    if tolerance:
        raise ValueError(f"tolerance is for the exact solver, but solver is {chosen.name!r}: leave it out")
    if chosen.on_points and step is not Cost.EUCLIDEAN:
        raise ValueError(f"cost is {step.name.lower()!r}: solver {chosen.name!r} is for Euclidean distances only")
    a, b = check_masses(a, b, (x.shape[0], y.shape[0]), balanced=chosen.balanced)
    if not chosen.balanced:
        return chosen.solve(np.ascontiguousarray(step.between(x, y)), a, b)
    return _compare(chosen, x, y, a, b, step)


def _compare(solver: Solver, x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, step: Cost) -> Plan:
    """Solvers that prepare each side see points with mass only, and a mass of 1 in all."""
    rows, cols = (np.flatnonzero(mass >= 2.0**-60 * mass.sum()) for mass in (a, b))
    here, there = _cloud(x, a, rows), _cloud(y, b, cols)
    solver = solver.at_scale(lambda: float(here.masses @ step.between(here.points, there.points) @ there.masses))
    plan = solver.compare(solver.prepare(here, step.between), solver.prepare(there, step.between), step.between)
    total, whole = float(a.sum()), rows.size == a.size and cols.size == b.size
    return replace(
        plan,
        value=plan.value * total,
        rows=rows[plan.rows],
        cols=cols[plan.cols],
        mass=plan.mass * total,
        potentials=plan.potentials if whole else None,  # a point without mass has none
        bounds=(plan.bounds[0] * total, plan.bounds[1] * total),
    )


def _cloud(points: np.ndarray, mass: np.ndarray, rows: np.ndarray) -> Cloud:
    return Cloud(np.ascontiguousarray(points[rows]), mass[rows] / mass[rows].sum())
