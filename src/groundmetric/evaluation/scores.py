"""How good predictions are: accuracy, balanced accuracy, macro F1, ROC AUC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..alignment import Roll, aligned
from ..arrays import real_array, refuse_mask

SCORES = ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc")


def scores(y: Any, probabilities: Any, classes: Any, *, weights: Any = None) -> dict[str, Any]:
    """All four scores of predictions that are given as a probability per class; the largest is the prediction.

    Balanced accuracy is the mean recall of the classes that occur in `y`; macro F1 the mean over classes that occur in
    `y` or are predicted; ROC AUC the mean of each class against the rest, over classes that occur in `y` beside others.
    What is not defined is NaN (the AUC of a single test distribution): pool the predictions of several splits then.

    Parameters
    ----------
    y : labels, (n,); by name where these and `probabilities` carry names
    probabilities : array of shape (n, n_classes)
    classes : the label that each column of `probabilities` is for
    weights : array of shape (..., n), optional
        How often each item counts. With leading dimensions (bootstrap resamples), scores have these too.

    >>> scores(["a", "b", "b"], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], ["a", "b"])["balanced_accuracy"]
    0.75
    """
    roll = Roll.of(probabilities, items="items")
    probabilities = _by_class(probabilities, classes)
    codes, weights = encode(aligned(y, roll, "y"), classes), aligned(weights, roll, "weights")
    if probabilities.shape != (codes.size, len(classes)):
        raise ValueError(
            f"probabilities have shape {probabilities.shape} for {codes.size} items and {len(classes)} classes"
        )
    found = score_codes(codes, probabilities, weights)
    return found if np.ndim(weights) > 1 else {name: float(value) for name, value in found.items()}


def score_codes(codes: np.ndarray, probabilities: np.ndarray, weights: Any = None) -> dict[str, np.ndarray]:
    """The scores for classes that are numbers: columns of `probabilities`."""
    weights = np.ones(codes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    counts = np.zeros_like(probabilities)
    counts[np.arange(codes.size), probabilities.argmax(axis=1)] = 1.0
    return {**score_counts(codes, counts, weights), "roc_auc": _auc(codes, probabilities, weights)}


def score_counts(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """All scores but the AUC from how many points of every distribution are predicted as each class, (n, n_classes)."""
    n_classes = counts.shape[1]
    truth = codes[:, None] == np.arange(n_classes)
    table = (truth[:, :, None] * counts[:, None, :]).reshape(codes.size, -1)
    confusion = (weights @ table).reshape(*weights.shape[:-1], n_classes, n_classes)  # (..., true, predicted)
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    actual, claimed = confusion.sum(axis=-1), confusion.sum(axis=-2)
    return {
        "accuracy": _ratio(right.sum(axis=-1), actual.sum(axis=-1)),
        "balanced_accuracy": _mean(_ratio(right, actual)),
        "macro_f1": _mean(_ratio(2.0 * right, actual + claimed)),
    }


def encode(y: Any, classes: Any) -> np.ndarray:
    """Labels as places in `classes`."""
    place = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    refuse_mask(y, "y")
    labels = np.asarray(y).tolist()
    unknown = [label for label in labels if label not in place]
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is none of the classes {list(place)}")
    return np.array([place[label] for label in labels], dtype=np.intp)


def _by_class(probabilities: Any, classes: Any) -> np.ndarray:
    """An array with a column per class, in the order of `classes`; the columns of a table go by their names."""
    if hasattr(probabilities, "columns"):
        probabilities = aligned(probabilities.T, Roll(np.asarray(classes).tolist(), items="classes"), "probabilities").T
    return np.asarray(real_array(probabilities, "probabilities"), dtype=np.float64)


def _auc(codes: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean over classes of the chance that a member has a higher probability of its class than a non-member has."""
    areas = []
    for c in range(probabilities.shape[1]):
        order = np.argsort(probabilities[:, c], kind="stable")
        value, member = probabilities[order, c], codes[order] == c
        inside, outside = weights[..., order] * member, weights[..., order] * ~member
        below = np.concatenate([np.zeros((*weights.shape[:-1], 1)), np.cumsum(outside, axis=-1)], axis=-1)
        low, high = np.searchsorted(value, value, side="left"), np.searchsorted(value, value, side="right")
        beaten = 0.5 * (below[..., low] + below[..., high])  # equal values count half
        areas.append(_ratio((inside * beaten).sum(axis=-1), inside.sum(axis=-1) * outside.sum(axis=-1)))
    return _mean(np.stack(areas, axis=-1))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN where there is nothing."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean along the last axis of what is defined."""
    defined = np.isfinite(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1))
