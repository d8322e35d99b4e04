"""What a step between two points costs, and all costs between points, dense or sparse, many features or few."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

# Up to here the plain loop is as fast as a matrix product, and exact.
_FEW_FEATURES = 16
# Where |x - y|² is this small a share of |x|² + |y|², too many digits of it are lost in the matrix product.
_CANCELLED = 1e-6


class Cost(enum.IntEnum):
    """What moving mass 1 over the step s costs.

    Transport with the first two is a metric between distributions (the Wasserstein distance W1). With squared costs it
    is W2², the square of one: there is no triangle inequality between such values, and they grow with the square of
    the data's scale.

    >>> Cost.named("manhattan")
    <Cost.MANHATTAN: 1>
    """

    EUCLIDEAN = 0  # |s|
    MANHATTAN = 1  # the sum of the absolute entries of s
    SQUARED = 2  # |s|²

    @classmethod
    def named(cls, name: Any) -> Cost:
        """The cost of this name; a Cost passes through."""
        names = [cost.name.lower() for cost in cls]
        if isinstance(name, cls):
            return name
        if isinstance(name, str) and name in names:
            return cls[name.upper()]
        raise ValueError(f"cost is {name!r}: expected one of {names}")

    def norm(self, steps: np.ndarray) -> np.ndarray:
        """The norm of each row that the cost is, or is the square of."""
        return np.linalg.norm(steps, ord=1 if self is Cost.MANHATTAN else None, axis=1)

    def between(self, x: Any, y: Any) -> np.ndarray:
        """Costs between the rows of x and y.

        >>> Cost.SQUARED.between(np.zeros((1, 2)), np.array([[3.0, 4.0]])).tolist()
        [[25.0]]
        """
        if self is Cost.MANHATTAN:
            return _manhattan(x, y)
        distances = euclidean(x, y)
        return np.square(distances, out=distances) if self is Cost.SQUARED else distances


def _manhattan(x: Any, y: Any) -> np.ndarray:
    if sparse.issparse(x) or sparse.issparse(y):
        from sklearn.metrics.pairwise import manhattan_distances  # 10 MB that learning does without

        return manhattan_distances(sparse.csr_matrix(x), sparse.csr_matrix(y))
    return cdist(x, y, "cityblock")


def euclidean(x: Any, y: Any) -> np.ndarray:
    """Distances between the rows of x and y, accurate also between points that nearly coincide.

    With many features the matrix product |x|² - 2xy + |y|² is tens of times faster than subtracting, but loses digits
    where points are close to each other; those few are computed again from the difference itself.

    >>> euclidean(np.full((1, 40), 1e8), np.full((1, 40), 1e8 + 1.0)).round(6).tolist()
    [[6.324555]]
    """
    if not sparse.issparse(x) and not sparse.issparse(y) and x.shape[1] <= _FEW_FEATURES:
        return cdist(x, y)
    x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
    from sklearn.metrics.pairwise import euclidean_distances  # see above

    squared = euclidean_distances(x, y, squared=True)
    close = squared <= _CANCELLED * (_square_norms(x)[:, None] + _square_norms(y))
    rows, cols = np.nonzero(close)
    chunk = max(1, 10_000_000 // x.shape[1])
    for low in range(0, rows.size, chunk):
        i, j = rows[low : low + chunk], cols[low : low + chunk]
        squared[i, j] = _square_norms(x[i] - y[j])
    return np.sqrt(squared, out=squared)


def _square_norms(x: Any) -> np.ndarray:
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("pf,pf->p", x, x)
