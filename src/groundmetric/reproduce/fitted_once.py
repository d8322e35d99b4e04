"""The paper's way with baselines that learn: fitted once, on a sample drawn separately; only votes vary over splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import baselines
from ..baselines.learned import paper_map
from ..distances import pairwise_distances
from ..evaluation import vote
from ..metric import GroundMetric
from . import paper
from .keeping import finish
from .protocol import LEARNED, SCRIPTS, K, Plan, halves, synthetic

# Points that are learned from, at most; the paper took all 9,000.
MAX_POINTS = 2000


def run(plan: Plan) -> dict[str, Any]:
    """By data set and method: mean and SD of the accuracy over the splits, at patient level."""
    plan.log(f"classification: {', '.join(LEARNED)} as in the paper, fitted once on a sample drawn separately")
    tasks = {
        f"{data}/{name}": (_scores, (data, name, plan.n_splits, plan.seed, plan.quick))
        for data in paper.DATA
        for name in LEARNED
    }
    answers = finish(tasks, plan.work / "fitted_once", n_jobs=plan.n_jobs, title="fitted once", verbose=plan.verbose)
    return {
        data: {form: row for name in LEARNED for form, row in answers[f"{data}/{name}"].items()} for data in paper.DATA
    }


def _scores(data: str, name: str, n_splits: int, seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """For the method as published, and with the linear map of the paper's scripts."""
    D, y = synthetic(data, seed + 1, quick)
    method = baselines.by_name(name.lower(), max_points=MAX_POINTS, random_state=seed)
    published = method.fit(D, y).components_
    if name == "LFDA":  # its form in the scripts has other arithmetic as well
        scripts = method.set_params(as_in_paper=True).fit(D, y).components_
    else:
        scripts = paper_map(published)
    forms = {name: published, name + SCRIPTS: scripts}
    return {form: _accuracy(components, data, n_splits, seed, quick) for form, components in forms.items()}


def _accuracy(components: np.ndarray, data: str, n_splits: int, seed: int, quick: bool) -> dict[str, float]:
    D, y = synthetic(data, seed, quick)
    distances, classes = pairwise_distances(D, metric=GroundMetric(components)), np.unique(y)
    scores = []
    for train, test in halves(y, n_splits, seed):
        shares = vote(distances[np.ix_(test, train)], y[train], classes, k=K, weights="uniform")
        scores.append(float(np.mean(classes[shares.argmax(axis=1)] == y[test])))
    return {"mean": float(np.mean(scores)), "sd": float(np.std(scores, ddof=1))}
