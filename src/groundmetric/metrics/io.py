"""A metric as a file: a line of JSON with a checksum, then the arrays in numpy's .npz format; no pickle.

A file may come from anybody, so nothing in it is believed: sizes are checked before anything is unpacked, kinds, types
and ranges before a metric is made, and whatever is wrong is a ValueError that names the file.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from .._internal.files import Damaged, check_content, read_header, unpack, write_arrays
from .base import Cost, DiagonalMetric, EuclideanMetric, GroundMetric
from .forms import BlendedMetric, MappedMetric

_FORMAT = "groundmetric.GroundMetric"
_VERSION = 3  # 2: costs, diagonal and mapped metrics; 3: the checksum is of the version, too
_DEEPEST = 50  # blends of blends


def write(metric: GroundMetric, path: str | os.PathLike[str]) -> None:
    arrays: dict[str, np.ndarray] = {}
    write_parts(_pack(metric, "", arrays), arrays, path)


def read(path: str | os.PathLike[str], feature_map: Any = None) -> GroundMetric:
    description, arrays = read_parts(path)
    try:
        return _unpack(description, arrays, feature_map)
    except (KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise _wrong(path, f"{type(error).__name__} {error}") from error
    except Damaged as error:
        raise _wrong(path, error) from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from error


def write_parts(description: dict[str, Any], arrays: dict[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    """Write the file whole or not at all, over an older one of a metric but over nothing else."""
    write_arrays(path, _FORMAT, _VERSION, description, arrays, compress=True)


def read_parts(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_parts` made; say clearly what is wrong with any other."""
    try:
        version, checksum, content = read_header(path, _FORMAT)
    except Damaged:
        raise _wrong(path, "it does not begin as one") from None
    if version > _VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} has format version {version}, this groundmetric reads up to {_VERSION}: update "
            "groundmetric"
        )
    old = version in (1, 2) and hashlib.sha256(content).hexdigest() == checksum
    if not old and not check_content(content, checksum, _FORMAT, version):
        raise _wrong(path, "its content does not match its checksum")
    return unpack(content, repr(os.fspath(path)))


def _wrong(path: str | os.PathLike[str], what: Any) -> ValueError:
    return ValueError(f"{os.fspath(path)!r} is damaged or not a saved GroundMetric: {what}")


def _pack(metric: GroundMetric, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Describe a metric in JSON, its arrays under names with this prefix."""
    if isinstance(metric, BlendedMetric):
        parts = [_pack(part, f"{prefix}{k}.", arrays) for k, part in enumerate((metric.one, metric.other))]
        return {"kind": "blend", "weight": metric.weight, "parts": parts}
    if isinstance(metric, EuclideanMetric):
        return {"kind": "euclidean", "n_features": metric.n_features, "features": metric.features}
    if isinstance(metric, MappedMetric):
        arrays[f"{prefix}probes"], arrays[f"{prefix}images"] = metric.probes, metric.images_of_probes()
        name, inner = type(metric.feature_map).__name__, _pack(metric.inner, f"{prefix}inner.", arrays)
        return {"kind": "mapped", "map": name, "inner": inner, "features": metric.features}
    if metric.variances is not None:
        arrays[f"{prefix}variances"] = metric.variances
    described: dict[str, Any] = {"features": metric.features}
    if metric.cost is not Cost.EUCLIDEAN:
        described["cost"] = metric.cost.name.lower()
    if isinstance(metric, DiagonalMetric):
        arrays[f"{prefix}weights"] = metric.weights
        return {"kind": "diagonal", **described}
    arrays[f"{prefix}components"] = metric.components
    return {"kind": "linear", **described}


def _unpack(
    description: Any, arrays: dict[str, np.ndarray], feature_map: Any = None, prefix: str = "", depth: int = 0
) -> GroundMetric:
    if not isinstance(description, dict) or depth > _DEEPEST:
        raise Damaged("a part of it is described by no object, or lies too deep")
    kind, features = description["kind"], _names(description.get("features"))
    if kind == "blend":
        return _unpack_blend(description, arrays, feature_map, prefix, depth)
    if kind == "euclidean":
        return EuclideanMetric(_whole(description["n_features"]), features)
    if kind == "mapped":
        return _unpack_mapped(description, arrays, feature_map, prefix, depth)
    known: dict[str, Any] = {
        "variances": _finite(arrays.get(f"{prefix}variances")),
        "cost": description.get("cost", "euclidean"),
    }
    if kind == "diagonal":
        return DiagonalMetric(arrays[f"{prefix}weights"], features, **known)
    if kind == "linear":
        return GroundMetric(arrays[f"{prefix}components"], features, **known)
    raise ValueError(f"the file holds a metric of kind {kind!r}: read it with `groundmetric.neural.load(path, module)`")


def _unpack_blend(
    description: dict[str, Any], arrays: dict[str, np.ndarray], feature_map: Any, prefix: str, depth: int
) -> GroundMetric:
    parts, weight = description["parts"], description["weight"]
    if not isinstance(parts, list) or len(parts) != 2:
        raise Damaged("a blend is of two metrics")
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise Damaged(f"the weight of a blend is {weight!r}: expected a number")
    one, other = (_unpack(part, arrays, feature_map, f"{prefix}{k}.", depth + 1) for k, part in enumerate(parts))
    return one.blend(other, weight)  # which checks that the two go together


def _names(features: Any) -> list[str] | None:
    if features is None or (isinstance(features, list) and all(isinstance(name, str) for name in features)):
        return features
    raise Damaged("features are no list of names")


def _whole(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise Damaged(f"the number of features is {number!r}")
    return number


def _unpack_mapped(
    description: dict[str, Any], arrays: dict[str, np.ndarray], feature_map: Any, prefix: str, depth: int
) -> GroundMetric:
    """The map is not in the file; the images of a few points tell whether it is the one that was learned with."""
    if feature_map is None:
        raise ValueError(
            f"the metric was learned behind a feature map ({description['map']}), which is not in the file: "
            "give the fitted one, GroundMetric.load(path, feature_map=...)"
        )
    probes, expected = (_matrix(arrays[f"{prefix}{name}"]) for name in ("probes", "images"))
    inner = _unpack(description["inner"], arrays, None, f"{prefix}inner.", depth + 1)
    metric = MappedMetric(feature_map, inner, probes.shape[1], _names(description["features"]), probes=probes)
    found = metric.images_of_probes()
    if found.shape != expected.shape:
        raise Damaged(f"it has images of shape {expected.shape} where the map gives {found.shape}")
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max()):
        raise ValueError("feature_map is not the one that the metric was learned with: it puts points elsewhere")
    return metric


def _finite(values: np.ndarray | None) -> np.ndarray | None:
    if values is not None and (values.dtype.kind != "f" or not np.isfinite(values).all()):
        raise Damaged("variances are no finite numbers")
    return values


def _matrix(values: np.ndarray) -> np.ndarray:
    if values.ndim != 2 or values.size == 0 or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise Damaged(f"an array of shape {values.shape} is no matrix of finite numbers")
    return values
