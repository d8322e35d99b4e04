"""Scores: of predictions (accuracy, balanced accuracy, macro F1, ROC AUC) and of clusters on distances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, mutual_info_score, silhouette_score
from sklearn.utils import check_random_state

from .._internal.validation import Roll, aligned, aligned_square, check_labels, check_number, real_array, refuse_mask
from ..distributions import Distributions

SCORES = ("accuracy", "balanced_accuracy", "macro_f1", "roc_auc")
CLUSTERING = ("mutual_information", "adjusted_rand", "variation_of_information", "silhouette", "n_clusters")


def scores(y: Any, probabilities: Any, classes: Any, *, weights: Any = None) -> dict[str, float]:
    """Scores of predictions that are given as a probability per class; the most probable class is the prediction.

    Balanced accuracy is the mean recall of the classes that occur in `y`; macro F1 the mean over classes that occur in
    `y` or are predicted; ROC AUC the mean of each class against the rest, over classes that occur in `y` beside others.
    What is not defined is NaN (the AUC of a single test distribution): pool the predictions of several splits then.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels; by name where these and `probabilities` carry names.
    probabilities : array-like of shape (n, n_classes)
        Probability of each class.
    classes : array-like of shape (n_classes,)
        The label that each column of `probabilities` is for.
    weights : array-like of shape (n,) or None, default=None
        How often each item counts; None: once.

    Returns
    -------
    dict of str to float
        "accuracy", "balanced_accuracy", "macro_f1" and "roc_auc".

    Examples
    --------
    >>> from groundmetric.evaluation import scores
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
    if weights is not None and np.shape(weights) != (codes.size,):
        raise ValueError(f"weights have shape {np.shape(weights)} for {codes.size} items: one is needed for each")
    return {name: float(value) for name, value in score_codes(codes, probabilities, weights).items()}


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


def cluster_scores(
    distances: Any, y: Any, *, n_clusters: int | None = None, threshold: float | str | None = None
) -> dict[str, float]:
    """Cluster by distances (average linkage) and compare the clusters with the labels.

    Parameters
    ----------
    distances : array-like of shape (n, n)
        Distances among the items.
    y : array-like of shape (n,)
        Labels; by name where both carry names.
    n_clusters : int or None, default=None
        Number of clusters; None: as many as there are classes, unless a threshold is given.
    threshold : float, "median" or None, default=None
        Clusters farther apart than this are not merged; "median": the median distance.

    Returns
    -------
    dict of str to float
        "mutual_information" and "variation_of_information" (in nats), "adjusted_rand", "silhouette" (of the *labels*
        on the distances: it needs no clustering), "n_clusters". All are NaN where there are fewer than two items or
        classes; the silhouette also where every item has a class of its own.

    Examples
    --------
    >>> from groundmetric.evaluation import cluster_scores
    >>> cluster_scores([[0, 1, 9], [1, 0, 9], [9, 9, 0]], ["a", "a", "b"])["adjusted_rand"]
    1.0
    """
    roll = Roll.of(distances)
    distances = _check_square(distances, roll)
    labels = check_labels(y, roll)
    if n_clusters is not None and threshold is not None:
        raise ValueError(f"both n_clusters ({n_clusters}) and a threshold ({threshold}) are given: one is needed")
    n_classes = np.unique(labels).size
    if len(labels) < 2 or n_classes < 2:
        return dict.fromkeys(CLUSTERING, np.nan)
    if threshold is None:
        n_clusters = min(n_classes if n_clusters is None else n_clusters, len(labels))
    found = _cluster(distances, n_clusters, threshold)
    shared = float(mutual_info_score(labels, found))
    return {
        "mutual_information": shared,
        "adjusted_rand": float(adjusted_rand_score(labels, found)),
        "variation_of_information": max(0.0, _entropy(labels) + _entropy(found) - 2.0 * shared),
        "silhouette": _silhouette(distances, labels, n_classes),
        "n_clusters": float(found.max() + 1),
    }


def cluster_distributions(method: Any, D: Distributions, y: Any) -> dict[str, float]:
    """Cluster distributions by a fitted method's distances, into as many clusters as there are classes.

    Parameters
    ----------
    method : fitted estimator
        Method with ``distances(D)``.
    D : Distributions
        The distributions that are clustered.
    y : array-like of shape (n_distributions,)
        Labels.

    Returns
    -------
    dict of str to float
        Scores of the clusters, as from `cluster_scores`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [8.0], [9.0]], ["ann", "bob", "cid", "dot"])
    >>> y = ["well", "well", "ill", "ill"]
    >>> method = gm.baselines.Euclidean().fit(D, y)
    >>> gm.evaluation.cluster_distributions(method, D, y)["adjusted_rand"]
    1.0
    """
    return cluster_scores(method.distances(D), check_labels(y, D.roll))


