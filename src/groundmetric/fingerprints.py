"""What data are recognised by: digests of their content, so that changed data are never taken for the old."""

from __future__ import annotations

import hashlib
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .distributions import Distributions
from .metric import EuclideanMetric, GroundMetric

_SIZE = 16


def digest(*parts: Any) -> bytes:
    """16 bytes that stand for arrays, bytes and text in this order.

    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(3.0))
    (True, False)
    """
    state = hashlib.blake2b(digest_size=_SIZE)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).data)
        else:
            content = part if isinstance(part, bytes) else str(part).encode()
            state.update(f"{len(content)}:".encode())
            state.update(content)
    return state.digest()


def of_each_distribution(D: Distributions) -> list[bytes]:
    """A digest per distribution: of its points and masses, not of its name or its place in the cohort."""
    found = []
    for low, high in zip(D.bounds[:-1], D.bounds[1:], strict=True):
        points = D.points[low:high]
        if sparse.issparse(points):
            parts = [points.data, points.indices.astype(np.int64), points.indptr.astype(np.int64), str(points.shape)]
        else:
            parts = [np.asarray(points)]
        found.append(digest(*parts, D.weights[low:high]))
    return found


def of_cohort(D: Distributions) -> bytes:
    """A digest of all distributions in their order, and of the names of their features."""
    return digest(*of_each_distribution(D), str(D.features))


def of_metric(metric: Any) -> bytes:
    """A digest of all that distances depend on."""
    kind = type(metric).__name__
    if isinstance(metric, EuclideanMetric):
        return digest(kind, metric.n_features)
    if type(metric) is GroundMetric:
        return digest(kind, metric.components, metric.cost.name)
    return digest(kind, joblib.hash(metric))
