"""Inputs and outputs of this package: a metric, labels, annotations, distributions by name or index; data frames."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.tables import visible
from .._internal.validation import carries_names, check_labels, check_number, is_missing, refuse_mask
from ..distributions import Distributions
from ..metrics.base import GroundMetric

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Mapping[str, Any], order: np.ndarray | None = None) -> DataFrame:
    """A data frame of these columns, its rows in the given order."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        message = "pandas is needed for a table: pip install 'groundmetric[single-cell]'"
        raise ModuleNotFoundError(message, name="pandas") from None
    table = pd.DataFrame(dict(columns))
    return table if order is None else table.iloc[order].reset_index(drop=True)


def metric_of(source: Any, D: Distributions) -> GroundMetric:
    """A ground metric, or that of a fitted learner, which must be for the features of D."""
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"metric is {type(source).__name__}: expected a GroundMetric or a fitted learner")
    metric.check_fit(D)
    return metric


def classes_of(y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """The classes, sorted, and the index of each distribution's class among them."""
    classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return classes, codes


def feature_names(metric: GroundMetric, D: Distributions | None = None) -> list[str]:
    named = metric.features or (None if D is None else D.features)
    return list(named) if named is not None else [f"feature {k}" for k in range(metric.n_features)]


def spreads(metric: GroundMetric, D: Distributions | None = None) -> np.ndarray:
    """Standard deviation of each feature: that of training where the metric knows it, else that of D, else 1."""
    if metric.variances is not None:
        return np.sqrt(metric.variances)
    return np.ones(metric.n_features) if D is None else np.sqrt(D.moments(weighted=False)[1])


@dataclass(frozen=True)
class Annotation:
    """What kind each point is of: `codes` has the index of each point's value in `values`."""

    values: list[Any]
    codes: np.ndarray

    def masses(self, D: Distributions) -> np.ndarray:
        """Mass of each kind in each distribution, (n_distributions, n_values)."""
        owner = np.repeat(np.arange(len(D)), D.sizes)
        cells = np.bincount(owner * len(self.values) + self.codes, D.weights, len(D) * len(self.values))
        return cells.reshape(len(D), len(self.values))


def annotation_of(D: Distributions, annotation: Any) -> Annotation:
    """By its name in `D.annotations`, or as an array in the order of `D.points`; None: all points are of one kind."""
    if annotation is None:
        return Annotation(["all"], np.zeros(D.points.shape[0], np.intp))
    name = annotation if isinstance(annotation, str) else "annotation"
    if isinstance(annotation, str):
        if annotation not in D.annotations:
            raise ValueError(f"D has no annotation {annotation!r}: it has {sorted(D.annotations)}")
        annotation = D.annotations[annotation]
    found = point_array(annotation, D, name)
    if found.dtype.kind in "fO":
        missing = sum(map(is_missing, found))
        if missing:
            raise ValueError(f"{name} is missing for {missing} points: give them a value of their own, e.g. 'unknown'")
    values, codes = np.unique(found, return_inverse=True)
    return Annotation(values.tolist(), codes)


def point_array(values: Any, D: Distributions, name: str) -> np.ndarray:
    """An array with an entry per point, in the order of `D.points`.

    Distributions do not know the names of their points, and have put these in another order where those of one were not
    together: what is named by points is then in theirs, not in ours.
    """
    refuse_mask(values, name)
    if carries_names(values) and np.any(np.diff(D.order) != 1):
        raise ValueError(
            f"{name} is named by points, whose order is not that of D.points: give it when making the Distributions "
            f"(annotations=…), or as an array in that order (of all points, {name}.to_numpy()[D.order])"
        )
    found = np.asarray(values)
    if found.shape != D.weights.shape:
        raise ValueError(f"{name} has shape {found.shape} for {D.weights.size} points: one is needed per point")
    return found


@dataclass(frozen=True)
class Pairs:
    """Pairs of distributions, (n_pairs, 2) indices, and what the two sides are called."""

    source: str
    target: str
    pairs: np.ndarray


def choose_pairs(D: Distributions, i: Any, j: Any, y: Any, most: int | None, random_state: Any) -> Pairs:
    """All pairs of i and j (distributions, or with labels `y` classes), none with itself; of more, `most` at random."""
    if y is None:
        first, second = indices_of(D, i), indices_of(D, j)
        titles = [
            visible(D.names[some[0]]) if some.size == 1 else f"{some.size} distributions" for some in (first, second)
        ]
    else:
        labels = check_labels(y, D.name_index)
        first, second = (_members(labels, label) for label in (i, j))
        titles = [visible(i), visible(j)]
    pairs = np.stack([side.ravel() for side in np.meshgrid(first, second, indexing="ij")], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not len(pairs):
        raise ValueError(f"{titles[0]} and {titles[1]} are the same single distribution: there is nothing to move")
    if most is not None:
        check_number("max_pairs", most, low=1, whole=True)
        if len(pairs) > most:
            pairs = pairs[np.sort(check_random_state(random_state).choice(len(pairs), most, replace=False))]
    return Pairs(titles[0], titles[1], pairs)


def _members(labels: np.ndarray, label: Any) -> np.ndarray:
    found = np.flatnonzero(labels == label)
    if not found.size:
        raise ValueError(f"no distribution has the label {label!r}: there are {np.unique(labels).tolist()}")
    return found


def indices_of(D: Distributions, which: Any) -> np.ndarray:
    """Indices of distributions that are given by name (text) or by index, one or several."""
    several = [which] if isinstance(which, str | numbers.Integral) else list(which)
    if not several:
        raise ValueError("no distribution is given: at least one is needed on each side")
    return np.array([_index_of(D, one) for one in several], dtype=np.intp)


def _index_of(D: Distributions, which: Any) -> int:
    if isinstance(which, str):
        if which not in D.names:
            raise ValueError(f"there is no distribution {which!r}: D has {_some(D.names)}")
        return D.names.index(which)
    if not isinstance(which, numbers.Integral) or not 0 <= int(which) < len(D):
        raise ValueError(f"there is no distribution {which!r}: expected a name, or an index from 0 to {len(D) - 1}")
    return int(which)


def _some(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
