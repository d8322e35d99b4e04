"""Arguments that functions of this package share: metric, labels, kinds of points; and data frames of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal.validation import carries_names, check_labels, is_missing, need, refuse_mask
from ..distributions import Distributions
from ..metrics.base import GroundMetric

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Mapping[str, Any], order: np.ndarray | None = None) -> DataFrame:
    """Return a data frame with the given columns and order of rows."""
    need("pandas", "a table")
    import pandas as pd

    table = pd.DataFrame(dict(columns))
    return table if order is None else table.iloc[order].reset_index(drop=True)


def metric_of(source: Any, D: Distributions) -> GroundMetric:
    """Return a ground metric, or that of a fitted learner; its features must be those of D."""
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"metric is {type(source).__name__}: expected a GroundMetric or a fitted learner")
    metric.check_fit(D)
    return metric


def classes_of(y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes, and the index of each distribution's class among them."""
    classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return classes, codes


def check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}: expected a number between 0 and 1")


def feature_names(D: Distributions, metric: GroundMetric | None = None) -> list[str]:
    """Return the names of the features, by the metric if it has them; else "feature 0", "feature 1", …."""
    names = (metric.features if metric is not None else None) or D.features
    return [str(name) for name in names] if names is not None else [f"feature {k}" for k in range(D.shape[1])]


@dataclass(frozen=True)
class Annotation:
    """Kind of each point: `codes` has the index of each point's value in `values`."""

    values: list[Any]
    codes: np.ndarray

    def masses(self, D: Distributions) -> np.ndarray:
        """Return the mass of each kind in each distribution, (n_distributions, n_values)."""
        owner = np.repeat(np.arange(len(D)), D.sizes)
        cells = np.bincount(owner * len(self.values) + self.codes, D.weights, len(D) * len(self.values))
        return cells.reshape(len(D), len(self.values))


def annotation_of(D: Distributions, annotation: Any) -> Annotation:
    """Return an annotation of D by its name, or an array in the order of `D.points`; None: one kind of points.

    Distributions do not know the names of their points, and sort points whose distributions are interleaved. A Series
    that is indexed by points is then in another order than `D.points`, and is refused.
    """
    if annotation is None:
        return Annotation(["all"], np.zeros(D.points.shape[0], np.intp))
    name = annotation if isinstance(annotation, str) else "annotation"
    if isinstance(annotation, str):
        if annotation not in D.annotations:
            raise ValueError(f"D has no annotation {annotation!r}: it has {sorted(D.annotations)}")
        annotation = D.annotations[annotation]
    refuse_mask(annotation, name)
    if carries_names(annotation) and np.any(np.diff(D.order) != 1):
        raise ValueError(
            f"{name} is named by points, whose order is not that of D.points: give it when making the Distributions "
            f"(annotations=…), or as an array in that order (of all points, {name}.to_numpy()[D.order])"
        )
    array = np.asarray(annotation)
    if array.shape != D.weights.shape:
        raise ValueError(f"{name} has shape {array.shape}: expected ({D.weights.size},), a value for each point")
    n_missing = sum(map(is_missing, array)) if array.dtype.kind in "fO" else 0
    if n_missing:
        raise ValueError(f"{name} is missing for {n_missing} points: give them a value of their own, e.g. 'unknown'")
    values, codes = np.unique(array, return_inverse=True)
    return Annotation(values.tolist(), codes)


def equalized_with_kinds(D: Distributions, kinds: Annotation) -> tuple[Distributions, np.ndarray]:
    """Return the distributions with equal numbers of points, and the code of the kind of each of these points."""
    coded = D.with_points(D.points, D.features)
    coded.annotations = {"kind": kinds.codes}
    coded = coded.equalize()
    return coded, coded.annotations["kind"]
