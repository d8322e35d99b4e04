"""Scatter of points within and between classes, and the directions that tell classes apart."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, eigh

# Where the scatter within classes has no extent (fewer points than features, say), it is given this share of the mean.
_RIDGE = 1e-6


def class_scatter(points: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted covariance of the class means, and of the points around their class mean."""
    members = codes == np.unique(codes)[:, None]  # (n_classes, n_points)
    mass = members * (weights / weights.sum())
    means = (mass @ points) / mass.sum(axis=1, keepdims=True)
    apart = means - mass.sum(axis=1) @ means
    around = points - members.T.astype(np.float64) @ means
    between = (apart.T * mass.sum(axis=1)) @ apart
    within = (around.T * mass.sum(axis=0)) @ around
    return between, within


def directions(between: np.ndarray, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of between against within, largest first, and the eigenvectors as columns v with vᵀ within v = 1.

    Features are brought to one unit first, which changes nothing but the rounding. Those without scatter are left out;
    a scatter within that has no extent in some direction gets a little.
    """
    unit = np.sqrt(np.diag(within) + np.abs(np.diag(between)))
    varies = unit > 1e-12 * unit.max()  # what rounding leaves of a constant is none
    unit = unit[varies]
    if not varies.any():
        return np.zeros(1), np.zeros((len(within), 1))
    between, within = (matrix[np.ix_(varies, varies)] / np.outer(unit, unit) for matrix in (between, within))
    values, vectors = _generalised(between, within)
    full = np.zeros((varies.size, values.size))
    full[varies] = vectors / unit[:, None]
    return values[::-1], full[:, ::-1]


def _generalised(between: np.ndarray, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    extent = np.linalg.eigvalsh(within)
    if extent[0] > 1e-12 * extent[-1]:
        try:
            return eigh(between, within)
        except LinAlgError:
            pass
    ridge = _RIDGE * (np.trace(within) / len(within) or 1.0)
    return eigh(between, within + ridge * np.eye(len(within)))
