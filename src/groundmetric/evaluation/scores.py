"""Votes of nearest neighbours, and scores of predictions (accuracy, F1, ROC AUC, concordance)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._internal.types import ClassesLike, LabelsLike
from .._internal.validation import NameIndex, align_by_name, check_number, real_array, refuse_mask
from ..distances import GroundMetricMethod, kneighbors
from ..distributions import Distributions
from ..estimators.neighbors import check_weights, class_shares
from ..learning.survival import check_comparable, concordance, read_survival
from ..metrics.base import EuclideanMetric
from ..transport.cohort import is_projection

SCORES = ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc", "log_probability")
# Lower limit of probabilities in the log-probability: one confident error must not decide the mean.
LEAST_PROBABILITY = 1e-3
# Entries of a block of distances between points: 64 MB, and as much again to find the nearest.
_BLOCK = 1 << 23


def concordance_index(y: LabelsLike, risk: ArrayLike) -> float:
    """Return Harrell's C: the share of comparable pairs in which the patient who died first has the higher risk.

    Two patients are comparable if one died, and the other was alive at that time or later. A pair of equal risks counts
    as one half. Patients who died at the same time are not compared.

    Parameters
    ----------
    y : structured array or table of shape (n,)
        Fields (columns) "event", whether it was observed, and "time", as made by scikit-survival's `Surv`; matched by
        name if `y` and `risk` carry names.
    risk : array-like of shape (n,)
        Predicted risks; the higher, the earlier the event.

    Returns
    -------
    float
        1 if all pairs have the correct order, 0.5 by chance.

    Examples
    --------
    >>> import numpy as np
    >>> from groundmetric.evaluation import concordance_index
    >>> y = np.array([(True, 3.0), (False, 4.0), (True, 5.0), (False, 9.0)], dtype=[("event", bool), ("time", float)])
    >>> concordance_index(y, [0.9, 0.8, 0.1, 0.2])  # 3 of 4 pairs: who died at 5 should be at higher risk than the last
    0.75
    """
    name_index = NameIndex.of(risk, items="items")
    risks = np.asarray(real_array(risk, "risk"), dtype=np.float64)
    if risks.shape != (name_index.size,) or not np.isfinite(risks).all():
        raise ValueError(f"risk has shape {risks.shape}: expected a finite number for each of {name_index.size}")
    times = read_survival(y, name_index)
    check_comparable(times)
    return concordance(times, risks)


def score_codes(codes: np.ndarray, probabilities: np.ndarray, weights: Any = None) -> dict[str, float]:
    """Return all scores of predictions for the true classes `codes`, with a weight of each item (None: 1)."""
    weights = np.ones(codes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    n_classes = probabilities.shape[1]
    areas = []  # of each class against the rest
    for c in range(n_classes):
        order = np.argsort(probabilities[:, c], kind="stable")
        value, member = probabilities[order, c], codes[order] == c
        positive, negative = weights[order] * member, weights[order] * ~member
        lower = np.concatenate([np.zeros(1), np.cumsum(negative)])
        low, high = np.searchsorted(value, value, side="left"), np.searchsorted(value, value, side="right")
        below = 0.5 * (lower[low] + lower[high])  # a tie is half a success
        areas.append(_ratio((positive * below).sum(), positive.sum() * negative.sum()))
    true = np.maximum(probabilities[np.arange(codes.size), codes], LEAST_PROBABILITY)
    return {
        **score_confusion(confusion_of(codes, np.eye(n_classes)[probabilities.argmax(axis=1)], weights)),
        "roc_auc": _mean(np.array(areas)),
        "log_probability": float(_ratio(weights @ np.log(true), weights.sum())),
    }


def confusion_of(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the confusion matrix (rows: true classes) from the predictions of each class by item."""
    return (np.eye(counts.shape[1])[codes] * weights[:, None]).T @ counts


def score_confusion(confusion: np.ndarray) -> dict[str, float]:
    """Return accuracy, balanced accuracy and macro F1 of a confusion matrix."""
    correct, actual, predicted = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    return {
        "accuracy": float(_ratio(correct.sum(), actual.sum())),
        "balanced_accuracy": _mean(_ratio(correct, actual)),
        "macro_f1": _mean(_ratio(2.0 * correct, actual + predicted)),
    }


def encode(y: Any, classes: Any) -> np.ndarray:
    """Return labels as indices into `classes`."""
    index = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    refuse_mask(y, "y")
    labels = np.asarray(y).tolist()
    unknown = [label for label in labels if label not in index]
    if unknown:
        raise ValueError(f"label {unknown[0]!r} is not one of the classes {list(index)}")
    return np.array([index[label] for label in labels], dtype=np.intp)


