"""Further ground metrics (mapped, blended, named distances), and the files of all metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from .._internal.files import Damaged, read_arrays, write_arrays
from ..distributions import Distributions
from .base import Cost, DiagonalMetric, EuclideanMetric, GroundMetric


class MappedMetric(GroundMetric):
    """Metric between mapped points: d(x, y) = d'(φ(x), φ(y)).

    Parameters
    ----------
    feature_map : fitted scikit-learn transformer
        The map φ of points.
    inner : GroundMetric
        The metric d' between mapped points.
    n_features, features : int, and sequence of str or None
        Number and names of the features before the map.
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
            raise ValueError(f"inner is {inner!r}, an average of distances: blend two mapped metrics instead")
        self.feature_map, self.inner = feature_map, inner
        self._describe(inner.n_components, int(n_features), features, cost=inner.cost)
        self.probes = np.zeros((1, self.n_features)) if probes is None else np.asarray(probes, dtype=np.float64)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("this metric is linear in mapped features, whose weights are `metric.inner.components`")

    def project(self, points: Any) -> np.ndarray:
        return self.inner.project(image(self.feature_map, self._check_points(points)))


def fit_map(feature_map: Any, D: Distributions) -> Any:
    """Return a copy of the map, fitted to all points."""
    missing = [name for name in ("fit", "transform", "get_params") if not hasattr(feature_map, name)]
    if missing or isinstance(feature_map, type):
        raise TypeError(f"feature_map is {feature_map!r}: expected a scikit-learn transformer, an object")
    return clone(feature_map).fit(D.points)


def map_points(feature_map: Any, D: Distributions) -> Distributions:
    return D.with_points(image(feature_map, D.points))


def some_points(D: Distributions) -> np.ndarray:
    """Return evenly spaced points as probes, whose images identify a map when the metric is loaded."""
    rows = np.linspace(0, D.points.shape[0] - 1, 8).astype(int)
    points = D.points[rows]
    return np.asarray(points.toarray() if sparse.issparse(points) else points, dtype=np.float64)


def image(feature_map: Any, points: Any) -> Any:
    """Return mapped points; raise unless each is a row of finite numbers."""
    mapped = feature_map.transform(points)
    mapped = mapped.tocsr() if sparse.issparse(mapped) else np.asarray(mapped)
    name = type(feature_map).__name__
    if mapped.ndim != 2 or mapped.shape[0] != points.shape[0]:
        n_points = points.shape[0]
        raise ValueError(f"feature_map {name} made shape {mapped.shape} of {n_points} points: expected a row each")
    if not np.isfinite(mapped.data if sparse.issparse(mapped) else mapped).all():
        raise ValueError(f"feature_map {name} gave NaN or infinity: scale the points first, e.g. with StandardScaler")
    return mapped


class BlendedMetric(GroundMetric):
    """The weighted average of two metrics' distances: a metric, but not a Mahalanobis distance."""

    def __init__(self, first: GroundMetric, second: GroundMetric, weight: float) -> None:
        self.first, self.second, self.weight = first, second, float(weight)
        variances = second.variances if first.variances is None else first.variances
        n_components, features = first.n_components + second.n_components, first.features or second.features
        self._describe(n_components, first.n_features, features, variances)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        raise TypeError("an average of distances has no components: `metric.first` and `metric.second` may have")

    def project(self, points: Any) -> np.ndarray:
        # The distance is the sum of the distances in the two weighted projections.
        points = self._check_points(points)
        parts = (1.0 - self.weight) * self.first.project(points), self.weight * self.second.project(points)
        return np.hstack(parts)

    def projected_distances(self, x: Any, y: Any) -> np.ndarray:
        k, total = self.first.n_components, np.zeros((x.shape[0], y.shape[0]))
        parts = (self.first, 1.0 - self.weight, slice(0, k)), (self.second, self.weight, slice(k, None))
        for metric, weight, part in parts:
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


# Files may come from an untrusted source: `read_arrays` checks sizes before unpacking, constructors check values, and
# all errors are ValueErrors that name the file.
_FORMAT, _TITLE = "groundmetric.GroundMetric", "saved GroundMetric"
_VERSION = 3  # 2: costs, diagonal and mapped metrics; 3: the checksum includes the version


