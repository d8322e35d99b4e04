"""The paper's Table 2: do clusters on the distances find the classes?"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ..evaluation import cluster_points, cluster_scores
from . import paper
from .keeping import finish
from .protocol import SEARCH, Plan, halves, methods_of_the_paper, more_methods, synthetic

SCORES = paper.Clustering._fields
# The paper clusters with one fixed setting instead of the tuned one, and so do we.
_LEFT_OUT = {SEARCH}


def run(plan: Plan) -> dict[str, Any]:
    """By data set and method: mean scores of everybody, of those never seen, and of points of the centre mode."""
    methods = {
        name: m for name, m in {**methods_of_the_paper(plan), **more_methods(plan)}.items() if name not in _LEFT_OUT
    }
    n_splits = 1 if plan.quick else 3
    tasks = {
        f"{data}/{name}/{split}": (_score, (data, method, split, n_splits, plan.seed, plan.quick))
        for data in paper.DATA
        for name, method in methods.items()
        for split in range(n_splits)
    }
    plan.log(f"clustering: {len(methods)} methods, {n_splits} halves of each data set")
    answers = finish(tasks, plan.work / "clustering", n_jobs=plan.n_jobs, title="clustering", verbose=plan.verbose)
    found: dict[str, Any] = {"n_splits": n_splits}
    for data in paper.DATA:
        found[data] = {
            name: _mean([answers[f"{data}/{name}/{split}"] for split in range(n_splits)]) for name in methods
        }
    return found


def _score(data: str, method: Any, split: int, n_splits: int, seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """Learn from one half; cluster everybody as the paper does, and the other half alone."""
    D, y = synthetic(data, seed, quick)
    train, test = halves(y, n_splits, seed)[split]
    fitted = clone(method).fit(D[train], y[train])
    found = {}
    if hasattr(fitted, "distances"):
        distances = fitted.distances(D)
        found["distributions"] = cluster_scores(distances, y)
        found["unseen"] = cluster_scores(distances[np.ix_(test, test)], y[test])
    if hasattr(fitted, "point_distances"):
        # As many clusters as classes, on the mode in which they differ: the paper's choice for synthetic data.
        found["points"] = cluster_points(fitted, D, y, only={"mode": "centre"}, n_clusters=np.unique(y).size)
    return {level: {score: float(scores[score]) for score in SCORES} for level, scores in found.items()}


def _mean(answers: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        level: {score: float(np.mean([answer[level][score] for answer in answers])) for score in SCORES}
        for level in answers[0]
    }
