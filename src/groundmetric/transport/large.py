"""Exact transport between many points: costs are computed when they are needed, and never all of them are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..point_distances import Cost
from .candidates import allowed_potentials, in_blocks
from .checks import check_masses, check_points
from .descent import Descent, Problem
from .exact import integer_units, shipments
from .halving import halving_order
from .plan import Basis, Plan, Status


def solve_points(
    x: Any,
    y: Any,
    a: Any = None,
    b: Any = None,
    *,
    cost: Cost | str = "euclidean",
    tolerance: float = 0.0,
    max_pivots: int | None = None,
) -> Plan:
    """Optimal transport between the points x and y, in memory that grows with the points and not with their pairs.

    Parameters
    ----------
    x, y : arrays of shape (n, k) and (m, k)
    a, b : masses of the points, optional
        Not negative, with equal sums. Default: equal masses that sum to 1.
    cost : what a step costs: "euclidean", "manhattan" or "squared"
    tolerance : float
        Stop when the plan is proved to cost no more than this share above the optimum. 0: the optimal plan. Very many
        points are then compared by way of groups of them, as far down as the tolerance asks.
    max_pivots : int, optional
        Where to stop; the default is never reached in practice. `plan.status` says if it was.

    Returns
    -------
    Plan, of which `gap` says how far `value` is above the optimum at most

    >>> import groundmetric as gm
    >>> plan = gm.transport.solve_points([[0.0, 0.0], [3.0, 4.0]], [[0.0, 1.0], [3.0, 3.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (1.0, [0, 1], [0, 1])
    """
    x, y = check_points(x, "x"), check_points(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns, y has {y.shape[1]}: both need the same")
    if not 0.0 <= tolerance < np.inf:
        raise ValueError(f"tolerance is {tolerance}: expected a share of the value, 0 or more")
    units_a, units_b, total = integer_units(*check_masses(a, b, (x.shape[0], y.shape[0])))
    rows, cols = _in_order(x, units_a), _in_order(y, units_b)
    problem = Problem(x[rows], y[cols], units_a[rows], units_b[cols], int(Cost.named(cost)))
    budget = 2000 * (rows.size + cols.size) if max_pivots is None else max_pivots
    found = Descent(problem, budget, tolerance)
    value, gap = found.value, max(found.value - found.lower, 0.0)
    tails, heads, shipped = shipments(found.parent, found.flow, rows.size)
    senders, receivers = rows[tails], cols[heads]
    order = np.lexsort((receivers, senders))
    proved = found.status is not Status.OPTIMAL or gap <= max(1e-8 * value, 1e-12 * _typical(problem))
    return Plan(
        value=float(value * total),
        rows=senders[order],
        cols=receivers[order],
        mass=shipped[order] / float(units_a.sum()) * total,
        potentials=_everywhere(x, y, rows, cols, found),
        basis=_basis(rows, cols, found),
        status=found.status if proved else Status.IMPRECISE,
        pivots=int(found.pivots),
        bounds=(float((value - gap) * total), float(value * total)),
    )


def _in_order(points: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Places of the points with mass, in `halving_order`."""
    some = np.flatnonzero(units)
    return some[halving_order(points[some])]


def _typical(problem: Problem) -> float:
    """A typical cost: the median over some pairs."""
    n, m = problem.a.size, problem.b.size
    steps = np.arange(997)
    i, j = steps * 7919 % n, steps * 104729 % m
    return float(np.median(Cost(problem.cost).between(problem.x[i], problem.y[j]).diagonal()))


def _everywhere(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, cols: np.ndarray, found: Descent
) -> tuple[np.ndarray, np.ndarray]:
    """Potentials of all points, also of those without mass: the largest that the costs allow."""
    cost = found.problem.cost
    u, v = np.empty(x.shape[0]), np.empty(y.shape[0])
    u[rows], v[cols] = found.u, found.v
    idle = np.setdiff1d(np.arange(u.size), rows)
    if idle.size:
        u[idle] = allowed_potentials(x[idle], in_blocks(found.problem.y, cost), found.v)
    idle = np.setdiff1d(np.arange(v.size), cols)
    if idle.size:
        v[idle] = allowed_potentials(y[idle], in_blocks(x, cost), u)
    return u, v


def _basis(rows: np.ndarray, cols: np.ndarray, found: Descent) -> Basis:
    """The basis of the points with mass in the caller's order."""
    n, m = rows.size, cols.size
    place = np.concatenate([np.argsort(np.argsort(rows)), n + np.argsort(np.argsort(cols)), [n + m]])
    parent, potential = np.full(n + m + 1, -1, np.int32), np.empty(n + m + 1)
    parent[place[:-1]] = place[found.parent[:-1]]
    potential[place] = found.potential
    return Basis(parent, potential, n)
