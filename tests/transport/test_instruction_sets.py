"""Run-time dispatch: every instruction set gives the same bits."""

import os
import subprocess
import sys

import pytest

# Solves of every kind, products, bounds and gradients, as one digest.
PROGRAM = """
import hashlib
import numpy as np
import groundmetric as gm
from groundmetric._internal.parallel import Threads
from groundmetric.metrics.base import Cost
from groundmetric.transport import _core
from groundmetric.transport.neighbors import Finder
from groundmetric.transport.pairs import pair_transport
from groundmetric.transport.problem import Masses
from groundmetric.transport.pairs import project

rng, digest = np.random.default_rng(0), hashlib.sha256()


def add(*arrays):
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())


for n, m in ((37, 53), (450, 470)):
    plan = gm.transport.solve(rng.random((n, m)), rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)))
    add(plan.value, plan.mass, *plan.potentials, plan.basis.parent, plan.pivots)
for cost in ("euclidean", "manhattan", "squared"):
    plan = gm.transport.solve_points(*rng.normal(size=(2, 1700, 3)), cost=cost)
    add(plan.value, plan.mass, *plan.potentials, plan.pivots)
    D = gm.Distributions(rng.normal(size=(2600, 7)), np.repeat(np.arange(13), 200), weights=rng.random(2600))
    first, second = np.triu_indices(len(D), 1)
    pairs = pair_transport(Masses.of(D), first, second, 7, cost=Cost.named(cost), threads=Threads(1))
    which = np.arange(first.size)
    for shift in (0.0, 0.1):
        pairs.move_all(D.points + shift * rng.normal(size=D.points.shape))
        add(pairs.solve(which, np.full(which.size, 2.5)), pairs.upper(which), pairs.pull(which, rng.random(which.size)))
    add(Finder(Masses.of(D), D.points, Threads(1), cost=Cost.named(cost)).by_potentials(first, second))
for kind in (np.float32, np.float64):
    add(project(rng.normal(size=(31, 203)).astype(kind), rng.normal(size=(7, 203))))
add(gm.transport.solve_points(*rng.normal(size=(2, 300, 3)), solver="coarse", n_groups=30).value)
print(_core.instruction_set(), digest.hexdigest())
"""


def run(name):
    environment = {**os.environ, "GROUNDMETRIC_ISA": name}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_every_instruction_set_gives_the_same_bits():
    chosen, expected = run("")
    if chosen == "baseline":
        pytest.skip("this processor has the baseline only")
    assert run("baseline") == ["baseline", expected]
    assert run("avx2") == ["avx2", expected]
