"""Base of the baselines: training data, metrics learned on labelled points, class scatter, principal axes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, LabelsLike
from .._internal.validation import check_labels, check_number
from ..distances import pairwise_distances
from ..distributions import Distributions, as_distributions
from ..estimators._base import GroundMetricMethod
from ..metrics.base import GroundMetric

# Where the scatter within classes has no extent (fewer points than features, say), it is given this share of the mean.
_RIDGE = 1e-6
# Up to so many points or features, principal axes come from a full decomposition of the smaller covariance.
_SMALL = 2000
# Points that the axes of a working space are found from, at most.
_POINTS_FOR_AXES = 2000
# Sparse points with more entries than this are never made dense.
_DENSE_ENTRIES = 20_000_000


class PointLearner(GroundMetricMethod, BaseEstimator):
    """A ground metric learned on points that carry the label of their distribution.

    Subclasses give `_check_settings`, which raises on impossible parameters, and `_learn`, which turns points, their
    classes and their weights into rows of a linear map.
    """

    max_points: int | None
    max_features: int
    standardise: bool
    random_state: Any

    def fit(self, D: DistributionsLike, y: LabelsLike) -> PointLearner:
        """Learn the ground metric from labelled distributions: each point carries the label of its distribution.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Class label of each distribution; at least two different labels.

        Returns
        -------
        self
            The fitted estimator.
        """
        D, self.classes_, codes = labelled(D, y)
        check_number("max_features", self.max_features, low=1, whole=True)
        self._check_settings(D.shape[1])
        random = check_random_state(self.random_state)
        rows = draw(D, self.max_points, random)
        codes = codes[owners(D, rows)]
        if np.bincount(codes).max() < 2:
            raise ValueError(
                f"each of the {self.classes_.size} classes has a single point: this method learns from pairs of points "
                "of one class; give more distributions or points, or raise `max_points`"
            )
        points, weights = D.points[rows], point_weights(D)[rows]
        centre, variance = D.moments()
        scale = spread(variance) if self.standardise else np.ones(variance.size)
        space = working_space(points, weights, centre, scale, self.max_features, random)
        components = space.components(self._learn(space.coordinates(points), codes, weights, random))
        self.components_ = self._final_map(components)
        self.metric_ = GroundMetric(self.components_, D.features, variances=variance)
        self.n_features_in_ = D.shape[1]
        return self

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Exact Wasserstein distances between the distributions of A and of B (or among those of A).

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            Distributions of the rows; the rows of an array are distributions of one point each.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions of the columns; None: those of A.
        n_jobs : int or None, default=None
            Threads; None means one, -1 one per core. The result is the same for any number.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances; symmetric where B is None.
        """
        check_is_fitted(self, "metric_")
        return pairwise_distances(self._projected(A), None if B is None else self._projected(B), n_jobs=n_jobs)

    def _projected(self, D: Any) -> Distributions:
        """Distributions in the learned space: with many components, projecting once is cheaper than for every pair."""
        D = as_distributions(D)
        self.metric_.check_fit(D)
        return D.with_points(self.metric_.project(D))

    def _check_settings(self, n_features: int) -> None:
        raise NotImplementedError

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        raise NotImplementedError

    def _final_map(self, components: np.ndarray) -> np.ndarray:
        """The map of the features that is applied, from the one that was learned."""
        return components


def labelled(D: Any, y: Any) -> tuple[Distributions, np.ndarray, np.ndarray]:
    """Distributions without points of no mass, the classes, and the index of each one's label among them."""
    if y is None:
        raise ValueError("y is None: this method learns from labels, one per distribution")
    D = as_distributions(D)
    classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return D.with_mass(), classes, codes


def unlabelled(D: Any, y: Any) -> Distributions:
    """For methods that do not look at labels: those that are given must fit all the same."""
    D = as_distributions(D)
    if y is not None:
        check_labels(y, D.name_index)
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


def spread(variance: np.ndarray) -> np.ndarray:
    """Standard deviations to divide by: 1 for what is constant."""
    return np.where(variance > 0.0, np.sqrt(variance), 1.0)


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


class WorkingSpace(NamedTuple):
    """Coordinates z = axes (x - centre) / scale, in which a metric is learned; without axes, all the features."""

    centre: np.ndarray  # (n_features,)
    scale: np.ndarray  # (n_features,)
    axes: np.ndarray | None  # (n_axes, n_features)

    def coordinates(self, points: Any) -> np.ndarray:
        """Points as a dense array of their coordinates in this space."""
        if self.axes is not None:
            rows = self.axes / self.scale
            return GroundMetric(rows).project(points) - rows @ self.centre
        points = points.toarray() if sparse.issparse(points) else points
        return (points.astype(np.float64) - self.centre) / self.scale

    def components(self, rows: np.ndarray) -> np.ndarray:
        """Rows of a linear map of the coordinates as rows for the features as given."""
        return (rows if self.axes is None else rows @ self.axes) / self.scale


