"""What every baseline asks of its training data, and how large data are thinned."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from ..distributions import Distributions, as_distributions
from ..estimators.checks import check_labels, check_number
from ..estimators.preparation import feature_moments


def labelled(D: Any, y: Any) -> tuple[Distributions, np.ndarray, np.ndarray]:
    """Distributions without points of no mass, the classes, and the place of each one's label among them."""
    if y is None:
        raise ValueError("y is None: this method learns from labels, one per distribution")
    D = as_distributions(D)
    classes, codes = np.unique(check_labels(y, D.roll), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return D.with_mass(), classes, codes


def unlabelled(D: Any, y: Any) -> Distributions:
    """For methods that do not look at labels: those that are given must fit all the same."""
    D = as_distributions(D)
    if y is not None:
        check_labels(y, D.roll)
    return D.with_mass()


def draw(D: Distributions, max_points: int | None, random: np.random.RandomState) -> np.ndarray:
    """Rows of about `max_points` points: the same share of every distribution, and at least one point of each."""
    if max_points is not None:
        check_number("max_points", max_points, low=2, whole=True)
    n_points = D.points.shape[0]
    if max_points is None or n_points <= max_points:
        return np.arange(n_points)
    quota = np.maximum(D.sizes * max_points // n_points, 1)
    parts = [random.choice(size, count, replace=False) for size, count in zip(D.sizes, quota, strict=True)]
    return np.sort(np.concatenate([low + part for low, part in zip(D.bounds[:-1], parts, strict=True)]))


def owners(D: Distributions, rows: np.ndarray) -> np.ndarray:
    """Which distribution each of these rows belongs to."""
    return np.searchsorted(D.bounds, rows, side="right") - 1


def point_weights(D: Distributions) -> np.ndarray:
    """Weights of points that do not depend on the size of their distribution: 1 where all points weigh the same."""
    return D.weights * np.repeat(D.sizes, D.sizes)


def moments(D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every feature over all points, each by its `point_weights`."""
    if D.uniform.all():
        return feature_moments(D)
    weights = point_weights(D)
    if sparse.issparse(D.points):
        mean, variance = mean_variance_axis(D.points, axis=0, weights=weights.astype(D.points.dtype))
        return mean.astype(np.float64), variance.astype(np.float64)
    # Deviations from the first point: a constant feature comes out with variance 0 exactly.
    origin = D.points[0].astype(np.float64)
    total, squares = np.zeros(origin.size), np.zeros(origin.size)
    for low in range(0, weights.size, 4096):
        deviation = D.points[low : low + 4096] - origin
        total += weights[low : low + 4096] @ deviation
        squares += weights[low : low + 4096] @ deviation**2
    shift = total / weights.sum()
    return origin + shift, np.maximum(squares / weights.sum() - shift**2, 0.0)


def spread(variance: np.ndarray) -> np.ndarray:
    """Standard deviations to divide by: 1 for what is constant."""
    return np.where(variance > 0.0, np.sqrt(variance), 1.0)
