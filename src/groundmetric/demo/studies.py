"""The paper's synthetic data: learn on half of the distributions, classify the other half."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from .. import datasets, pl
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators import GroundMetricLearner, TransportKNeighborsClassifier
from ..metric import GroundMetric

Log = Callable[[str], None]
N_NEIGHBORS = 5


@dataclass
class Study:
    """One data set, what was learned on half of it, and what came out."""

    D: Distributions
    y: np.ndarray
    train: np.ndarray
    history: dict[str, np.ndarray]
    metrics: dict[str, GroundMetric]
    distances: dict[str, np.ndarray]  # between all distributions, by metric
    found: dict[str, Any]  # numbers and names only: what results.json holds


def examine(name: str, D: Distributions, y: np.ndarray, learner: GroundMetricLearner, seed: int, log: Log) -> Study:
    """Learn on half of the distributions, classify the other half with the learned and with the Euclidean metric."""
    train, test = map(np.sort, train_test_split(np.arange(len(D)), test_size=0.5, stratify=y, random_state=seed))
    log(f"{name}: learning from {len(train)} distributions")
    started = time.perf_counter()
    learner.fit(D[train], y[train])
    seconds = time.perf_counter() - started
    metrics = {"learned": learner.metric_, "Euclidean": GroundMetric.euclidean(D.shape[1], D.features)}
    log(f"{name}: classifying the other {len(test)}, measuring all distances")
    right = {kind: _count_right(metric, D, y, train, test) for kind, metric in metrics.items()}
    distances = {kind: pairwise_distances(D, metric=m, verbose=learner.verbose) for kind, m in metrics.items()}
    shares, history = learner.metric_.importance(), learner.history_
    solved, saved = int(history["solved"].sum()), int(history["saved"].sum())
    found = {
        "name": name, "n_distributions": len(D), "n_points": int(D.sizes.sum()), "n_features": D.shape[1],
        "n_classes": len(np.unique(y)), "train": train.tolist(), "test": test.tolist(),
        "right": right, "accuracy": {kind: count / len(test) for kind, count in right.items()},
        "important_feature": D.features[shares.argmax()] if D.features else f"feature {shares.argmax()}",
        "importance": float(shares.max()),
        "seconds": round(seconds, 3), "epochs": learner.n_iter_,
        "solved": solved, "saved": saved, "share_saved": saved / (saved + solved),
    }  # fmt: skip
    return Study(D, y, train, history, metrics, distances, found)


def size(found: Mapping[str, Any]) -> str:
    return (
        f"{found['n_distributions']} distributions of {found['n_classes']} classes, {found['n_points']:,} points, "
        f"{found['n_features']} features"
    )


def facts(found: Mapping[str, Any]) -> dict[str, str]:
    """What was found, by what it is called."""
    scores = {
        f"accuracy, {kind} metric": f"{accuracy:.2f} ({found['right'][kind]} of {len(found['test'])})"
        for kind, accuracy in found["accuracy"].items()
    }
    return scores | {
        "accuracy of guessing": f"{1 / found['n_classes']:.2f}",
        "most important feature": f"{found['important_feature']}, {pl.percent(found['importance'])} of importance",
        "learned in": f"{found['seconds']:.1f} s, {found['epochs']} epochs",
        "solves saved by bounds": f"{found['share_saved']:.0%}",
    }


def _count_right(metric: GroundMetric, D: Distributions, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> int:
    classifier = TransportKNeighborsClassifier(N_NEIGHBORS, metric=metric).fit(D[train], y[train])
    return int(np.sum(classifier.predict(D[test]) == y[test]))


def warm_up() -> None:
    """Go once through everything on tiny data, so that the times reported are of the work alone."""
    D, y = datasets.make_modes(40, 1.0, class_means=(5, 10), offsets=(1, 4, 7), points_per_mode=2, random_state=0)
    learned = GroundMetricLearner(max_epochs=2, random_state=0).fit(D, y).metric_
    for metric in (learned, GroundMetric.euclidean(D.shape[1])):
        _count_right(metric, D, y, np.arange(6), np.arange(6))
        pairwise_distances(D, metric=metric)
