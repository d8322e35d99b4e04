"""Benchmarks of scale: neighbours, pairs of many points, Dask processes, and cohorts of many patients.

python benchmarks/scale.py groundmetric 10000 5 0     one solve: solver, points on each side, dimensions, tolerance
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from atlas import peak_memory
from scipy import sparse

import groundmetric as gm
from groundmetric import distances as distances_module

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "pilot_igan_glomeruli_634patients.h5ad"
N_NEIGHBORS = 5


def patients() -> tuple[gm.Distributions, np.ndarray]:
    """IgA nephropathy (PILOT): glomeruli of 14 standardised features, and the class of kidney function."""
    import anndata as ad

    adata = ad.read_h5ad(DATA)
    values = np.asarray(adata.X, np.float64)
    D = gm.Distributions((values - values.mean(axis=0)) / values.std(axis=0), adata.obs["sample"].to_numpy())
    label = dict(zip(adata.obs["sample"], adata.obs["label"], strict=True))
    return D, np.array([label[name] for name in D.names])


def neighbours() -> list[dict]:
    """Return how many pairs of 634 patients bounds rule out, and the time that this saves."""
    if not DATA.exists():
        return [{"data": f"{DATA.name} is not at hand"}]
    D, y = patients()
    gm.kneighbors(D[:20], n_neighbors=2)  # compiled or read from the cache
    learned = gm.GroundMetricLearner(max_epochs=10, random_state=0).fit(D, y).metric_
    return [
        _compare_searches(D, *case)
        for case in (("Euclidean, 14 features", "euclidean"), ("learned, 5 components", learned))
    ]


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function and its CPU seconds, which do not include other programs."""
    start = time.process_time()
    return function(), time.process_time() - start


def _compare_searches(D: gm.Distributions, name: str, metric: gm.GroundMetric | str) -> dict:
    full, all_seconds = _timed(lambda: gm.pairwise_distances(D, metric=metric))
    searches, search = [], distances_module.pruned_distances
    # `kneighbors` does not return the number of solves.
    distances_module.pruned_distances = lambda *a, **options: searches.append(search(*a, **options)) or searches[-1]
    (distances, indices), few_seconds = _timed(lambda: gm.kneighbors(D, None, N_NEIGHBORS, metric))
    distances_module.pruned_distances = search
    solves = searches[0][1]
    np.fill_diagonal(full, np.inf)
    expected = np.argsort(full, axis=1, kind="stable")[:, :N_NEIGHBORS]
    same = (indices == expected).all() and (distances == np.take_along_axis(full, expected, axis=1)).all()
    pairs = len(D) * (len(D) - 1) // 2
    return {
        "634 patients, metric": name,
        "pairs": pairs,
        "solved": solves,
        "fewer solves": pairs / solves,
        "all pairs s": all_seconds,
        "neighbours s": few_seconds,
        "faster": all_seconds / few_seconds,
        "same neighbours and distances": "yes" if same else "NO",
    }


def large() -> list[dict]:
    """10,000 against 10,000 points, each in a process: our solver, POT's lazy one, and POT with the whole matrix."""
    rows = []
    _measure("groundmetric", 3_000, 2, 0.0)  # compiling takes memory too: no process that counts should have to
    for k in (2, 5):
        cases = {who: _measure(who, 10_000, k, 0.0) for who in SOLVERS}
        ours = cases["groundmetric"]
        for who, case in cases.items():
            rows.append(
                {
                    "solver": who,
                    "dimensions": k,
                    "value": f"{case['value']:.12f}",
                    "proved gap": f"{case['gap']:.1e}" if "gap" in case else "",
                    "s": case["seconds"],
                    "times ours": case["seconds"] / ours["seconds"],
                    "MB above a small solve": case["megabytes"],
                    "MB of the whole process": case["whole"],
                }
            )
    return rows


def larger() -> list[dict]:
    """100,000 against 100,000 points, by way of groups, as far as each tolerance asks."""
    rows = []
    for k, tolerance in ((2, 0.05), (2, 0.0), (5, 0.3), (5, 0.05), (5, 0.0)):
        case = _measure("groundmetric", 100_000, k, tolerance)
        rows.append(
            {
                "dimensions": k,
                "tolerance": tolerance,
                "value": f"{case['value']:.6f}",
                "error at most": f"{case['gap'] / case['value']:.1e} of it",
                "s": case["seconds"],
                "MB above a small solve": case["megabytes"],
                "MB of the whole process": case["whole"],
            }
        )
    return rows


