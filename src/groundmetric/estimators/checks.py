"""What both estimators ask of labels and numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from ..arrays import is_missing
from ..distributions import Distributions


def check_labels(y: Any, size: int) -> np.ndarray:
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.size != size:
        raise ValueError(f"y has shape {labels.shape}, but a label is needed for each of {size}")
    if labels.dtype.kind in "fOmM" and any(map(is_missing, labels)):
        raise ValueError("y contains a missing label: drop the distribution or label it")
    check_classification_targets(labels)
    return labels


def labels_of_groups(D: Distributions, labels: np.ndarray) -> np.ndarray:
    """One label per distribution from one per row; they must agree."""
    by_point = labels[D.order]
    first = by_point[D.bounds[:-1]]
    differs = np.flatnonzero(by_point != np.repeat(first, D.sizes))
    if differs.size:
        d = int(np.searchsorted(D.bounds, differs[0], side="right")) - 1
        found = sorted(set(by_point[D.bounds[d] : D.bounds[d + 1]].tolist()))
        raise ValueError(f"group {D.names[d]!r} has labels {found}: a distribution needs exactly one")
    return first


def check_number(name: str, value: Any, *, low: float, above: bool = False, whole: bool = False) -> None:
    kind: type = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool) and low <= value < np.inf  # type: ignore[operator]
    if not fits or (above and value == low):
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{name} is {value!r}: expected {what} {'above' if above else 'of at least'} {low:g}")