def cluster_points(
    method: Any,
    D: Distributions,
    y: Any,
    *,
    only: Mapping[str, Any] | None = None,
    n_clusters: int | None = None,
    max_points: int = 4000,
    random_state: Any = 0,
) -> dict[str, float]:
    """Cluster points by a fitted method's distances between points; the label of a point is that of its distribution.

    Parameters
    ----------
    method : fitted estimator
        Method with ``point_distances(x)``.
    D : Distributions
        The distributions whose points are clustered.
    y : array-like of shape (n_distributions,)
        Labels of the distributions.
    only : dict of str to value or None, default=None
        Annotation of the points to its value or a list of values, e.g. ``{"mode": "centre"}``: others are left out.
    n_clusters : int or None, default=None
        Number of clusters; None: clusters are merged up to the median distance.
    max_points : int, default=4000
        Of more points, so many are drawn at random: memory and time grow with their square.
    random_state : int, RandomState or None, default=0
        Seed of the draw.

    Returns
    -------
    dict of str to float
        Scores of the clusters, as from `cluster_scores`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [8.0], [9.0]], ["ann", "ann", "bob", "bob"])
    >>> y = ["well", "ill"]
    >>> method = gm.baselines.Euclidean().fit(D, y)
    >>> gm.evaluation.cluster_points(method, D, y, n_clusters=2)["adjusted_rand"]
    1.0
    """
    check_number("max_points", max_points, low=2, whole=True)
    labels = np.repeat(check_labels(y, D.roll), D.sizes)
    rows = np.flatnonzero(chosen_points(D, only))
    if rows.size > max_points:
        rows = np.sort(check_random_state(random_state).choice(rows, max_points, replace=False))
    distances = method.point_distances(D.points[rows])
    return cluster_scores(
        distances, labels[rows], n_clusters=n_clusters, threshold="median" if n_clusters is None else None
    )


def chosen_points(D: Distributions, only: Mapping[str, Any] | None) -> np.ndarray:
    """Marks the points whose annotations have the wanted values; all where none are wanted."""
    chosen = np.ones(D.points.shape[0], bool)
    for key, values in (only or {}).items():
        if key not in D.annotations:
            raise ValueError(f"the points have no annotation {key!r}: there are {sorted(D.annotations)}")
        wanted = [values] if isinstance(values, str) or not np.iterable(values) else list(values)
        chosen &= np.isin(D.annotations[key], wanted)
    if not chosen.any():
        raise ValueError(f"no point has {dict(only or {})}: nothing is left")
    return chosen


def _cluster(distances: np.ndarray, n_clusters: int | None, threshold: float | str | None) -> np.ndarray:
    if threshold == "median":
        threshold = float(np.median(squareform(distances, checks=False)))
    if threshold is not None:
        threshold = np.nextafter(float(threshold), np.inf)  # scikit-learn would not merge what is exactly so far apart
    model = AgglomerativeClustering(
        n_clusters=n_clusters, distance_threshold=threshold, metric="precomputed", linkage="average"
    )
    return model.fit_predict(distances)


def _silhouette(distances: np.ndarray, labels: np.ndarray, n_classes: int) -> float:
    if n_classes >= labels.size:
        return np.nan
    return float(silhouette_score(distances, labels, metric="precomputed"))


def _entropy(labels: np.ndarray) -> float:
    share = np.unique(labels, return_counts=True)[1] / labels.size
    return float(-(share * np.log(share)).sum())


def _check_square(distances: Any, roll: Roll) -> np.ndarray:
    """A copy; of a table with names, the columns in the order of the rows, by which labels go as well."""
    distances = np.array(real_array(aligned_square(distances, roll, "distances"), "distances"), dtype=np.float64)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise ValueError(f"distances have shape {distances.shape}: expected a square matrix")
    if not np.isfinite(distances).all():
        raise ValueError("distances contain NaN or infinity: only finite ones can be clustered")
    np.fill_diagonal(distances, 0.0)  # rounding may leave a little
    return distances
