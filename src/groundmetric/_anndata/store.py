"""What learning leaves in an AnnData, and the way back from there to the metric and its training samples.

`uns[key]` is enough to rebuild the metric, so it survives when genes are dropped or reordered; `varm` and `var` show
the same numbers where other tools look for them. Only arrays, text and numbers are stored: every version of anndata
writes and reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import __version__
from ..distributions import Distributions
from ..ensemble.members import importance_interval
from ..estimators import GroundMetricEnsemble, TransportClassifier, TransportRegressor
from ..estimators.predictor import load_predictor, unpack_predictor
from ..metrics.base import GroundMetric
from .annotations import Samples, samples_of
from .source import Source, listed

FORMAT = 1
# Files of a run folder of the command line: the training cells, and what predicts labels of new samples.
RUN_CELLS, RUN_PREDICTOR = "cells.h5ad", "predictor.gm"
# Most important features that count as selected by a member.
N_TOP = 20


Predictor = TransportClassifier | TransportRegressor


@dataclass(frozen=True)
class Stored:
    """The content of `uns[key]`: the metric, the means of its training cells, parameters, and labels by sample."""

    key: str
    metric: GroundMetric
    means: np.ndarray
    params: dict[str, Any]
    labels: pd.Series

    @property
    def features(self) -> list[str]:
        assert self.metric.features is not None
        return self.metric.features

    def entry(self) -> dict[str, Any]:
        """The entry of `uns`."""
        return {
            "format": FORMAT,
            "version": __version__,
            "params": _plain(self.params),
            "metric": {
                "components": self.metric.components,
                "features": np.array(self.features, dtype=object),
                "variances": self.metric.variances,
                "means": self.means,
            },
            "labels": {"samples": np.array(self.labels.index, dtype=object), "labels": self.labels.to_numpy()},
        }


def learner_entry(learner: Any) -> dict[str, Any]:
    """Parameters of a learner as an entry of `uns`, and of a single learner the history of its epochs."""
    params = learner.get_params()
    # The place of a checkpoint is not a part of how the metric was learned, and of no use for learning again.
    entry: dict[str, Any] = {
        "learner": _plain({name: params[name] for name in params if not name.startswith("checkpoint")})
    }
    if hasattr(learner, "history_"):
        entry["history"] = {name: np.asarray(values) for name, values in learner.history_.items()}
        entry["converged"] = bool(learner.converged_)
    return entry


@dataclass(frozen=True)
class EnsembleResults:
    """Held-out results of an ensemble for its training samples, and the variation of importances over members.

    Attributes
    ----------
    samples : list of str
        Training samples, in the order of all that follows.
    labels : array of shape (n_samples,)
        Their labels.
    numbers : array of shape (n_samples,) or None
        Of ordered labels, the numbers that were learned; None of classes.
    classes : array of shape (n_classes,)
        Classes in the order of the columns of `held_out`; empty for ordered labels.
    held_out : array of shape (n_samples, n_classes) or (n_samples,)
        Held-out probabilities of the classes, or numbers.
    out_of_bag : array of shape (n_samples, n_samples)
        Distances by members that were trained on neither sample, in units of their mean.
    score : float
        Mean log-probability of the true class, classes counting the same; of numbers, their log-likelihood.
    weights : dict of str to float
        Weight of each kind of member in the metric.
    interval : array of shape (2, n_features)
        Ends of the importance of each feature: 95% of the members lie between, and so does the importance itself.
    selected : array of shape (n_features,)
        Share of the members in which a feature is among the `N_TOP` most important.
    n_members : int
        Number of members of all kinds.
    views : dict of str to float
        Held-out score of each view, in the units of `score`; empty where an older version wrote the results.
    chance : float
        Score of predictions that ignore the cells.
    """

    samples: list[str]
    labels: np.ndarray
    numbers: np.ndarray | None
    classes: np.ndarray
    held_out: np.ndarray
    out_of_bag: np.ndarray
    score: float
    weights: dict[str, float]
    interval: np.ndarray
    selected: np.ndarray
    n_members: int
    views: dict[str, float]
    chance: float

    @classmethod
    def of(
        cls, ensemble: GroundMetricEnsemble, samples: Sequence[Hashable], labels: np.ndarray, numbers: np.ndarray | None
    ) -> EnsembleResults:
        """From a fitted ensemble; `numbers` are what ordered labels were learned as."""
        importances = ensemble.importances_
        ranks = np.argsort(np.argsort(-importances, axis=1, kind="stable"), axis=1)
        return cls(
            samples=[str(name) for name in samples],
            labels=labels,
            numbers=numbers,
            classes=ensemble.classes_,
            held_out=ensemble.held_out_,
            out_of_bag=ensemble.distances_,
            score=float(ensemble.score_),
            weights={name: float(weight) for name, weight in ensemble.metric_weights_.items()},
            interval=importance_interval(ensemble.metric_.importance(), importances),
            selected=np.mean((ranks < N_TOP) & (importances > 0), axis=0),
            n_members=len(ensemble.members_),
            views=ensemble.fitted_.view_scores,
            chance=ensemble.chance_,
        )

    @property
    def scored(self) -> str:
        """Name of the estimator whose predictions `held_out` and `scores` are, which also predicts new samples."""
        return (TransportClassifier if self.numbers is None else TransportRegressor).__name__

    @property
    def predicted(self) -> np.ndarray:
        """Held-out label of each sample: the most probable class, a number, or the nearest ordered category."""
        if self.numbers is None:
            return self.classes[self.held_out.argmax(axis=1)]
        return self.held_out if self.labels.dtype.kind in "biuf" else self.nearest_categories(self.held_out)

    @property
    def ordered_categories(self) -> tuple[np.ndarray, np.ndarray]:
        """Ordered labels, each once and from low to high, and the numbers that they were learned as."""
        assert self.numbers is not None
        places, first = np.unique(self.numbers, return_index=True)
        return self.labels[first], places

    def nearest_categories(self, numbers: np.ndarray) -> np.ndarray:
        """The ordered label whose number is nearest to each number."""
        categories, places = self.ordered_categories
        return categories[np.abs(numbers[:, None] - places).argmin(axis=1)]

    @property
    def scores(self) -> dict[str, float]:
        """Balanced accuracy and log-probability; of ordered labels, R² and the log-likelihood."""
        if self.numbers is not None:
            error = np.mean(np.square(self.held_out - self.numbers))
            return {"r2": float(1.0 - error / (self.numbers.var() or 1.0)), "log_likelihood": self.score}
        correct = self.predicted == self.labels
        by_class = [correct[self.labels == label].mean() for label in self.classes]
        return {"balanced_accuracy": float(np.mean(by_class)), "log_probability": self.score}

    def probabilities(self, classes: np.ndarray) -> np.ndarray:
        """Of these classes, (n_samples, n_classes); where numbers were predicted, 1 for that of the nearest number."""
        if self.numbers is None:
            return self.held_out[:, np.searchsorted(self.classes, classes)]
        return (self.nearest_categories(self.held_out)[:, None] == classes).astype(np.float64)

    def entry(self) -> dict[str, Any]:
        """As `uns` holds it."""
        kind = {"classes": _storable(self.classes)} if self.numbers is None else {"numbers": self.numbers}
        return {
            "samples": np.array(self.samples, dtype=object), "labels": _storable(self.labels),
            "held_out": self.held_out, "predicted": _storable(self.predicted), "out_of_bag": self.out_of_bag,
            "scored": self.scored, "score": self.score, "scores": self.scores, "weights": self.weights,
            "n_members": self.n_members,
            "importance_low": self.interval[0], "importance_high": self.interval[1], "selected": self.selected,
            "views": self.views, "chance": self.chance, **kind,
        }  # fmt: skip

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> EnsembleResults | None:
        """From an entry of `uns`; None where a single learner wrote it."""
        found = entry.get("ensemble")
        if found is None:
            return None
        numbers = found.get("numbers")
        return cls(
            samples=[str(name) for name in found["samples"]],
            labels=_as_labels(found["labels"]),
            numbers=None if numbers is None else np.asarray(numbers),
            classes=_as_labels(found.get("classes", [])),
            held_out=np.asarray(found["held_out"]),
            out_of_bag=np.asarray(found["out_of_bag"]),
            score=float(found["score"]),
            weights={str(name): float(weight) for name, weight in found["weights"].items()},
            interval=np.array([found["importance_low"], found["importance_high"]]),
            selected=np.asarray(found["selected"]),
            n_members=int(found["n_members"]),
            views={str(name): float(score) for name, score in found.get("views", {}).items()},
            chance=float(found.get("chance", np.nan)),
        )


def _storable(labels: np.ndarray) -> np.ndarray:
    return labels if labels.dtype.kind in "biuf" else labels.astype(str).astype(object)


def _as_labels(labels: Any) -> np.ndarray:
    """Numbers, or text as numpy has it."""
    labels = np.asarray(labels)
    return labels if labels.dtype.kind in "biuf" else np.array([str(label) for label in labels], dtype=str)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a file can hold: None is left out, objects are named."""
    plain = {}
    for name, value in params.items():
        if isinstance(value, np.ndarray | bool | int | float | str):
            plain[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            plain[name] = np.array(value, dtype=object)
        elif value is not None:
            plain[name] = repr(value)
    return plain


def read_entry(entry: Any, key: str, where: str) -> Stored:
    """Read an entry of `uns`."""
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ValueError(
            f"{where} has no metric in uns[{key!r}]: run tl.learn first, or give the key that it was run with"
        )
    if int(entry.get("format", 0)) > FORMAT:
        raise ValueError(f"uns[{key!r}] was written by groundmetric {entry['version']}: update groundmetric to read it")
    check_parts(entry, ("format", "params", "labels"), key)
    saved = entry["metric"]
    metric = GroundMetric(
        saved["components"], [str(name) for name in saved["features"]], variances=saved.get("variances")
    )
    names, labels = entry["labels"]["samples"], _as_labels(entry["labels"]["labels"])
    params = {name: value.item() if isinstance(value, np.generic) else value for name, value in entry["params"].items()}
    return Stored(key, metric, np.asarray(saved["means"]), params, pd.Series(labels, [str(name) for name in names]))


def check_parts(entry: Mapping[str, Any], parts: Iterable[str], key: str) -> None:
    """Raise where an entry of `uns` lacks a part, as those of older versions may."""
    for part in parts:
        if part not in entry:
            version = entry.get("version", "of an unknown version")
            raise ValueError(f"uns[{key!r}] was written by groundmetric {version}, without {part!r}: learn again")


def pack_predictor(predictor: Predictor) -> dict[str, Any]:
    """A predictor as an entry of `uns`."""
    description, arrays = predictor.pack()
    return {"description": json.dumps(description), **arrays}


def predictor_of(entry: Mapping[str, Any], where: str) -> Predictor | None:
    """The predictor in an entry of `uns`; None where there is none, as of a single learner or an older version."""
    if "predictor" not in entry:
        return None
    arrays = {name: np.asarray(values) for name, values in entry["predictor"].items()}
    if "classes" in arrays:  # files have text of their own kind
        arrays["classes"] = _as_labels(arrays["classes"])
    return unpack_predictor(json.loads(str(arrays.pop("description"))), arrays, where)


@dataclass(frozen=True)
class Trained:
    """A metric with what is known of its training samples.

    Attributes
    ----------
    stored : Stored
        The metric.
    cells : Distributions or None
        Training cells in its space, a distribution per sample with a label; None where only a metric is known.
    predictor : TransportClassifier, TransportRegressor or None
        What predicts labels; None where the nearest training samples vote.
    results : EnsembleResults or None
        What an ensemble says of its training samples.
    """

    stored: Stored
    cells: Distributions | None
    predictor: Predictor | None = None
    results: EnsembleResults | None = None


def trained_from(trained: Any, key: str) -> Trained:
    """From an AnnData after `learn`, its file, the folder of a run, a metric or its file."""
    beside: Path | None = None
    if isinstance(trained, GroundMetric):
        return Trained(_bare(trained, key), None)
    if isinstance(trained, str | os.PathLike):
        path = Path(trained)
        if path.is_dir() and path.suffix != ".zarr":
            if not (path / RUN_CELLS).exists():
                raise ValueError(f"{str(path)!r} is no run of groundmetric learn: it has no {RUN_CELLS}")
            trained, beside = path / RUN_CELLS, path / RUN_PREDICTOR
        elif path.is_file() and path.read_bytes()[:1] == b"{":  # as a saved metric begins
            return Trained(_bare(GroundMetric.load(path), key), None)
    with Source(trained) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "trained")
        cells = _training_cells(source, stored)
    if beside is not None and beside.exists():
        predictor: Predictor | None = load_predictor(beside)
    else:
        predictor = predictor_of(entry, f"uns[{key!r}]['predictor']")
    if predictor is not None and predictor.metric_.features != stored.features:
        raise ValueError(f"{str(beside or key)!r} is of another run than the metric beside it: learn again")
    return Trained(stored, cells, predictor, EnsembleResults.read(entry))


