"""Exact transport between many points: costs are computed when they are needed, and never all of them are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..point_distances import Cost
from .basis import Forest
from .candidates import allowed_potentials, in_blocks
from .checks import check_masses, check_points, points_in_range
from .costs import FEW_COMPONENTS
from .descent import Descent, Problem
from .exact import solve_exact
from .halving import halving_order
from .masses import Units, common_units
from .plan import Basis, Plan, Status

# Beyond a few components, blocks of points are no help, as all are about as far away: up to so many costs (200 MB), a
# matrix of them is far faster.
_MATRIX = 25e6


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
    a, b = check_masses(a, b, (x.shape[0], y.shape[0]))
    step = Cost.named(cost)
    x, y, up = points_in_range(x, y)
    if x.shape[1] > FEW_COMPONENTS and x.shape[0] * y.shape[0] <= _MATRIX and tolerance == 0.0:
        plan = solve_exact(np.ascontiguousarray(step.between(x, y)), a, b, max_pivots=max_pivots)
    else:
        plan = _solve(x, y, common_units(a, b), step, tolerance, max_pivots)
    return plan.scaled(2 * up if step is Cost.SQUARED else up) if up else plan


def _solve(x: np.ndarray, y: np.ndarray, units: Units, cost: Cost, tolerance: float, max_pivots: int | None) -> Plan:
    """The plan between points whose coordinates are in a range where squares are, too."""
    rows, cols = _in_order(x, units.a), _in_order(y, units.b)
    problem = Problem(x[rows], y[cols], units.a[rows], units.b[cols], int(cost))
    budget = 2000 * (rows.size + cols.size) if max_pivots is None else max_pivots
    found = Descent(problem, budget, tolerance)
    value, gap = found.value, max(found.value - found.lower, 0.0)
    potentials = _everywhere(x, y, rows, cols, found)
    doubt = _doubt(units, potentials)
    forest = Forest(found.parent, found.flow, found.potential, rows.size, int(found.pivots), True)
    nodes = forest.arcs[found.flow[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    senders, receivers = rows[tails], cols[heads]
    order = np.lexsort((receivers, senders))
    proved = found.status is not Status.OPTIMAL or gap + doubt <= max(1e-8 * value, 1e-12 * _typical(problem))
    return Plan(
        value=float(value * units.total),
        rows=senders[order],
        cols=receivers[order],
        mass=units.of_mass(found.flow[nodes[order]]),
        potentials=potentials,
        basis=_basis(rows, cols, found),
        status=found.status if proved else Status.IMPRECISE,
        pivots=int(found.pivots),
        bounds=(float((value - gap - doubt) * units.total), float((value + doubt) * units.total)),
    )


def _doubt(units: Units, potentials: tuple[np.ndarray, np.ndarray]) -> float:
    """What the value may be wrong by because masses are rounded to units, for mass 1 in all."""
    if units.left is None:
        return 0.0
    number, level = float(units.number), units.a @ potentials[0] / float(units.number)
    away = np.abs(potentials[0] - level), np.abs(potentials[1] + level)
    return float(sum(np.abs(left) @ far for left, far in zip(units.left, away, strict=True))) / number


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
