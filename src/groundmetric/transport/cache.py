"""Cache of exact distances, pair by pair (`keep=`): only pairs that are not in the file are computed.

The key of a pair is a digest of the points and masses of both distributions and of the metric; names and order are
ignored. The digest of a cohort is also used to check that a checkpoint belongs to the same data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .._internal.cache import Cache, digest
from ..distributions import Distributions
from ..metrics.base import EuclideanMetric, GroundMetric
from .solvers.exact import Exact, Solver

_VALUE = struct.Struct("<d")


class DistanceCache:
    """File of exact distances between distributions, created when the first distance is written."""

    def __init__(self, path: str | os.PathLike[str], solver: Solver | None = None) -> None:
        if solver is not None and not isinstance(solver, Exact):
            raise ValueError(
                f"keep is given, but solver is {solver.name!r}: only exact distances are kept; leave `keep` out"
            )
        self._cache = Cache(path, "keep")

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, keys: list[bytes]) -> np.ndarray:
        """Return the value of each key, NaN for keys that are not in the file."""
        values = {key: _number(content) for key, content in self._cache.get(keys).items()}
        damaged = sum(np.isnan(value) for value in values.values())
        if damaged:
            self._cache.warn_damaged(int(damaged))
        return np.array([values.get(key, np.nan) for key in keys])

    def put(self, keys: list[bytes], values: np.ndarray) -> None:
        """Write values; a full disk causes a warning."""
        self._cache.put({key: _VALUE.pack(value) for key, value in zip(keys, values.tolist(), strict=True)})


def pair_keys(metric: Any, cohorts: Sequence[Distributions], first: np.ndarray, second: np.ndarray) -> list[bytes]:
    """Return the key of each pair; `first` and `second` count through all cohorts. Keys ignore the order of a pair."""
    name = metric_digest(metric)
    distributions = [key for cohort in cohorts for key in distribution_digests(cohort)]
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return [digest(name, *sorted((distributions[d], distributions[e]))) for d, e in pairs]


def distribution_digests(D: Distributions) -> list[bytes]:
    """Return a digest of the points and masses of each distribution, independent of its name and position."""
    digests = []
    for low, high in zip(D.bounds[:-1], D.bounds[1:], strict=True):
        points = D.points[low:high]
        if sparse.issparse(points):
            parts = [points.data, points.indices.astype(np.int64), points.indptr.astype(np.int64), str(points.shape)]
        else:
            parts = [np.asarray(points)]
        digests.append(digest(*parts, D.weights[low:high]))
    return digests


def cohort_digest(D: Distributions) -> bytes:
    """Return a digest of all distributions in their order, and of the names of their features."""
    return digest(*distribution_digests(D), str(D.features))


def metric_digest(metric: Any) -> bytes:
    """Return a digest of the parameters of a metric."""
    kind = type(metric).__name__
    if isinstance(metric, EuclideanMetric):
        return digest(kind, metric.n_features)
    if type(metric) is GroundMetric:
        return digest(kind, metric.components, metric.cost.name)
    return digest(kind, joblib.hash(metric))


def _number(content: bytes) -> float:
    """Return the distance in a record, NaN for an invalid record."""
    value = _VALUE.unpack(content)[0] if len(content) == _VALUE.size else np.nan
    return value if 0.0 <= value < np.inf else np.nan
