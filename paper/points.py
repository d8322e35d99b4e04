"""Baselines on points: transport under a named distance (Manhattan, cosine) or a linear map (PCA, LDA, NCA).

`PointLearner` is the adapter for methods that learn a linear map of points: it draws points with the label of their
distribution, standardises and reduces their features, and turns the rows that `_learn` returns into a ground metric.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from groundmetric._internal.types import DistributionsLike, LabelsLike, RandomState
from groundmetric._internal.validation import check_labels, check_number
from groundmetric.distances import GroundMetricMethod, pairwise_distances
from groundmetric.distributions import Distributions, as_distributions
from groundmetric.metrics.base import GroundMetric, euclidean

# Ridge of a singular scatter within classes (fewer points than features), as a share of its mean diagonal.
_RIDGE = 1e-6
# Numbers of points and features up to which principal axes come from a full decomposition.
_SMALL = 2000
# Points from which the axes of a working space are computed, at most.
_POINTS_FOR_AXES = 2000
# Entries up to which sparse points are made dense.
_DENSE_ENTRIES = 20_000_000


class Baseline(BaseEstimator):
    """Fit of a baseline; subclasses give `_fit`."""

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> Any:
        """Fit the method to training distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Class label of each distribution; not used by methods with ``uses_labels = False``.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._fit(D, y)
        return self

    def _fit(self, D: Any, y: Any) -> None:
        raise NotImplementedError


class PointLearner(GroundMetricMethod, Baseline):
    """A ground metric learned on points that carry the label of their distribution.

    Subclasses give `_check_settings`, which raises on impossible parameters, and `_learn`, which turns points, their
    classes and their weights into rows of a linear map.
    """

    max_points: int | None
    max_features: int
    standardise: bool
    random_state: Any

    def _fit(self, D: Any, y: Any) -> None:
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

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        check_is_fitted(self, "metric_")
        return pairwise_distances(self._projected(A), None if B is None else self._projected(B), n_jobs=n_jobs)

    distances.__doc__ = GroundMetricMethod.distances.__doc__

    def _projected(self, D: Any) -> Distributions:
        """Return projected distributions: with many components, projecting once is cheaper than for every pair."""
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
        """Return the map that is applied to features; subclasses may change the learned map."""
        return components


def labelled(D: Any, y: Any) -> tuple[Distributions, np.ndarray, np.ndarray]:
    """Return the distributions without points of zero mass, the classes, and the class index of each distribution."""
    if y is None:
        raise ValueError("y is None: this method learns from labels, one per distribution")
    D = as_distributions(D)
    classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return D.with_mass(), classes, codes


def unlabelled(D: Any, y: Any) -> Distributions:
    """Return the distributions without points of zero mass, for methods that ignore labels; check given labels."""
    D = as_distributions(D)
    if y is not None:
        check_labels(y, D.name_index)
    return D.with_mass()


