"""The paper's hyper-parameter surface: accuracy over margin and strength, on held-out distributions and points."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..estimators import GroundMetricLearner
from ..evaluation.running import Cohort, Protocol, attempt
from . import paper
from .keeping import finish
from .protocol import K_POINTS, K, Plan, halves, learner, synthetic

LEVELS = ("distributions", "points")
# Points that are voted on, of either side, at most.
MAX_POINTS = 1500
# The paper trains for 30 to 50 epochs; of 25 settings, most show within the former what they are.
MAX_EPOCHS = 30


def run(plan: Plan) -> dict[str, Any]:
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
    answers = finish(tasks, plan.work / "surface", n_jobs=plan.n_jobs, title="surface", verbose=plan.verbose)

    def mean(data: str, margin: float, strength: float, level: str) -> float:
        return float(np.mean([answers[f"{data}/{margin}/{strength}/{split}"][level] for split in range(n_splits)]))

    found: dict[str, Any] = {
        "n_splits": n_splits,
        "grid": list(plan.grid),
        "max_points": MAX_POINTS,
        "max_epochs": max_epochs,
    }
    for data in paper.DATA:
        found[data] = {
            level: [[mean(data, margin, strength, level) for strength in plan.grid] for margin in plan.grid]
            for level in LEVELS
        }
    return found


def _score(data: str, parameters: dict, split: int, seed: int, quick: bool) -> dict[str, float]:
    D, y = synthetic(data, seed, quick)
    train, test = halves(y, split + 1, seed)[split]
    protocol = Protocol(k=K, k_points=K_POINTS, weights="uniform", max_points=MAX_POINTS)
    result = attempt(GroundMetricLearner(**parameters), Cohort(D, y, np.unique(y)), train, test, protocol)
    if not result.scores:
        raise RuntimeError(f"{data}, margin {parameters['margin']}, strength {parameters['strength']}: {result.status}")
    return {level: result.scores[level]["accuracy"] for level in LEVELS}
