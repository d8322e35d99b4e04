"""A metric as a file: a zip archive of arrays with a header in JSON; no pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .metric import BlendedMetric, EuclideanMetric, GroundMetric

_FORMAT = "groundmetric.GroundMetric"
_VERSION = 1


class _NewerVersion(ValueError):
    """The file is fine, this program is too old for it."""


def write(metric: GroundMetric, path: str | os.PathLike) -> None:
    """Write the file beside its place, then put it there in one step, so that a half-written one is never seen."""
    arrays: dict[str, np.ndarray] = {}
    header = {"format": _FORMAT, "version": _VERSION, "metric": _pack(metric, "", arrays)}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike) -> GroundMetric:
    """Read a file that `write` made; say clearly what is wrong with any other."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(bytes(file["header"]).decode())
            if header["format"] != _FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            if header["version"] > _VERSION:
                raise _NewerVersion(
                    f"{os.fspath(path)!r} has format version {header['version']}, this groundmetric reads up to "
                    f"{_VERSION}: update groundmetric"
                )
            return _unpack(header["metric"], "", file)
    except (_NewerVersion, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged or not a saved GroundMetric: {error}") from error


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
