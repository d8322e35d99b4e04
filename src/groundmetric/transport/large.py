"""Exact transport between many points without a cost matrix: costs are computed from the points when needed.

The method is multiscale column generation. Points are grouped until the cost matrix between the groups is small, and
the simplex solves that problem. Then, level by level, plan and potentials of the groups initialise basis and potentials
of their points. The simplex runs on candidate arcs with small reduced costs; then all arcs are priced, and arcs with
negative reduced cost become candidates. The plan is optimal when pricing finds no arc with negative reduced cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..metrics.base import Cost
from . import _core
from .plan import Basis, Plan, Status, scaled_plan
from .problem import Answers, Points, Units, check_masses, common_units, points_in_range
from .solvers.exact import Forest, hung_forest, solve_exact

# With more components, distances are too similar for blocks of points to exclude arcs, and a cost matrix is faster; it
# is used up to 25 million entries (200 MB).
_FEW_COMPONENTS = 32
_MATRIX = 25e6


def solve_large(
    x: np.ndarray, y: np.ndarray, a: Any, b: Any, step: Cost, max_pivots: int | None, tolerance: float = 0.0
) -> Plan:
    """Solve optimal transport between points without a matrix of costs; see `transport.solve_points`."""
    a, b = check_masses(a, b, (x.shape[0], y.shape[0]))
    x, y, up = points_in_range(x, y)
    if x.shape[1] > _FEW_COMPONENTS and x.shape[0] * y.shape[0] <= _MATRIX and tolerance == 0.0:
        plan = solve_exact(np.ascontiguousarray(step.between(x, y)), a, b, max_pivots=max_pivots)
    else:
        plan = _solve(x, y, common_units(a, b), step, tolerance, max_pivots)
    return scaled_plan(plan, 2 * up if step is Cost.SQUARED else up) if up else plan


def _solve(x: np.ndarray, y: np.ndarray, units: Units, cost: Cost, tolerance: float, max_pivots: int | None) -> Plan:
    """Return the plan between points whose squared coordinates neither overflow nor underflow."""
    rows, cols = np.flatnonzero(units.a), np.flatnonzero(units.b)
    rows, cols = rows[halving_order(x[rows])], cols[halving_order(y[cols])]
    problem = Problem(x[rows], y[cols], units.a[rows], units.b[cols], int(cost))
    budget = 2000 * (rows.size + cols.size) if max_pivots is None else max_pivots
    descent = descend(problem, budget, tolerance)
    value = descent.value
    gap = max(value - descent.lower, 0.0)

    # Potentials of all points; points without mass get the largest feasible potentials.
    u, v = np.empty(x.shape[0]), np.empty(y.shape[0])
    u[rows], v[cols] = descent.u, descent.v
    idle = np.setdiff1d(np.arange(u.size), rows)
    if idle.size:
        u[idle] = allowed_potentials(x[idle], problem.y, problem.cost, descent.v)
    idle = np.setdiff1d(np.arange(v.size), cols)
    if idle.size:
        v[idle] = allowed_potentials(y[idle], x, problem.cost, u)

    # Largest error of the value from rounding masses to units, for a total mass of 1.
    doubt, number = 0.0, float(units.number)
    if units.residues is not None:
        level = units.a @ u / number
        heights = np.abs(u - level), np.abs(v + level)
        doubt = float(sum(np.abs(residue) @ h for residue, h in zip(units.residues, heights, strict=True))) / number
    # The gap is compared with the value, or with the median cost of 997 pairs spread by steps of large primes.
    steps = np.arange(997)
    i, j = steps * 7919 % rows.size, steps * 104729 % cols.size
    typical = float(np.median(cost.between(problem.x[i], problem.y[j]).diagonal()))
    proved = descent.status is not Status.OPTIMAL or gap + doubt <= max(1e-8 * value, 1e-12 * typical)

    forest = Forest(descent.parent, descent.flow, descent.potential, rows.size, int(descent.pivots), True)
    nodes = forest.arcs[descent.flow[forest.arcs] > 0]
    tails, heads = forest.ends(nodes)
    senders, receivers = rows[tails], cols[heads]
    order = np.lexsort((receivers, senders))
    # The basis of the points with mass in the caller's order.
    n_nodes = rows.size + cols.size
    node_of = np.concatenate([np.argsort(np.argsort(rows)), rows.size + np.argsort(np.argsort(cols)), [n_nodes]])
    parent, potential = np.full(n_nodes + 1, -1, np.int32), np.empty(n_nodes + 1)
    parent[node_of[:-1]] = node_of[descent.parent[:-1]]
    potential[node_of] = descent.potential
    return Plan(
        value=float(value * units.total),
        rows=senders[order],
        cols=receivers[order],
        mass=units.of_mass(descent.flow[nodes[order]]),
        potentials=(u, v),
        basis=Basis(parent, potential, rows.size),
        status=descent.status if proved else Status.IMPRECISE,
        pivots=int(descent.pivots),
        bounds=(float((value - gap - doubt) * units.total), float((value + doubt) * units.total)),
    )


def solve_large_pair(
    pair: int, first: int, second: int, points: Points, max_pivots: int | None, answers: Answers
) -> None:
    """Solve transport between two distributions with memory linear in the number of points; writes no basis."""
    rows, cols = (slice(points.bounds[d], points.bounds[d + 1]) for d in (first, second))
    a, b = (None if points.uniform[d] else points.shares[part] for d, part in ((first, rows), (second, cols)))
    plan = solve_large(points.z[rows], points.z[cols], a, b, Cost(points.cost), max_pivots)
    answers.value[pair], answers.pivots[pair] = plan.value, plan.pivots
    answers.optimal[pair] = plan.status is Status.OPTIMAL


# Up to this number of costs, the simplex uses a cost matrix (18 MB, and 9 MB of rough costs).
DENSE = 1500 * 1500
# Candidate arcs per source: initial number, number added by each pricing, and maximum.
_FIRST, _MORE, _MOST = 32, 16, 64


@dataclass(frozen=True)
class Problem:  # points in `halving_order`, with integer masses that balance
    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    b: np.ndarray
    cost: int  # a `Cost`


@dataclass
class Descent:
    """Basis of a problem, and feasible potentials u + v <= cost with the largest lower bound of the value until now."""

    problem: Problem
    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    pivots: int
    status: Status = Status.OPTIMAL
    lower: float = -np.inf  # for a total mass of 1, as `value`
    u: np.ndarray = field(init=False)
    v: np.ndarray = field(init=False)

    @property
    def paid(self) -> tuple[float, float]:
        """Sum of flow times cost over the arcs of the tree, and the largest cost of an arc with flow."""
        # Components and arcs are added in the order of the C++ core, which gives the same bits.
        cost, z = self.problem.cost, np.vstack([self.problem.x, self.problem.y])
        nodes = np.flatnonzero(self.flow[:-1] > 0)
        steps = z[nodes] - z[self.parent[nodes]]
        terms = np.abs(steps) if cost == Cost.MANHATTAN else steps * steps
        lengths = np.cumsum(terms, axis=1)[:, -1]
        if cost == Cost.EUCLIDEAN:
            lengths = np.sqrt(lengths)
        return float(np.cumsum(self.flow[nodes] * lengths)[-1]), float(lengths.max())

    @property
    def value(self) -> float:
        return self.paid[0] / self.problem.a.sum()

    def prove(self, u: np.ndarray, v: np.ndarray) -> None:
        """Store these potentials if their lower bound (weak duality) exceeds the current one."""
        units = self.problem.a.sum()
        a, b = self.problem.a / units, self.problem.b / units
        level = a @ u  # subtracted, because a large constant in all potentials would cancel digits of the sum
        u_off, v_off = u - level, v + level
        lower = a @ u_off + b @ v_off - 2.0**-50 * (a @ np.abs(u_off) + b @ np.abs(v_off))  # minus the rounding error
        if lower > self.lower:
            self.u, self.v, self.lower = u.copy(), v.copy(), float(lower)


def descend(p: Problem, budget: int, tolerance: float = 0.0) -> Descent:
    """Solve a problem of at most `DENSE` costs by a matrix; larger ones from the plan between groups of points.

    Then simplex and pricing alternate until no reduced cost is negative, or the gap is within the tolerance.
    """
    n, n_nodes = p.a.size, p.a.size + p.b.size + 1
    if n * p.b.size <= DENSE:
        basis = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int64), np.zeros(n_nodes)
        pivots, optimal = _core.solve_points(p.x, p.y, p.cost, p.a, p.b, *basis, False, budget)
        result = Descent(p, *basis, pivots, Status.OPTIMAL if optimal else Status.PIVOT_LIMIT)
        v = result.potential[n:-1].copy()
        result.prove(allowed_potentials(p.x, p.y, p.cost, v), v)
        return result
    # Initialise basis, potentials and candidate arcs from the optimal plan between groups.
    (x, a), (y, b) = grouped(p.x, p.a), grouped(p.y, p.b)
    coarse = descend(Problem(x, y, a, b, p.cost), budget)
    v = allowed_potentials(p.y, x, p.cost, coarse.u)
    parent, flow = refined_basis(coarse.parent, coarse.flow, p.a, p.b, a.size)
    result = Descent(p, parent, flow, np.concatenate([np.zeros(n), v, [0.0]]), coarse.pivots)
    z, blocks, candidates = np.vstack([p.x, p.y]), _core.PointBlocks(p.y, p.cost), _core.Candidates(n, _MOST)
    u = np.empty(n)
    candidates.add(z, blocks, result.potential, _FIRST, False, u)
    result.potential[:n] = -u
    result.prove(u, v)
    may_cut = True
    while tolerance == 0.0 or result.value - result.lower > tolerance * result.value:
        basis = result.parent, result.flow, result.potential
        result.pivots += candidates.optimise(z, p.cost, p.a, p.b, *basis, budget - result.pivots)
        u = np.empty(n)
        gaining = candidates.add(z, blocks, result.potential, _MORE, True, u)
        result.prove(u, result.potential[n:-1])
        if not gaining:
            # A tree arc of huge cost makes the potentials huge, and their rounding errors hide small reduced costs:
            # once, remove arcs without flow from the tree if potentials exceed 100 times the largest cost of an arc
            # with flow. Their nodes become children of the root, at potential 0 (see `cut_idle_arcs` in
            # `_core/simplex.hpp`). Only arcs of sources are without flow, because the tree is strongly feasible.
            if not may_cut or np.abs(result.potential).max() <= 100.0 * result.paid[1]:
                return result
            may_cut = False
            idle = np.flatnonzero(result.flow[:n] == 0)
            result.parent[idle], result.potential[idle] = n_nodes - 1, 0.0
        elif result.pivots >= budget:
            result.status = Status.PIVOT_LIMIT
            return result
    result.status = Status.TOLERANCE
    return result


def allowed_potentials(points: np.ndarray, opposite: np.ndarray, cost: int, heights: np.ndarray) -> np.ndarray:
    """Return the largest feasible potentials at `points` for the potentials `heights` of the opposite side."""
    allowed = np.empty(points.shape[0])
    blocks = _core.PointBlocks(np.ascontiguousarray(opposite), cost)
    _core.allowed_potentials(np.ascontiguousarray(points), blocks, np.ascontiguousarray(heights), allowed)
    return allowed


# Points are divided into halves along their widest axis, recursively (`halving_order`). A division is at a multiple of
# the largest power of 8 below the number of points. Thus every run of 8, 64, 512 … points is compact, and the groups of
# every level are ranges of consecutive points. Nodes and bases are those of `solvers.exact`.

GROUP = 8
# Distributions of at most this number of points are not grouped.
FEW = 64


def halving_order(points: np.ndarray) -> np.ndarray:
    """Return the indices of the points, ordered by recursive halving along the widest axis."""
    order, todo = np.arange(points.shape[0]), [(0, points.shape[0])]
    while todo:
        low, high = todo.pop()
        if high - low <= GROUP:
            continue
        unit = GROUP
        while unit * GROUP < high - low:
            unit *= GROUP
        piece = points[order[low:high]]
        widest = np.argmax(np.ptp(piece, axis=0))
        order[low:high] = order[low:high][np.argsort(piece[:, widest], kind="stable")]
        middle = low + unit * ((-(-(high - low) // unit) + 1) // 2)
        todo += [(low, middle), (middle, high)]
    return order


def grouped(points: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # centres and masses of groups
    size = GROUP if units.size > FEW else 1
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums


def refined_basis(
    parent: np.ndarray, flow: np.ndarray, a: np.ndarray, b: np.ndarray, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis and its flows for sources of mass a and sinks of mass b, from the basis of their groups.

    The points of two groups share the flow between the groups in order (north-west corner rule). The resulting arcs
    form a forest: the shipments of one arc between groups are a chain, two chains have at most one point in common, and
    the arcs between groups form a forest.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    parents, sent = parent[nodes], flow[nodes]
    is_source = nodes < n_groups
    # Units of mass are numbered over all sources: `sending` counts the units before each arc, `ends` is the last unit
    # of each source. `receiving` and `their_ends` are the same for the sinks.
    sending, ends = _begins(np.where(is_source, nodes, parents), sent), np.cumsum(a)
    receiving, their_ends = _begins(np.where(is_source, parents, nodes), sent), np.cumsum(b)
    cut = _arc_before(receiving, their_ends)
    cuts = np.unique(np.concatenate([ends, sending + sent, their_ends - receiving[cut] + sending[cut]]))
    arc = _arc_before(sending, cuts)
    i = np.searchsorted(ends, cuts)
    j = a.size + np.searchsorted(their_ends, cuts - sending[arc] + receiving[arc])
    refined, flows = hung_forest(i, j, a.size, b.size), np.zeros(a.size + b.size + 1, np.int64)
    flows[np.where(refined[i] == j, i, j)] = np.diff(cuts, prepend=0)
    return refined, flows


def _begins(groups: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Return the number of units before each arc, if arcs are sorted by group and their units are concatenated."""
    order = np.argsort(groups, kind="stable")
    begins = np.empty(sent.size, np.int64)
    begins[order] = np.cumsum(sent[order]) - sent[order]
    return begins


def _arc_before(begins: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the arc of each unit; units are numbered from 1."""
    order = np.argsort(begins)
    return order[np.searchsorted(begins[order], units) - 1]
