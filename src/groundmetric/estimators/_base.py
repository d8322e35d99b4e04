"""Base classes: estimators with a learned metric, and predictions by votes of the nearest distributions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._internal.types import DistributionsLike, Estimator, LabelsLike, PointsLike
from .._internal.validation import check_number, refuse_points_of_learner
from ..distances import kneighbors, pairwise_distances
from ..distributions import Distributions, as_distributions, resolve_n_points, with_equal_points
from ..metrics.base import GroundMetric


class GroundMetricMethod:
    """Distances between distributions and between points under the fitted `metric_`."""

    metric_: GroundMetric

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return exact Wasserstein distances between the distributions of A and of B (or among those of A).

        All points are used: distances grow as distributions have fewer points. If their numbers of points differ, give
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
            Distances under the learned metric; symmetric with zeros on the diagonal if `B` is None.
        """
        check_is_fitted(self, "metric_")
        return pairwise_distances(A, B, self.metric_, n_jobs=n_jobs)

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Return distances between points: all of `x` to all of `y` (or among those of `x`).

        Parameters
        ----------
        x : array or sparse matrix of shape (n_x, n_features), data frame or Distributions
            Points as rows; for Distributions, their `points` in order.
        y : array or sparse matrix of shape (n_y, n_features), data frame, Distributions or None, default=None
            Second points. None compares the points of `x` with each other.

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
    """Return the share of the neighbours' votes for each class, shape (n_items, n_classes).

    `distances` and class `codes` have a row per item and a column per neighbour. With weights "distance", a vote weighs
    one over the distance, and if neighbours are at distance 0, only they vote. With `among`, the codes of all training
    distributions, votes are divided by the size of their class.

    >>> class_shares(np.array([[1.0, 2.0, 4.0]]), np.array([[0, 1, 1]]), 2, "distance").round(3).tolist()
    [[0.571, 0.429]]
    """
    votes = _votes(distances, weights)
    shares = np.stack([(votes * (codes == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    if among is not None:
        shares /= np.maximum(np.bincount(among, minlength=n_classes), 1)
    return shares / shares.sum(axis=1, keepdims=True)


def mean_values(distances: np.ndarray, values: np.ndarray, weights: str) -> np.ndarray:
    """Return the mean of the neighbours' values, shape (n_items, n_neighbors, …), weighted as their votes.

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


class NearestDistributions(BaseEstimator):
    """Base of the classifier and the regressor by nearest distributions, under a given or learned metric."""

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

    def fit(
        self, X: DistributionsLike, y: LabelsLike, *, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> Self:
        """Store the training distributions; if `metric` is a learner, fit a copy of it to them first.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,), for a regressor also (n_distributions, n_outputs)
            Classes or finite numbers; matched by name if they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), passed on to the `fit` of the learner if it
            takes groups; votes of neighbours do not depend on them.
        strata : array-like of shape (n_distributions,) or None, default=None
            Batch, site or donor of each distribution, passed on to the `fit` of the learner. An error if `metric` is
            not a learner.

        Returns
        -------
        estimator
            The estimator itself.
        """
        remedy = f"give it as `metric`, e.g. {type(self).__name__}(metric=GroundMetricLearner())"
        refuse_points_of_learner(X, y, remedy)
        D = as_distributions(X)
        labels = self._check_y(y, D)
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
            raise ValueError(f"strata are given, but metric is {self.metric!r}, which is not a learner: leave them out")
        else:
            self.metric_ = self.metric
        if isinstance(self.metric_, GroundMetric):
            self.metric_.check_fit(D)
        self._train = with_equal_points(D, self.n_points_, stacklevel=2)
        self.n_features_in_ = D.shape[1]
        return self

    def _check_y(self, y: Any, D: Distributions) -> np.ndarray:
        """Validate and store the labels; return them for a learner."""
        raise NotImplementedError

    def kneighbors(
        self, X: DistributionsLike | None = None, n_neighbors: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return distances and positions of the nearest training distributions, by `n_points` points of each.

        Parameters
        ----------
        X : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions whose neighbours are searched. The rows of an array are distributions of one point each. None
            searches the neighbours of each training distribution among all other ones.
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
            return kneighbors(self._train, None, count, self.metric_, n_jobs=self.n_jobs)
        query = with_equal_points(as_distributions(X), self.n_points_)
        return kneighbors(query, self._train, count, self.metric_, n_jobs=self.n_jobs)
