"""What estimators share: methods that end in a ground metric, and predictions by votes of the nearest distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._internal.types import DistributionsLike, Estimator, PointsLike
from .._internal.validation import check_number
from ..distances import kneighbors, pairwise_distances
from ..distributions import Distributions, as_distributions, resolve_n_points, with_equal_points
from ..metrics.base import GroundMetric


class GroundMetricMethod:
    """Distances between distributions and between points, by the `metric_` that `fit` has found."""

    metric_: GroundMetric

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Exact Wasserstein distances between the distributions of A and of B (or among those of A).

        All points are used: distances grow as distributions have fewer points. Where their numbers differ, give
        ``A.equalize()``.

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            First cohort. The rows of an array are distributions of one point each.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Second cohort. None compares the distributions of `A` with each other.
        n_jobs : int or None, default=None
            Number of threads; None means one, -1 one per core.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances under the learned metric; symmetric with zeros on the diagonal where `B` is None.
        """
        check_is_fitted(self, "metric_")
        return pairwise_distances(A, B, self.metric_, n_jobs=n_jobs)

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Distances between points: all of `x` against all of `y` (or against themselves).

        Parameters
        ----------
        x : array or sparse matrix of shape (n_x, n_features), data frame or Distributions
            Points as rows; of Distributions, their `points` in order.
        y : array or sparse matrix of shape (n_y, n_features), data frame, Distributions or None, default=None
            Other points. None compares the points of `x` with each other.

        Returns
        -------
        array of shape (n_x, n_y)
            Distances under the learned metric.
        """
        check_is_fitted(self, "metric_")
        return self.metric_.distances(x, y)


WEIGHTS = ("distance", "uniform")


def check_weights(weights: str) -> None:
    if weights not in WEIGHTS:
        raise ValueError(f"weights is {weights!r}: expected 'distance' or 'uniform'")


def class_shares(
    distances: np.ndarray, codes: np.ndarray, n_classes: int, weights: str, *, among: np.ndarray | None = None
) -> np.ndarray:
    """Share of the neighbours' votes for each class, (n_items, n_classes).

    `distances` and `codes` (classes as numbers) have a row per item and a column per neighbour. With weights
    "distance", a vote counts one over the distance, and where neighbours coincide with the item, only they vote; with
    "uniform", every vote counts one, at whatever distance. With `among`, the classes of all that could have been
    neighbours, a vote counts the less, the more of these share its class.

    >>> class_shares(np.array([[1.0, 2.0, 4.0]]), np.array([[0, 1, 1]]), 2, "distance").round(3).tolist()
    [[0.571, 0.429]]
    """
    votes = _votes(distances, weights)
    shares = np.stack([(votes * (codes == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    if among is not None:
        shares /= np.maximum(np.bincount(among, minlength=n_classes), 1)
    return shares / shares.sum(axis=1, keepdims=True)


def mean_values(distances: np.ndarray, values: np.ndarray, weights: str) -> np.ndarray:
    """Mean of the neighbours' values, each counting as its vote does; `values` (n_items, n_neighbors, …).

    >>> mean_values(np.array([[1.0, 2.0]]), np.array([[3.0, 6.0]]), "distance").tolist()
    [4.0]
    """
    votes = _votes(distances, weights)
    return np.einsum("in,in...->i...", votes / votes.sum(axis=1, keepdims=True), values)


def _votes(distances: np.ndarray, weights: str) -> np.ndarray:
    if weights == "uniform":
        return np.ones_like(distances)
    nearest = distances.min(axis=1, keepdims=True)  # votes relative to the nearest cannot overflow
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(nearest == 0.0, distances == 0.0, nearest / distances)


def training_distributions(X: Any, y: Any) -> Distributions:
    """Distributions to fit on; points of a learner's `transform`, as in a pipeline, get an error with the remedy."""
    D = as_distributions(X)
    if not isinstance(X, Distributions) and np.ndim(X) == 2 and hasattr(y, "__len__") and len(y) < len(D):
        raise ValueError(
            f"y has {len(y)} labels, but X has {len(D)} rows, each of them a distribution of one point: give "
            "Distributions. In a pipeline, a learner before this step would return points: give it as `metric`, e.g. "
            f"TransportKNeighborsClassifier(metric=GroundMetricLearner())"
        )
    return D


class NearestDistributions(BaseEstimator):
    """Nearest training distributions under a metric that is given or learned; see the classifier."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        metric: GroundMetric | str | Estimator = "euclidean",
        weights: str = "distance",
        n_points: int | str | None = "equal",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.n_points = n_points
        self.n_jobs = n_jobs

    def kneighbors(
        self, X: DistributionsLike | None = None, n_neighbors: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances and positions of the nearest training distributions, by `n_points` points of each.

        Parameters
        ----------
        X : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions whose neighbours are searched. The rows of an array are distributions of one point each. None
            searches, for each training distribution, among the others.
        n_neighbors : int or None, default=None
            Number of neighbours. None means the `n_neighbors` of the estimator.

        Returns
        -------
        distances : array of shape (n_distributions, n_neighbors)
            Distances to the neighbours, the nearest first.
        indices : array of shape (n_distributions, n_neighbors)
            Positions of the neighbours among the training distributions.
        """
        check_is_fitted(self, "metric_")
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        if X is None:
            query, among = self._train, None
        else:
            query, among = with_equal_points(as_distributions(X), self.n_points_), self._train
        return kneighbors(query, among, count, self.metric_, n_jobs=self.n_jobs)

    def _keep(self, D: Distributions, labels: Any, groups: Any, strata: Any) -> None:
        """Keep the training distributions; fit the metric first where it is a learner."""
        check_number("n_neighbors", self.n_neighbors, low=1, whole=True)
        if self.n_neighbors > len(D):
            raise ValueError(f"n_neighbors is {self.n_neighbors}, but there are only {len(D)} distributions")
        check_weights(self.weights)
        self.n_points_ = resolve_n_points(self.n_points, D)
        if hasattr(self.metric, "fit"):
            more = {} if strata is None else {"strata": strata}
            if groups is not None and has_fit_parameter(self.metric, "groups"):
                more["groups"] = groups
            self.metric_ = clone(self.metric).fit(D, labels, **more).metric_
        elif strata is not None:
            raise ValueError(f"strata are given, but metric is {self.metric!r}, which learns nothing: leave them out")
        else:
            self.metric_ = self.metric
        if isinstance(self.metric_, GroundMetric):
            self.metric_.check_fit(D)
        self._train = with_equal_points(D, self.n_points_, stacklevel=3)
        self.n_features_in_ = D.shape[1]
