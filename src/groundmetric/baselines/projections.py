"""Ground metrics after a classical projection of the points: principal components, linear discriminant."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._internal.validation import check_number
from ..estimators._base import GroundMetricMethod
from ..metrics.base import GroundMetric
from ._base import (
    PointLearner,
    class_scatter,
    directions,
    draw,
    point_weights,
    principal_axes,
    spread,
    unlabelled,
)


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
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.standardise = standardise
        self.max_points = max_points
        self.random_state = random_state

    def fit(self, D: Any, y: Any = None) -> PCAEuclidean:
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
        random_state: Any = None,
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
