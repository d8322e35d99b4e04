"""The first call on a fresh machine, which compiles kernels, and the same call in later processes: seconds of the CPU.

Every call runs in a process of its own, with a folder of compiled kernels that is empty, that holds what a fit has left
there, or what the call itself has. Seconds are those of the whole process, imports and all, user and system; the median
of three.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

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
    "import groundmetric": "",
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


def cpu_seconds(code: str, kernels: Path) -> float:
    """Seconds that a process with this code and this folder of compiled kernels takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Where this is set, Python compiles our sources at every start, which it does not elsewhere.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "NUMBA_CACHE_DIR": str(kernels), "METRIC": str(kernels.parent / "metric.npz")}
    subprocess.run([sys.executable, "-c", START + code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(chosen: dict[str, str] = CALLS, repeats: int = 3) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        fitted = Path(folder, "fitted")
        cpu_seconds(CALLS["GroundMetricLearner.fit"] + ".metric_.save(os.environ['METRIC'])", fitted)
        return [_row(name, [_seconds(code, fitted) for _ in range(repeats)]) for name, code in chosen.items()]


def _seconds(code: str, fitted: Path) -> tuple[float, float, float]:
    """Seconds of a call when nothing is compiled, after a fit, and once more."""
    with tempfile.TemporaryDirectory(dir=fitted.parent) as folder:
        after_fit = shutil.copytree(fitted, Path(folder, "after a fit"))
        shutil.copy(fitted.parent / "metric.npz", folder)
        return cpu_seconds(code, Path(folder, "empty")), cpu_seconds(code, after_fit), cpu_seconds(code, after_fit)


def _row(name: str, measured: list[tuple[float, float, float]]) -> dict:
    columns = ("CPU s, nothing compiled", "CPU s, after a fit", "CPU s, again")
    medians = (statistics.median(seconds) for seconds in zip(*measured, strict=True))
    return {"call": name, **dict(zip(columns, medians, strict=True))}
