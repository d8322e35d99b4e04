"""A ground metric behind a feature map: mild non-linearity from any scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from ..distributions import Distributions, check_features
from .base import GroundMetric

# Points whose images go into a saved file, to recognise the map when it is given back.
N_PROBES = 8


class MappedMetric(GroundMetric):
    """Metric between mapped points: d(x, y) = d'(φ(x), φ(y)).

    Parameters
    ----------
    feature_map : fitted scikit-learn transformer
        The map φ of points.
    inner : GroundMetric
        The metric d' between mapped points.
    n_features : int
        Number of features of the points before the map.
    features : sequence of str or None, default=None
        Names of the features before the map.
    probes : array of shape (n_probes, n_features) or None, default=None
        Points whose images tell one map from another in a saved file. None means the origin.
    """

    def __init__(
        self,
        feature_map: Any,
        inner: GroundMetric,
        n_features: int,
        features: Sequence[str] | None = None,
        *,
        probes: np.ndarray | None = None,
    ) -> None:
        self.feature_map, self.inner = feature_map, inner
        self._n_features = int(n_features)
        self.features = check_features(features, self._n_features)
        self.variances, self.cost = None, inner.cost
        self.probes = np.zeros((1, self._n_features)) if probes is None else np.asarray(probes, dtype=np.float64)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError(
            "this metric is linear in mapped features only: `metric.inner.components` are the weights of those"
        )

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def n_components(self) -> int:
        return self.inner.n_components

    def project(self, points: Any) -> np.ndarray:
        """Map points, then project them by the inner metric, (n_points, n_components)."""
        return self.inner.project(image(self.feature_map, self._check_points(points)))

    def images_of_probes(self) -> np.ndarray:
        return self.project(self.probes)


def fit_map(feature_map: Any, D: Distributions) -> Any:
    """A copy of the map, fitted to all points."""
    missing = [name for name in ("fit", "transform", "get_params") if not hasattr(feature_map, name)]
    if missing or isinstance(feature_map, type):
        raise TypeError(
            f"feature_map is {feature_map!r}: expected a scikit-learn transformer, such as SplineTransformer()"
        )
    return clone(feature_map).fit(D.points)


def map_points(feature_map: Any, D: Distributions) -> Distributions:
    """The same distributions of mapped points."""
    return D.with_points(image(feature_map, D.points))


def some_points(D: Distributions) -> np.ndarray:
    """A few points from all over, as probes."""
    rows = np.linspace(0, D.points.shape[0] - 1, N_PROBES).astype(int)
    points = D.points[rows]
    return np.asarray(points.toarray() if sparse.issparse(points) else points, dtype=np.float64)


def image(feature_map: Any, points: Any) -> Any:
    """Mapped points, checked: one row of finite numbers for each."""
    mapped = feature_map.transform(points)
    mapped = mapped.tocsr() if sparse.issparse(mapped) else np.asarray(mapped)
    name = type(feature_map).__name__
    if mapped.ndim != 2 or mapped.shape[0] != points.shape[0]:
        raise ValueError(
            f"feature_map {name} made shape {mapped.shape} of {points.shape[0]} points: expected a row each"
        )
    if not np.isfinite(mapped.data if sparse.issparse(mapped) else mapped).all():
        raise ValueError(f"feature_map {name} gave NaN or infinity: scale the points first, e.g. with StandardScaler")
    return mapped
