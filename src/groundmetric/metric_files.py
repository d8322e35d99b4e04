"""A metric as a file: a line of JSON with a checksum, then the arrays in numpy's .npz format; no pickle."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .diagonal_metric import DiagonalMetric
from .mapped_metric import MappedMetric
from .metric import BlendedMetric, EuclideanMetric, GroundMetric
from .point_distances import Cost
from .safe_files import write_whole

_FORMAT = "groundmetric.GroundMetric"
_VERSION = 2  # 2: costs, diagonal and mapped metrics


def write(metric: GroundMetric, path: str | os.PathLike) -> None:
    arrays: dict[str, np.ndarray] = {}
    write_parts(_pack(metric, "", arrays), arrays, path)


def read(path: str | os.PathLike, feature_map: Any = None) -> GroundMetric:
    return _unpack(*read_parts(path), feature_map)


def write_parts(description: dict[str, Any], arrays: dict[str, np.ndarray], path: str | os.PathLike) -> None:
    """Write the file beside its place, then put it there in one step, so that a half-written one is never seen."""
    payload = io.BytesIO()
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    np.savez_compressed(payload, description=text, **arrays)  # type: ignore[arg-type]
    content = payload.getvalue()
    header = {"format": _FORMAT, "version": _VERSION, "sha256": hashlib.sha256(content).hexdigest()}
    write_whole(Path(path), [json.dumps(header).encode() + b"\n", content])


def read_parts(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write_parts` made; say clearly what is wrong with any other."""
    head, _, content = Path(path).read_bytes().partition(b"\n")
    name = repr(os.fspath(path))
    try:
        header = json.loads(head)
        if header["format"] != _FORMAT:
            raise ValueError
        version, checksum = int(header["version"]), header["sha256"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{name} is damaged or not a saved GroundMetric: it does not begin as one") from None
    if version > _VERSION:
        raise ValueError(
            f"{name} has format version {version}, this groundmetric reads up to {_VERSION}: update groundmetric"
        )
    if hashlib.sha256(content).hexdigest() != checksum:
        raise ValueError(f"{name} is damaged or not a saved GroundMetric: its content does not match its checksum")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return json.loads(bytes(arrays["description"])), {name: arrays[name] for name in arrays.files}


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
    description: dict[str, Any], arrays: dict[str, np.ndarray], feature_map: Any = None, prefix: str = ""
) -> GroundMetric:
    kind, features = description["kind"], description.get("features")
    if kind == "blend":
        parts = (_unpack(part, arrays, feature_map, f"{prefix}{k}.") for k, part in enumerate(description["parts"]))
        one, other = parts
        return BlendedMetric(one, other, description["weight"])
    if kind == "euclidean":
        return EuclideanMetric(description["n_features"], features)
    if kind == "mapped":
        return _unpack_mapped(description, arrays, feature_map, prefix)
    known: dict[str, Any] = {
        "variances": arrays.get(f"{prefix}variances"),
        "cost": description.get("cost", "euclidean"),
    }
    if kind == "diagonal":
        return DiagonalMetric(arrays[f"{prefix}weights"], features, **known)
    if kind == "linear":
        return GroundMetric(arrays[f"{prefix}components"], features, **known)
    raise ValueError(f"the file holds a metric of kind {kind!r}: read it with `groundmetric.neural.load(path, module)`")


def _unpack_mapped(
    description: dict[str, Any], arrays: dict[str, np.ndarray], feature_map: Any, prefix: str
) -> GroundMetric:
    """The map is not in the file; the images of a few points tell whether it is the one that was learned with."""
    if feature_map is None:
        raise ValueError(
            f"the metric was learned behind a feature map ({description['map']}), which is not in the file: "
            "give the fitted one, GroundMetric.load(path, feature_map=...)"
        )
    probes = arrays[f"{prefix}probes"]
    inner = _unpack(description["inner"], arrays, None, f"{prefix}inner.")
    metric = MappedMetric(feature_map, inner, probes.shape[1], description["features"], probes=probes)
    expected = arrays[f"{prefix}images"]
    if not np.allclose(metric.images_of_probes(), expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max()):
        raise ValueError("feature_map is not the one that the metric was learned with: it puts points elsewhere")
    return metric
