"""Exact transport between many points without a cost matrix: costs are computed from the points when needed.

The method is multiscale column generation. Points are grouped until the cost matrix between the groups is small, and
the simplex solves that problem. Then, level by level, plan and potentials of the groups initialise basis and potentials
of their points. The simplex runs on candidate arcs with small reduced costs; then all arcs are priced, and arcs with
negative reduced cost become candidates. The plan is optimal when pricing finds no arc with negative reduced cost.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    rows, cols = _in_order(x, units.a), _in_order(y, units.b)
    problem = Problem(x[rows], y[cols], units.a[rows], units.b[cols], int(cost))
    budget = 2000 * (rows.size + cols.size) if max_pivots is None else max_pivots
    descent = Descent(problem, budget, tolerance)
    value, gap = descent.value, max(descent.value - descent.lower, 0.0)

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


def _in_order(points: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the indices of the points with mass, in `halving_order`."""
    with_mass = np.flatnonzero(units)
    return with_mass[halving_order(points[with_mass])]


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
class Problem:
    """Points of sources and sinks in `halving_order`, with integer masses that balance."""

    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    b: np.ndarray
    cost: int  # a `Cost`


class Descent:
    """Multiscale solution of one problem: the current basis, and a lower bound of the optimal value.

    `u` and `v` are feasible potentials (u + v <= cost on all arcs): their mass-weighted sum is the lower bound `lower`.
    Problems with more than `DENSE` costs create the `Descent` of their groups, which solves the next coarser level.
    """

    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    u: np.ndarray
    v: np.ndarray

    def __init__(self, problem: Problem, budget: int, tolerance: float = 0.0) -> None:
        self.problem = problem
        self.pivots = 0
        self.status = Status.OPTIMAL
        self.lower = -np.inf
        self.flow = np.empty(problem.a.size + problem.b.size + 1, np.int64)
        self._z = np.vstack([problem.x, problem.y])
        if problem.a.size * problem.b.size <= DENSE:
            self._solve_by_matrix(budget)
        else:
            self._begin_with_groups(budget)
            self._improve(budget, tolerance)

    @property
    def value(self) -> float:
        """Cost of the plan for a total mass of 1."""
        return paid_costs(self._z, self.problem.cost, self.parent, self.flow)[0] / self.problem.a.sum()

    def _solve_by_matrix(self, budget: int) -> None:
        p = self.problem
        self.parent, self.potential = np.empty(self.flow.size, np.int32), np.zeros(self.flow.size)
        basis = self.parent, self.flow, self.potential
        self.pivots, optimal = _core.solve_points(p.x, p.y, p.cost, p.a, p.b, *basis, False, budget)
        self.status = Status.OPTIMAL if optimal else Status.PIVOT_LIMIT
        v = self.potential[p.a.size : -1].copy()
        self._prove(allowed_potentials(p.x, p.y, p.cost, v), v)

    def _begin_with_groups(self, budget: int) -> None:
        """Initialise basis, potentials and candidate arcs from the optimal plan between groups."""
        p = self.problem
        n = p.a.size
        (x, a), (y, b) = grouped(p.x, p.a), grouped(p.y, p.b)
        coarse = Descent(Problem(x, y, a, b, p.cost), budget)
        self.pivots = coarse.pivots
        self.parent, self.flow = refined_basis(coarse.parent, coarse.flow, p.a, p.b, coarse.problem.a.size)
        v = allowed_potentials(p.y, coarse.problem.x, p.cost, coarse.u)
        self._blocks = _core.PointBlocks(p.y, p.cost)
        self._candidates = _core.Candidates(n, _MOST)
        self.potential = np.concatenate([np.zeros(n), v, [0.0]])
        u = np.empty(n)
        self._candidates.add(self._z, self._blocks, self.potential, _FIRST, False, u)
        self.potential[:n] = -u
        self._prove(u, v)

    def _improve(self, budget: int, tolerance: float) -> None:
        """Alternate simplex and pricing until no reduced cost is negative, or the gap is within the tolerance."""
        p = self.problem
        n, basis = p.a.size, (p.a, p.b, self.parent, self.flow, self.potential)
        may_cut = True
        while tolerance == 0.0 or self.value - self.lower > tolerance * self.value:
            self.pivots += self._candidates.optimise(self._z, p.cost, *basis, budget - self.pivots)
            u = np.empty(n)
            gaining = self._candidates.add(self._z, self._blocks, self.potential, _MORE, True, u)
            self._prove(u, self.potential[n:-1])
            if not gaining:
                # A tree arc of huge cost makes the potentials huge, and their rounding errors hide small reduced costs:
                # once, remove arcs without flow from the tree if potentials exceed 100 times the largest cost of an arc
                # with flow. Their nodes become children of the root, at potential 0 (see `cut_idle_arcs` in
                # `_core/simplex.hpp`). Only arcs of sources are without flow, because the tree is strongly feasible.
                largest = paid_costs(self._z, p.cost, self.parent, self.flow)[1]
                if not may_cut or np.abs(self.potential).max() <= 100.0 * largest:
                    return
                may_cut = False
                idle = np.flatnonzero(self.flow[:n] == 0)
                self.parent[idle], self.potential[idle] = self.parent.size - 1, 0.0
            elif self.pivots >= budget:
                self.status = Status.PIVOT_LIMIT
                return
        self.status = Status.TOLERANCE

    def _prove(self, u: np.ndarray, v: np.ndarray) -> None:
        """Store these potentials if their lower bound exceeds the current one."""
        units = self.problem.a.sum()
        a, b = self.problem.a / units, self.problem.b / units
        level = a @ u  # subtracted, because a large constant in all potentials would cancel digits of the sum
        u_off, v_off = u - level, v + level
        lower = a @ u_off + b @ v_off - 2.0**-50 * (a @ np.abs(u_off) + b @ np.abs(v_off))  # minus the rounding error
        if lower > self.lower:
            self.u, self.v, self.lower = u.copy(), v.copy(), float(lower)