def draw(D: Distributions, max_points: int | None, random: np.random.RandomState) -> np.ndarray:
    """Return rows of about `max_points` points: the same share of every distribution, at least one point each."""
    if max_points is not None:
        check_number("max_points", max_points, low=2, whole=True)
    n_points = D.points.shape[0]
    if max_points is None or n_points <= max_points:
        return np.arange(n_points)
    quota = np.maximum(D.sizes * max_points // n_points, 1)
    parts = [random.choice(size, count, replace=False) for size, count in zip(D.sizes, quota, strict=True)]
    return np.sort(np.concatenate([low + part for low, part in zip(D.bounds[:-1], parts, strict=True)]))


def owners(D: Distributions, rows: np.ndarray) -> np.ndarray:
    """Return the index of the distribution of each row."""
    return np.searchsorted(D.bounds, rows, side="right") - 1


def point_weights(D: Distributions) -> np.ndarray:
    """Return weights of points with mean 1 in each distribution."""
    return D.weights * np.repeat(D.sizes, D.sizes)


def spread(variance: np.ndarray) -> np.ndarray:
    """Return standard deviations, 1 for constant features."""
    return np.where(variance > 0.0, np.sqrt(variance), 1.0)


def class_scatter(points: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted covariance of the class means, and of the points around their class mean."""
    members = codes == np.unique(codes)[:, None]  # (n_classes, n_points)
    mass = members * (weights / weights.sum())
    means = (mass @ points) / mass.sum(axis=1, keepdims=True)
    mean_offsets = means - mass.sum(axis=1) @ means
    point_offsets = points - members.T.astype(np.float64) @ means
    between = (mean_offsets.T * mass.sum(axis=1)) @ mean_offsets
    within = (point_offsets.T * mass.sum(axis=0)) @ point_offsets
    return between, within


def directions(between: np.ndarray, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return generalised eigenvalues, largest first, and eigenvectors as columns v with vᵀ within v = 1.

    Features are scaled to one unit first, for accuracy. Features without scatter have zero entries; a singular matrix
    `within` gets a ridge.
    """
    unit = np.sqrt(np.diag(within) + np.abs(np.diag(between)))
    varies = unit > 1e-12 * unit.max()  # rounding errors of a constant feature are not scatter
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
    """Coordinates z = axes (x - centre) / scale in which a metric is learned; without axes, all features."""

    centre: np.ndarray  # (n_features,)
    scale: np.ndarray  # (n_features,)
    axes: np.ndarray | None  # (n_axes, n_features)

    def coordinates(self, points: Any) -> np.ndarray:
        """Return the coordinates of points as a dense array."""
        if self.axes is not None:
            rows = self.axes / self.scale
            return GroundMetric(rows).project(points) - rows @ self.centre
        points = points.toarray() if sparse.issparse(points) else points
        return (points.astype(np.float64) - self.centre) / self.scale

    def components(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of a linear map of the features from rows of a map of the coordinates."""
        return (rows if self.axes is None else rows @ self.axes) / self.scale


def working_space(
    points: Any,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
    max_features: int,
    random: np.random.RandomState,
) -> WorkingSpace:
    """Return all features, if at most `max_features`, otherwise the leading principal components."""
    if centre.size <= max_features:
        return WorkingSpace(centre, scale, None)
    if points.shape[0] > _POINTS_FOR_AXES:
        rows = np.sort(random.choice(points.shape[0], _POINTS_FOR_AXES, replace=False))
        points, weights = points[rows], weights[rows]
    return WorkingSpace(centre, scale, principal_axes(points, weights, centre, scale, max_features, random))


def principal_axes(
    points: Any, weights: np.ndarray, centre: np.ndarray, scale: np.ndarray, n_axes: int, random: np.random.RandomState
) -> np.ndarray:
    """Return the leading principal axes of weighted, scaled points; fewer if the points span fewer dimensions."""
    n_points, n_features = points.shape
    roots = np.sqrt(weights)
    n_axes = min(n_axes, n_points, n_features)
    truncated = n_axes <= min(n_points, n_features) // 2
    if truncated and sparse.issparse(points) and n_points * n_features > _DENSE_ENTRIES:
        return _by_iteration(_centred_operator(points, roots, centre, scale), n_axes, random)
    dense = points.toarray() if sparse.issparse(points) else points
    centred = (dense.astype(np.float64) - centre) / scale * roots[:, None]
    if truncated and min(centred.shape) > _SMALL:
        return _by_iteration(centred, n_axes, random)
    return _by_covariance(centred, n_axes)


def _by_covariance(centred: np.ndarray, n_axes: int) -> np.ndarray:
    tall = centred.shape[0] >= centred.shape[1]
    gram = centred.T @ centred if tall else centred @ centred.T
    size = gram.shape[0]
    strength, vectors = eigh(gram, subset_by_index=(size - n_axes, size - 1))
    strength, vectors = strength[::-1], vectors[:, ::-1]
    useful = strength > 1e-12 * max(strength[0], 0.0)
    if not useful.any():  # all points coincide: any axis is valid
        return np.eye(1, centred.shape[1])
    vectors = vectors[:, useful]
    return _signed(vectors.T if tall else (vectors / np.sqrt(strength[useful])).T @ centred)


def _by_iteration(centred: Any, n_axes: int, random: np.random.RandomState) -> np.ndarray:
    _, strength, axes = svds(centred, n_axes, v0=random.normal(size=min(centred.shape)))
    useful = strength > 1e-6 * strength.max()
    return _signed(axes[useful][np.argsort(-strength[useful])])


def _signed(axes: np.ndarray) -> np.ndarray:
    """Return axes with the sign that makes their largest entry positive."""
    largest = np.abs(axes).argmax(axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]


def _centred_operator(points: Any, roots: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> LinearOperator:
    """Return diag(roots) (points - centre) / scale as an operator, which keeps sparse points sparse."""

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


class PointDistance:
    """A distance between points that scikit-learn knows by name, on the features as given or standardised.

    Sparse points stay sparse, except where they have to be centred.
    """

    def __init__(
        self, name: str, features: GroundMetric, centre: np.ndarray | None = None, scale: np.ndarray | None = None
    ) -> None:
        self.name = name
        self.features = features
        self.centre, self.scale = centre, scale

    def distances(self, x: Any, y: Any = None) -> np.ndarray:
        x = self._scaled(x)
        y = None if y is None else self._scaled(y)
        if self.name == "euclidean":
            return euclidean(x, x if y is None else y)
        return sklearn_distances(x, y, metric=self.name)

    def _scaled(self, points: Any) -> Any:
        self.features.check_fit(points)
        if isinstance(points, Distributions):
            points = points.points
        points = points.tocsr() if sparse.issparse(points) else np.asarray(points)
        if self.scale is None:
            return points
        if sparse.issparse(points) and self.centre is None:
            return points.multiply(1.0 / self.scale).tocsr()
        points = points.toarray() if sparse.issparse(points) else points
        return (points - (0.0 if self.centre is None else self.centre)) / self.scale


class _Plain(GroundMetricMethod, Baseline):
    """Wasserstein distances under a named ground metric; `fit` computes at most the moments of the features."""

    _name: ClassVar[str]
    _centred: ClassVar[bool] = False  # does the distance change when all points are shifted?

    uses_labels = False  # a permutation test then fits it once

    def __init__(self, *, standardise: bool = False) -> None:
        self.standardise = standardise

    def _fit(self, D: Any, y: Any) -> None:
        D = unlabelled(D, y)
        self.n_features_in_ = D.shape[1]
        self._features = GroundMetric.euclidean(D.shape[1], D.features)
        self.metric_: Any = PointDistance(self._name, self._features)
        if self.standardise:
            centre, variance = D.moments()
            self.metric_ = PointDistance(
                self._name, self._features, centre if self._centred else None, spread(variance)
            )

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        check_is_fitted(self, "metric_")
        for cohort in (A,) if B is None else (A, B):
            self._features.check_fit(cohort)
        return super().distances(A, B, n_jobs=n_jobs)

    distances.__doc__ = GroundMetricMethod.distances.__doc__


class Manhattan(_Plain):
    """Wasserstein distances with the sum of absolute differences between points.

    Parameters
    ----------
    standardise : bool, default=False
        Divide every feature by its standard deviation over the training points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 0.0], [3.0, 4.0]], samples=["a", "b"])
    >>> Manhattan().fit(D).distances(D).tolist()
    [[0.0, 7.0], [7.0, 0.0]]
    """

    _name = "cityblock"


class Cosine(_Plain):
    """Wasserstein distances with one minus the cosine of the angle between points, seen from the origin.

    Parameters
    ----------
    standardise : bool, default=False
        Subtract the mean of every feature over the training points and divide by its standard deviation: the angle is
        then seen from their mean.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[1.0, 0.0], [0.0, 4.0]], samples=["a", "b"])
    >>> Cosine().fit(D).distances(D).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    _name = "cosine"
    _centred = True


