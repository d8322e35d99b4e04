"""A regressor by nearest distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import align_by_name, real_array
from ..distributions import as_distributions
from ._base import NearestDistributions, mean_values


class TransportKNeighborsRegressor(RegressorMixin, NearestDistributions):
    """Predict a number for a distribution from those of the distributions nearest to it in exact Wasserstein distance.

    The prediction is the weighted mean of the neighbours' values. Of ordered classes (0, 1, 2, …) it is the expected
    rank.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of nearest training distributions that are averaged; not more than there are.
    metric : GroundMetric, str or estimator, default="euclidean"
        Distance between points: a metric, the name of a distance of scikit-learn, or an estimator that has a `metric_`
        after `fit`, such as GroundMetricLearner. A copy of such an estimator is fitted to the training data; to learn
        from numbers, GroundMetricLearner needs ``target="ordered"``.
    weights : {"distance", "uniform"}, default="distance"
        Neighbours count by one over the distance, or equally. With "distance", only neighbours at distance 0 count
        where there are any.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution that are compared, drawn at random (`Distributions.equalize`), the same
        for training and new distributions: empirical Wasserstein distances grow as distributions have fewer points, so
        that distributions of different sizes differ for this reason alone. "equal": `Distributions.common_size` of the
        training distributions; None: all points, with this bias.
    n_jobs : int or None, default=None
        Number of threads of the neighbour search; None means one, -1 one per core.

    Attributes
    ----------
    metric_ : GroundMetric or str
        Metric between points: the learned one where `metric` is a learner.
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

    def fit(
        self, X: DistributionsLike, y: LabelsLike, strata: LabelsLike | None = None
    ) -> TransportKNeighborsRegressor:
        """Store the training distributions; where `metric` is a learner, fit a copy of it to them first.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or (n_distributions, n_outputs)
            Finite numbers; matched by name where they carry names (a Series, a dict).
        strata : array-like of shape (n_distributions,) or None, default=None
            Batch, site or donor of each distribution, passed on to the `fit` of the learner. An error where `metric`
            is not a learner.

        Returns
        -------
        TransportKNeighborsRegressor
            The estimator itself.
        """
        D = as_distributions(X)
        values = np.array(real_array(align_by_name(y, D.name_index, "y"), "y"), dtype=np.float64)
        if values.ndim == 0 or values.ndim > 2 or len(values) != len(D):
            raise ValueError(f"y has shape {values.shape}, but a value is needed for each of {len(D)}")
        if not np.isfinite(values).all():
            raise ValueError("y contains a missing or infinite value: drop the distribution or give a finite one")
        self._keep(D, values, strata)
        self._values = values
        return self

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Weighted mean of the values of each distribution's neighbours.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,) or (n_distributions, n_outputs)
            Predicted values.
        """
        distances, places = self.kneighbors(X)
        return mean_values(distances, self._values[places], self.weights)

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination, R², of the predicted values.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or (n_distributions, n_outputs)
            True values; matched by name where they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name where they carry names.

        Returns
        -------
        float
            R²: 1 for perfect predictions, 0 for those as good as the mean of `y`.
        """
        D = as_distributions(X)
        return super().score(
            D, align_by_name(y, D.name_index, "y"), align_by_name(sample_weight, D.name_index, "sample_weight")
        )
