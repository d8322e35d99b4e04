"""What all estimators ask of labels and numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from ..alignment import Roll, aligned
from ..arrays import missing_values
from ..distributions import Distributions


def check_labels(y: Any, roll: Roll) -> np.ndarray:
    """A class for each distribution."""
    labels = label_array(y, roll)
    if missing_values(labels).any():
        raise ValueError("y contains a missing label: drop the distribution or label it")
    check_classes(labels)
    return labels


def label_array(y: Any, roll: Roll, name: str = "y") -> np.ndarray:
    """An array with an entry for each distribution, whatever it holds: the door that all labels come in by.

    Where `y` carries names, it is brought into the order of the roll.
    """
    y = aligned(y, roll, name)
    labels = np.asarray(y)
    if np.ma.is_masked(y) and not isinstance(y, list | tuple):  # what is masked is missing
        labels = labels.astype(object)
        labels[np.ma.getmaskarray(y)] = None
    if labels.ndim != 1 or labels.size != roll.size:
        several = " (several labels need a target each: target=['classes', 'ordered'])" if labels.ndim == 2 else ""
        raise ValueError(f"{name} has shape {labels.shape}, but a label is needed for each of {roll.size}{several}")
    if isinstance(y, list | tuple) and labels.dtype.kind in "US":  # numpy has made text of the numbers among them
        return np.array(y, dtype=object) if not all(isinstance(label, str | bytes) for label in y) else labels
    return labels


def check_classes(labels: np.ndarray, name: str = "y") -> None:
    """Labels without missing ones must be classes: text, whole numbers or truth values, of one kind."""
    if labels.dtype == object:
        text = [label for label in labels if isinstance(label, str)]
        other = [label for label in labels if not isinstance(label, str)]
        if text and other:
            raise ValueError(f"{name} mixes text and numbers ({text[0]!r} and {other[0]!r}): make all of them text")
        truth = [label for label in other if isinstance(label, bool | np.bool_)]
        if truth and len(truth) < len(other):
            number = next(label for label in other if not isinstance(label, bool | np.bool_))
            raise ValueError(
                f"{name} mixes truth values and numbers ({truth[0]!r} and {number!r}): True and 1 would be one class; "
                "make all of them text"
            )
        if text:
            return
        labels = np.array(labels.tolist())  # scikit-learn knows numbers only as arrays of numbers
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"{error} Continuous or ordered labels need target='ordered'.") from None


def labels_of_groups(D: Distributions, labels: np.ndarray, shown: np.ndarray | None = None) -> np.ndarray:
    """One label per distribution from one per row; they must agree. `shown` are the labels as an error names them."""
    by_point = labels[D.order]
    first = by_point[D.bounds[:-1]]
    expected = np.repeat(first, D.sizes)
    agree = by_point == expected
    if labels.dtype.kind == "f":
        agree |= np.isnan(by_point) & np.isnan(expected)
    differs = np.flatnonzero(~agree)
    if differs.size:
        d = int(np.searchsorted(D.bounds, differs[0], side="right")) - 1
        members = (labels if shown is None else shown)[D.order][D.bounds[d] : D.bounds[d + 1]]
        found = sorted(set(members.tolist()), key=lambda label: (str(type(label)), label))
        raise ValueError(f"group {D.names[d]!r} has labels {found}: a distribution needs exactly one")
    return first


def check_number(name: str, value: Any, *, low: float, above: bool = False, whole: bool = False) -> None:
    kind: type = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool) and low <= value < np.inf  # type: ignore[operator]
    if not fits or (above and value == low):
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{name} is {value!r}: expected {what} {'above' if above else 'of at least'} {low:g}")