def auc_influence(codes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the contribution of each item to the deviation of the AUC from its mean (DeLong et al. 1988)."""
    influence, n_areas = np.zeros(codes.size), 0
    for c in range(probabilities.shape[1]):
        member = codes == c
        positive, negative = np.sort(probabilities[member, c]), np.sort(probabilities[~member, c])
        n, m = positive.size, negative.size
        if not n or not m:
            continue
        value = probabilities[:, c]
        lower = 0.5 * (np.searchsorted(negative, value, "left") + np.searchsorted(negative, value, "right"))
        higher = n - 0.5 * (np.searchsorted(positive, value, "left") + np.searchsorted(positive, value, "right"))
        placement = np.where(member, lower / m, higher / n)
        influence += (placement - placement[member].mean()) / np.where(member, n, m)
        n_areas += 1
    return influence / max(n_areas, 1)


def _ratio(part: Any, total: Any) -> np.ndarray:
    """Return part / total, NaN if the total is 0."""
    return np.where(total > 0, part / np.where(total > 0, total, 1.0), np.nan)


def _mean(values: np.ndarray) -> float:
    """Return the mean of the defined values, NaN without any."""
    return float(np.nansum(values) / np.isfinite(values).sum()) if np.isfinite(values).any() else np.nan


def vote(
    distances: ArrayLike, y: LabelsLike, classes: ClassesLike, *, n_neighbors: int = 5, weights: str = "distance"
) -> np.ndarray:
    """Return the probability of each class from distances to labelled items.

    At most `n_neighbors` nearest items vote, with weights of one over the distance or equal weights. With weights by
    distance, neighbours that coincide with the item are the only voters. Of equally distant items, the first are used.

    Parameters
    ----------
    distances : array-like of shape (n_items, n_labelled)
        Distance of each item to each labelled one.
    y : array-like of shape (n_labelled,)
        Labels of the labelled items; a Series or dict is matched by name to the columns of `distances`.
    classes : array-like of shape (n_classes,)
        The label of each column of the result.
    n_neighbors : int, default=5
        Number of voters.
    weights : {"distance", "uniform"}, default="distance"
        Weight of a vote: one over the distance, or 1.

    Returns
    -------
    array of shape (n_items, n_classes)
        Probabilities; rows sum to 1.

    Examples
    --------
    >>> from groundmetric.evaluation import vote
    >>> shares = vote([[1.0, 2.0, 4.0, 9.0]], ["a", "b", "b", "a"], ["a", "b"], n_neighbors=3, weights="uniform")
    >>> shares.round(3).tolist()
    [[0.333, 0.667]]
    """
    check_weights(weights)
    check_number("n_neighbors", n_neighbors, low=1, whole=True)
    transposed = distances.T if hasattr(distances, "T") else np.asarray(distances).T
    name_index = NameIndex.of(transposed, items="columns of distances")
    codes = encode(align_by_name(y, name_index, "y"), classes)
    nearest, indices = k_nearest(check_distances(distances, codes.size), min(n_neighbors, codes.size))
    return class_shares(nearest, codes[indices], len(classes), weights)


def nearest_distributions(
    method: Any, train: Distributions, test: Distributions, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the k training distributions nearest to each test distribution."""
    k = min(k, len(train))
    # Bounds of exact Wasserstein distances exclude most pairs without a solve; the neighbours are the same.
    if getattr(type(method), "distances", None) is GroundMetricMethod.distances:
        return kneighbors(test, train, k, method.metric_)
    return k_nearest(check_distances(method.distances(test, train), len(train)), k)


def vote_points(
    method: Any,
    train: Any,
    codes: np.ndarray,
    test: Any,
    n_classes: int,
    k: int,
    weights: str,
    *,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Return votes of the nearest training points under a fitted method, for blocks of test points to bound memory.

    `train` and `test` are points (dense or sparse), `codes` the classes of the training points, `among` as for
    `class_shares`.
    """
    k = min(k, codes.size)
    between = method.point_distances
    metric: Any = getattr(method, "metric_", None)
    plain = getattr(type(method), "point_distances", None) is GroundMetricMethod.point_distances
    # Points are projected once; the Euclidean metric takes sparse points without a projection.
    if plain and is_projection(metric) and not isinstance(metric, EuclideanMetric):
        between, train, test = metric.projected_distances, metric.project(train), metric.project(test)
    shares = np.empty((test.shape[0], n_classes))
    step = max(1, _BLOCK // codes.size)
    for low in range(0, test.shape[0], step):
        block = check_distances(between(test[low : low + step], train), codes.size)
        nearest, indices = k_nearest(block, k)
        shares[low : low + step] = class_shares(nearest, codes[indices], n_classes, weights, among=among)
    return shares


def k_nearest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k smallest entries of each row and their indices, smallest first; equal entries by index."""
    if k < distances.shape[1]:  # four times as fast as a stable sort of complete rows
        indices = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
        last = np.take_along_axis(distances, indices, axis=1).max(axis=1, keepdims=True)
        # Of several equal entries `argpartition` takes any: sort these rows completely.
        ties = np.flatnonzero((distances <= last).sum(axis=1) > k)
        indices[ties] = np.sort(np.argsort(distances[ties], axis=1, kind="stable")[:, :k], axis=1)
    else:
        indices = np.broadcast_to(np.arange(k), distances.shape)
    nearest = np.take_along_axis(distances, indices, axis=1)
    order = np.argsort(nearest, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(indices, order, axis=1)


def check_distances(distances: Any, n_labelled: int) -> np.ndarray:
    """Return validated distances: one column per labelled item, finite, negative only by rounding errors."""
    block = np.asarray(distances, dtype=np.float64)
    if block.ndim != 2 or block.shape[1] != n_labelled:
        raise ValueError(f"distances have shape {block.shape}: expected a column for each of {n_labelled}")
    if not np.isfinite(block).all():
        raise ValueError(f"distances contain {block[~np.isfinite(block)][0]}: only finite ones can be compared")
    if block.size and block.min() < -1e-9 * np.abs(block).max():
        raise ValueError(f"distances contain {block.min():g}: they cannot be negative")
    return np.maximum(block, 0.0)
