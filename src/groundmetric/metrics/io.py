"""Files of metrics: a line of JSON with a checksum, then the arrays in numpy's .npz format; no pickle.

A file may come from an untrusted source. Sizes are checked before unpacking, and types and ranges before a metric is
made; errors are ValueErrors that name the file.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._internal.files import Damaged, read_arrays, write_arrays
from .base import Cost, DiagonalMetric, EuclideanMetric, GroundMetric
from .forms import BlendedMetric, MappedMetric

_FORMAT, _TITLE = "groundmetric.GroundMetric", "saved GroundMetric"
_VERSION = 3  # 2: costs, diagonal and mapped metrics; 3: the checksum includes the version
_MAX_DEPTH = 50  # blends of blends


def write(metric: GroundMetric, path: str | os.PathLike[str]) -> None:
    arrays: dict[str, np.ndarray] = {}
    write_parts(_pack(metric, "", arrays), arrays, path)


def read(path: str | os.PathLike[str], feature_map: Any = None) -> GroundMetric:
    description, arrays = read_parts(path)
    try:
        return _unpack(description, arrays, feature_map)
    except (KeyError, TypeError, AttributeError, OverflowError, MemoryError, Damaged) as error:
        reason = error if isinstance(error, Damaged) else f"{type(error).__name__} {error}"
        raise Damaged(f"{os.fspath(path)!r} is damaged or not a {_TITLE}: {reason}") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from error


def write_parts(description: dict[str, Any], arrays: dict[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    """Write a file by an atomic write, which replaces an older metric but no other kind of file."""
    write_arrays(path, _FORMAT, _VERSION, description, arrays, compress=True)


def read_parts(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_parts` made."""
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


def _unpack(
    description: Any, arrays: dict[str, np.ndarray], feature_map: Any = None, prefix: str = "", depth: int = 0
) -> GroundMetric:
    """Return the metric of a description; raise `Damaged` or another error if the description is invalid."""
    if not isinstance(description, dict) or depth > _MAX_DEPTH:
        raise Damaged("a part is not described by an object, or is nested too deeply")
    kind, features = description["kind"], description.get("features")
    if features is not None and not (isinstance(features, list) and all(isinstance(name, str) for name in features)):
        raise Damaged("features is not a list of names")
    if kind == "blend":
        parts, weight = description["parts"], description["weight"]
        if not isinstance(parts, list) or len(parts) != 2:
            raise Damaged("a blend needs two metrics")
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise Damaged(f"the weight of a blend is {weight!r}: expected a number")
        first, second = (_unpack(part, arrays, feature_map, f"{prefix}{k}.", depth + 1) for k, part in enumerate(parts))
        return first.blend(second, weight)  # checks that the metrics have the same features
    if kind == "euclidean":
        n_features = description["n_features"]
        if isinstance(n_features, bool) or not isinstance(n_features, int):
            raise Damaged(f"the number of features is {n_features!r}")
        return EuclideanMetric(n_features, features)
    if kind == "mapped":
        inner = _unpack(description["inner"], arrays, None, f"{prefix}inner.", depth + 1)
        probes, images = _matrix(arrays[f"{prefix}probes"]), _matrix(arrays[f"{prefix}images"])
        return _mapped(feature_map, description["map"], inner, features, probes, images)
    variances = arrays.get(f"{prefix}variances")
    if variances is not None and (variances.dtype.kind != "f" or not np.isfinite(variances).all()):
        raise Damaged("variances are not finite numbers")
    options: dict[str, Any] = {"variances": variances, "cost": description.get("cost", "euclidean")}
    if kind == "diagonal":
        return DiagonalMetric(arrays[f"{prefix}weights"], features, **options)
    if kind == "linear":
        return GroundMetric(arrays[f"{prefix}components"], features, **options)
    raise ValueError(f"the file holds a metric of kind {kind!r}: read it with `groundmetric.neural.load(path, module)`")


def _mapped(
    feature_map: Any, name: Any, inner: GroundMetric, features: Any, probes: np.ndarray, images: np.ndarray
) -> MappedMetric:
    """Return a mapped metric; the file has no map, but images of a few points by which the user's map is checked."""
    if feature_map is None:
        raise ValueError(
            f"the metric was learned with a feature map ({name}), which is not in the file: give the fitted map, "
            "GroundMetric.load(path, feature_map=...)"
        )
    metric = MappedMetric(feature_map, inner, probes.shape[1], features, probes=probes)
    mapped = metric.project(probes)
    if mapped.shape != images.shape:
        raise Damaged(f"it has images of shape {images.shape}, but the map gives {mapped.shape}")
    if not np.allclose(mapped, images, rtol=1e-6, atol=1e-9 * np.abs(images).max()):
        raise ValueError("feature_map differs from the map that the metric was learned with: points have other images")
    return metric


def _matrix(values: np.ndarray) -> np.ndarray:
    if values.ndim != 2 or values.size == 0 or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise Damaged(f"an array of shape {values.shape} is not a matrix of finite numbers")
    return values
