"""Local Fisher discriminant analysis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import qr
from sklearn.metrics.pairwise import euclidean_distances

from groundmetric._internal.validation import check_number

from .points import PointLearner, check_components, directions

# Entries of a block of distances, which bounds the memory.
_BLOCK_ENTRIES = 4_000_000


class LFDA(PointLearner):
    """Local Fisher discriminant analysis (Sugiyama 2007) on points with their distribution's label.

    A linear discriminant in which only near points of one class are held together: a class may have several
    modes: directions in which the scatter between classes is large against the local scatter within them.

    Parameters
    ----------
    n_components : int or None
        Rows of the map; None: as many as features.
    k : int
        Neighbour whose distance is the local scale. 3 in the paper, min(7, n_features - 1) in metric-learn; a
        class that has fewer points uses its farthest.
    embedding : {"weighted", "orthonormalized", "plain"}
        Directions times the root of their eigenvalue, made orthonormal, or unchanged.
    max_points : int or None
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int
        More features are reduced to as many principal components first.
    standardise : bool
        Divide every feature by its standard deviation first. The paper did not standardise features.
    as_metric_learn : bool
        Follow metric-learn's arithmetic, as the paper's experiments did: see Notes.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_, components_, classes_, n_features_in_

    Notes
    -----
    metric-learn 0.7 departs from the published method in three ways, which `as_metric_learn` follows: the local scale
    of point i is not its own distance to its k-th neighbour but the i-th of the distances of point k (in the order
    in which numpy's partition returns them); the scatter within classes is added to that between them, but should
    be subtracted, which does not change the directions but adds 2 to every eigenvalue; and k is at most n_features - 1.

    Points of no mass are left out; other weights are not used.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        k: int = 3,
        embedding: str = "weighted",
        max_points: int | None = 10_000,
        max_features: int = 300,
        standardise: bool = False,
        as_metric_learn: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.k = k
        self.embedding = embedding
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.as_metric_learn = as_metric_learn
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        check_components(self.n_components, n_features)
        check_number("k", self.k, low=1, whole=True)
        if self.embedding not in ("weighted", "orthonormalized", "plain"):
            raise ValueError(f"embedding is {self.embedding!r}: expected 'weighted', 'orthonormalized' or 'plain'")

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        between, within = local_scatter(points, codes, self.k, as_metric_learn=self.as_metric_learn)
        values, vectors = directions(between, within)
        values, vectors = values[: self.n_components], vectors[:, : self.n_components]
        return embed(values, vectors, self.embedding)


def local_scatter(
    points: np.ndarray, codes: np.ndarray, k: int, *, as_metric_learn: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Scatter between classes and local scatter within them, (n_features, n_features) each.

    Both are sums of w (x_i - x_j)(x_i - x_j)ᵀ over pairs of points, halved. Within a class of m among n points, w is
    a/m for the scatter within and a (1/n - 1/m) for that between, with the affinity a = exp(-d²/(σ_i σ_j)); between
    classes it is 0 and 1/n.
    """
    n_points, n_features = points.shape
    if as_metric_learn:
        k = max(min(k, n_features - 1), 0)
    within, mixture = np.zeros((n_features, n_features)), np.zeros((n_features, n_features))
    for c in np.unique(codes):
        members = points[codes == c]
        local = _laplacian_scatter(members, _local_scales(members, k, as_metric_learn))
        total = members.sum(axis=0)
        within += local / len(members)
        mixture += (local + np.outer(total, total)) / n_points
        mixture += (1.0 - len(members) / n_points) * members.T @ members
    total = points.sum(axis=0)
    mixture -= np.outer(total, total) / n_points
    between = mixture + within if as_metric_learn else mixture - within
    return (between + between.T) / 2.0, (within + within.T) / 2.0


def embed(values: np.ndarray, vectors: np.ndarray, embedding: str) -> np.ndarray:
    """Rows of the map. A direction that separates less than its class is wide, locally, weighs nothing."""
    if embedding == "weighted":
        return (vectors * np.sqrt(np.maximum(values, 0.0))).T
    if embedding == "orthonormalized":
        return qr(vectors, mode="economic")[0].T
    return vectors.T


def _blocks(n_points: int) -> Iterator[slice]:
    block = max(1, _BLOCK_ENTRIES // n_points)
    for low in range(0, n_points, block):
        yield slice(low, min(low + block, n_points))


def _squared(points: np.ndarray, rows: slice) -> np.ndarray:
    squared = euclidean_distances(points[rows], points, squared=True)
    squared[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = 0.0
    return squared


def _local_scales(points: np.ndarray, k: int, as_metric_learn: bool) -> np.ndarray:
    """Return the distance of every point to its k-th neighbour (or to the farthest of fewer neighbours)."""
    k = min(k, len(points) - 1)
    if as_metric_learn:
        return np.sqrt(np.partition(_squared(points, slice(k, k + 1))[0], k))
    parts = [np.partition(_squared(points, rows), k, axis=1)[:, k] for rows in _blocks(len(points))]
    return np.sqrt(np.concatenate(parts))


def _laplacian_scatter(points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Half the sum of a_ij (x_i - x_j)(x_i - x_j)ᵀ, with affinities by the points' local scales."""
    scatter = np.zeros((points.shape[1], points.shape[1]))
    for rows in _blocks(len(points)):
        local = np.outer(scales[rows], scales)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            affinity = np.exp(-_squared(points, rows) / local)
        affinity[local == 0.0] = 0.0
        degree = affinity.sum(axis=1)
        scatter += points[rows].T @ (degree[:, None] * points[rows] - affinity @ points)
    return scatter