def allowed_potentials(points: np.ndarray, opposite: np.ndarray, cost: int, heights: np.ndarray) -> np.ndarray:
    """Return the largest feasible potentials at `points` for the potentials `heights` of the opposite side."""
    allowed = np.empty(points.shape[0])
    blocks = _core.PointBlocks(np.ascontiguousarray(opposite), cost)
    _core.allowed_potentials(np.ascontiguousarray(points), blocks, np.ascontiguousarray(heights), allowed)
    return allowed


def paid_costs(z: np.ndarray, cost: int, parent: np.ndarray, flow: np.ndarray) -> tuple[float, float]:
    """Return the sum of flow times cost over the arcs of the tree, and the largest cost of an arc with flow.

    Components and arcs are added in the order of the C++ core, which gives the same bits.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    steps = z[nodes] - z[parent[nodes]]
    terms = np.abs(steps) if cost == Cost.MANHATTAN else steps * steps
    lengths = np.cumsum(terms, axis=1)[:, -1]
    if cost == Cost.EUCLIDEAN:
        lengths = np.sqrt(lengths)
    return float(np.cumsum(flow[nodes] * lengths)[-1]), float(lengths.max())


# Groups of nearby points, and the initial basis between points from the plan between their groups.
#
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


def grouped(points: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centres and masses of the groups of points in `halving_order`."""
    size = GROUP if units.size > FEW else 1
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums


def refined_basis(
    parent: np.ndarray, flow: np.ndarray, a: np.ndarray, b: np.ndarray, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis and its flows for sources of mass a and sinks of mass b, from the basis of their groups.

    `n_groups` is the number of groups of sources. The points of two groups share the flow between the groups in order
    (north-west corner rule). The resulting arcs form a forest: the shipments of one arc between groups are a chain, two
    chains have at most one point in common, which belongs to the group that their arcs share, and the arcs between
    groups form a forest.
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
