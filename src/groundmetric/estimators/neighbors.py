"""Classifier and regressor by votes of the nearest distributions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._internal.types import DistributionsLike, Estimator, LabelsLike
from .._internal.validation import (
    align_by_name,
    check_class_weight,
    check_labels,
    check_number,
    label_array,
    real_array,
    refuse_points_of_learner,
)
from ..distances import kneighbors
from ..distributions import Distributions, as_distributions, resolve_n_points, with_equal_points
from ..metrics.base import GroundMetric


def check_weights(weights: str) -> None:
    if weights not in ("distance", "uniform"):
        raise ValueError(f"weights is {weights!r}: expected 'distance' or 'uniform'")


def class_shares(
    distances: np.ndarray, codes: np.ndarray, n_classes: int, weights: str, *, among: np.ndarray | None = None
) -> np.ndarray:
    """Return the share of the neighbours' votes for each class, shape (n_items, n_classes).

    `distances` and class `codes` have a row per item and a column per neighbour. With `among`, the codes of all
    training distributions, votes are divided by the size of their class.
    """
    votes = _votes(distances, weights)
    shares = np.stack([(votes * (codes == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    if among is not None:
        shares /= np.maximum(np.bincount(among, minlength=n_classes), 1)
    return shares / shares.sum(axis=1, keepdims=True)


def mean_values(distances: np.ndarray, values: np.ndarray, weights: str) -> np.ndarray:
    """Return the mean of the neighbours' values, shape (n_items, n_neighbors, …), weighted as their votes."""
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
        self, n_neighbors: int = 5, *, metric: GroundMetric | str | Estimator = "euclidean", weights: str = "distance",
        n_points: int | str | None = "equal", n_jobs: int | None = None,
    ) -> None:  # fmt: skip
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
            Distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,), for a regressor also (n_distributions, n_outputs)
            Classes or finite numbers. Labels, groups, strata and weights are matched by name if they carry names (a
            Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), for the `fit` of a learner that takes groups;
            votes of neighbours do not depend on them.
        strata : array-like of shape (n_distributions,) or None, default=None
            Batch, site or donor of each distribution, for the `fit` of the learner; an error without a learner.
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
        """Validate and store the labels of the training distributions; return them for a learner."""
        raise NotImplementedError

    def kneighbors(
        self, X: DistributionsLike | None = None, n_neighbors: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return distances and positions of the nearest training distributions, by `n_points` points of each.

        Both arrays have a row per distribution of `X` and a column per neighbour, the nearest first. None as `X`
        searches the neighbours of each training distribution among all other ones.
        """
        check_is_fitted(self, "metric_")
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        if X is None:
            return kneighbors(self._train, None, count, self.metric_, n_jobs=self.n_jobs)
        query = with_equal_points(as_distributions(X), self.n_points_)
        return kneighbors(query, self._train, count, self.metric_, n_jobs=self.n_jobs)


class TransportKNeighborsClassifier(ClassifierMixin, NearestDistributions):
    """Classifier of distributions by their nearest training distributions in exact Wasserstein distance.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest training distributions that vote.
    metric : GroundMetric, str or estimator, default="euclidean"
        Distance between points: a metric, the name of a distance of scikit-learn, or an estimator that has a `metric_`
        after `fit`, such as GroundMetricLearner. A copy of such an estimator is fitted to the training data, and its
        parameters can be searched together with those of the classifier (``metric__strength``, …).
    weights : {"distance", "uniform"}, default="distance"
        Weights of votes: one over the distance (only neighbours at distance 0 vote, if there are any), or equal.
    class_weight : {None, "balanced"}, default=None
        "balanced" divides the votes for a class by its number of training distributions.
    n_points : "equal", int or None, default="equal"
        Points of each distribution that are drawn to compare (`Distributions.equalize`): Wasserstein distances grow as
        distributions have fewer points. "equal": `Distributions.common_size` of the training distributions; None: all.
    n_jobs : int or None, default=None
        Number of threads of the neighbour search; None means one, -1 one per core.

    Attributes
    ----------
    classes_, metric_ : array of shape (n_classes,), GroundMetric or str
        Classes in sorted order, and the metric between points: the learned one if `metric` is a learner.
    n_points_, n_features_in_ : int
        Number of points of each distribution that are compared (None: all), and of features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=20, random_state=0)
    >>> classifier = gm.TransportKNeighborsClassifier(metric=learner).fit(D[::2], y[::2])
    >>> float(classifier.score(D[1::2], y[1::2]))
    1.0
    """

    def __init__(
        self, n_neighbors: int = 5, *, metric: GroundMetric | str | Estimator = "euclidean", weights: str = "distance",
        class_weight: str | None = None, n_points: int | str | None = "equal", n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(n_neighbors, metric=metric, weights=weights, n_points=n_points, n_jobs=n_jobs)
        self.class_weight = class_weight

    def _check_y(self, y: Any, D: Distributions) -> np.ndarray:
        check_class_weight(self.class_weight)
        labels = check_labels(y, D.name_index)
        self.classes_, self._codes = np.unique(labels, return_inverse=True)
        return labels

    def predict_proba(self, X: DistributionsLike) -> np.ndarray:
        """Return the share of the neighbours' votes for each class, (n_distributions, n_classes)."""
        distances, indices = self.kneighbors(X)
        among = None if self.class_weight is None else self._codes
        return class_shares(distances, self._codes[indices], self.classes_.size, self.weights, among=among)

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Return the class with the most votes for each distribution; ties go to the first in `classes_`."""
        votes = self.predict_proba(X)
        return self.classes_[np.argmax(votes, axis=1)]

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of the distributions whose class is predicted correctly, weighted by `sample_weight`."""
        index = (D := as_distributions(X)).name_index
        return super().score(D, label_array(y, index), align_by_name(sample_weight, index, "sample_weight"))


