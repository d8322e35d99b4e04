"""The ground metric, d(x, y) = |W(x - y)|, and the costs of a step between two projected points."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import safe_sparse_dot

from .._internal.types import DistributionsLike, PointsLike, Transformer
from .._internal.validation import check_features, check_number, real_array
from ..distributions import Distributions

# Rows that are cast to float64 at a time, to avoid a float64 copy of all points.
_BLOCK = 8192


class Cost(enum.IntEnum):
    """Cost of moving mass 1 over the step s.

    Transport with Euclidean or Manhattan costs is a metric between distributions, the Wasserstein distance W1. With
    squared costs it is W2², which violates the triangle inequality and grows with the square of the data's scale.
    """

    EUCLIDEAN = 0  # |s|
    MANHATTAN = 1  # the sum of the absolute entries of s
    SQUARED = 2  # |s|²

    @classmethod
    def named(cls, name: Any) -> Cost:
        names = [cost.name.lower() for cost in cls]
        if isinstance(name, cls):
            return name
        if isinstance(name, str) and name in names:
            return cls[name.upper()]
        raise ValueError(f"cost is {name!r}: expected one of {names}")

    def norm(self, steps: np.ndarray) -> np.ndarray:
        """Return the norm of each step, shape (n_steps,); squared costs are the square of it."""
        return np.linalg.norm(steps, ord=1 if self is Cost.MANHATTAN else None, axis=1)

    def between(self, x: Any, y: Any) -> np.ndarray:
        """Return the costs between the rows of x and y, shape (n, m)."""
        if self is Cost.MANHATTAN:
            return manhattan(x, y)
        distances = euclidean(x, y)
        return np.square(distances, out=distances) if self is Cost.SQUARED else distances

    def slopes(self, steps: np.ndarray) -> np.ndarray:
        """Return a vector for each step whose inner product with the step is its cost; 0 for a step of length 0."""
        if self is Cost.MANHATTAN:
            return np.sign(steps)
        if self is Cost.SQUARED:
            return steps
        lengths = self.norm(steps)
        return steps / np.where(lengths > 0, lengths, 1.0)[:, None]


class GroundMetric:
    """A Mahalanobis distance d(x, y) = |W(x - y)| between points, given by its components W.

    Parameters
    ----------
    components : array of shape (n_components, n_features)
        The matrix W; M = WᵀW.
    features : sequence of str or None, default=None
        Names of the features, in the order of the columns of W. None: features without names.
    variances : array of shape (n_features,) or None, default=None
        Variance of each feature in the training data, which makes `importance` independent of units.
    cost : {"euclidean", "manhattan", "squared"}, default="euclidean"
        Cost of the step s = W(x - y): |s|, the sum of its absolute entries, or |s|², which is not a metric.

    Examples
    --------
    >>> import groundmetric as gm
    >>> metric = gm.GroundMetric([[2.0, 0.0]], features=["height", "noise"])
    >>> metric.project([[1.0, 7.0], [2.0, 3.0]]).tolist()
    [[2.0], [4.0]]
    >>> metric.importance().tolist()
    [1.0, 0.0]
    """

    n_components: int
    n_features: int
    cost = Cost.EUCLIDEAN

    def __init__(
        self,
        components: ArrayLike,
        features: Sequence[str] | None = None,
        *,
        variances: ArrayLike | None = None,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        components = np.array(real_array(components, "components"), dtype=np.float64)
        if components.ndim != 2 or 0 in components.shape:
            raise ValueError(f"components have shape {components.shape}: expected (n_components, n_features)")
        if not np.isfinite(components).all():
            raise ValueError("components contain NaN or infinity")
        self.components = components
        self._describe(components.shape[0], components.shape[1], features, variances, cost)

    def _describe(
        self,
        n_components: int,
        n_features: int,
        features: Sequence[str] | None,
        variances: Any = None,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        """Validate and store attributes that all forms of metrics have."""
        self.n_components, self.n_features, self.cost = n_components, n_features, Cost.named(cost)
        self.features = check_features(features, n_features)
        self.variances = None if variances is None else np.array(real_array(variances, "variances"), dtype=np.float64)
        if self.variances is not None and self.variances.shape != (self.n_features,):
            raise ValueError(f"variances have shape {self.variances.shape} for {self.n_features} features")
        if self.variances is not None and not (np.isfinite(self.variances) & (self.variances >= 0)).all():
            raise ValueError("variances must be finite numbers of at least 0")

    @classmethod
    def euclidean(cls, n_features: int, features: Sequence[str] | None = None) -> GroundMetric:
        """Return the Euclidean metric between points of `n_features` features."""
        return EuclideanMetric(n_features, features)

    def project(self, points: DistributionsLike) -> np.ndarray:
        """Return z = Wx for each of `points`, between which the metric is the Euclidean distance (or another `cost`).

        Points are the rows of an array, sparse matrix or data frame, or the `points` of Distributions.
        """
        points = self._check_points(points)
        if points.dtype == np.float64:
            return np.asarray(points @ self.components.T)
        z = np.empty((points.shape[0], self.n_components))
        for low in range(0, z.shape[0], _BLOCK):
            z[low : low + _BLOCK] = points[low : low + _BLOCK].astype(np.float64) @ self.components.T
        return z

    def check_fit(self, points: DistributionsLike) -> None:
        """Raise a ValueError unless `points` have the features of the metric, by name and order if both have names."""
        shape: tuple[int, ...] = getattr(points, "shape", ())
        if len(shape) == 2 and shape[1] != self.n_features:
            raise ValueError(f"points have {shape[1]} features, but the metric was made for {self.n_features}")
        named = getattr(points, "features", None)
        if named is None and hasattr(points, "columns"):
            named = [str(column) for column in points.columns]
        if named is not None and self.features is not None and list(named) != self.features:
            at = next(k for k, (x, y) in enumerate(zip(named, self.features, strict=True)) if x != y)
            problem = f"feature {at} is {named[at]!r}, the metric has {self.features[at]!r}"
            remedy = "bring the columns into the metric's order (`metric.features`)"
            raise ValueError(f"points have other features than the metric: {problem}; {remedy}")

    def _check_points(self, points: Any) -> Any:
        self.check_fit(points)  # compares names, which the array lacks
        if isinstance(points, Distributions):
            return points.points
        points = points.tocsr() if sparse.issparse(points) else real_array(points, "points")
        if points.ndim != 2:
            raise ValueError(f"points have shape {points.shape}: expected two dimensions, (n_points, n_features)")
        GroundMetric.check_fit(self, points)
        return points

    def matrix(self) -> np.ndarray:
        """Return the matrix M = WᵀW of the Mahalanobis distance, shape (n_features, n_features)."""
        return self.components.T @ self.components

    def importance(self) -> np.ndarray:
        """Return the importance of each feature: the diagonal of M times the training variance, scaled to a sum of 1.

        Variances are 1 if the metric has none. If all products are 0, every feature has the same importance.
        """
        variances = np.ones(self.n_features) if self.variances is None else self.variances
        weights = self._weights()
        largest = np.abs(weights).max(axis=0)
        used = (largest > 0) & (variances > 0)
        if not used.any():
            return np.full(self.n_features, 1.0 / self.n_features)
        # Features of size 10⁻¹⁶⁰ have weights of size 10¹⁶⁰, whose squares overflow. Scaling by powers of 2, which is
        # exact, brings weights and the largest product to about 1.
        power = np.frexp(largest)[1]
        highest = np.max((2 * power + np.frexp(variances)[1])[used])
        rows = np.ldexp(weights, -power)
        diagonal = np.einsum("cf,cf->f", rows, rows)
        importance = diagonal * np.ldexp(variances, np.where(used, 2 * power - highest, 0))
        return importance / importance.sum()

    def _weights(self) -> np.ndarray:
        """Return an array whose column norms are those of the components."""
        return self.components

    def blend(self, other: GroundMetric, weight: float = 0.5) -> GroundMetric:
        """Return the weighted average of the distances of two metrics, (1 - `weight`) d + `weight` d', as in the paper.

        The metric d' is `other`, with the same features. The average lacks `components`.
        """
        check_number("weight", weight, low=0, high=1)
        if other.n_features != self.n_features:
            raise ValueError(f"the other metric has {other.n_features} features, this one {self.n_features}")
        if self.features is not None and other.features is not None and self.features != other.features:
            raise ValueError("the other metric has different feature names, or the same names in another order")
        from .forms import BlendedMetric

        return BlendedMetric(self, other, weight)

    def distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Return distances between all points of `x` and of `y` (None: of `x`), shape (n_x, n_y).

        Points are the rows of an array, sparse matrix or data frame, or the `points` of Distributions.
        """
        x = self.project(x)
        return self.projected_distances(x, x if y is None else self.project(y))

    def projected_distances(self, x: PointsLike, y: PointsLike) -> np.ndarray:
        """Return distances between all points of `x` and of `y` that `project` has projected, shape (n_x, n_y)."""
        return self.cost.between(x, y)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the metric to the file `path`, which `GroundMetric.load` reads, without pickle.

        The write is atomic. An older metric at this path is replaced; a file of another kind is an error.
        """
        from .forms import write

        write(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, feature_map: Transformer | None = None) -> GroundMetric:
        """Return the metric that `save` wrote to `path`; ``groundmetric.neural.load`` reads metrics of networks.

        Parameters
        ----------
        feature_map : fitted scikit-learn transformer or None, default=None
            Transformer that the metric was learned with (``form=Mapped(transformer)``), which is not in the file; a
            transformer that maps points differently is an error.
        """
        from .forms import read

        return read(path, feature_map)

    def __repr__(self) -> str:
        cost = "" if self.cost is Cost.EUCLIDEAN else f", {self.cost.name.lower()} cost"
        return f"{type(self).__name__}({self.n_components} components, {self.n_features} features{cost})"


class EuclideanMetric(GroundMetric):
    """The Euclidean distance between points: W is the identity, which is never stored."""

    def __init__(self, n_features: int, features: Sequence[str] | None = None) -> None:
        check_number("n_features", n_features, low=1, whole=True)
        self._describe(int(n_features), int(n_features), features)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        return np.eye(self.n_features)

    def project(self, points: Any) -> np.ndarray:
        points = self._check_points(points)
        return points.toarray() if sparse.issparse(points) else points.astype(np.float64, copy=False)

    def importance(self) -> np.ndarray:
        return np.full(self.n_features, 1.0 / self.n_features)

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        x = self._check_points(x)
        return euclidean(x, x if y is None else self._check_points(y))


# Up to this number of features, a plain loop is as fast as a matrix product, and exact.
_MAX_LOOP_FEATURES = 16
# If |x - y|² is smaller than this share of |x|² + |y|², the matrix product has lost too many digits of it.
_CANCELLED = 1e-6
# Negative distances up to this share of the largest distance are rounding errors of 0.
_ROUNDING = 1e-9


class DiagonalMetric(GroundMetric):
    """Metric with a weight for each feature: d(x, y) = |diag(w)(x - y)|.

    The matrix is never stored, and projections leave out features of weight 0.

    Parameters
    ----------
    weights : array of shape (n_features,)
        Weight w of each feature, not negative.
    features, variances, cost : as in `GroundMetric`
        Names and training variances of the features, and the cost of a step.

    Examples
    --------
    >>> metric = DiagonalMetric([2.0, 0.0, 1.0])
    >>> metric.project([[1.0, 7.0, 3.0]]).tolist()
    [[2.0, 3.0]]
    >>> metric.components.tolist()
    [[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        weights: Any,
        features: Sequence[str] | None = None,
        *,
        variances: Any = None,
        cost: Cost | str = Cost.EUCLIDEAN,
    ) -> None:
        weights = np.array(real_array(weights, "weights"), dtype=np.float64)
        if weights.ndim != 1 or weights.size == 0:
            raise ValueError(f"weights have shape {weights.shape}: expected (n_features,)")
        if not (np.isfinite(weights) & (weights >= 0.0)).all():
            raise ValueError("weights must be finite numbers of at least 0")
        self.weights = weights
        # Projections need at least one column, also if all weights are 0.
        self._used = np.flatnonzero(weights) if weights.any() else np.array([0])
        self._describe(self._used.size, weights.size, features, variances, cost)

    @property
    def components(self) -> np.ndarray:  # type: ignore[override]
        rows = np.zeros((self.n_components, self.n_features))
        rows[np.arange(self.n_components), self._used] = self.weights[self._used]
        return rows

    def project(self, points: Any) -> np.ndarray:
        points = self._check_points(points)[:, self._used]
        points = points.toarray() if sparse.issparse(points) else points
        return points.astype(np.float64, copy=False) * self.weights[self._used]

    def matrix(self) -> np.ndarray:
        return np.diag(self.weights**2)

    def _weights(self) -> np.ndarray:
        return self.weights[None]


class BadDistances(ValueError):
    """Error of a metric whose distances are not finite, are negative, or have the wrong shape."""


def checked_distances(metric: Any, x: Any, y: Any) -> np.ndarray:
    """Return ``metric.distances(x, y)``; raise unless all are finite and, up to rounding, not negative."""
    distances, expected = np.asarray(metric.distances(x, y), dtype=np.float64), (x.shape[0], y.shape[0])
    if distances.shape != expected:
        raise BadDistances(f"metric {metric!r} gave distances of shape {distances.shape}: expected {expected}")
    lowest, highest = (float(distances.min()), float(distances.max())) if distances.size else (0.0, 0.0)
    if not np.isfinite(lowest + highest):
        invalid = distances[~np.isfinite(distances)]
        raise BadDistances(
            f"metric {metric!r} gave {invalid[0] if invalid.size else highest} as a distance between points: either it "
            "is not defined for some of them, which have to be left out (the correlation with a point whose features "
            "are all equal, say), or coordinates are too large (divide the points by a constant)"
        )
    if lowest < -_ROUNDING * max(highest, -lowest):
        raise BadDistances(f"metric {metric!r} gave {lowest:g} as a distance between points: none can be negative")
    return np.maximum(distances, 0.0, out=distances) if lowest < 0.0 else distances


def manhattan(x: Any, y: Any) -> np.ndarray:
    if sparse.issparse(x) or sparse.issparse(y):
        from sklearn.metrics.pairwise import manhattan_distances  # 10 MB that learning does without

        return manhattan_distances(sparse.csr_matrix(x), sparse.csr_matrix(y))
    return cdist(x, y, "cityblock")


def euclidean(x: Any, y: Any) -> np.ndarray:
    """Return distances between the rows of x and y, accurate also between points that nearly coincide.

    With many features the matrix product |x|² - 2xy + |y|² is tens of times faster than subtraction, but loses digits
    for points close to each other. Distances between these are computed again from differences. Subtracting the mean
    of the points first makes such pairs rare.
    """
    is_sparse = sparse.issparse(x) or sparse.issparse(y)
    if not is_sparse and x.shape[1] <= _MAX_LOOP_FEATURES:
        return cdist(x, y)
    x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
    centre = 0.0 if is_sparse else 0.5 * (x.mean(axis=0) + y.mean(axis=0))
    centred_x, centred_y = (x, y) if is_sparse else (x - centre, y - centre)
    norms_x, norms_y = _square_norms(centred_x)[:, None], _square_norms(centred_y)
    squared = -2.0 * safe_sparse_dot(centred_x, centred_y.T, dense_output=True)
    squared += norms_x
    squared += norms_y
    np.maximum(squared, 0.0, out=squared)
    rows, cols = np.nonzero(squared <= _CANCELLED * (norms_x + norms_y))
    chunk = max(1, 10_000_000 // x.shape[1])
    for low in range(0, rows.size, chunk):
        i, j = rows[low : low + chunk], cols[low : low + chunk]
        squared[i, j] = _square_norms(x[i] - y[j])
    return np.sqrt(squared, out=squared)


def _square_norms(x: Any) -> np.ndarray:
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("pf,pf->p", x, x)
