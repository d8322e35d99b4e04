"""Ground metrics from named distances (Euclidean, Manhattan, cosine) and from linear maps (PCA, LDA, NCA)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import check_number
from ..distributions import Distributions
from ..estimators._base import GroundMetricMethod
from ..metrics.base import GroundMetric, euclidean
from ._base import (
    PointLearner,
    check_components,
    class_scatter,
    directions,
    draw,
    point_weights,
    principal_axes,
    spread,
    starting_map,
    unlabelled,
)


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
        """Distances between points: all of `x` against all of `y` (or against themselves)."""
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


class _Plain(GroundMetricMethod, BaseEstimator):
    """Wasserstein distances under a named ground metric; `fit` only looks at the features' moments, if at all."""

    _name: ClassVar[str]
    _centred: ClassVar[bool] = False  # does the distance change when all points are shifted?

    uses_labels = False  # so that a permutation test fits it once

    def __init__(self, *, standardise: bool = False) -> None:
        self.standardise = standardise

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> _Plain:
        """Learn the moments of the features where they are standardised; labels are not used.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Not used; labels that are given must be one per distribution, without missing ones.

        Returns
        -------
        self
            The fitted estimator.
        """
        D = unlabelled(D, y)
        self.n_features_in_ = D.shape[1]
        self._features = GroundMetric.euclidean(D.shape[1], D.features)
        self.metric_: Any = PointDistance(self._name, self._features)
        if self.standardise:
            centre, variance = D.moments()
            self.metric_ = PointDistance(
                self._name, self._features, centre if self._centred else None, spread(variance)
            )
        elif self._name == "euclidean":  # few features take a faster way
            self.metric_ = self._features
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
        for cohort in (A,) if B is None else (A, B):
            self._features.check_fit(cohort)
        return super().distances(A, B, n_jobs=n_jobs)


class Euclidean(_Plain):
    """Wasserstein distances with the Euclidean distance between points.

    Parameters
    ----------
    standardise : bool, default=False
        Divide every feature by its standard deviation over the training points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 0.0], [3.0, 4.0]], samples=["a", "b"])
    >>> gm.baselines.Euclidean().fit(D).distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

    _name = "euclidean"


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
    >>> gm.baselines.Manhattan().fit(D).distances(D).tolist()
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
    >>> gm.baselines.Cosine().fit(D).distances(D).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    _name = "cosine"
    _centred = True


class PCAEuclidean(GroundMetricMethod, BaseEstimator):
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
    >>> gm.baselines.PCAEuclidean(1).fit(D).components_.shape
    (1, 2)
    """

    uses_labels = False  # so that a permutation test fits it once

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

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> PCAEuclidean:
        """Find the principal components; labels are not used.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Not used; labels that are given must be one per distribution, without missing ones.

        Returns
        -------
        self
            The fitted estimator.
        """
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
        return self


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
        Divide every feature by its standard deviation first, so that the shrinkage does not depend on units.
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
    >>> gm.baselines.LinearDiscriminant().fit(D, y).metric_.n_features
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
    paper. Every step takes the distances between all pairs of points, so that their number is limited.

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
        Divide every feature by its standard deviation first. The paper used the features as they are.
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
    >>> gm.baselines.NCA(1, max_iter=5, random_state=0).fit(D, y).components_.shape
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
        start = starting_map(points, codes, self.n_components, random)
        nca = NeighborhoodComponentsAnalysis(init=start, max_iter=self.max_iter, tol=self.tol).fit(points, codes)
        self.n_iter_ = nca.n_iter_
        return nca.components_
