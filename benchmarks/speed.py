"""Speed of transport solvers against POT, time of the first call in a fresh process, and size of the package.

Times are CPU seconds (user and system), which depend little on other programs. Programs that are compared run
alternately in one process; medians over repeats are reported.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ot
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric.transport import POT, _core

try:
    import lap
except ImportError:
    lap = None


def seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def side_by_side(repeats: int, **functions: Callable[[], Any]) -> dict[str, float]:
    """Return the median seconds of each function; functions alternate, which distributes noise equally."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: statistics.median(values) for name, values in times.items()}


SOLVE_SIZES = ((300, 300), (1000, 1000), (2000, 2000), (4000, 4000), (1000, 700))


def clustered_costs(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Costs in five dimensions between points of ten clusters in 200: before and after one Adam step of 0.01."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, 200)) * 2.0
    x, y = (centres[random.integers(0, 10, size)] + random.normal(size=(size, 200)) for size in (n, m))
    W = random.uniform(-1.0, 1.0, (5, 200))
    moved = W + 0.01 * np.sign(random.normal(size=W.shape))  # Adam's first step moves every entry by the learning rate
    return cdist(x @ W.T, y @ W.T), cdist(x @ moved.T, y @ moved.T)


def exact_solve(repeats: int = 25) -> list[dict]:
    """Compare an exact solve with POT: from scratch, and after a training step, where POT starts from its potentials.

    For equal masses, assignment solvers are measured too: SciPy's `linear_sum_assignment`, and `lapjv` of lapx if it is
    installed.
    """
    rows = []
    for n, m in SOLVE_SIZES:
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


SOLVER_SIZES = (300, 1000)
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


def all_solvers(repeats: int = 3) -> list[dict]:
    """Compare exact, coarse and POT's solvers; error and gap are relative to the exact value."""
    rows = []
    for n in SOLVER_SIZES:
        random = np.random.default_rng(n)
        x, y = random.normal(size=(n, 5)), random.normal(0.5, 1.3, size=(n, 5))
        calls = solvers(x, y)
        plans = {name: call() for name, call in calls.items()}
        exact = plans["exact"].value
        for name, taken in side_by_side(repeats, **calls).items():
            error, gap = abs(plans[name].value - exact) / exact, plans[name].gap / exact
            rows.append({"points": f"{n} × {n}", "solver": name, "ms": 1000 * taken, "error": error, "gap": gap})
    return rows


START = """
import os
import warnings
import numpy as np
import groundmetric as gm
warnings.simplefilter("ignore")
random = np.random.default_rng(0)
labels = np.repeat(["a", "b"], 6)
points = random.normal(size=(360, 4)) + np.repeat([0, 1], 180)[:, None]
D = gm.Distributions(points, np.repeat(np.arange(12), 30))
"""
CALLS = {
    "import groundmetric, Distributions": "",
    "GroundMetricLearner.fit": "gm.GroundMetricLearner(max_epochs=2).fit(D, labels)",
    "GroundMetricEnsemble.fit": "gm.GroundMetricEnsemble(2, max_epochs=2).fit(D, labels)",
    "TransportClassifier.predict": "gm.TransportClassifier().fit(D, labels).predict(D)",
    "GroundMetric.load, predict one sample": (
        "metric = gm.GroundMetric.load(os.environ['METRIC'])\n"
        "gm.TransportKNeighborsClassifier(3, metric=metric).fit(D, labels).predict(D[[0]])"
    ),
    "pairwise_distances": "gm.pairwise_distances(D)",
    "pairwise_distances, Manhattan": "gm.pairwise_distances(D, metric=gm.GroundMetric(np.eye(4), cost='manhattan'))",
    "kneighbors": "gm.kneighbors(D, D, 2)",
    "transport.solve": "gm.transport.solve(random.random((40, 50)))",
    "transport.solve from a basis": "c = np.eye(9); gm.transport.solve(c, start=gm.transport.solve(c).basis)",
    "transport.solve, partial": "gm.transport.solve(random.random((40, 50)), solver='partial')",
    "transport.solve_points, large": "gm.transport.solve_points(*random.normal(size=(2, 2000, 3)))",
}


def cpu_seconds(code: str, metric: Path) -> float:
    """Return the CPU seconds of a process that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # With this variable, Python would compile our sources at every start, which it does not elsewhere.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "METRIC": str(metric)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# Without `Distributions`, which need scipy and scikit-learn.
BARE = "import numpy as np, groundmetric as gm; gm.transport.solve(np.random.default_rng(0).random((40, 50)))"


def first_call(repeats: int = 5) -> list[dict]:
    """Measure CPU seconds of processes that make one call, with imports; the median of five."""
    with tempfile.TemporaryDirectory() as folder:
        metric = Path(folder, "metric.npz")
        cpu_seconds(START + CALLS["GroundMetricLearner.fit"] + ".metric_.save(os.environ['METRIC'])", metric)
        # Estimators are those of scikit-learn, whose import takes most of the time of the rows below.
        programs = {"import groundmetric, transport.solve": BARE, "import sklearn.base alone": "import sklearn.base"}
        programs |= {name: START + code for name, code in CALLS.items()}
        return [
            {"call": name, "CPU s": statistics.median(cpu_seconds(code, metric) for _ in range(repeats))}
            for name, code in programs.items()
        ]


def installed_size() -> list[dict]:
    """Return the size of the package in a wheel, unpacked; C++ sources are not in it."""
    package = Path(gm.__file__).parent
    files = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    python = sum(file.stat().st_size for file in files if "_core" not in file.parts)
    return [{"Python MB": python / 1e6, "C++ extension MB": Path(_core.__file__).stat().st_size / 1e6}]
