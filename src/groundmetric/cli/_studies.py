"""Studies of the demo: the paper's synthetic data, learned on half of the distributions, and their figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from sklearn.model_selection import train_test_split

from .. import datasets, pl
from .._internal.files import write_whole
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators import GroundMetricLearner, TransportKNeighborsClassifier
from ..metrics.base import GroundMetric
from ..pl.style import percent
from ..report import Part, Picture
from ..report.write import plain_name, render

Log = Callable[[str], None]
N_NEIGHBORS = 5


@dataclass
class Study:
    """One data set, what was learned on half of it, and what was found."""

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
        "most important feature": f"{found['important_feature']}, {percent(found['importance'])} of importance",
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


class Sketch(NamedTuple):
    """A figure to draw: `alt` says what kind of picture it is, `caption` what it shows."""

    name: str
    alt: str
    draw: Callable[[Axes], object]
    caption: str


def sketches(study: Study) -> list[Sketch]:
    """The figures of a study. Captions say what is drawn and quote what was found, whatever that is."""
    D, found, learned = study.D, study.found, study.metrics["learned"]
    few = "" if D.shape[1] == 2 else f" along the first two of {D.shape[1]} features"
    important = f"{found['important_feature']} has {percent(found['importance'])} of the importance"
    weights = Sketch(
        "importance", "Bar chart of the most important features", partial(pl.importance, learned, n=10),
        f"What counts in the learned metric: {important}.",
    ) if D.shape[1] > 2 else Sketch(
        "ellipses", "Ellipse of each metric", partial(pl.ellipse, study.metrics, variances=learned.variances),
        "What counts in each metric: a distance looks mostly along the long axis of its ellipse, here in units of the "
        f"data's spread. In the learned metric, {important}.",
    )  # fmt: skip
    return [
        Sketch("data", "Scatter plot of points", partial(pl.points, D, study.y),
                f"The data: some points of all distributions{few}, coloured by the class of their distribution."),
        Sketch("learned_space", "Points in the learned space", partial(pl.projection, learned, D, study.y),
                "The points as the learned metric sees them. Where colours part, it tells the classes apart."),
        weights,
        Sketch("training", "Line chart over the epochs of training", partial(pl.history, study.history),
                "Training: the share of triplets within the margin, which alone pull at the metric. Bounds made "
                f"{found['share_saved']:.0%} of the transport solves unnecessary."),
        *(_embedding(study, kind) for kind in study.metrics),
        *(_heatmap(study, kind) for kind in study.metrics),
    ]  # fmt: skip


def _embedding(study: Study, kind: str) -> Sketch:
    caption = (
        f"Distributions under the {kind} metric: the nearer two marks, the more alike. By the nearest, "
        f"{study.found['right'][kind]} of {len(study.found['test'])} test distributions are classified right."
    )
    draw = partial(pl.embedding, study.distances[kind], study.y, train=study.train)
    return Sketch(f"embedding_{kind.lower()}", f"Scatter plot under the {kind} metric", draw, caption)


def _heatmap(study: Study, kind: str) -> Sketch:
    caption = (
        f"Distances under the {kind} metric, sorted by class. A class held together is a dark square on the diagonal."
    )
    draw = partial(pl.heatmap, study.distances[kind], study.y)
    return Sketch(f"distances_{kind.lower()}", f"Heat map of distances under the {kind} metric", draw, caption)


def _draw_on(draw: Any, ax: Any) -> None:
    draw(ax=ax)


def write_study(folder: Path, study: Study) -> tuple[list[str], Part]:
    """Write figures and metric; return the names of the files, and the study's section of the page."""
    found = study.found
    stem = plain_name(found["name"])
    files, pictures = [f"{stem}.gm"], []
    study.metrics["learned"].save(folder / files[0])
    for sketch in sketches(study):
        name = f"{stem}_{sketch.name}"
        for suffix, content in (rendered := render(partial(_draw_on, sketch.draw), name)).items():
            files.append(f"{name}.{suffix}")
            write_whole(folder / files[-1], [content])
        pictures.append(Picture(name, sketch.alt, rendered["svg"], sketch.caption))
    train, test = len(found["train"]), len(found["test"])
    text = (
        f"{size(found)}. The metric was learned from {train} of the distributions; then the other {test} were "
        f"classified, each by the {N_NEIGHBORS} nearest to it among those."
    )
    return files, Part(stem, found["name"], text, facts(found), pictures)
