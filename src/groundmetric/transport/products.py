"""Products of points with a few components."""

from __future__ import annotations

import numpy as np

from . import _core

# With more components, BLAS is as fast.
_FEW = 8


def project(points: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Multiply dense points (n, n_features), of float32 or float64, by components; returns (n, n_components).

    BLAS is made for square matrices: with five components it takes more than twice as long as reading the points.
    """
    if (
        components.shape[0] > _FEW
        or not (points.flags.c_contiguous and points.flags.aligned)
        or points.dtype.char not in "fd"
    ):
        # A wide product from the left is faster than a narrow one from the right, by half.
        return np.ascontiguousarray((components @ points.astype(np.float64, copy=False).T).T)
    z = np.empty((points.shape[0], components.shape[0]))
    _core.project(points, np.ascontiguousarray(components, np.float64), z)
    return z
