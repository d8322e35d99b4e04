"""Further ground metrics: after a feature map (a scikit-learn transformer), blends of two metrics, named distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from .._internal.validation import check_features
from ..distributions import Distributions
from .base import GroundMetric

# Number of points whose images are saved, to check the map that a user supplies when the metric is loaded.
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
        Points whose images identify the map in a saved file. None means the origin.

    Examples
    --------
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> import groundmetric as gm
    >>> squares = PolynomialFeatures(2, include_bias=False).fit([[0.0]])  # x and x²
    >>> metric = gm.metrics.MappedMetric(squares, gm.GroundMetric([[0.0, 1.0]]), 1)
    >>> metric.distances([[1.0]], [[3.0]]).tolist()
    [[8.0]]
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
        if isinstance(inner, BlendedMetric):
            raise ValueError(
                f"inner is {inner!r}, an average of distances: blend two mapped metrics, or use blend(of='matrices')"
            )
        self.feature_map, self.inner = feature_map, inner
        self._n_features = int(n_features)
        self.features = check_features(features, self._n_features)
        self.variances, self.cost = None, inner.cost
        self.probes = np.zeros((1, self._n_features)) if probes is None else np.asarray(probes, dtype=np.float64)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError(
            "this metric is linear in mapped features only: `metric.inner.components` are the weights of these"
        )

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def n_components(self) -> int:
        return self.inner.n_components

    def project(self, points: Any) -> np.ndarray:
        """Map points, then project them by the inner metric.

        Parameters
        ----------
        points : array or sparse matrix of shape (n_points, n_features), data frame or Distributions
            Points as rows.

        Returns
        -------
        array of shape (n_points, n_components)
            The projected points.
        """
        return self.inner.project(image(self.feature_map, self._check_points(points)))


def fit_map(feature_map: Any, D: Distributions) -> Any:
    """Return a copy of the map, fitted to all points."""
    missing = [name for name in ("fit", "transform", "get_params") if not hasattr(feature_map, name)]
    if missing or isinstance(feature_map, type):
        raise TypeError(
            f"feature_map is {feature_map!r}: expected a scikit-learn transformer, such as SplineTransformer()"
        )
    return clone(feature_map).fit(D.points)


def map_points(feature_map: Any, D: Distributions) -> Distributions:
    """Return the distributions with mapped points."""
    return D.with_points(image(feature_map, D.points))


def some_points(D: Distributions) -> np.ndarray:
    """Return evenly spaced rows of the points as probes."""
    rows = np.linspace(0, D.points.shape[0] - 1, N_PROBES).astype(int)
    points = D.points[rows]
    return np.asarray(points.toarray() if sparse.issparse(points) else points, dtype=np.float64)


def image(feature_map: Any, points: Any) -> Any:
    """Return mapped points; raise unless each is a row of finite numbers."""
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


class BlendedMetric(GroundMetric):
    """The weighted average of two metrics' distances: a metric, but not a Mahalanobis distance."""

    def __init__(self, first: GroundMetric, second: GroundMetric, weight: float) -> None:
        self.first, self.second, self.weight = first, second, float(weight)
        self.features = first.features or second.features
        self.variances = second.variances if first.variances is None else first.variances

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("an average of distances has no components: blend(..., of='matrices') has")

    @property
    def n_features(self) -> int:
        return self.first.n_features

    @property
    def n_components(self) -> int:
        return self.first.n_components + self.second.n_components

    def project(self, points: Any) -> np.ndarray:
        """Return both weighted projections in one array; the distance is the sum of the distances in the two parts."""
        points = self._check_points(points)
        parts = (1.0 - self.weight) * self.first.project(points), self.weight * self.second.project(points)
        return np.hstack(parts)

    def projected_distances(self, x: Any, y: Any) -> np.ndarray:
        k, total = self.first.n_components, np.zeros((x.shape[0], y.shape[0]))
        for metric, weight, part in (
            (self.first, 1.0 - self.weight, slice(0, k)),
            (self.second, self.weight, slice(k, None)),
        ):
            if weight:  # points are divided by the weight, because squared costs are not proportional to it
                total += weight * metric.projected_distances(x[:, part] / weight, y[:, part] / weight)
        return total

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        return (1.0 - self.weight) * self.first.distances(x, y) + self.weight * self.second.distances(x, y)


class NamedDistance:
    """A distance between points by its name in scikit-learn."""

    def __init__(self, name: str) -> None:
        self.name = name

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        from sklearn.metrics import pairwise_distances as sklearn_distances  # 10 MB that learning does without

        return sklearn_distances(x, y, metric=self.name)

    def __repr__(self) -> str:
        return repr(self.name)
