"""One exact solve against POT: from scratch, and after one step of training, where POT starts from its potentials.

Where all masses are equal, assignment solvers are measured beside them: SciPy's `linear_sum_assignment`, and `lapjv` of
lapx if it is installed.
"""

from __future__ import annotations

import numpy as np
import ot
from measuring import side_by_side
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import groundmetric as gm

try:
    import lap
except ImportError:
    lap = None

SIZES = ((300, 300), (1000, 1000), (2000, 2000), (4000, 4000), (1000, 700))


def clustered_costs(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Costs in five dimensions between points of ten clusters in 200: before and after one Adam step of 0.01."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, 200)) * 2.0
    x, y = (centres[random.integers(0, 10, size)] + random.normal(size=(size, 200)) for size in (n, m))
    W = random.uniform(-1.0, 1.0, (5, 200))
    moved = W + 0.01 * np.sign(random.normal(size=W.shape))  # Adam's first step moves every entry by the learning rate
    return cdist(x @ W.T, y @ W.T), cdist(x @ moved.T, y @ moved.T)


def run(repeats: int = 25) -> list[dict]:
    rows = []
    for n, m in SIZES:
        before, cost = clustered_costs(n, m)
        masses = (None, None)
        if n != m:
            random = np.random.default_rng(1)
            masses = tuple(weights / weights.sum() for weights in (random.random(n), random.random(m)))
        a, b = (np.full(size, 1 / size) if w is None else w for w, size in zip(masses, (n, m), strict=True))
        start = gm.transport.solve(before, *masses).basis
        log = ot.emd(a, b, before, numItermax=10**9, log=True)[1]
        potentials = log["u"], log["v"]
        assignment = {"scipy": lambda cost=cost: linear_sum_assignment(cost)} if n == m else {}
        if n == m and lap is not None:
            assignment["lapx"] = lambda cost=cost: lap.lapjv(cost)
        times = side_by_side(
            repeats if n <= 1000 else 3,
            pot=lambda cost=cost, a=a, b=b: ot.emd2(a, b, cost, numItermax=10**9),
            pot_warm=lambda cost=cost, a=a, b=b, given=potentials: ot.emd(
                a, b, cost, numItermax=10**9, potentials_init=given
            ),
            cold=lambda cost=cost, masses=masses: gm.transport.solve(cost, *masses),
            warm=lambda cost=cost, masses=masses, start=start: gm.transport.solve(cost, *masses, start=start),
            **assignment,
        )
        exact = ot.emd2(a, b, cost, numItermax=10**9)
        errors = [gm.transport.solve(cost, *masses, start=s).value / exact - 1.0 for s in (None, start)]
        rows.append(
            {
                "sizes": f"{n} × {m}" + ("" if n == m else ", random masses"),
                "POT ms": times["pot"] * 1e3,
                "POT warm ms": times["pot_warm"] * 1e3,
                "SciPy linear_sum_assignment ms": times["scipy"] * 1e3 if "scipy" in times else "",
                "lapx lapjv ms": times["lapx"] * 1e3 if "lapx" in times else "",
                "cold ms": times["cold"] * 1e3,
                "warm ms": times["warm"] * 1e3,
                "cold ratio": times["pot"] / times["cold"],
                "warm ratio": times["pot"] / times["warm"],
                "warm ratio to POT warm": times["pot_warm"] / times["warm"],
                "largest relative error": max(map(abs, errors)),
            }
        )
    return rows
