"""What learning needs to know of the data beforehand: the features' moments, and who is held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ..distributions import Distributions

# Entries of the points that are copied at a time: 2 MB.
_BLOCK = 2**18
# The square of anything smaller is 0, or has few digits.
_LEAST = 1e-150


def feature_moments(D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every feature over all points, in float64, without a copy of the points."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = _sparse_moments(D.points) if sparse.issparse(D.points) else _dense_moments(D.points)
    _refuse(D, ~np.isfinite(variance), "divide")
    _refuse(D, _lost(D.points, variance), "multiply")
    return mean, variance


def _refuse(D: Distributions, features: np.ndarray, remedy: str) -> None:
    """An error that names the first of these features, if there are any."""
    if features.any():
        worst = int(np.argmax(features))
        name = worst if D.features is None else repr(D.features[worst])
        raise ValueError(f"the variance of feature {name} is out of the range of numbers: {remedy} it by a constant")


def _lost(points: Any, variance: np.ndarray) -> np.ndarray:
    """Which features have a variance of 0 although they vary: by so little that the squares are no numbers above 0."""
    lost, still = np.zeros(variance.size, bool), np.flatnonzero(variance == 0)
    if still.size:
        some = points[:, still]
        lowest, highest = some.min(axis=0), some.max(axis=0)
        apart = (highest - lowest).toarray().ravel() if sparse.issparse(some) else highest - lowest
        lost[still] = (apart > 0) & (apart < _LEAST)
    return lost


def _sparse_moments(points: Any) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.utils.sparsefuncs import mean_variance_axis

    mean, variance = mean_variance_axis(points, axis=0)
    return mean.astype(np.float64), variance.astype(np.float64)


def _dense_moments(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Deviations from the first point rather than from zero: a constant feature comes out with variance 0 exactly.
    origin = points[0].astype(np.float64)
    total, squares = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    rows = max(1, _BLOCK // points.shape[1])
    for low in range(0, points.shape[0], rows):
        deviation = points[low : low + rows] - origin
        total += deviation.sum(axis=0)
        squares += np.einsum("pf,pf->f", deviation, deviation)
    shift = total / points.shape[0]
    return origin + shift, np.maximum(squares / points.shape[0] - shift**2, 0.0)


def hold_out(codes: np.ndarray, fraction: float, random: np.random.RandomState) -> np.ndarray:
    """Marks a share of every class, at most all but two of its distributions."""
    held_out = np.zeros(codes.size, bool)
    if fraction > 0.0:
        for c in np.unique(codes):
            members = random.permutation(np.flatnonzero(codes == c))
            held_out[members[: min(int(np.ceil(fraction * members.size)), max(members.size - 2, 0))]] = True
        if not held_out.any():
            raise ValueError("validation_fraction leaves nothing to hold out: no class has three distributions")
    return held_out
