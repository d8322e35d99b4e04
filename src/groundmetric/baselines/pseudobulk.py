"""Pseudobulk: a distribution as the mean (and spread) of its points, without transport."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import svd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, LabelsLike, PointsLike
from .._internal.validation import check_number
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric, euclidean
from ._base import labelled, spread, unlabelled
from .metrics import PointDistance

_STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_USUAL_STRENGTH = 10.0


def pseudobulk(D: Distributions, statistics: str) -> np.ndarray:
    """Weighted mean of each feature, followed by its standard deviation for "mean_sd": a row per distribution.

    >>> D = Distributions([[0.0], [2.0], [5.0]], samples=["a", "a", "b"])
    >>> pseudobulk(D, "mean_sd").tolist()
    [[1.0, 1.0], [5.0, 0.0]]
    """
    means = D.means()
    if statistics == "mean":
        return means
    deviations = np.empty_like(means)
    for d, (low, high) in enumerate(zip(D.bounds[:-1], D.bounds[1:], strict=True)):
        weights, points = D.weights[low:high], D.points[low:high].astype(np.float64)
        if sparse.issparse(points):
            deviations[d] = np.maximum(points.multiply(points).T @ weights - means[d] ** 2, 0.0)
        else:
            deviations[d] = weights @ (points - means[d]) ** 2
    return np.hstack([means, np.sqrt(deviations)])


class _Pseudobulk(BaseEstimator):
    """The standardised embedding that both methods share."""

    statistics: str

    def _learn_embedding(self, D: Distributions) -> np.ndarray:
        """Embedding of the training distributions, whose mean and spread are remembered."""
        if self.statistics not in ("mean", "mean_sd"):
            raise ValueError(f"statistics is {self.statistics!r}: expected 'mean' or 'mean_sd'")
        self.n_features_in_ = D.shape[1]
        self._features = GroundMetric.euclidean(D.shape[1], D.features)
        raw = pseudobulk(D, self.statistics)
        self.centre_, self.scale_ = raw.mean(axis=0), spread(raw.var(axis=0))
        # What rounding leaves of a constant must not be blown up.
        constant = np.ptp(raw, axis=0) <= 1e-10 * np.abs(self.centre_)
        self.scale_[constant] = 1.0
        return np.where(constant, 0.0, (raw - self.centre_) / self.scale_)

    def embed(self, D: DistributionsLike) -> np.ndarray:
        """Distributions as rows of their statistics, standardised as in training.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`; the rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, n_statistics)
            Means of the features, for "mean_sd" followed by their standard deviations; less `centre_`, over `scale_`.
        """
        check_is_fitted(self, "centre_")
        D = as_distributions(D).with_mass()
        self._features.check_fit(D)
        return (pseudobulk(D, self.statistics) - self.centre_) / self.scale_


class PseudobulkNeighbors(_Pseudobulk):
    """Euclidean distances between the means (and standard deviations) of distributions.

    Statistics are standardised by the training distributions, points by the training points.

    Parameters
    ----------
    statistics : {"mean", "mean_sd"}, default="mean"
        Means of the features, or means and standard deviations.

    Attributes
    ----------
    centre_, scale_ : array of shape (n_statistics,)
        Mean and standard deviation of each statistic over the training distributions.
    n_features_in_ : int
        Features seen in `fit`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.PseudobulkNeighbors().fit(D).distances(D).shape
    (30, 30)
    """

    uses_labels = False  # so that a permutation test fits it once

    def __init__(self, *, statistics: str = "mean") -> None:
        self.statistics = statistics

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> PseudobulkNeighbors:
        """Learn the mean and spread of the statistics and of the points; labels are not used.

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
        self._learn_embedding(D)
        self._point_distance = PointDistance("euclidean", self._features, scale=spread(D.moments()[1]))
        return self

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Euclidean distances between the embeddings of the distributions of A and of B (or among those of A).

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            Distributions of the rows; the rows of an array are distributions of one point each.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions of the columns; None: those of A.
        n_jobs : int or None, default=None
            Not used; present for the common interface.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances; symmetric where B is None.
        """
        a = self.embed(A)
        return euclidean(a, a if B is None else self.embed(B))

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Euclidean distances between points, each feature divided by its standard deviation over the training points.

        Parameters
        ----------
        x : array, sparse matrix, data frame or Distributions
            Points of the rows; of Distributions, their `points` in order.
        y : array, sparse matrix, data frame, Distributions or None, default=None
            Points of the columns; None: those of x.

        Returns
        -------
        array of shape (n_x, n_y)
            Distances.
        """
        check_is_fitted(self, "centre_")
        return self._point_distance.distances(x, y)


class PseudobulkLogistic(ClassifierMixin, _Pseudobulk):
    """Logistic regression on the means (and standard deviations) of distributions.

    Distances are Euclidean between log-odds: what the classifier sees of a distribution.

    Parameters
    ----------
    statistics : {"mean", "mean_sd"}, default="mean"
        Means of the features, or means and standard deviations.
    C : float or "auto", default="auto"
        Inverse strength of the ridge penalty, for standardised statistics over the root of their number (constant ones
        do not count), so that it means the same for few features and for many. "auto": the best of 0.1, 1, …, 1000 by
        held-out log-loss where every class has three distributions, otherwise 10.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn; a class that a dict does not name has weight 1.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Labels.
    C_ : float
        The inverse strength that was used.
    centre_, scale_ : array of shape (n_statistics,)
        Mean and standard deviation of each statistic over the training distributions.
    n_features_in_ : int
        Features seen in `fit`.
    metric_ : GroundMetric
        How the log-odds change with the mean: the ground metric between points that goes with the classifier.
    coef_ : array of shape (1, n_statistics) or (n_classes, n_statistics)
        Coefficients of the standardised statistics; one row for two classes.
    intercept_ : array of shape (1,) or (n_classes,)
        Intercepts.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.PseudobulkLogistic(C=10.0).fit(D, y).predict_proba(D[:2]).shape
    (2, 3)
    """

    def __init__(self, *, statistics: str = "mean", C: float | str = "auto", class_weight: str | None = None) -> None:
        self.statistics = statistics
        self.C = C
        self.class_weight = class_weight

    def fit(self, D: DistributionsLike, y: LabelsLike) -> PseudobulkLogistic:
        """Fit the logistic regression to labelled distributions.

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
        if self.C != "auto":
            check_number("C", self.C, low=0.0, above=True)
        z = self._learn_embedding(D)
        # A ridge penalty does not see rotations: with more statistics than distributions, their span is enough.
        wide = z.shape[1] > z.shape[0]
        turn = svd(z, full_matrices=False)[2] if wide else None
        scale = max(float(z.any(axis=0).sum()), 1.0) ** -0.5
        model, self.C_ = self._fit_logistic((z if turn is None else z @ turn.T) * scale, codes)
        self.coef_ = (model.coef_ if turn is None else model.coef_ @ turn) * scale
        self.intercept_ = model.intercept_
        slopes = (self.coef_ / self.scale_)[:, : D.shape[1]]
        self.metric_ = GroundMetric(slopes, D.features, variances=D.moments()[1])
        return self

    def _fit_logistic(self, z: np.ndarray, codes: np.ndarray) -> tuple[LogisticRegression, float]:
        model = LogisticRegression(
            C=_USUAL_STRENGTH if self.C == "auto" else self.C, class_weight=self._weights(), max_iter=10_000
        )
        folds = min(5, int(np.bincount(codes).min()))
        if self.C != "auto" or folds < 3:
            return model.fit(z, codes), float(model.C)
        search = GridSearchCV(
            model,
            {"C": list(_STRENGTHS)},
            scoring="neg_log_loss",
            cv=StratifiedKFold(folds, shuffle=True, random_state=0),
        )
        search.fit(z, codes)
        return search.best_estimator_, float(search.best_params_["C"])

    def _weights(self) -> Any:
        """Class weights by index rather than by name."""
        if not isinstance(self.class_weight, dict):
            return self.class_weight
        return {c: self.class_weight.get(name, 1.0) for c, name in enumerate(self.classes_.tolist())}

    def decision_function(self, D: DistributionsLike) -> np.ndarray:
        """Log-odds of the classes for each distribution.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`; the rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, 1) or (n_distributions, n_classes)
            With two classes, one column: the log-odds of the second against the first.
        """
        return self.embed(D) @ self.coef_.T + self.intercept_

    def predict_proba(self, D: DistributionsLike) -> np.ndarray:
        """Probability of each class for each distribution.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`; the rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Probabilities in the order of `classes_`; each row sums to 1.
        """
        odds = self.decision_function(D)
        if odds.shape[1] == 1:
            odds = np.hstack([np.zeros_like(odds), odds])
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, D: DistributionsLike) -> np.ndarray:
        """The most probable class of each distribution.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`; the rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,)
            Labels.
        """
        shares = self.predict_proba(D)
        return self.classes_[shares.argmax(axis=1)]

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Euclidean distances between the log-odds of the distributions of A and of B (or among those of A).

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            Distributions of the rows; the rows of an array are distributions of one point each.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions of the columns; None: those of A.
        n_jobs : int or None, default=None
            Not used; present for the common interface.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances; symmetric where B is None.
        """
        a = self.decision_function(A)
        return euclidean(a, a if B is None else self.decision_function(B))

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Distances between the log-odds of distributions that have these points as means and differ in nothing else.

        Parameters
        ----------
        x : array, sparse matrix, data frame or Distributions
            Points of the rows; of Distributions, their `points` in order.
        y : array, sparse matrix, data frame, Distributions or None, default=None
            Points of the columns; None: those of x.

        Returns
        -------
        array of shape (n_x, n_y)
            Distances under `metric_`.
        """
        check_is_fitted(self, "metric_")
        return self.metric_.distances(x, y)
