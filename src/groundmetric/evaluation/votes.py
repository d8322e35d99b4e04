"""Votes of nearest neighbours: probabilities of classes from distances between distributions or points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal.validation import check_number
from ..distances import kneighbors
from ..distributions import Distributions
from ..estimators._base import GroundMetricMethod, check_weights, class_shares
from ..metrics.base import EuclideanMetric
from ..transport.cohort import is_projection
from .scores import encode

# Entries of a block of distances between points: 64 MB, and as much again to find the nearest.
_BLOCK = 1 << 23


def vote(distances: Any, y: Any, classes: Any, *, n_neighbors: int = 5, weights: str = "distance") -> np.ndarray:
    """Probability of each class from distances to labelled items.

    The nearest `n_neighbors` vote (all of them where there are fewer), by one over the distance or equally. Votes by
    distance: where neighbours coincide with the item, only they count. Of equally distant ones, those that come first
    are taken.

    Parameters
    ----------
    distances : array-like of shape (n_items, n_labelled)
        Distance of each item to each labelled one.
    y : array-like of shape (n_labelled,)
        Labels of the labelled items.
    classes : array-like of shape (n_classes,)
        The label of each column of the result.
    n_neighbors : int, default=5
        Number of voters.
    weights : {"distance", "uniform"}, default="distance"
        Votes count by one over the distance, or equally.

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
    codes = encode(y, classes)
    block = check_distances(distances, codes.size)
    nearest, places = k_nearest(block, min(n_neighbors, codes.size))
    return class_shares(nearest, codes[places], len(classes), weights)


def nearest_distributions(
    method: Any, train: Distributions, test: Distributions, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and places of the k training distributions nearest to each test distribution, under a fitted method.

    Where the method's distances are exact Wasserstein distances, most pairs are ruled out by bounds without a solve;
    the neighbours are the same.
    """
    k = min(k, len(train))
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
    """Votes of the nearest training points under a fitted method, for blocks of test points, so that memory is bounded.

    `train` and `test` are points (dense or sparse), `codes` the classes of the training points as numbers;
    `among` as for `class_shares`.
    """
    k = min(k, codes.size)
    between, train, test = _point_distances(method, train, test)
    shares = np.empty((test.shape[0], n_classes))
    step = max(1, _BLOCK // codes.size)
    for low in range(0, test.shape[0], step):
        block = check_distances(between(test[low : low + step], train), codes.size)
        nearest, places = k_nearest(block, k)
        shares[low : low + step] = class_shares(nearest, codes[places], n_classes, weights, among=among)
    return shares


def k_nearest(distances: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k smallest entries of each row and their places, smallest first; equal ones by place."""
    if k < distances.shape[1]:
        places = np.sort(np.argpartition(distances, k - 1, axis=1)[:, :k], axis=1)
        last = np.take_along_axis(distances, places, axis=1).max(axis=1, keepdims=True)
        torn = np.flatnonzero((distances <= last).sum(axis=1) > k)  # some of several equal ones were taken: which?
        places[torn] = np.sort(np.argsort(distances[torn], axis=1, kind="stable")[:, :k], axis=1)
    else:
        places = np.broadcast_to(np.arange(k), distances.shape)
    nearest = np.take_along_axis(distances, places, axis=1)
    order = np.argsort(nearest, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(places, order, axis=1)


def check_distances(distances: Any, n_labelled: int) -> np.ndarray:
    """Distances that can be voted with: one column per labelled item, finite, not negative but for rounding."""
    block = np.asarray(distances, dtype=np.float64)
    if block.ndim != 2 or block.shape[1] != n_labelled:
        raise ValueError(f"distances have shape {block.shape}: expected a column for each of {n_labelled}")
    if not np.isfinite(block).all():
        raise ValueError(f"distances contain {block[~np.isfinite(block)][0]}: only finite ones can be compared")
    if block.size and block.min() < -1e-9 * np.abs(block).max():
        raise ValueError(f"distances contain {block.min():g}: they cannot be negative")
    return np.maximum(block, 0.0)


def _point_distances(method: Any, train: Any, test: Any) -> tuple[Callable, Any, Any]:
    """The method's distances between points; where it projects them, that is done once and not for every block."""
    metric: Any = getattr(method, "metric_", None)
    plain = getattr(type(method), "point_distances", None) is GroundMetricMethod.point_distances
    if (
        plain and is_projection(metric) and not isinstance(metric, EuclideanMetric)
    ):  # it takes sparse points as they are
        return metric.projected_distances, metric.project(train), metric.project(test)
    return method.point_distances, train, test
