"""Solvers of this package and of POT on the same pairs of distributions: time, error, and gap between bounds.

Times are medians of alternating runs, without the first call. Error and gap are relative to the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import ot
from measuring import side_by_side

import groundmetric as gm
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
    return {name: partial(gm.transport.solve_points, x, y, **settings) for name, settings in options.items()}


def run(repeats: int = 3) -> list[dict]:
    rows = []
    for n in SIZES:
        random = np.random.default_rng(n)
        x, y = random.normal(size=(n, 5)), random.normal(0.5, 1.3, size=(n, 5))
        calls = solvers(x, y)
        plans = {name: call() for name, call in calls.items()}
        exact = plans["exact"].value
        for name, seconds in side_by_side(repeats, **calls).items():
            error, gap = abs(plans[name].value - exact) / exact, plans[name].gap / exact
            rows.append({"points": f"{n} × {n}", "solver": name, "ms": 1000 * seconds, "error": error, "gap": gap})
    return rows
