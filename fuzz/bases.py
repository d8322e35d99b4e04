"""Bases of other problems, and damaged ones: either a clear error or the right value, never another and never a hang.

A hang or a crash of compiled code is seen by the process that runs this one; see run.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from problems import judge, small_problem
from tally import Tally, Wrong, random_of

import groundmetric as gm

SHARE = 0.07
ROWS = ("bases of other costs, same masses", "bases of other masses", "damaged bases")


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "bases")
    problem, second = small_problem(rng), small_problem(rng)
    same = gm.transport.solve(rng.uniform(size=problem.cost.shape), problem.a, problem.b).basis
    foreign = gm.transport.solve(second.cost, second.a, second.b).basis
    permuted = gm.transport.solve(problem.cost[::-1].copy(), problem.a[::-1].copy(), problem.b).basis
    _try(problem, same, ROWS[0], tally, may_refuse=False)
    _try(problem, foreign, ROWS[1], tally)
    _try(problem, permuted, ROWS[1], tally)
    for damage in DAMAGES:
        _try(problem, damage(rng, same), ROWS[2], tally)


def _try(problem, basis, row: str, tally: Tally, *, may_refuse: bool = True) -> None:
    try:
        plan = gm.transport.solve(problem.cost, problem.a, problem.b, start=basis)
    except (ValueError, TypeError) as error:
        if not may_refuse or "start" not in str(error):
            raise Wrong(f"{problem.kind}: rejected with {error}") from error
        tally.note(row, ended="rejected")
        return
    judge(f"{row}, {problem.kind}", plan, problem.truth(), problem.cost, problem.a, row, tally)


def _one_parent(rng, basis):
    parent = basis.parent.copy()
    parent[rng.integers(parent.size)] = rng.integers(-2, parent.size + 2)
    return replace(basis, parent=parent)


def _all_parents(rng, basis):
    return replace(basis, parent=rng.integers(-1, basis.parent.size, basis.parent.size).astype(np.int32))


def _shuffled(rng, basis):
    return replace(basis, parent=rng.permutation(basis.parent))


def _cut(rng, basis):
    keep = int(rng.integers(0, basis.parent.size))
    return replace(basis, parent=basis.parent[:keep].copy(), potential=basis.potential[:keep].copy())


def _potentials(rng, basis):
    potential = basis.potential.copy()
    potential[rng.integers(potential.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 1.0])
    return replace(basis, potential=potential)


def _other_sources(rng, basis):
    return replace(basis, n_sources=int(rng.integers(-1, basis.parent.size + 1)))


DAMAGES = (_one_parent, _all_parents, _shuffled, _cut, _potentials, _other_sources)
