"""Classifier and regressor by nearest distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin

from .._internal.types import DistributionsLike, Estimator, LabelsLike
from .._internal.validation import align_by_name, check_class_weight, check_labels, label_array, real_array
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric
from ._base import NearestDistributions, class_shares, mean_values


class TransportKNeighborsClassifier(ClassifierMixin, NearestDistributions):
    """Classify a distribution by the labels of the distributions nearest to it in exact Wasserstein distance.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest training distributions that vote; at most the number of training distributions.
    metric : GroundMetric, str or estimator, default="euclidean"
        Distance between points: a metric, the name of a distance of scikit-learn, or an estimator that has a `metric_`
        after `fit`, such as GroundMetricLearner. A copy of such an estimator is fitted to the training data, and its
        parameters can be searched together with those of the classifier (``metric__strength``, …).
    weights : {"distance", "uniform"}, default="distance"
        Weights of votes: one over the distance, or equal. With "distance", neighbours at distance 0 are the only ones
        that vote.
    class_weight : {None, "balanced"}, default=None
        "balanced" divides the votes for a class by its number of training distributions, which increases balanced
        accuracy if class sizes differ.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution that are compared, drawn at random (`Distributions.equalize`), the same
        for training and new distributions: empirical Wasserstein distances grow as distributions have fewer points,
        which alone would separate distributions of different sizes. "equal": `Distributions.common_size` of the
        training distributions; None: all points, with this bias.
    n_jobs : int or None, default=None
        Number of threads of the neighbour search; None means one, -1 one per core.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Classes in sorted order.
    metric_ : GroundMetric or str
        Metric between points: the learned one if `metric` is a learner.
    n_points_ : int or None
        Number of points of each distribution that are compared; None: all.
    n_features_in_ : int
        Number of features of the points.

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
        self,
        n_neighbors: int = 5,
        *,
        metric: GroundMetric | str | Estimator = "euclidean",
        weights: str = "distance",
        class_weight: str | None = None,
        n_points: int | str | None = "equal",
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(n_neighbors, metric=metric, weights=weights, n_points=n_points, n_jobs=n_jobs)
        self.class_weight = class_weight

    def _check_y(self, y: Any, D: Distributions) -> np.ndarray:
        check_class_weight(self.class_weight)
        labels = check_labels(y, D.name_index)
        self.classes_, self._codes = np.unique(labels, return_inverse=True)
        return labels

    def predict_proba(self, X: DistributionsLike) -> np.ndarray:
        """Return the share of the neighbours' votes for each class.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Shares in the order of `classes_`; each row sums to 1.
        """
        distances, indices = self.kneighbors(X)
        among = None if self.class_weight is None else self._codes
        return class_shares(distances, self._codes[indices], self.classes_.size, self.weights, among=among)

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Return the class with the most votes for each distribution; ties go to the first in `classes_`.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted classes.
        """
        votes = self.predict_proba(X)
        return self.classes_[np.argmax(votes, axis=1)]

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of the predicted classes.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            True classes; matched by name if they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name if they carry names.

        Returns
        -------
        float
            Share of the distributions whose class is predicted correctly.
        """
        D = as_distributions(X)
        return super().score(
            D, label_array(y, D.name_index), align_by_name(sample_weight, D.name_index, "sample_weight")
        )


class TransportKNeighborsRegressor(RegressorMixin, NearestDistributions):
    """Predict a number for a distribution from those of the distributions nearest to it in exact Wasserstein distance.

    The prediction is the weighted mean of the neighbours' values; for ordered classes (0, 1, 2, …), the expected rank.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest training distributions that are averaged; at most the number of training distributions.
    metric : GroundMetric, str or estimator, default="euclidean"
        Distance between points: a metric, the name of a distance of scikit-learn, or an estimator that has a `metric_`
        after `fit`, such as GroundMetricLearner. A copy of such an estimator is fitted to the training data; to learn
        from numbers, GroundMetricLearner needs ``target="ordered"``.
    weights : {"distance", "uniform"}, default="distance"
        Weights of neighbours: one over the distance, or equal. With "distance", neighbours at distance 0 are the only
        ones that are averaged.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution that are compared, drawn at random (`Distributions.equalize`), the same
        for training and new distributions: empirical Wasserstein distances grow as distributions have fewer points,
        which alone would separate distributions of different sizes. "equal": `Distributions.common_size` of the
        training distributions; None: all points, with this bias.
    n_jobs : int or None, default=None
        Number of threads of the neighbour search; None means one, -1 one per core.

    Attributes
    ----------
    metric_ : GroundMetric or str
        Metric between points: the learned one if `metric` is a learner.
    n_points_ : int or None
        Number of points of each distribution that are compared; None: all.
    n_features_in_ : int
        Number of features of the points.

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
        """Return the weighted mean of the values of each distribution's neighbours.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,) or (n_distributions, n_outputs)
            Predicted values.
        """
        distances, indices = self.kneighbors(X)
        return mean_values(distances, self._values[indices], self.weights)

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination, R², of the predicted values.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or (n_distributions, n_outputs)
            True values; matched by name if they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name if they carry names.

        Returns
        -------
        float
            R²: 1 for perfect predictions, 0 for those as good as the mean of `y`.
        """
        D = as_distributions(X)
        return super().score(
            D, align_by_name(y, D.name_index, "y"), align_by_name(sample_weight, D.name_index, "sample_weight")
        )
