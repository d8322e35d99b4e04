"""The paper's hyper-parameter surface, and its Table 3: time of an epoch by neighbours and rank."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from groundmetric._internal.tables import markdown, number
from groundmetric.estimators import GroundMetricLearner
from groundmetric.evaluation.compare import Cohort, Task, attempt
from groundmetric.evaluation.results import Protocol
from groundmetric.learning import EarlyStopping

from . import published as paper
from .figures import draw_surface
from .protocol import K_POINTS, K, Plan, halves, learner, synthetic
from .tables import prose, write_records
from .tasks import run_cached

LEVELS = ("distributions", "points")
# Points that are voted on, of either side, at most.
MAX_POINTS = 1500
# The paper trains for 30 to 50 epochs; with 25 settings, 30 epochs are enough for a comparison.
MAX_EPOCHS = 30


def run_surface(plan: Plan) -> dict[str, Any]:
    """By data set and level: mean accuracies, a row per margin and a column per strength."""
    n_splits = 1 if plan.quick else 2
    max_epochs = min(plan.max_epochs, MAX_EPOCHS)
    parameters = {**learner(plan).get_params(), "max_epochs": max_epochs}
    tasks = {
        f"{data}/{margin}/{strength}/{split}": (
            _score,
            (data, {**parameters, "margin": margin, "strength": strength}, split, plan.seed, plan.quick),
        )
        for data in paper.DATA
        for split in range(n_splits)
        for margin in plan.grid
        for strength in plan.grid
    }
    plan.log(f"surface: {len(plan.grid)} margins × {len(plan.grid)} strengths, {n_splits} halves of each data set")
    answers = run_cached(tasks, plan.cache, n_jobs=plan.n_jobs, title="surface", verbose=plan.verbose)

    def mean(data: str, margin: float, strength: float, level: str) -> float:
        return float(np.mean([answers[f"{data}/{margin}/{strength}/{split}"][level] for split in range(n_splits)]))

    result: dict[str, Any] = {
        "n_splits": n_splits,
        "grid": list(plan.grid),
        "max_points": MAX_POINTS,
        "max_epochs": max_epochs,
    }
    for data in paper.DATA:
        result[data] = {
            level: [[mean(data, margin, strength, level) for strength in plan.grid] for margin in plan.grid]
            for level in LEVELS
        }
    return result


def _score(data: str, parameters: dict[str, Any], split: int, seed: int, quick: bool) -> dict[str, float]:
    D, y = synthetic(data, seed, quick)
    train, test = halves(y, split + 1, seed)[split]
    protocol = Protocol(n_neighbors=K, n_point_neighbors=K_POINTS, weights="uniform", max_points=MAX_POINTS)
    result = attempt(Cohort(D, y, np.unique(y)), protocol, Task("", 0, GroundMetricLearner(**parameters), train, test))
    if not result.scores:
        raise RuntimeError(f"{data}, margin {parameters['margin']}, strength {parameters['strength']}: {result.status}")
    return {level: result.scores[level]["accuracy"] for level in LEVELS}


DATA = "Synth 200D"


def run_timing(plan: Plan) -> dict[str, Any]:
    """CPU seconds per epoch, a row per number of neighbours and a column per rank."""
    neighbours, ranks = list(paper.TIMING), list(paper.RANKS)
    n_epochs = 1 if plan.quick else 3
    tasks = {
        f"{t}/{rank}": (_seconds, (t, rank, n_epochs, plan.seed, plan.quick)) for t in neighbours for rank in ranks
    }
    plan.log(f"timing: {len(neighbours)} numbers of neighbours × {len(ranks)} ranks, {n_epochs} epochs each")
    # Sequentially: parallel runs would share caches and memory.
    answers = run_cached(tasks, plan.cache, n_jobs=1, title="timing", verbose=plan.verbose)
    return {
        "n_epochs": n_epochs,
        "neighbours": neighbours,
        "ranks": ranks,
        "seconds": [[answers[f"{t}/{rank}"] for rank in ranks] for t in neighbours],
    }


def _seconds(n_neighbors: int, rank: int, n_epochs: int, seed: int, quick: bool) -> float:
    """CPU time of one thread per epoch, the first (cold) one included: it does not depend on who else is computing."""
    D, y = synthetic(DATA, seed, quick)
    learner = GroundMetricLearner(
        rank, n_neighbors=n_neighbors, max_epochs=n_epochs, stopping=EarlyStopping(tol=0.0), n_jobs=1, random_state=seed
    )
    learner.fit(D[::6], y[::6])  # warm-up
    start = time.process_time()
    learner.fit(D, y)
    return (time.process_time() - start) / learner.n_iter_


_LEVEL_NAMES = ("distributions", "points")
SURFACE = """
    Accuracy on held-out halves over the paper's grid, mean over {n_splits} halves, at most {max_epochs} epochs; at
    cell level, at most {max_points:,} points of each half. Our margin is in units of the mean initial distance, and the
    penalty in units of its initial value, so the axes differ from those of the paper."""
TIMING = """
    Seconds per epoch on Synth 200D by numbers of neighbours and rank; the paper's are in brackets. Ours are CPU seconds
    of one thread (mean of {n_epochs} epochs with a cold start); the paper's were measured on 64 cores, another machine
    and another measure, so only orders of magnitude can be compared. `make bench` measures ratios side by side."""


def surface(result: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table and figure go into the folder."""
    grid = result["grid"]
    records = [
        {"data": data, "level": level, "margin": margin, "strength": strength, "accuracy": result[data][level][i][j]}
        for data in paper.DATA
        for level in _LEVEL_NAMES
        for i, margin in enumerate(grid)
        for j, strength in enumerate(grid)
    ]
    table, picture = write_records(folder / "surface.csv", records), draw_surface(result, folder)
    return [
        "## Margin and strength",
        prose(SURFACE, n_splits=result["n_splits"], max_points=result["max_points"], max_epochs=result["max_epochs"]),
        f"![accuracy by margin and strength](results/{picture})",
        "Patient level: " + "; ".join(_breadth(data, result[data]["distributions"]) for data in paper.DATA) + ".",
        f"As CSV: [{table}](results/{table})",
    ]


def _breadth(data: str, accuracies: list[list[float]]) -> str:
    values = [value for row in accuracies for value in row]
    close = sum(value >= max(values) - 0.02 for value in values)
    return f"on {data}, {close} of {len(values)} settings are within 0.02 of the best ({number(max(values))})"


def timing(result: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table goes into the folder."""
    records, rows = [], []
    for t, seconds in zip(result["neighbours"], result["seconds"], strict=True):
        pair = list(zip(result["ranks"], seconds, paper.TIMING[t], strict=True))
        records += [{"neighbours": t, "rank": rank, "seconds": a, "paper seconds": b} for rank, a, b in pair]
        rows.append([str(t), *(f"{number(a)} ({b:g})" for _, a, b in pair)])
    table = write_records(folder / "timing.csv", records)
    return [
        "## Time per epoch",
        prose(TIMING, n_epochs=result["n_epochs"]),
        markdown(["neighbours", *(f"rank {rank}" for rank in result["ranks"])], rows),
        f"As CSV: [{table}](results/{table})",
    ]