def _measure(*case: str | float) -> dict:
    done = subprocess.run([sys.executable, __file__, *map(str, case)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _clouds(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, k)), rng.normal(size=(n, k)) + 0.5


def _groundmetric(x: np.ndarray, y: np.ndarray, tolerance: float) -> dict:
    from groundmetric.transport import solve_points

    plan = solve_points(x, y, tolerance=tolerance)
    return {"value": plan.value, "gap": plan.gap}


def _pot_lazy(x: np.ndarray, y: np.ndarray, _: float) -> dict:
    import ot

    return {"value": float(ot.lp.emd2_lazy(x, y, metric="euclidean", numItermax=10**9, log=False)[0])}


def _pot_dense(x: np.ndarray, y: np.ndarray, _: float) -> dict:
    import ot

    return {"value": float(ot.emd2([], [], ot.dist(x, y, metric="euclidean"), numItermax=10**9))}


SOLVERS: dict[str, Callable[[np.ndarray, np.ndarray, float], dict]] = {
    "groundmetric": _groundmetric,
    "POT emd2_lazy": _pot_lazy,
    "POT emd2, matrix": _pot_dense,
}


def solve_in_this_process(who: str, n: int, k: int, tolerance: float) -> None:
    solve = SOLVERS[who]
    solve(*_clouds(2000, k), 0.0)  # imports, and kernels compiled or read from the cache
    before = 2**20 * peak_memory()
    start = time.process_time()  # of the processor: other work on the machine does not count
    result = solve(*_clouds(n, k), tolerance)
    took = time.process_time() - start
    peak = 2**20 * peak_memory()
    print(json.dumps({**result, "seconds": took, "megabytes": (peak - before) / 1e6, "whole": peak / 1e6}))


N_COMPONENTS = 5  # of the learned space in the cluster benchmarks


def cluster() -> list[dict]:
    """All distances, here and on two processes, taking turns."""
    patients, cells, genes = 40, 1000, 1000
    X = sparse.random(patients * cells, genes, 0.05, "csr", np.float32, random_state=0)
    D = gm.Distributions(X, np.repeat(np.arange(patients), cells))
    metric = gm.GroundMetric(np.random.default_rng(0).normal(size=(N_COMPONENTS, genes)) / np.sqrt(genes))
    with two_processes() as client:
        name = f"distances, {patients} × {cells} cells"
        return [_compare_clusters(name, lambda n_jobs: gm.pairwise_distances(D, metric=metric, n_jobs=n_jobs), client)]


def _compare_clusters(name: str, task: Callable, client: Any) -> dict:
    """Times of both in turn, and the processor time of each process: on a machine with other work, that tells more."""
    runs: dict = {1: [], None: []}
    task(None)  # compiled code is loaded
    for _ in range(3):
        for n_jobs in runs:
            before, start = _processor_times(client), time.perf_counter()
            result = task(n_jobs)
            wall = time.perf_counter() - start
            used = [after - then for after, then in zip(_processor_times(client), before, strict=True)]
            runs[n_jobs].append((wall, used[0], max(used[1:]), result))
    here, there = (np.min([run[:3] for run in runs[n_jobs]], axis=0) for n_jobs in (1, None))
    same = all(np.array_equal(runs[1][0][3], run[3]) for several in runs.values() for run in several)
    return {
        "task": name,
        "same bits": "yes" if same else "NO",
        "s, one process": float(here[0]),
        "s, two": float(there[0]),
        "speed-up": float(here[0] / there[0]),
        "processor s, one process": float(here[1]),
        "here and busiest worker": f"{there[1]:.2f} + {there[2]:.2f}",
        "speed-up on free cores": float(here[1] / (there[1] + there[2])),
    }


def _processor_times(client: Any) -> list[float]:
    """Seconds of this process (with the scheduler) and of every worker."""
    return [time.process_time(), *client.run(time.process_time).values()]


def machines() -> list[dict]:
    """1,000 patients × 10,000 cells on 32 machines of 16 cores, from costs measured here on one core."""
    patients, cells, threads = 1000, 10_000, 32 * 16
    large, pairs = _large_cost(cells), patients * (patients - 1) // 2
    facts = {
        "10,000 × 10,000 without a matrix of costs (measured, s)": large,
        f"all {pairs:,} distances on 512 threads (h)": pairs * large / threads / 3600,
    }
    return [{"what": name, "figure": float(value)} for name, value in facts.items()]


def _large_cost(cells: int) -> float:
    """Return the seconds of a distance that is solved without a cost matrix because of its number of points."""
    points = np.random.default_rng(0).normal(size=(2, cells, N_COMPONENTS))
    gm.transport.solve_points(points[0, :500], points[1, :500])
    D = gm.Distributions(points.reshape(-1, N_COMPONENTS), np.repeat([0, 1], cells))
    start = time.process_time()
    gm.pairwise_distances(D)
    return time.process_time() - start


@contextmanager
def two_processes() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        LocalCluster(**options, silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
        joblib.parallel_config(backend="dask", client=client),
    ):
        yield client


WORK = Path(__file__).resolve().parent / "work"
PATIENTS, CELLS, GENES = 2000, 500, 1000
N_RAISED, RAISED, DENSITY = 10, 0.7, 0.1
# Report the CPU time and the peak memory of a command that is run in this process.
MEASURED = """
import json, resource, sys, time
from groundmetric.cli.main import main
started = time.perf_counter()
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
usage = resource.getrusage(resource.RUSAGE_SELF)
cpu = usage.ru_utime + usage.ru_stime
print(json.dumps({"seconds": time.perf_counter() - started, "cpu": cpu, "megabytes": usage.ru_maxrss / 1024}))
"""


def make_file(path: Path, n_patients: int, n_cells: int, n_genes: int, seed: int = 0) -> None:
    """Write log-normalised counts of patients; ten genes are raised in a quarter of the cells of every second patient.

    Patients differ in the rates of all genes (standard deviation 0.3 of the logarithm).
    """
    import anndata as ad
    import pandas as pd

    random = np.random.default_rng(seed)
    base, blocks = random.normal(0.0, 1.0, n_genes), []
    markers = 1.5 * (random.random((4, n_genes)) < 0.05)
    for patient in range(n_patients):
        kinds = random.choice(4, n_cells, p=random.dirichlet([10.0] * 4))
        logs = base + markers[kinds] + random.normal(0.0, 0.3, n_genes)
        logs[:, :N_RAISED] += RAISED * (patient % 2) * (kinds == 0)[:, None]
        rates = np.exp(logs)
        rates *= DENSITY * n_genes / rates.sum(axis=1, keepdims=True)
        counts = sparse.csr_matrix(random.poisson(rates).astype(np.float32))
        totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
        counts.data = np.log1p(counts.data * np.repeat(1000.0 / totals, np.diff(counts.indptr))).astype(np.float32)
        blocks.append(counts)
    names = np.repeat([f"p{patient:04d}" for patient in range(n_patients)], n_cells)
    labels = np.repeat(np.where(np.arange(n_patients) % 2, "ill", "healthy"), n_cells)
    obs = pd.DataFrame({"sample": pd.Categorical(names), "label": pd.Categorical(labels)})
    obs.index = [f"cell{row}" for row in range(len(obs))]
    var = pd.DataFrame(index=[f"gene{gene}" for gene in range(n_genes)])
    ad.AnnData(sparse.vstack(blocks, format="csr"), obs=obs, var=var).write_h5ad(path)


def learn(path: Path, *options: str) -> dict[str, Any]:
    """Run `groundmetric learn` in a new process, and return its time, memory and held-out scores."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", MEASURED, "learn", str(path), "--sample", "sample", "--label", "label"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "-o", str(run), *options], stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        measured = json.loads(done.stdout.splitlines()[-1])
        scores = json.loads((run / "run.json").read_text())["held_out"]
    return {
        "wall s": measured["seconds"],
        "CPU s": measured["cpu"],
        "peak memory, MB": round(measured["megabytes"]),
        "held-out balanced accuracy": scores["balanced_accuracy"],
        "held-out log-probability": scores["log_probability"],
    }


def simulated(n_patients: int, n_cells: int, n_genes: int) -> dict[str, Any]:
    """Learn from a simulated cohort, whose file is made once."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"patients_{n_patients}_{n_cells}_{n_genes}.h5ad"
    if not path.exists():
        make_file(path, n_patients, n_cells, n_genes)
    name = f"simulated, {n_patients} patients × {n_cells} cells × {n_genes} genes, 2 threads"
    return {"cohort": name, **learn(path, "--genes", "all", "--jobs", "2")}


def many_patients() -> list[dict]:
    """Return the rows of the scale benchmark."""
    rows = [simulated(PATIENTS, CELLS, GENES)]
    if DATA.exists():
        rows.insert(0, {"cohort": "IgA nephropathy, 634 patients × 14 features, 1 thread", **learn(DATA)})
    return rows


def landmarks() -> list[dict]:
    """Fit halves of the 634 patients with landmarks and with all pairs, and predict the other halves."""
    from sklearn.metrics import balanced_accuracy_score

    from groundmetric.ensemble import geometry, members

    if not DATA.exists():
        return [{"data": f"{DATA.name} is not at hand"}]
    D, y = patients()
    limits = {"landmarks": (geometry.MAX_EXACT, members._MAX_TRAINING), "all pairs": (len(D), len(D))}
    rows = []
    for name, (exact, training) in limits.items():
        geometry.MAX_EXACT, members._MAX_TRAINING = exact, training
        accuracies, logs, started = [], [], time.process_time()
        for seed in range(3):
            half = np.random.default_rng(seed).permutation(len(D)) % 2 == 0
            for train, test in ((half, ~half), (~half, half)):
                model = gm.TransportClassifier(random_state=0).fit(D[train], y[train])
                probabilities = model.predict_proba(D[test])
                columns = np.searchsorted(model.classes_, y[test])
                accuracies.append(balanced_accuracy_score(y[test], model.classes_[probabilities.argmax(axis=1)]))
                logs.append(np.log(probabilities[np.arange(columns.size), columns]).mean())
        rows.append(
            {
                "317 training, 317 test patients": name,
                "balanced accuracy": np.mean(accuracies),
                "standard error over 6 halves": np.std(accuracies, ddof=1) / np.sqrt(len(accuracies)),
                "log-probability": np.mean(logs),
                "CPU s per fit and prediction": (time.process_time() - started) / len(accuracies),
            }
        )
    geometry.MAX_EXACT, members._MAX_TRAINING = limits["landmarks"]
    return rows


if __name__ == "__main__":
    solve_in_this_process(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
