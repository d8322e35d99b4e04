"""From coarse to fine: the optimal basis between groups of points is nearly one between the points.

Points are grouped until a matrix of costs between the groups is small; there the simplex runs as always. Then, level by
level, the plan is handed down to the points of the groups, and the potentials with it. They tell which arcs may matter:
the simplex runs over those, all arcs are priced, those that gain join in, until none does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .candidates import Blocks, add_candidates, allowed_potentials, in_blocks, no_candidates
from .costs import fill_costs
from .forests import first_forest
from .halving import group_size, grouped
from .plan import Status
from .prices import step_prices
from .refining import refined_basis
from .simplex import optimise
from .sparse_simplex import drop_idle_arcs, optimise_candidates, paid_costs
from .tree import plant

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
        prices = step_prices(p.x, p.y, p.cost, np.empty((p.a.size, p.b.size), np.float32))
        self.parent, self.potential = np.empty(self.flow.size, np.int32), np.zeros(self.flow.size)
        first_forest(prices.rough.costs, p.a, p.b, self.parent)
        self.pivots, optimal, _ = optimise(prices, p.a, p.b, self.parent, self.flow, self.potential, budget)
        self.status = Status.OPTIMAL if optimal else Status.PIVOT_LIMIT
        v = self.potential[p.a.size : -1].copy()
        costs = np.empty((p.a.size, p.b.size))
        fill_costs(p.x, p.y, p.cost, costs)
        self._prove((costs - v).min(axis=1), v)

    def _begin_with_groups(self, budget: int) -> None:
        """A first basis, potentials and candidates from the optimal plan between groups."""
        p = self.problem
        n = p.a.size
        coarse = Descent(p.of_groups(), budget)
        self.pivots = coarse.pivots
        sizes = group_size(n), group_size(p.b.size)
        self.parent = refined_basis(coarse.parent, coarse.flow, p.a, p.b, *sizes)
        plant(self.parent, self.flow, p.a, p.b)
        v = allowed_potentials(p.y, in_blocks(coarse.problem.x, p.cost), coarse.u)
        self._blocks: Blocks = in_blocks(p.y, p.cost)
        self._candidates = no_candidates(n, _MOST)
        self.potential = np.concatenate([np.zeros(n), v, [0.0]])
        u = np.empty(n)
        add_candidates(self._z, self._blocks, self.potential, _FIRST, False, self._candidates, u)
        self.potential[:n] = -u
        self._prove(u, v)

    def _improve(self, budget: int, tolerance: float) -> None:
        """Simplex and pricing in turn, until no arc gains, or the plan is proved good enough."""
        p = self.problem
        n, basis = p.a.size, (p.a, p.b, self.parent, self.flow, self.potential)
        may_cut = True
        while tolerance == 0.0 or self.value - self.lower > tolerance * self.value:
            self.pivots += optimise_candidates(self._z, p.cost, self._candidates, *basis, budget - self.pivots)
            u = np.empty(n)
            gaining = add_candidates(self._z, self._blocks, self.potential, _MORE, True, self._candidates, u)
            self._prove(u, self.potential[n:-1])
            if not gaining:
                if not (may_cut and drop_idle_arcs(*basis, self._dearest())):
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
