"""The paper's Table 1: accuracy of k-NN votes among distributions and among points."""

from __future__ import annotations

from typing import Any

from ..evaluation import Comparison, compare
from . import fitted_once, paper
from .protocol import (
    DEFAULTS,
    K_POINTS,
    MAX_POINTS,
    SEARCH,
    K,
    Plan,
    halves,
    methods_of_the_paper,
    more_methods,
    synthetic,
)

# Fitted in no time, so that weighted votes can be given beside equal ones.
_FAST = (DEFAULTS, "Euclidean", "Manhattan", "Cosine")


def run(plan: Plan) -> dict[str, Any]:
    """By data set: a row per method with its accuracies, and the lead of our method over each."""
    studies = {name: _study(name, plan) for name in paper.DATA}
    once = fitted_once.run(plan)
    return {name: {**study, "once": once[name]} for name, study in studies.items()}


def _study(name: str, plan: Plan) -> dict[str, Any]:
    D, y = synthetic(name, plan.seed, plan.quick)
    methods = {**methods_of_the_paper(plan), **more_methods(plan)}
    splits = halves(y, plan.n_splits, plan.seed)
    options: dict[str, Any] = {"splits": splits, "k": K, "n_jobs": plan.n_jobs, "verbose": plan.verbose}
    options |= {"k_points": K_POINTS, "max_points": MAX_POINTS, "resume": plan.work / "comparisons"}
    plan.log(f"classification: {name}, {len(methods)} methods, {len(splits)} splits")
    equal = compare(methods, D, y, weights="uniform", **options)
    fast = {method: methods[method] for method in _FAST}
    weighted = compare(fast, D, y, weights="distance", points=False, **options)
    return {
        "n_splits": len(splits),
        "max_points": MAX_POINTS,
        "sizes": [int(splits[0][0].size), int(splits[0][1].size), int(D.points.shape[0])],
        "rows": {method: _row(equal, method) for method in methods},
        "weighted": {method: _estimate(weighted, method, "distributions") for method in fast},
        "against": _against(equal),
    }


def _row(found: Comparison, method: str) -> dict[str, Any]:
    return {
        "status": found.status(method),
        "distributions": _estimate(found, method, "distributions"),
        "points": _estimate(found, method, "points"),
        "seconds": found.seconds(method),
    }


def _estimate(found: Comparison, method: str, level: str) -> dict[str, float]:
    if level not in found.levels:
        return {}
    estimate = found.estimate(method, "accuracy", level)
    return {"mean": estimate.value, "sd": estimate.sd, "low": estimate.low, "high": estimate.high}


def _against(found: Comparison) -> dict[str, dict[str, float]]:
    leads = found.against(SEARCH, "accuracy")
    return {
        other: {"lead": lead.value, "low": lead.low, "high": lead.high, "p": p} for other, (lead, p) in leads.items()
    }
