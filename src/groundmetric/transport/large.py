"""Exact transport between many points: costs are computed when they are needed, never all of them kept.

Points are grouped until a matrix of costs between the groups is small; there the simplex runs as always. Then, level by
level, the plan is handed down to the points of the groups, and the potentials with it. They tell which arcs may matter:
the simplex runs over those, all arcs are priced, those that gain join in, until none does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.base import Cost
from . import _core
from .basis import Forest, hung_forest
from .plan import Basis, Plan, Status
from .problem import Answers, Points, Units, check_masses, common_units, points_in_range
from .solvers.exact import solve_exact

# Beyond a few components, blocks of points are no help, as all are about as far away: up to so many costs (200 MB), a
# matrix of them is far faster.
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
        u[idle] = allowed_potentials(x[idle], found.problem.y, cost, found.v)
    idle = np.setdiff1d(np.arange(v.size), cols)
    if idle.size:
        v[idle] = allowed_potentials(y[idle], x, cost, u)
    return u, v


def _basis(rows: np.ndarray, cols: np.ndarray, found: Descent) -> Basis:
    """The basis of the points with mass in the caller's order."""
    n, m = rows.size, cols.size
    place = np.concatenate([np.argsort(np.argsort(rows)), n + np.argsort(np.argsort(cols)), [n + m]])
    parent, potential = np.full(n + m + 1, -1, np.int32), np.empty(n + m + 1)
    parent[place[:-1]] = place[found.parent[:-1]]
    potential[place] = found.potential
    return Basis(parent, potential, n)


def solve_large_pairs(
    which: np.ndarray, first: np.ndarray, second: np.ndarray, points: Points, max_pivots: int, answers: Answers
) -> None:
    """Values of these pairs, one after another, in memory that grows with the points; as `solve_pairs`, without bases.

    `points` need no shares where all masses are equal.
    """
    limit = None if max_pivots < 0 else max_pivots
    for pair in which:
        (x, a), (y, b) = (_side(points, distribution) for distribution in (first[pair], second[pair]))
        plan = solve_large(x, y, a, b, Cost(points.cost), limit)
        answers.value[pair], answers.pivots[pair] = plan.value, plan.pivots
        answers.optimal[pair] = plan.status is Status.OPTIMAL


