"""Two Dask processes against one: speed-up of a distance matrix; and from the measured costs, a much larger case.

python benchmarks/bench_cluster.py     prints all tables
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
from scipy import sparse

import groundmetric as gm

PATIENTS, CELLS, GENES, DENSITY, K = 40, 1000, 1000, 0.05, 5


def run() -> list[dict]:
    """All distances, here and on two processes, taking turns."""
    D = cohort(PATIENTS, CELLS)
    metric = gm.GroundMetric(np.random.default_rng(0).normal(size=(K, GENES)) / np.sqrt(GENES))
    with two_processes() as client:
        name = f"distances, {PATIENTS} × {CELLS} cells"
        return [_compare(name, lambda n_jobs: gm.pairwise_distances(D, metric=metric, n_jobs=n_jobs), client)]


def _compare(name: str, task: Callable, client: Any) -> dict:
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


def estimate() -> list[dict]:
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
    points = np.random.default_rng(0).normal(size=(2, cells, K))
    gm.transport.solve_points(points[0, :500], points[1, :500])
    D = gm.Distributions(points.reshape(-1, K), np.repeat([0, 1], cells))
    start = time.process_time()
    gm.pairwise_distances(D)
    return time.process_time() - start


def cohort(patients: int, cells: int) -> gm.Distributions:
    """Sparse expression."""
    X = sparse.random(patients * cells, GENES, DENSITY, "csr", np.float32, random_state=0)
    return gm.Distributions(X, np.repeat(np.arange(patients), cells))


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


if __name__ == "__main__":
    from measuring import table

    for rows in (run(), estimate()):
        print(table(rows), flush=True)
