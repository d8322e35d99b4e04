"""Do clusters on the distances find the classes? Agglomerative, average linkage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, mutual_info_score, silhouette_score
from sklearn.utils import check_random_state

from ..alignment import Roll, aligned_square
from ..arrays import real_array
from ..distributions import Distributions
from ..estimators.checks import check_labels, check_number

CLUSTERING = ("mutual_information", "adjusted_rand", "variation_of_information", "silhouette", "n_clusters")


def cluster_scores(
    distances: Any, y: Any, *, n_clusters: int | None = None, threshold: float | str | None = None
) -> dict[str, float]:
    """Cluster by distances and compare with the labels.

    Parameters
    ----------
    distances : array of shape (n, n)
    y : labels; by name where both carry names
    n_clusters : number of clusters; None: as many as there are classes, unless a threshold is given
    threshold : clusters farther apart than this are not merged; "median": the median distance

    Returns
    -------
    dict of mutual_information and variation_of_information (in nats), adjusted_rand, silhouette (of the *labels* on
    the distances: it needs no clustering), n_clusters. NaN where there are fewer than two items or classes.

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
    """Cluster distributions by a fitted method's distances, into as many clusters as there are classes."""
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
    only : annotation of the points to its value or a list of values: ``{"mode": "centre"}``
        Points without are left out.
    n_clusters : None: merged up to the median distance
    max_points : int
        Of more, so many are drawn at random: memory and time grow with their square.
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
