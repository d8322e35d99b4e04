"""The first call in a fresh process: CPU seconds (user and system) with imports, and the size of the installed package.

Nothing is compiled or cached at run time, so that every process is alike; the median of five.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import groundmetric as gm
from groundmetric.transport import _core

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


def run(chosen: dict[str, str] = CALLS, repeats: int = 5) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        metric = Path(folder, "metric.npz")
        cpu_seconds(START + CALLS["GroundMetricLearner.fit"] + ".metric_.save(os.environ['METRIC'])", metric)
        # Estimators are those of scikit-learn, whose import takes most of the time of the rows below.
        programs = {"import groundmetric, transport.solve": BARE, "import sklearn.base alone": "import sklearn.base"}
        programs |= {name: START + code for name, code in chosen.items()}
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