class TransportKNeighborsRegressor(RegressorMixin, NearestDistributions):
    """Regressor of distributions by their nearest training distributions in exact Wasserstein distance.

    The prediction is the weighted mean of the neighbours' values; for ordered classes (0, 1, 2, …), the expected rank.

    Parameters
    ----------
    n_neighbors, metric, weights, n_points, n_jobs : as in `TransportKNeighborsClassifier`
        To learn a metric from numbers, GroundMetricLearner needs ``target="ordered"``.

    Attributes
    ----------
    metric_, n_points_, n_features_in_ : as in `TransportKNeighborsClassifier`
        Metric between points, and the numbers of points and features that are compared.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [2.0], [9.0]], samples=["a", "b", "c"])
    >>> regressor = gm.TransportKNeighborsRegressor(2).fit(D, [0.0, 10.0, 50.0])
    >>> regressor.predict(gm.Distributions([[1.0]], samples=["new"])).tolist()
    [5.0]
    """

    def _check_y(self, y: Any, D: Distributions) -> np.ndarray:
        values = np.array(real_array(align_by_name(y, D.name_index, "y"), "y"), dtype=np.float64)
        if values.ndim == 0 or values.ndim > 2 or len(values) != len(D):
            raise ValueError(f"y has shape {values.shape}, but a value is needed for each of {len(D)}")
        if not np.isfinite(values).all():
            raise ValueError("y contains a missing or infinite value: drop the distribution or give a finite one")
        self._values = values
        return values

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Return the weighted mean of the values of each distribution's neighbours, in the shape of `y` in `fit`."""
        distances, indices = self.kneighbors(X)
        return mean_values(distances, self._values[indices], self.weights)

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predicted values, with weights `sample_weight`: 0 if as good as the mean of `y`."""
        index = (D := as_distributions(X)).name_index
        return super().score(D, align_by_name(y, index, "y"), align_by_name(sample_weight, index, "sample_weight"))
