"""Distances between all points, dense or sparse, of many features or few; and those of any metric, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import safe_sparse_dot

# Up to here the plain loop is as fast as a matrix product, and exact.
_FEW_FEATURES = 16
# Where |x - y|² is this small a share of |x|² + |y|², too many digits of it are lost in the matrix product.
_CANCELLED = 1e-6
# Distances that are negative by no more than this share of the largest are 0 but for rounding.
_ROUNDING = 1e-9


class BadDistances(ValueError):
    """Error of a metric whose distances are not finite, are negative, or have the wrong shape."""


def checked_distances(metric: Any, x: Any, y: Any) -> np.ndarray:
    """``metric.distances(x, y)``: one for every two points, finite, and not negative but for rounding; else an error.

    >>> import groundmetric as gm
    >>> checked_distances(gm.GroundMetric([[2.0]]), np.array([[0.0]]), np.array([[3.0]])).tolist()
    [[6.0]]
    """
    found, expected = np.asarray(metric.distances(x, y), dtype=np.float64), (x.shape[0], y.shape[0])
    if found.shape != expected:
        raise BadDistances(
            f"metric {metric!r} gave distances of shape {found.shape}: expected {expected}, one per pair"
        )
    lowest, highest = (float(found.min()), float(found.max())) if found.size else (0.0, 0.0)
    if not np.isfinite(lowest + highest):
        wrong = found[~np.isfinite(found)]
        raise BadDistances(
            f"metric {metric!r} gave {wrong[0] if wrong.size else highest} as a distance between points: either it is "
            "not defined for some of them, which have to be left out (the correlation with a point whose features are "
            "all equal, say), or coordinates are too large (divide the points by a constant)"
        )
    if lowest < -_ROUNDING * max(highest, -lowest):
        raise BadDistances(f"metric {metric!r} gave {lowest:g} as a distance between points: none can be negative")
    return np.maximum(found, 0.0, out=found) if lowest < 0.0 else found


def manhattan(x: Any, y: Any) -> np.ndarray:
    if sparse.issparse(x) or sparse.issparse(y):
        from sklearn.metrics.pairwise import manhattan_distances  # 10 MB that learning does without

        return manhattan_distances(sparse.csr_matrix(x), sparse.csr_matrix(y))
    return cdist(x, y, "cityblock")


def euclidean(x: Any, y: Any) -> np.ndarray:
    """Distances between the rows of x and y, accurate also between points that nearly coincide.

    With many features the matrix product |x|² - 2xy + |y|² is tens of times faster than subtracting, but loses digits
    where points are close to each other; those few are computed again from the difference itself. They are few around
    the mean of the points; where one point is so far away that the others coincide beside it, they are many.

    >>> euclidean(np.full((1, 40), 1e8), np.full((1, 40), 1e8 + 1.0)).round(6).tolist()
    [[6.324555]]
    """
    if not sparse.issparse(x) and not sparse.issparse(y) and x.shape[1] <= _FEW_FEATURES:
        return cdist(x, y)
    x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
    near_x, near_y = (x, y) if sparse.issparse(x) or sparse.issparse(y) else _around_mean(x, y)
    norms_x, norms_y = _square_norms(near_x)[:, None], _square_norms(near_y)
    squared = -2.0 * safe_sparse_dot(near_x, near_y.T, dense_output=True)
    squared += norms_x
    squared += norms_y
    np.maximum(squared, 0.0, out=squared)
    rows, cols = np.nonzero(squared <= _CANCELLED * (norms_x + norms_y))
    chunk = max(1, 10_000_000 // x.shape[1])
    for low in range(0, rows.size, chunk):
        i, j = rows[low : low + chunk], cols[low : low + chunk]
        squared[i, j] = _square_norms(x[i] - y[j])
    return np.sqrt(squared, out=squared)


def _around_mean(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = 0.5 * (x.mean(axis=0) + y.mean(axis=0))
    return x - centre, y - centre


def _square_norms(x: Any) -> np.ndarray:
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("pf,pf->p", x, x)