def _bare(metric: GroundMetric, key: str) -> Stored:
    if metric.features is None:
        raise ValueError("the metric has no feature names, by which genes are found: give them (features=…)")
    return Stored(key, metric, np.zeros(metric.n_features), {}, pd.Series(dtype=object))


def _training_cells(source: Source, stored: Stored) -> Distributions:
    samples = samples_of(source.obs, stored.params["sample_key"])
    here = [name for name in samples.names if name in stored.labels.index]
    if not here:
        raise ValueError(
            f"trained holds none of the {len(stored.labels)} samples that the metric was learned from "
            f"({listed('', stored.labels.index[:3])}, …): give the AnnData that tl.learn was run on"
        )
    return drawn_cells(source, samples, stored.key, only=here)


def drawn_cells(source: Source, samples: Samples, key: str, only: list[str] | None = None) -> Distributions:
    """The drawn cells of all samples (or only some) in the learned space."""
    z = np.asarray(source.representation(f"X_{key}")[:])
    drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool)
    if only is not None:
        drawn = drawn & samples.cells_of(only)
    return by_sample(z, samples, drawn, only)


def by_sample(z: np.ndarray, samples: Samples, drawn: np.ndarray, only: list[str] | None = None) -> Distributions:
    """The drawn cells as distributions, in the order of the samples (or of some of them)."""
    return in_order(
        Distributions(z[drawn], samples.names[samples.codes[drawn]]), samples.names if only is None else only
    )


def in_order(D: Distributions, wanted: Iterable[str]) -> Distributions:
    """The distributions of these samples; as drawn cells happen to come, they are not in the order of samples."""
    wanted = list(wanted)
    position = {name: d for d, name in enumerate(D.names)}
    absent = [name for name in wanted if name not in position]
    if absent:
        raise ValueError(f"sample {absent[0]!r} has no drawn cell: run tl.learn or tl.transfer with these samples")
    return D[[position[name] for name in wanted]]