class PCAEuclidean(GroundMetricMethod, Baseline):
    """Wasserstein distances with the Euclidean distance between the leading principal components of the points.

    Parameters
    ----------
    n_components : int, default=30
        Number of principal components, fewer where the points span fewer dimensions.
    standardise : bool, default=True
        Divide every feature by its standard deviation first.
    max_points : int or None, default=10000
        Points that are drawn to find the components, the same share of every distribution; None: all.
    random_state : int, RandomState or None, default=None
        Seed of the draw of points.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric.
    components_ : array of shape (n_components, n_features)
        Its map.
    n_features_in_ : int
        Features seen in `fit`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> PCAEuclidean(1).fit(D).components_.shape
    (1, 2)
    """

    uses_labels = False  # a permutation test then fits it once

    def __init__(
        self,
        n_components: int = 30,
        *,
        standardise: bool = True,
        max_points: int | None = 10_000,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.standardise = standardise
        self.max_points = max_points
        self.random_state = random_state

    def _fit(self, D: Any, y: Any) -> None:
        D = unlabelled(D, y)
        check_number("n_components", self.n_components, low=1, whole=True)
        random = check_random_state(self.random_state)
        rows = draw(D, self.max_points, random)
        centre, variance = D.moments()
        scale = spread(variance) if self.standardise else np.ones(variance.size)
        axes = principal_axes(D.points[rows], point_weights(D)[rows], centre, scale, self.n_components, random)
        self.components_ = axes / scale
        self.metric_ = GroundMetric(self.components_, D.features, variances=variance)
        self.n_features_in_ = D.shape[1]


class LinearDiscriminant(PointLearner):
    """A shrunken linear discriminant of points with their distribution's label as ground metric.

    The directions in which the class means differ most against the covariance within classes, in units of that
    covariance. Points of one distribution are not independent, so the covariance of a few distributions is less certain
    than the number of points suggests: it is shrunk towards a multiple of the identity.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map, at most one less than there are classes; None: as many as that.
    shrinkage : float, default=0.5
        Share of the identity in the covariance, from 0 to 1.
    max_points : int or None, default=10000
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int, default=1000
        More features are reduced to as many principal components first.
    standardise : bool, default=True
        Divide every feature by its standard deviation first, which makes the shrinkage independent of units.
    random_state : int, RandomState or None, default=None
        Seed of the draw of points.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric.
    components_ : array of shape (n_components, n_features)
        Its map.
    n_features_in_ : int
        Features seen in `fit`.
    classes_ : array of shape (n_classes,)
        Labels.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> LinearDiscriminant().fit(D, y).metric_.n_features
    2
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        shrinkage: float = 0.5,
        max_points: int | None = 10_000,
        max_features: int = 1000,
        standardise: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        if self.n_components is not None:
            check_number("n_components", self.n_components, low=1, whole=True)
        check_number("shrinkage", self.shrinkage, low=0.0)
        if self.shrinkage > 1.0:
            raise ValueError(f"shrinkage is {self.shrinkage}: expected a share from 0 to 1")

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        between, within = class_scatter(points, codes, weights)
        varying = max(np.count_nonzero(np.diag(within) > 1e-24 * np.diag(within).max()), 1)
        level = np.trace(within) / varying or 1.0
        shrunk = (1.0 - self.shrinkage) * within + self.shrinkage * level * np.eye(len(within))
        most = self.classes_.size - 1
        count = most if self.n_components is None else min(self.n_components, most)
        return directions(between, shrunk)[1][:, :count].T


class NCA(PointLearner):
    """Neighbourhood components analysis (Goldberger et al. 2004) on points with their distribution's label.

    Maximises the chance that a point, choosing a neighbour at random with near ones preferred, chooses one of its own
    class. The work is scikit-learn's; the defaults are metric-learn's (all components, 100 iterations), as in the
    paper. Every step computes the distances between all pairs of points, which limits their number.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map; None: as many as features.
    max_iter : int, default=100
        Iterations at most.
    tol : float, default=1e-7
        Stop when a step gains less than this share; 1e-7 is about where metric-learn stops.
    max_points : int or None, default=1500
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int, default=300
        More features are reduced to as many principal components first.
    standardise : bool, default=False
        Divide every feature by its standard deviation first. The paper used unscaled features.
    random_state : int, RandomState or None, default=None
        Seed of the draw of points.

    Attributes
    ----------
    metric_ : GroundMetric
        The learned ground metric.
    components_ : array of shape (n_components, n_features)
        Its map.
    classes_ : array of shape (n_classes,)
        Labels.
    n_features_in_ : int
        Features seen in `fit`.
    n_iter_ : int
        Iterations done.

    Notes
    -----
    Points of no mass are left out. Other weights count where features are standardised or reduced to principal
    components, and not in the analysis itself.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> NCA(1, max_iter=5, random_state=0).fit(D, y).components_.shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_iter: int = 100,
        tol: float = 1e-7,
        max_points: int | None = 1500,
        max_features: int = 300,
        standardise: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        check_components(self.n_components, n_features)
        check_number("max_iter", self.max_iter, low=1, whole=True)
        check_number("tol", self.tol, low=0.0)

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        nca = NeighborhoodComponentsAnalysis(
            self.n_components, max_iter=self.max_iter, tol=self.tol, random_state=random
        ).fit(points, codes)
        self.n_iter_ = nca.n_iter_
        return nca.components_
