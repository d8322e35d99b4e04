"""Ground metrics that learn nothing: Euclidean, Manhattan, cosine."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.utils.validation import check_is_fitted

from ..distributions import Distributions
from ..estimators._base import GroundMetricMethod
from ..metrics.base import GroundMetric
from ..metrics.cost import euclidean
from ._base import spread, unlabelled


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

    def fit(self, D: Any, y: Any = None) -> _Plain:
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

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
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
