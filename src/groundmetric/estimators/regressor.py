"""A regressor by nearest distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from .._internal.alignment import aligned
from .._internal.validation import real_array
from ..distributions import as_distributions
from ._base import NearestDistributions, mean_values


class TransportKNeighborsRegressor(RegressorMixin, NearestDistributions):
    """Predict a number for a distribution from those of the distributions nearest to it in exact Wasserstein distance.

    The prediction is the mean of the neighbours' values. Of ordered classes (0, 1, 2, …) it is the expected rank.

    Parameters
    ----------
    n_neighbors : int
    metric : GroundMetric, the name of a distance between points, or a GroundMetricLearner
        A learner is fitted to the training data first; for numbers it needs ``target="ordered"``.
    weights : {"distance", "uniform"}
        Whether nearer neighbours count more, by one over the distance.
    n_jobs : int or None

    Attributes
    ----------
    metric_ : the metric that is used

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [2.0], [9.0]], samples=["a", "b", "c"])
    >>> regressor = gm.TransportKNeighborsRegressor(2).fit(D, [0.0, 10.0, 50.0])
    >>> regressor.predict(gm.Distributions([[1.0]], samples=["new"])).tolist()
    [5.0]
    """

    def fit(self, X: Any, y: Any, strata: Any = None) -> TransportKNeighborsRegressor:
        """Keep the training distributions; fit the metric first where it is a learner, which is given the strata."""
        D = as_distributions(X)
        values = np.array(real_array(aligned(y, D.roll, "y"), "y"), dtype=np.float64)
        if values.ndim == 0 or values.ndim > 2 or len(values) != len(D):
            raise ValueError(f"y has shape {values.shape}, but a value is needed for each of {len(D)}")
        if not np.isfinite(values).all():
            raise ValueError("y contains a missing or infinite value: drop the distribution or give a finite one")
        self._keep(D, values, strata)
        self._values = values
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The mean value of each distribution's neighbours."""
        distances, places = self.kneighbors(X)
        return mean_values(distances, self._values[places], self.weights)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²; values and weights that carry names go by those of the distributions."""
        D = as_distributions(X)
        return super().score(D, aligned(y, D.roll, "y"), aligned(sample_weight, D.roll, "sample_weight"))
