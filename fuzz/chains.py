"""Warm chains: a basis is carried from step to step while the costs move, a little or by a jump, or change scale."""

from __future__ import annotations

import numpy as np
from problems import COSTS, judge, small_problem
from scipy.spatial.distance import cdist
from tally import Tally, check, random_of

import groundmetric as gm

SHARE = 0.1
ROWS = ("warm starts, compared with integer arithmetic", "warm starts, compared with cold starts")
STEPS = 10


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "chains")
    if rng.random() < 0.7:
        _small_chain(rng, tally)
    else:
        _large_chain(rng, tally)


def _small_chain(rng, tally: Tally) -> None:
    problem = small_problem(rng)
    cost, basis = problem.cost, None
    for step in range(STEPS):
        plan = gm.transport.solve(cost, problem.a, problem.b, start=basis)
        judge(f"step {step} of {problem.kind}", plan, problem.truth(cost), cost, problem.a, ROWS[0], tally)
        basis, cost = plan.basis, _moved(rng, cost)


def _moved(rng, cost: np.ndarray) -> np.ndarray:
    """Costs after a step of learning, a jump to another problem, or a change of units."""
    fate = rng.random()
    if fate < 0.6:
        return cost * (1.0 + 0.05 * rng.normal(size=cost.shape))
    if fate < 0.9:
        return np.ascontiguousarray(COSTS[rng.choice(list(COSTS))](rng, *cost.shape), float)
    return cost * 10.0 ** rng.integers(-30, 30)


def _large_chain(rng, tally: Tally) -> None:
    n, m = rng.integers(30, 200, 2)
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(m, 3)) + 0.5
    a, b = (np.full(size, 1.0 / size) if rng.random() < 0.5 else rng.dirichlet(np.ones(size)) for size in (n, m))
    basis = None
    for step in range(STEPS):
        W = rng.normal(size=(2, 3)) if rng.random() < 0.2 else np.eye(2, 3) + 0.1 * step
        cost = cdist(x @ W.T, y @ W.T) * (1e-6 if rng.random() < 0.1 else 1.0)
        warm, cold = gm.transport.solve(cost, a, b, start=basis), gm.transport.solve(cost, a, b)
        error = abs(warm.value - cold.value) / cold.value
        check(error < 1e-11, f"step {step}, {n} × {m}: warm {warm.value!r}, cold {cold.value!r}")
        check(warm.optimal, f"step {step}, {n} × {m}: {warm.status.name}")
        tally.note(ROWS[1], error)
        basis = warm.basis