def write(metric: GroundMetric, path: str | os.PathLike[str]) -> None:
    arrays: dict[str, np.ndarray] = {}
    write_parts(_pack(metric, "", arrays), arrays, path)


def read(path: str | os.PathLike[str], feature_map: Any = None) -> GroundMetric:
    description, arrays = read_parts(path)
    try:
        return _unpack(description, arrays, feature_map)
    except (LookupError, TypeError, AttributeError, RecursionError, Damaged) as error:
        reason = error if isinstance(error, Damaged) else f"{type(error).__name__} {error}"
        raise Damaged(f"{os.fspath(path)!r} is damaged or not a {_TITLE}: {reason}") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from error


def write_parts(description: dict[str, Any], arrays: dict[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    write_arrays(path, _FORMAT, _VERSION, description, arrays, compress=True)


def read_parts(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return read_arrays(path, _FORMAT, _VERSION, oldest=1, title=_TITLE)


def _pack(metric: GroundMetric, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a description of a metric for JSON, and add its arrays to `arrays` under names with this prefix."""
    if isinstance(metric, BlendedMetric):
        parts = [_pack(part, f"{prefix}{k}.", arrays) for k, part in enumerate((metric.first, metric.second))]
        return {"kind": "blend", "weight": metric.weight, "parts": parts}
    if isinstance(metric, EuclideanMetric):
        return {"kind": "euclidean", "n_features": metric.n_features, "features": metric.features}
    if isinstance(metric, MappedMetric):
        arrays[f"{prefix}probes"], arrays[f"{prefix}images"] = metric.probes, metric.project(metric.probes)
        name, inner = type(metric.feature_map).__name__, _pack(metric.inner, f"{prefix}inner.", arrays)
        return {"kind": "mapped", "map": name, "inner": inner, "features": metric.features}
    if metric.variances is not None:
        arrays[f"{prefix}variances"] = metric.variances
    description: dict[str, Any] = {"features": metric.features}
    if metric.cost is not Cost.EUCLIDEAN:
        description["cost"] = metric.cost.name.lower()
    if isinstance(metric, DiagonalMetric):
        arrays[f"{prefix}weights"] = metric.weights
        return {"kind": "diagonal", **description}
    arrays[f"{prefix}components"] = metric.components
    return {"kind": "linear", **description}


def _unpack(description: Any, arrays: dict[str, np.ndarray], feature_map: Any, prefix: str = "") -> GroundMetric:
    """Return the metric of a description; raise if the description or an array is invalid."""
    kind, features = description["kind"], description.get("features")
    if features is not None and not (isinstance(features, list) and all(isinstance(name, str) for name in features)):
        raise Damaged("features is not a list of names")
    if kind == "blend":
        parts = enumerate(description["parts"])
        first, second = (_unpack(part, arrays, feature_map, f"{prefix}{k}.") for k, part in parts)
        return first.blend(second, description["weight"])
    if kind == "euclidean":
        return EuclideanMetric(description["n_features"], features)
    if kind == "mapped":
        if feature_map is None:
            problem = f"the metric was learned with a feature map ({description['map']}), which is not in the file"
            raise ValueError(f"{problem}: give the fitted map, GroundMetric.load(path, feature_map=...)")
        inner = _unpack(description["inner"], arrays, None, f"{prefix}inner.")
        probes, images = arrays[f"{prefix}probes"], arrays[f"{prefix}images"]
        metric = MappedMetric(feature_map, inner, probes.shape[1], features, probes=probes)
        mapped = metric.project(probes)
        if mapped.shape != images.shape:
            raise Damaged(f"it has images of shape {images.shape}, but the map gives {mapped.shape}")
        if not np.allclose(mapped, images, rtol=1e-6, atol=1e-9 * np.abs(images).max()):
            raise ValueError("feature_map differs from the map that the metric was learned with: other images")
        return metric
    options = {"variances": arrays.get(f"{prefix}variances"), "cost": description.get("cost", "euclidean")}
    if kind == "diagonal":
        return DiagonalMetric(arrays[f"{prefix}weights"], features, **options)
    if kind == "linear":
        return GroundMetric(arrays[f"{prefix}components"], features, **options)
    raise ValueError(f"the file holds a metric of kind {kind!r}: read it with `groundmetric.neural.load(path, module)`")
