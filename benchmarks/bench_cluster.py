"""Two Dask processes against one: speed-up and bytes per step; and from the measured costs, a much larger case.

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
from groundmetric.transport import remote as elsewhere

PATIENTS, CELLS, GENES, DENSITY, K = 20, 1000, 1000, 0.05, 5
OPTIONS = {
    "n_components": K,
    "max_epochs": 4,
    "stopping": gm.learning.EarlyStopping(tol=0.0),
    "init": "random",
    "random_state": 0,
}


def run() -> list[dict]:
    """All distances and four epochs of learning, here and on two processes, taking turns."""
    D, y = cohort(PATIENTS, CELLS)
    metric = gm.GroundMetric(np.random.default_rng(0).normal(size=(K, GENES)) / np.sqrt(GENES))
    tasks = {
        f"distances, {PATIENTS} × {CELLS} cells": lambda n_jobs: gm.pairwise_distances(D, metric=metric, n_jobs=n_jobs),
        "learning, 4 epochs": lambda n_jobs: gm.GroundMetricLearner(**OPTIONS, n_jobs=n_jobs).fit(D, y).components_,
    }
    with two_processes() as client, counted() as traffic:
        return [_compare(name, task, traffic, client) for name, task in tasks.items()]


def _compare(name: str, task: Callable, traffic: list, client: Any) -> dict:
    """Times of both in turn, and the processor time of each process: on a machine with other work, that tells more."""
    runs: dict = {1: [], None: []}
    task(None)  # compiled code is loaded
    for _ in range(3):
        for n_jobs in runs:
            traffic.clear()
            before, start = _processor_times(client), time.perf_counter()
            result = task(n_jobs)
            wall = time.perf_counter() - start
            used = [after - then for after, then in zip(_processor_times(client), before, strict=True)]
            runs[n_jobs].append((wall, used[0], max(used[1:]), result))
    here, there = (np.min([run[:3] for run in runs[n_jobs]], axis=0) for n_jobs in (1, None))
    same = all(np.array_equal(runs[1][0][3], run[3]) for several in runs.values() for run in several)
    pairs, messages, sent, received, _ = (np.array(column) for column in zip(*traffic, strict=True))
    return {
        "task": name,
        "same bits": "yes" if same else "NO",
        "s, one process": float(here[0]),
        "s, two": float(there[0]),
        "speed-up": float(here[0] / there[0]),
        "processor s, one process": float(here[1]),
        "here and busiest worker": f"{there[1]:.2f} + {there[2]:.2f}",
        "speed-up on free cores": float(here[1] / (there[1] + there[2])),
        "steps sent": len(traffic),
        "pairs a step": float(pairs.mean()),
        "messages": float(messages.mean()),
        "kB out": float(sent.mean() / 1e3),
        "kB back": float(received.mean() / 1e3),
    }


def _processor_times(client: Any) -> list[float]:
    """Seconds of this process (with the scheduler) and of every worker."""
    return [time.process_time(), *client.run(time.process_time).values()]


def estimate() -> list[dict]:
    """1,000 patients × 10,000 cells on 32 machines of 16 cores, from costs measured here on one core."""
    patients, cells, threads = 1000, 10_000, 32 * 16
    cold, growth = _cold_costs()
    large = _large_cost(cells)
    warm, project, gradient = _learning_costs()
    pair_cold = cold * (cells / 1000) ** (2 * growth)
    pair_warm = warm * (cells / 1000) ** (2 * growth)
    pairs = patients * (patients - 1) // 2
    steps, anchors = int(np.ceil(patients * 9 / 128)), 128 / 9
    step_pairs, step_points = 6 * anchors, 7 * anchors * cells  # 3 + 3 neighbours of every anchor, each once
    out = step_pairs * 2 * cells * K * 8
    back = step_pairs * 2 * cells * (4 + 2)
    wire = (out + back) / 1.25e9
    coordinator = (project + gradient) * step_points
    step = max(pair_warm, step_pairs * pair_warm / threads) + wire + coordinator
    first = pair_cold * step_pairs * steps / threads
    facts = {
        "cold solve of 1,000 × 1,000 (measured, s)": cold,
        "growth: seconds ~ (n m)^x (measured)": growth,
        "warm solve of 1,000 × 1,000 (measured, s)": warm,
        "projection and pull-back, a point (measured, s)": project + gradient,
        "cold solve of 10,000 × 10,000 with one, as in learning (s)": pair_cold,
        "warm solve of 10,000 × 10,000 (s)": pair_warm,
        "10,000 × 10,000 without a matrix, as in distances (measured, s)": large,
        f"all {pairs:,} distances on 512 threads (h)": pairs * large / threads / 3600,
        "a step: pairs": step_pairs,
        "a step: MB out and back": (out + back) / 1e6,
        "a step: s on the wire at 10 Gbit/s": wire,
        "a step: s at the coordinator (projection, pull-back)": coordinator,
        "a step: s in all": step,
        "first solves of all pairs (h)": first / 3600,
        f"learning, 30 epochs of {steps} steps (h)": (first + 30 * steps * step) / 3600,
    }
    return [{"what": name, "figure": float(value)} for name, value in facts.items()]


def _cold_costs() -> tuple[float, float]:
    """Seconds of a cold solve of 1,000 × 1,000, and the exponent of n m, from 1,000 and 3,000 points."""
    seconds = {}
    for cells in (1000, 3000):
        D = gm.Distributions(np.random.default_rng(0).normal(size=(4 * cells, K)), np.repeat(np.arange(4), cells))
        gm.pairwise_distances(D[:2])
        start = time.process_time()
        gm.pairwise_distances(D)
        seconds[cells] = (time.process_time() - start) / 6
    return seconds[1000], float(np.log(seconds[3000] / seconds[1000]) / np.log(9.0))


def _large_cost(cells: int) -> float:
    """Seconds of a distance between so many points that it is solved without a matrix of costs."""
    points = np.random.default_rng(0).normal(size=(2, cells, K))
    gm.transport.solve_points(points[0, :500], points[1, :500])
    D = gm.Distributions(points.reshape(-1, K), np.repeat([0, 1], cells))
    start = time.process_time()
    gm.pairwise_distances(D)
    return time.process_time() - start


def _learning_costs() -> tuple[float, float, float]:
    """Seconds of a warm solve, of projecting a point, and of pulling one back, over the last of four epochs."""
    D, y = cohort(PATIENTS, CELLS)
    history = gm.GroundMetricLearner(**OPTIONS).fit(D, y).history_
    points = 2 * PATIENTS * CELLS  # each of two steps of an epoch places nearly all
    solved = max(int(history["solved"][-1]), 1)
    last = {name: float(history[f"seconds_{name}"][-1]) for name in ("transport", "project", "gradient")}
    return last["transport"] / solved, last["project"] / points, last["gradient"] / points


def cohort(patients: int, cells: int) -> tuple[gm.Distributions, np.ndarray]:
    """Sparse expression whose first ten genes are a little higher in one class: most triplets stay active."""
    rng = np.random.default_rng(0)
    X = sparse.random(patients * cells, GENES, DENSITY, "csr", np.float32, random_state=0)
    owner, y = np.repeat(np.arange(patients), cells), np.arange(patients) % 2
    raised = sparse.csr_matrix((rng.random((patients * cells, 10)) < 0.03 * y[owner][:, None]).astype(np.float32))
    X = (X + sparse.hstack([raised, sparse.csr_matrix((patients * cells, GENES - 10), dtype=np.float32)])).tocsr()
    return gm.Distributions(X, owner), y


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


@contextmanager
def counted() -> Iterator[list]:
    """What went over the wire, a row (pairs, messages, bytes there, bytes back, seconds) for every step."""
    rows: list = []
    log = logging.getLogger(elsewhere.__name__)
    handler = logging.Handler()
    handler.emit = lambda record: rows.append(record.args)  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield rows
    finally:
        log.removeHandler(handler)


if __name__ == "__main__":
    from sections import table

    for rows in (run(), estimate()):
        print(table(rows), flush=True)