def working_space(
    points: Any,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
    max_features: int,
    random: np.random.RandomState,
) -> WorkingSpace:
    """All features where they are at most `max_features`, otherwise as many leading principal components.

    Fewer points than that span fewer dimensions: then nothing of the training points is lost.
    """
    if centre.size <= max_features:
        return WorkingSpace(centre, scale, None)
    if points.shape[0] > _POINTS_FOR_AXES:
        rows = np.sort(random.choice(points.shape[0], _POINTS_FOR_AXES, replace=False))
        points, weights = points[rows], weights[rows]
    return WorkingSpace(centre, scale, principal_axes(points, weights, centre, scale, max_features, random))


def principal_axes(
    points: Any, weights: np.ndarray, centre: np.ndarray, scale: np.ndarray, n_axes: int, random: np.random.RandomState
) -> np.ndarray:
    """Leading principal axes of weighted, scaled points, strongest first; fewer where the points span less."""
    n_points, n_features = points.shape
    roots = np.sqrt(weights)
    n_axes = min(n_axes, n_points, n_features)
    few = n_axes <= min(n_points, n_features) // 2
    if few and sparse.issparse(points) and n_points * n_features > _DENSE_ENTRIES:
        return _by_iteration(_centred_operator(points, roots, centre, scale), n_axes, random)
    dense = points.toarray() if sparse.issparse(points) else points
    centred = (dense.astype(np.float64) - centre) / scale * roots[:, None]
    if few and min(centred.shape) > _SMALL:
        return _by_iteration(centred, n_axes, random)
    return _by_covariance(centred, n_axes)


def _by_covariance(centred: np.ndarray, n_axes: int) -> np.ndarray:
    tall = centred.shape[0] >= centred.shape[1]
    gram = centred.T @ centred if tall else centred @ centred.T
    size = gram.shape[0]
    strength, vectors = eigh(gram, subset_by_index=(size - n_axes, size - 1))
    strength, vectors = strength[::-1], vectors[:, ::-1]
    useful = strength > 1e-12 * max(strength[0], 0.0)
    if not useful.any():  # all points coincide: any axis is as good as another
        return np.eye(1, centred.shape[1])
    vectors = vectors[:, useful]
    return _signed(vectors.T if tall else (vectors / np.sqrt(strength[useful])).T @ centred)


def _by_iteration(centred: Any, n_axes: int, random: np.random.RandomState) -> np.ndarray:
    _, strength, axes = svds(centred, n_axes, v0=random.normal(size=min(centred.shape)))
    useful = strength > 1e-6 * strength.max()
    return _signed(axes[useful][np.argsort(-strength[useful])])


def _signed(axes: np.ndarray) -> np.ndarray:
    """An axis has no direction of its own: its largest entry is made positive."""
    largest = np.abs(axes).argmax(axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]


def _centred_operator(points: Any, roots: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> LinearOperator:
    """diag(roots) (points - centre) / scale as products only: sparse points stay sparse."""

    def forward(x: np.ndarray) -> np.ndarray:
        x = x.ravel() / scale
        return roots * (points @ x - centre @ x)

    def backward(x: np.ndarray) -> np.ndarray:
        x = x.ravel() * roots
        return (points.T @ x - centre * x.sum()) / scale

    return LinearOperator(points.shape, matvec=forward, rmatvec=backward, dtype=np.float64)


def check_components(n_components: int | None, n_features: int) -> None:
    if n_components is None:
        return
    check_number("n_components", n_components, low=1, whole=True)
    if n_components > n_features:
        raise ValueError(f"n_components is {n_components}, but there are only {n_features} features")


def starting_map(
    points: np.ndarray, codes: np.ndarray, n_components: int | None, random: np.random.RandomState
) -> np.ndarray:
    """Where metric-learn starts by default: at a linear discriminant if that has enough rows, else at the identity.

    With fewer components than features, the principal axes take the place of the identity.
    """
    n_points, n_features = points.shape
    rank = n_features if n_components is None else min(n_components, n_features)
    ones = np.ones(n_points)
    if rank <= min(n_features, np.unique(codes).size - 1):
        return directions(*class_scatter(points, codes, ones))[1][:, :rank].T
    if rank < min(n_features, n_points):
        return principal_axes(points, ones, points.mean(axis=0), np.ones(n_features), rank, random)
    return np.eye(rank, n_features)
