"""The paper's Table 2: do clusters on the distances find the classes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, mutual_info_score

from groundmetric._internal.tables import markdown, number

from . import published as paper
from .protocol import DEFAULTS, SEARCH, Plan, halves, methods_of_the_paper, more_methods, name_in_paper, synthetic
from .tables import prose, write_records
from .tasks import run_cached

SCORES = paper.Clustering._fields
# Points that are clustered, drawn at random, at most.
MAX_POINTS = 4000
# The paper clusters with one fixed setting instead of the tuned one, and so do we.
_LEFT_OUT = {SEARCH}


def run(plan: Plan) -> dict[str, Any]:
    """Return, by data set and method, mean scores of all, of new distributions, and of points of the centre mode."""
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
    answers = run_cached(tasks, plan.cache, n_jobs=plan.n_jobs, title="clustering", verbose=plan.verbose)
    result: dict[str, Any] = {"n_splits": n_splits}
    for data in paper.DATA:
        result[data] = {
            name: _mean([answers[f"{data}/{name}/{split}"] for split in range(n_splits)]) for name in methods
        }
    return result


def _score(data: str, method: Any, split: int, n_splits: int, seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """Learn from one half; cluster everybody as the paper does, and the other half alone."""
    D, y = synthetic(data, seed, quick)
    train, test = halves(y, n_splits, seed)[split]
    fitted = clone(method).fit(D[train], y[train])
    result = {}
    if hasattr(fitted, "distances"):
        distances = fitted.distances(D)
        result["distributions"] = cluster_scores(distances, y)
        result["unseen"] = cluster_scores(distances[np.ix_(test, test)], y[test])
    if hasattr(fitted, "point_distances"):
        # As many clusters as classes, on the mode in which they differ: the paper's choice for synthetic data.
        rows = np.flatnonzero(D.annotations["mode"] == "centre")
        if rows.size > MAX_POINTS:
            rows = np.sort(np.random.RandomState(0).choice(rows, MAX_POINTS, replace=False))
        result["points"] = cluster_scores(fitted.point_distances(D.points[rows]), np.repeat(y, D.sizes)[rows])
    return {level: {score: float(scores[score]) for score in SCORES} for level, scores in result.items()}


def cluster_scores(distances: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Cluster into as many clusters as there are classes (average linkage), and compare clusters with classes."""
    members = np.unique(labels, return_counts=True)[1]
    model = AgglomerativeClustering(members.size, metric="precomputed", linkage="average")
    clusters = model.fit_predict(distances)
    shared = float(mutual_info_score(labels, clusters))
    entropies = float(stats.entropy(members) + stats.entropy(np.bincount(clusters)))
    return {
        "mutual_information": shared,
        "adjusted_rand": float(adjusted_rand_score(labels, clusters)),
        "variation_of_information": max(0.0, entropies - 2.0 * shared),
    }


def _mean(answers: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        level: {score: float(np.mean([answer[level][score] for answer in answers])) for score in SCORES}
        for level in answers[0]
    }


LEVELS = ("distributions", "unseen", "points")
INTRODUCTION = """
    Agglomerative clustering with average linkage and three clusters: mutual information / adjusted Rand index /
    variation of information, in nats; perfect clusters have 1.10 / 1.00 / 0.00. Metrics are learned from one half.
    The columns are clusterings of all distributions ("patient level", as in the paper), of the distributions of the
    other half ("not learned from"), and of the points of the centre mode, the only mode in which classes differ ("cell
    level"). Means over {n_splits} halves. As in the paper, GGML has one fixed setting (here the default parameters)."""
READING = """
    At cell level the classes overlap even along the informative feature, so no metric is perfect, and average linkage
    may split off a few outliers and merge two classes: small changes of the distances cause large changes of these
    scores."""


def clustering(result: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table goes into the folder."""
    data_sets = [data for data in paper.DATA if data in result]
    table = write_records(
        folder / "clustering.csv", [row for data in data_sets for row in _records(data, result[data])]
    )
    return [
        "## Clustering",
        prose(INTRODUCTION, n_splits=result["n_splits"]),
        *(part for data in data_sets for part in (f"### Clusters of {data}", _scores(data, result[data]))),
        _goal({data: result[data][DEFAULTS] for data in data_sets}),
        prose(READING),
        f"As CSV: [{table}](results/{table})",
    ]


def printed(data: str, level: str, method: str) -> paper.Clustering | None:
    return paper.CLUSTERING.get((data, level), {}).get(name_in_paper(method))


def _records(data: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    records = []
    for method, levels in rows.items():
        for level, scores in levels.items():
            theirs = printed(data, level, method)
            more = {} if theirs is None else {f"paper: {name}": value for name, value in theirs._asdict().items()}
            records.append({"data": data, "method": method, "level": level, **scores, **more})
    return records


def _scores(data: str, rows: dict[str, Any]) -> str:
    lines = []
    for method, levels in rows.items():
        cells = [method]
        for level in LEVELS:
            cells.append(_three(levels.get(level)))
            if level != "unseen":
                theirs = printed(data, level, method)
                cells.append("" if theirs is None else _three(theirs._asdict()))
        lines.append(cells)
    return markdown(["method", "patient level", "paper", "not learned from", "cell level", "paper"], lines)


def _goal(rows: dict[str, Any]) -> str:
    parts = []
    for data, levels in rows.items():
        for level, name in (("distributions", "patient level"), ("points", "cell level")):
            theirs, ours = printed(data, level, SEARCH), levels[level]
            assert theirs is not None
            reached = (
                ours["mutual_information"] >= theirs.mutual_information - 0.005
                and ours["adjusted_rand"] >= theirs.adjusted_rand - 0.005
                and ours["variation_of_information"] <= theirs.variation_of_information + 0.005
            )
            parts.append(f"{data}, {name}: {'at least as good as' if reached else '**short of**'} the paper's GGML")
    return f"{'; '.join(parts)}."


def _three(scores: dict[str, float] | None) -> str:
    return "–" if not scores else " / ".join(number(scores[name]) for name in paper.Clustering._fields)
