"""Results of learning in `uns`, and their reconstruction: metric, training samples, predictor.

Only arrays, text and numbers are stored, which all versions of anndata write and read.
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
from ..estimators import GroundMetricEnsemble, GroundMetricLearner, TransportClassifier, TransportRegressor
from ..estimators.predictor import load_predictor, unpack_predictor
from ..learning.training import read_parameters
from ..metrics.base import GroundMetric
from .cohort import Samples, samples_of
from .source import Source

FORMAT = 1
# Files in the folder of a `learn` run: the training cells, and the predictor of labels.
RUN_CELLS, RUN_PREDICTOR = "cells.h5ad", "predictor.gm"
# A feature is selected by a member if it is among this number of its most important features.
N_TOP = 20


Predictor = TransportClassifier | TransportRegressor


@dataclass(frozen=True)
class Stored:
    """Content of `uns[key]`: the metric, feature means of the training cells, parameters, and labels by sample."""

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
        """Return the entry of `uns`."""
        return {
            "format": FORMAT,
            "version": __version__,
            "params": storable_parameters(self.params),
            "metric": {
                "components": self.metric.components,
                "features": np.array(self.features, dtype=object),
                "variances": self.metric.variances,
                "means": self.means,
            },
            "labels": {"samples": np.array(self.labels.index, dtype=object), "labels": self.labels.to_numpy()},
        }


def learner_entry(learner: Any) -> dict[str, Any]:
    """Return the parameters of a learner and, for a single learner, its training history, as entries of `uns`."""
    params = learner.get_params().items()
    # The path of a checkpoint is meaningless after training.
    entry: dict[str, Any] = {
        "learner": storable_parameters({name: value for name, value in params if not name.startswith("checkpoint")})
    }
    if hasattr(learner, "history_"):
        entry["history"] = {name: np.asarray(values) for name, values in learner.history_.items()}
        entry["converged"] = bool(learner.converged_)
    return entry


def storable_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that a file can hold: without None, and with the `repr` of objects."""
    storable = {}
    for name, value in params.items():
        if isinstance(value, np.ndarray | bool | int | float | str):
            storable[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            storable[name] = np.array(value, dtype=object)
        elif value is not None:
            storable[name] = repr(value)
    return storable


def plain_parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored parameters as numbers, text and tuples of names."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value if value.dtype.kind in "biuf" else tuple(map(str, value))
        return value.item() if isinstance(value, np.generic) else value

    return {name: plain(value) for name, value in entry.items()}


def stored_learner(entry: Mapping[str, Any], **changes: Any) -> GroundMetricEnsemble | GroundMetricLearner:
    """Return an unfitted learner with the parameters in an entry of `uns`, except for `changes`."""
    kind = GroundMetricEnsemble if "ensemble" in entry else GroundMetricLearner
    params = read_parameters(plain_parameters(entry["learner"]))
    names = kind().get_params()  # files of other versions may have more parameters
    return kind(**{**{name: params[name] for name in names if name in params}, "verbose": 0, "n_jobs": None, **changes})


class EnsembleResults:
    """Held-out results of an ensemble for its training samples, from an entry of `uns`."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.samples = [str(name) for name in entry["samples"]]  # training samples, in the order of the arrays below
        self.labels = _read_labels(entry["labels"])
        # Numbers that represent ordered labels in training; None for classes.
        self.numbers = np.asarray(entry["numbers"]) if "numbers" in entry else None
        self.classes = _read_labels(entry.get("classes", []))  # columns of `held_out`; empty for ordered labels
        self.held_out = np.asarray(entry["held_out"])  # probabilities (n_samples, n_classes), or numbers (n_samples,)
        self.out_of_bag = np.asarray(entry["out_of_bag"])  # distances (n_samples, n_samples) in units of their mean
        # Mean log-probability of the true class, balanced over classes; for numbers, mean log-likelihood.
        self.score = float(entry["score"])
        self.scored = str(entry["scored"])  # estimator that made the held-out predictions and predicts new samples
        self.n_members = int(entry["n_members"])
        self.weights = {str(name): float(weight) for name, weight in entry["weights"].items()}  # of kinds of members
        # Bounds that include the importance and that of 95% of the members, (2, n_features).
        self.interval = np.array([entry["importance_low"], entry["importance_high"]])
        # Share of the members with a feature among the `N_TOP` most important, (n_features,).
        self.selected = np.asarray(entry["selected"])

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> EnsembleResults | None:
        """Return the results in an entry of `uns`; None for a single learner."""
        return cls(entry["ensemble"]) if "ensemble" in entry else None

    @property
    def predicted(self) -> np.ndarray:
        """Held-out label of each sample: the most probable class, a number, or the nearest ordered category."""
        if self.numbers is None:
            return self.classes[self.held_out.argmax(axis=1)]
        return self.held_out if self.labels.dtype.kind in "biuf" else self.nearest_categories(self.held_out)

    @property
    def ordered_categories(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct ordered labels from low to high, and their numbers."""
        assert self.numbers is not None
        numbers, first = np.unique(self.numbers, return_index=True)
        return self.labels[first], numbers

    def nearest_categories(self, numbers: np.ndarray) -> np.ndarray:
        """Return the ordered label whose number is nearest to each number."""
        categories, category_numbers = self.ordered_categories
        return categories[np.abs(numbers[:, None] - category_numbers).argmin(axis=1)]

    @property
    def scores(self) -> dict[str, float]:
        """Balanced accuracy and log-probability; for ordered labels, R² and log-likelihood."""
        if self.numbers is not None:
            error = np.mean(np.square(self.held_out - self.numbers))
            return {"r2": float(1.0 - error / (self.numbers.var() or 1.0)), "log_likelihood": self.score}
        correct = self.predicted == self.labels
        by_class = [correct[self.labels == label].mean() for label in self.classes]
        return {"balanced_accuracy": float(np.mean(by_class)), "log_probability": self.score}

    def probabilities(self, classes: np.ndarray) -> np.ndarray:
        """Return class probabilities, (n_samples, n_classes); 1 for the category of a predicted number."""
        if self.numbers is None:
            return self.held_out[:, np.searchsorted(self.classes, classes)]
        return (self.nearest_categories(self.held_out)[:, None] == classes).astype(np.float64)


def ensemble_entry(
    ensemble: GroundMetricEnsemble, samples: Iterable[Hashable], labels: np.ndarray, numbers: np.ndarray | None
) -> dict[str, Any]:
    """Return the results of a fitted ensemble as an entry of `uns`, which `EnsembleResults` reads."""
    importances = ensemble.importances_
    ranks = np.argsort(np.argsort(-importances, axis=1, kind="stable"), axis=1)
    low, high = importance_interval(ensemble.metric_.importance(), importances)
    entry = {
        "samples": np.array([str(name) for name in samples], dtype=object), "labels": _storable_labels(labels),
        "held_out": ensemble.held_out_, "out_of_bag": ensemble.distances_, "score": float(ensemble.score_),
        "scored": (TransportClassifier if numbers is None else TransportRegressor).__name__,
        "n_members": len(ensemble.members_), "importance_low": low, "importance_high": high,
        "selected": np.mean((ranks < N_TOP) & (importances > 0), axis=0),
        "weights": {name: float(weight) for name, weight in ensemble.metric_weights_.items()},
        "views": ensemble.fitted_.view_scores,  # held-out score of each view, in the units of "score"
        "chance": ensemble.chance_,  # score of predictions that ignore the cells
        **({"classes": _storable_labels(ensemble.classes_)} if numbers is None else {"numbers": numbers}),
    }  # fmt: skip
    results = EnsembleResults(entry)
    return entry | {"predicted": _storable_labels(results.predicted), "scores": results.scores}


def _storable_labels(labels: np.ndarray) -> np.ndarray:
    return labels if labels.dtype.kind in "biuf" else labels.astype(str).astype(object)


def _read_labels(labels: Any) -> np.ndarray:
    """Return an array of numbers or of text."""
    labels = np.asarray(labels)
    return labels if labels.dtype.kind in "biuf" else np.array([str(label) for label in labels], dtype=str)


def read_entry(entry: Any, key: str, where: str) -> Stored:
    """Return the content of an entry of `uns`; `where` names its origin in errors."""
    if isinstance(entry, Mapping) and {"out_of_bag", "training_samples"} & set(entry):
        raise ValueError(f"{where} has a row per sample and no metric: give the cells, as to tl.learn or tl.transfer")
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ValueError(f"{where} has no metric in uns[{key!r}]: run tl.learn first, or give its key_added as key")
    if int(entry.get("format", 0)) > FORMAT:
        raise ValueError(f"uns[{key!r}] was written by groundmetric {entry['version']}: update groundmetric to read it")
    check_parts(entry, ("format", "params", "labels"), key)
    saved = entry["metric"]
    features = [str(name) for name in saved["features"]]
    metric = GroundMetric(saved["components"], features, variances=saved.get("variances"))
    names, labels = entry["labels"]["samples"], _read_labels(entry["labels"]["labels"])
    params = plain_parameters(entry["params"])
    return Stored(key, metric, np.asarray(saved["means"]), params, pd.Series(labels, [str(name) for name in names]))


def check_parts(entry: Mapping[str, Any], parts: Iterable[str], key: str) -> None:
    """Raise if an entry of `uns`, e.g. one of an older version, lacks a part."""
    for part in parts:
        if part not in entry:
            version = entry.get("version", "of an unknown version")
            raise ValueError(f"uns[{key!r}] was written by groundmetric {version}, without {part!r}: learn again")


def pack_predictor(predictor: Predictor) -> dict[str, Any]:
    """Return a predictor as an entry of `uns`."""
    description, arrays = predictor.pack()
    return {"description": json.dumps(description), **arrays}


def predictor_of(entry: Mapping[str, Any], where: str) -> Predictor | None:
    """Return the predictor in an entry of `uns`; None for a single learner."""
    if "predictor" not in entry:
        return None
    arrays = {name: np.asarray(values) for name, values in entry["predictor"].items()}
    if "classes" in arrays:  # h5py has its own type of text
        arrays["classes"] = _read_labels(arrays["classes"])
    return unpack_predictor(json.loads(str(arrays.pop("description"))), arrays, where)


@dataclass(frozen=True)
class Trained:
    """A learned metric and its training samples."""

    stored: Stored
    cells: Distributions  # drawn cells of the labelled samples in the learned space
    predictor: Predictor | None  # predictor of an ensemble; None: the nearest training samples vote
    results: EnsembleResults | None  # held-out results of an ensemble


def trained_from(trained: Any, key: str) -> Trained:
    """Read an AnnData after `tl.learn`, its file, or the folder of a `learn` run."""
    predictor_file: Path | None = None
    is_metric = isinstance(trained, GroundMetric)
    if isinstance(trained, str | os.PathLike):
        path = Path(trained)
        if path.is_dir() and path.suffix != ".zarr":
            if not (path / RUN_CELLS).exists():
                raise ValueError(f"{str(path)!r} is not the folder of a `groundmetric learn` run: it lacks {RUN_CELLS}")
            trained, predictor_file = path / RUN_CELLS, path / RUN_PREDICTOR
        elif path.is_file():
            with path.open("rb") as file:
                is_metric = file.read(1) == b"{"  # the first byte of a saved metric
    if is_metric:
        raise ValueError(
            f"{str(trained)!r} is a metric without labels: give the AnnData of tl.learn, its file, or the folder of a "
            "`groundmetric learn` run; metric.project(adata[:, metric.features].X) only projects cells"
        )
    with Source(trained) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "trained")
        samples = samples_of(source.obs, stored.params["sample_key"])
        labelled = [name for name in samples.names if name in stored.labels.index]
        if not labelled:
            problem = f"the {len(stored.labels)} training samples of the metric"
            raise ValueError(f"trained contains none of {problem}: give the AnnData that tl.learn returned")
        cells = drawn_cells(source, samples, key, only=labelled)
    if predictor_file is not None and predictor_file.exists():
        predictor: Predictor | None = load_predictor(predictor_file)
    else:
        predictor = predictor_of(entry, f"uns[{key!r}]['predictor']")
    if predictor is not None and predictor.metric_.features != stored.features:
        raise ValueError(f"the predictor of {str(predictor_file or key)!r} and its metric are of two runs: learn again")
    return Trained(stored, cells, predictor, EnsembleResults.read(entry))


def drawn_cells(source: Source, samples: Samples, key: str, only: Sequence[str] | None = None) -> Distributions:
    """Return the drawn cells of all samples (or only some) in the learned space."""
    if not source.has_representation(f"X_{key}") or f"{key}_sampled" not in source.obs:
        raise ValueError(f"adata lacks obsm['X_{key}'] or obs['{key}_sampled']: run tl.learn or tl.transfer again")
    z = np.asarray(source.representation(f"X_{key}")[:])
    names = samples.names if only is None else only
    drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool) & samples.contains(names)
    return in_order(Distributions(z[drawn], samples.names[samples.codes[drawn]]), names)


def in_order(D: Distributions, names: Iterable[str]) -> Distributions:
    """Return the distributions in the order of `names`; Distributions are in order of their first drawn cell."""
    names = list(names)
    position = {name: d for d, name in enumerate(D.names)}
    missing = [name for name in names if name not in position]
    if missing:
        raise ValueError(f"sample {missing[0]!r} lacks drawn cells: run tl.learn or tl.transfer with these samples")
    return D[[position[name] for name in names]]
