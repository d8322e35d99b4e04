"""A ground metric with a weight per feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from .._internal.validation import real_array
from .base import GroundMetric
from .cost import Cost


class DiagonalMetric(GroundMetric):
    """Metric with a weight for each feature: d(x, y) = |diag(w)(x - y)|.

    The matrix is never stored, and projections leave out features of weight 0.

    Parameters
    ----------
    weights : array of shape (n_features,)
        Weight w of each feature, not negative.
    features : sequence of str or None, default=None
        Names of the features.
    variances : array of shape (n_features,) or None, default=None
        Variance of each feature in the training data, which makes `importance` independent of units.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of a step between projected points, as in GroundMetric.

    Examples
    --------
    >>> metric = DiagonalMetric([2.0, 0.0, 1.0])
    >>> metric.project([[1.0, 7.0, 3.0]]).tolist()
    [[2.0, 3.0]]
    >>> metric.components.tolist()
    [[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        weights: Any,
        features: Sequence[str] | None = None,
        *,
        variances: Any = None,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        weights = np.array(real_array(weights, "weights"), dtype=np.float64)
        if weights.ndim != 1 or weights.size == 0:
            raise ValueError(f"weights have shape {weights.shape}: expected (n_features,)")
        if not (np.isfinite(weights) & (weights >= 0.0)).all():
            raise ValueError("weights must be finite numbers that are not negative")
        self.weights = weights
        # Without any weight all distances are 0; one component is kept, so that there is a space to be in.
        self._used = np.flatnonzero(weights) if weights.any() else np.array([0])
        self._describe(features, variances, cost)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        rows = np.zeros((self.n_components, self.n_features))
        rows[np.arange(self.n_components), self._used] = self.weights[self._used]
        return rows

    @property
    def n_features(self) -> int:
        return self.weights.size

    @property
    def n_components(self) -> int:
        return self._used.size

    def project(self, points: Any) -> np.ndarray:
        points = self._check_points(points)[:, self._used]
        points = points.toarray() if sparse.issparse(points) else points
        return points.astype(np.float64, copy=False) * self.weights[self._used]

    def matrix(self) -> np.ndarray:
        return np.diag(self.weights**2)

    def _largest_weights(self) -> np.ndarray:
        return self.weights

    def _diagonal(self, power: np.ndarray) -> np.ndarray:
        return np.ldexp(self.weights, power) ** 2
