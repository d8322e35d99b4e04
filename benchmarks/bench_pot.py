"""Solvers of this package and of POT on the same pairs of distributions: time, error, and what the bounds leave open.

python benchmarks/bench_pot.py       prints a table; about two minutes on one core

Times are medians in which the solvers take turns, without the first call. Error and gap are shares of
the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import ot
from measuring import pin_to_one_core, side_by_side

import groundmetric as gm
from groundmetric._internal import tables
from groundmetric.transport import POT

SIZES = (300, 1000)
EPSILONS = (0.05, 0.02)  # over the median cost


def solvers(x: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], gm.transport.Plan]]:
    typical = float(np.median(np.linalg.norm(x[:200, None] - y[:200], axis=2)))
    options = {"exact": {}, "coarse, 100 groups": {"solver": "coarse", "n_groups": 100}}
    options |= {"coarse, 30 groups": {"solver": "coarse", "n_groups": 30}}
    for share in EPSILONS:
        options[f"entropic, ε = {share:g} (POT)"] = {"solver": POT(ot.solve, reg=share * typical)}
    options["sliced (POT)"] = {"solver": POT(ot.sliced_wasserstein_distance, p=1, seed=0)}
    options["gaussian (POT)"] = {"solver": POT(ot.gaussian.empirical_bures_wasserstein_distance)}
    return {name: partial(gm.transport.solve_points, x, y, **each) for name, each in options.items()}


def run(repeats: int = 3) -> list[list[str]]:
    rows = []
    for n in SIZES:
        random = np.random.default_rng(n)
        x, y = random.normal(size=(n, 5)), random.normal(0.5, 1.3, size=(n, 5))
        calls = solvers(x, y)
        plans = {name: call() for name, call in calls.items()}
        exact = plans["exact"].value
        for name, seconds in side_by_side(repeats, **calls).items():
            error, gap = abs(plans[name].value - exact) / exact, plans[name].gap / exact
            rows.append([f"{n} × {n}", name, f"{1000 * seconds:.1f}", f"{error:.2g}", f"{gap:.2g}"])
    return rows


if __name__ == "__main__":
    pin_to_one_core()
    print(tables.markdown(["points", "solver", "ms", "error", "gap"], run()))
