"""A metric as a file: a line of JSON with a checksum, then the arrays in numpy's .npz format; no pickle."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .metric import BlendedMetric, EuclideanMetric, GroundMetric

_FORMAT = "groundmetric.GroundMetric"
_VERSION = 1


def write(metric: GroundMetric, path: str | os.PathLike) -> None:
    """Write the file beside its place, then put it there in one step, so that a half-written one is never seen."""
    arrays: dict[str, np.ndarray] = {}
    description = json.dumps(_pack(metric, "", arrays))
    payload = io.BytesIO()
    np.savez_compressed(payload, description=np.frombuffer(description.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    content = payload.getvalue()
    header = {"format": _FORMAT, "version": _VERSION, "sha256": hashlib.sha256(content).hexdigest()}
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(json.dumps(header).encode() + b"\n" + content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike) -> GroundMetric:
    """Read a file that `write` made; say clearly what is wrong with any other."""
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
        return _unpack(json.loads(bytes(arrays["description"])), "", arrays)


def _pack(metric: GroundMetric, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Describe a metric in JSON, its arrays under names with this prefix."""
    if isinstance(metric, BlendedMetric):
        parts = [_pack(part, f"{prefix}{k}.", arrays) for k, part in enumerate((metric.one, metric.other))]
        return {"kind": "blend", "weight": metric.weight, "parts": parts}
    if isinstance(metric, EuclideanMetric):
        return {"kind": "euclidean", "n_features": metric.n_features, "features": metric.features}
    arrays[f"{prefix}components"] = metric.components
    if metric.variances is not None:
        arrays[f"{prefix}variances"] = metric.variances
    return {"kind": "linear", "features": metric.features}


def _unpack(description: dict[str, Any], prefix: str, arrays: Any) -> GroundMetric:
    if description["kind"] == "blend":
        one, other = (_unpack(part, f"{prefix}{k}.", arrays) for k, part in enumerate(description["parts"]))
        return BlendedMetric(one, other, description["weight"])
    if description["kind"] == "euclidean":
        return EuclideanMetric(description["n_features"], description["features"])
    variances = arrays[f"{prefix}variances"] if f"{prefix}variances" in arrays.files else None
    return GroundMetric(arrays[f"{prefix}components"], description["features"], variances=variances)