def _side(points: Points, distribution: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The points of a distribution and their masses; None where these are equal, which is all that has to be known."""
    here = slice(points.bounds[distribution], points.bounds[distribution + 1])
    return points.z[here], None if points.uniform[distribution] else points.shares[here]


# Up to so many costs, a matrix holds them (18 megabytes, and 9 of rough ones).
DENSE = 1500 * 1500
# Candidates of a source: at first, more after every pricing, and at most.
_FIRST, _MORE, _MOST = 32, 16, 64


@dataclass(frozen=True)
class Problem:
    """Points of sources and sinks in `halving_order`, with integer masses that balance."""

    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    b: np.ndarray
    cost: int  # a `Cost`

    @property
    def is_small(self) -> bool:
        return self.a.size * self.b.size <= DENSE

    def of_groups(self) -> Problem:
        (x, a), (y, b) = grouped(self.x, self.a), grouped(self.y, self.b)
        return Problem(x, y, a, b, self.cost)


class Descent:
    """The way down to one problem: its basis as good as it has become, and the proof of how good that is.

    `u` and `v` are potentials that all costs allow, so their mean is a lower bound of the optimal value.
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
        n_nodes = problem.a.size + problem.b.size + 1
        self.flow = np.empty(n_nodes, np.int64)
        self._z = np.vstack([problem.x, problem.y])
        if problem.is_small:
            self._solve_by_matrix(budget)
        else:
            self._begin_with_groups(budget)
            self._improve(budget, tolerance)

    @property
    def value(self) -> float:
        """What the plan costs, for mass 1 in all."""
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
        """A first basis, potentials and candidates from the optimal plan between groups."""
        p = self.problem
        n = p.a.size
        coarse = Descent(p.of_groups(), budget)
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
        """Simplex and pricing in turn, until no arc gains, or the plan is proved good enough."""
        p = self.problem
        n, basis = p.a.size, (p.a, p.b, self.parent, self.flow, self.potential)
        may_cut = True
        while tolerance == 0.0 or self.value - self.lower > tolerance * self.value:
            self.pivots += self._candidates.optimise(self._z, p.cost, *basis, budget - self.pivots)
            u = np.empty(n)
            gaining = self._candidates.add(self._z, self._blocks, self.potential, _MORE, True, u)
            self._prove(u, self.potential[n:-1])
            if not gaining:
                if not (may_cut and drop_idle_arcs(n, *basis[2:], self._dearest())):
                    return
                may_cut = False
            elif self.pivots >= budget:
                self.status = Status.PIVOT_LIMIT
                return
        self.status = Status.TOLERANCE

    def _dearest(self) -> float:
        return paid_costs(self._z, self.problem.cost, self.parent, self.flow)[1]

    def _prove(self, u: np.ndarray, v: np.ndarray) -> None:
        """Keep these potentials if they prove more than the ones before."""
        units = self.problem.a.sum()
        a, b = self.problem.a / units, self.problem.b / units
        level = a @ u  # taken out, a common level of all potentials drowns nothing
        u_off, v_off = u - level, v + level
        lower = a @ u_off + b @ v_off - 2.0**-50 * (a @ np.abs(u_off) + b @ np.abs(v_off))  # what rounding may add
        if lower > self.lower:
            self.u, self.v, self.lower = u.copy(), v.copy(), float(lower)


def allowed_potentials(points: np.ndarray, others: np.ndarray, cost: int, heights: np.ndarray) -> np.ndarray:
    """Return the largest potentials at `points` that the potentials `heights` of the other points allow."""
    allowed = np.empty(points.shape[0])
    blocks = _core.PointBlocks(np.ascontiguousarray(others), cost)
    _core.allowed_potentials(np.ascontiguousarray(points), blocks, np.ascontiguousarray(heights), allowed)
    return allowed


def paid_costs(z: np.ndarray, cost: int, parent: np.ndarray, flow: np.ndarray) -> tuple[float, float]:
    """Return flow times cost, summed over the arcs of the tree in node order, and the dearest arc that carries flow.

    Components and arcs are added in the order of the C++ core.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    steps = z[nodes] - z[parent[nodes]]
    terms = np.abs(steps) if cost == Cost.MANHATTAN else steps * steps
    lengths = np.cumsum(terms, axis=1)[:, -1]
    if cost == Cost.EUCLIDEAN:
        lengths = np.sqrt(lengths)
    return float(np.cumsum(flow[nodes] * lengths)[-1]), float(lengths.max())


def drop_idle_arcs(n: int, parent: np.ndarray, flow: np.ndarray, potential: np.ndarray, dearest: float) -> bool:
    """Cut the arcs without flow of the n sources if potentials are far larger than the dearest cost that is paid.

    `_core/simplex.hpp` explains it (`cut_idle_arcs`). Returns whether arcs were cut.
    """
    if np.abs(potential).max() <= 100.0 * dearest:
        return False
    idle = np.flatnonzero(flow[:n] == 0)
    parent[idle], potential[idle] = parent.size - 1, 0.0
    return True


# Groups of points that lie close together, and the plan between groups as a first basis between their points.
#
# Points are halved along their widest axis, the halves again, and so on (`halving_order`). Cuts fall on multiples of
# the largest group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are
# plain ranges. Nodes and bases are those of `basis`.

GROUP = 8
# So few points are not grouped: nothing would be left of them.
FEW = 64


def group_size(n_points: int) -> int:
    return GROUP if n_points > FEW else 1


def halving_order(points: np.ndarray) -> np.ndarray:
    """The order itself: the points' places, one behind the other."""
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
    """Centres and masses of the groups of points that stand in `halving_order`."""
    size = group_size(units.size)
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums


def refined_basis(
    parent: np.ndarray, flow: np.ndarray, a: np.ndarray, b: np.ndarray, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """A basis for sources of mass a and sinks of mass b, and its flows, from those of their groups.

    `n_groups` is the number of groups of sources. What one group ships to another, its points ship in order. The arcs
    of a basis form a forest, and so do these: the shipments of one arc are a chain, and two chains share at most a
    point, where their arcs share a group.
    """
    nodes = np.flatnonzero(flow[:-1] > 0)
    above, sent = parent[nodes], flow[nodes]
    is_source = nodes < n_groups
    # Units of mass are counted through all sources; at which of them each arc begins, and each source ends.
    sending, ends = _begins(np.where(is_source, nodes, above), sent), np.cumsum(a)
    receiving, their_ends = _begins(np.where(is_source, above, nodes), sent), np.cumsum(b)
    cut = _arc_before(receiving, their_ends)
    cuts = np.unique(np.concatenate([ends, sending + sent, their_ends - receiving[cut] + sending[cut]]))
    arc = _arc_before(sending, cuts)
    i = np.searchsorted(ends, cuts)
    j = a.size + np.searchsorted(their_ends, cuts - sending[arc] + receiving[arc])
    refined, flows = hung_forest(np.stack([i, j], axis=1), a.size, b.size), np.zeros(a.size + b.size + 1, np.int64)
    flows[np.where(refined[i] == j, i, j)] = np.diff(cuts, prepend=0)
    return refined, flows


def _begins(groups: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Where each arc's units begin, when those of a group come one behind the other, and so do the groups."""
    order = np.argsort(groups, kind="stable")
    begins = np.empty(sent.size, np.int64)
    begins[order] = np.cumsum(sent[order]) - sent[order]
    return begins


def _arc_before(begins: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The arc that each of these units, counted from 1, belongs to."""
    order = np.argsort(begins)
    return order[np.searchsorted(begins[order], units) - 1]
