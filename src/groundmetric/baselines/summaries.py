"""Baselines on summaries of distributions: means and standard deviations (pseudobulk), and shares of types (PILOT)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import svd
from sklearn.base import ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, PointsLike, RandomState
from .._internal.validation import check_number, is_missing
from ..distances import pairwise_distances
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric, euclidean
from .points import Baseline, PointDistance, draw, labelled, point_weights, principal_axes, spread, unlabelled

_STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_USUAL_STRENGTH = 10.0


class SummaryBaseline(Baseline):
    """Distances between summaries of distributions; subclasses give `_fit`, `_distances` and `_point_distances`."""

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return distances between the distributions of A and of B (or among those of A).

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            Distributions of the rows; the rows of an array are distributions of one point each.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions of the columns; None: those of A.
        n_jobs : int or None, default=None
            Number of threads; None means one, -1 one per core. The result is the same for any number.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances; symmetric if B is None.
        """
        check_is_fitted(self, "n_features_in_")
        return self._distances(A, B, n_jobs)

    def point_distances(self, x: PointsLike, y: PointsLike | None = None) -> np.ndarray:
        """Return distances between points.

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
        check_is_fitted(self, "n_features_in_")
        return self._point_distances(x, y)

    def _distances(self, A: Any, B: Any, n_jobs: int | None) -> np.ndarray:
        raise NotImplementedError

    def _point_distances(self, x: Any, y: Any) -> np.ndarray:
        raise NotImplementedError


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


class _Pseudobulk(SummaryBaseline):
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

    def _fit(self, D: Any, y: Any) -> None:
        D = unlabelled(D, y)
        self._learn_embedding(D)
        self._point_distance = PointDistance("euclidean", self._features, scale=spread(D.moments()[1]))

    def _distances(self, A: Any, B: Any, n_jobs: int | None) -> np.ndarray:
        """Euclidean distances between the embeddings of the distributions of A and of B (or among those of A)."""
        a = self.embed(A)
        return euclidean(a, a if B is None else self.embed(B))

    def _point_distances(self, x: Any, y: Any) -> np.ndarray:
        """Euclidean distances between points, features divided by their standard deviation over training points."""
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

    def _fit(self, D: Any, y: Any) -> None:
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

    def _distances(self, A: Any, B: Any, n_jobs: int | None) -> np.ndarray:
        """Euclidean distances between the log-odds of the distributions of A and of B (or among those of A)."""
        a = self.decision_function(A)
        return euclidean(a, a if B is None else self.decision_function(B))

    def _point_distances(self, x: Any, y: Any) -> np.ndarray:
        """Distances between the log-odds of distributions that differ only in having these points as means."""
        return self.metric_.distances(x, y)


class Composition(SummaryBaseline):
    """Wasserstein distances between the shares that clusters of points have in each distribution (PILOT; Joodaki 2024).

    Points are clustered by k-means, or come with an annotation. Moving a share from one cluster to another costs the
    distance between the clusters' medians. Points are seen by the principal components of their features.

    Parameters
    ----------
    n_clusters : int, default=20
        Number of clusters, fewer where there are fewer distinct points; not used with an annotation.
    annotation : str or None, default=None
        Name of an annotation of the Distributions, e.g. "cell_type", to be used in place of clusters. Points whose type
        does not occur in training count for the type with the nearest median.
    cost : str, default="cosine"
        Distance between medians, by the name that scikit-learn has for it; "cosine" in PILOT.
    pseudo_count : float, default=0.2
        Number of points added to every distribution, split among the types as all training points are; 0.2 in PILOT.
    n_components : int, default=30
        Number of principal components, fewer where the points span fewer dimensions.
    standardise : bool, default=True
        Divide every feature by its standard deviation first.
    max_points : int or None, default=10000
        Points that are drawn to find components and clusters, the same share of every distribution; None: all.
    random_state : int, RandomState or None, default=None
        Seed of the draw of points and of k-means.

    Attributes
    ----------
    types_ : array of shape (n_types,)
        Names of the types, or 0, 1, … for clusters.
    medians_ : array of shape (n_types, n_components)
        Median of each type.
    costs_ : array of shape (n_types, n_types)
        Distances between the medians.
    n_features_in_ : int
        Features seen in `fit`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.Composition(3, random_state=0).fit(D).proportions(D).shape
    (30, 3)
    """

    uses_labels = False  # so that a permutation test fits it once

    def __init__(
        self,
        n_clusters: int = 20,
        *,
        annotation: str | None = None,
        cost: str = "cosine",
        pseudo_count: float = 0.2,
        n_components: int = 30,
        standardise: bool = True,
        max_points: int | None = 10_000,
        random_state: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.annotation = annotation
        self.cost = cost
        self.pseudo_count = pseudo_count
        self.n_components = n_components
        self.standardise = standardise
        self.max_points = max_points
        self.random_state = random_state

    def _fit(self, D: Any, y: Any) -> None:
        D = unlabelled(D, y)
        for name in ("n_clusters", "n_components"):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_number("pseudo_count", self.pseudo_count, low=0.0)
        sklearn_distances(np.eye(2), metric=self.cost)  # raises unless it knows the name
        known = self._known_types(D)
        random = check_random_state(self.random_state)
        rows = draw(D, self.max_points, random)
        self._find_components(D, rows, random)
        weights = point_weights(D)
        if known is None:
            z, weights = self._project(D.points[rows]), weights[rows]
            types = self._find_clusters(z, weights, random)
        else:
            z = self._project(D)
            self.types_, types = np.unique(known, return_inverse=True)
        of_type = [types == t for t in range(self.types_.size)]
        self.medians_ = np.stack([_weighted_median(z[these], weights[these]) for these in of_type])
        self.costs_ = sklearn_distances(self.medians_, metric=self.cost)
        np.fill_diagonal(self.costs_, 0.0)
        self._prior = self.pseudo_count * self._counts(D).sum(axis=0) / D.points.shape[0]
        self.n_features_in_ = D.shape[1]

    def proportions(self, D: DistributionsLike) -> np.ndarray:
        """Share of each type in every distribution, including the pseudo-counts.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`; the rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, n_types)
            Shares in the order of `types_`; each row sums to 1.
        """
        check_is_fitted(self, "costs_")
        counts = self._counts(as_distributions(D).with_mass()) + self._prior
        return counts / counts.sum(axis=1, keepdims=True)

    def _distances(self, A: Any, B: Any, n_jobs: int | None) -> np.ndarray:
        """Wasserstein distances between the type shares of the distributions of A and of B (or among those of A)."""
        costs: Any = _Costs(self.costs_)
        return pairwise_distances(self._as_shares(A), None if B is None else self._as_shares(B), costs, n_jobs=n_jobs)

    def _point_distances(self, x: Any, y: Any) -> np.ndarray:
        """Costs between the types of points: the cluster, or with an annotation the type with the nearest median."""
        first = self._assign(self._project(x))
        second = first if y is None else self._assign(self._project(y))
        return self.costs_[np.ix_(first, second)]

    def _known_types(self, D: Distributions) -> np.ndarray | None:
        if self.annotation is None:
            return None
        if self.annotation not in D.annotations:
            raise ValueError(
                f"annotation is {self.annotation!r}, but the distributions have {sorted(D.annotations)}: give one of "
                "these, or None to find clusters"
            )
        values = D.annotations[self.annotation]
        if values.dtype.kind in "fOmM" and any(map(is_missing, values)):
            raise ValueError(f"annotation {self.annotation!r} is missing for some points: fill it or drop the points")
        return values

    def _find_components(self, D: Distributions, rows: np.ndarray, random: np.random.RandomState) -> None:
        centre, variance = D.moments()
        scale = spread(variance) if self.standardise else np.ones(variance.size)
        axes = principal_axes(D.points[rows], point_weights(D)[rows], centre, scale, self.n_components, random)
        self._space = GroundMetric(axes / scale, D.features)
        self._origin = (axes / scale) @ centre

    def _find_clusters(self, z: np.ndarray, weights: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """The cluster of each point."""
        count = min(self.n_clusters, len(np.unique(z, axis=0)))
        self._kmeans = KMeans(count, n_init=3, random_state=random).fit(z, sample_weight=weights)
        self.types_ = np.arange(count)
        return self._assign(z)

    def _project(self, points: Any) -> np.ndarray:
        return self._space.project(points) - self._origin

    def _assign(self, z: np.ndarray) -> np.ndarray:
        """The cluster of each point, or the type with the nearest median."""
        centres = self._kmeans.cluster_centers_ if self.annotation is None else self.medians_
        return sklearn_distances(z, centres, metric="sqeuclidean").argmin(axis=1)

    def _types_of(self, D: Distributions) -> np.ndarray:
        known = self._known_types(D)
        if known is None:
            return self._assign(self._project(D))
        self._space.check_fit(D)
        index = {name: t for t, name in enumerate(self.types_.tolist())}
        types = np.array([index.get(name, -1) for name in known.tolist()])
        new = np.flatnonzero(types < 0)
        if new.size:
            types[new] = self._assign(self._project(D.points[new]))
        return types

    def _counts(self, D: Distributions) -> np.ndarray:
        """Weighted number of points of each type in every distribution."""
        owner = np.repeat(np.arange(len(D)), D.sizes)
        counts = np.zeros((len(D), self.types_.size))
        np.add.at(counts, (owner, self._types_of(D)), point_weights(D))
        return counts

    def _as_shares(self, D: Any) -> Distributions:
        """Every distribution as its types, weighted by their share."""
        shares = self.proportions(D)
        types = np.tile(np.arange(self.types_.size, dtype=np.float64), len(shares))
        owner = np.repeat(np.arange(len(shares)), self.types_.size)
        return Distributions(types[:, None], owner, weights=shares.ravel())


class _Costs:
    """A distance between types, looked up; a point is the number of its type."""

    def __init__(self, costs: np.ndarray) -> None:
        self.costs = costs

    def distances(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        first = x[:, 0].astype(np.intp)
        return self.costs[np.ix_(first, first if y is None else y[:, 0].astype(np.intp))]


def _weighted_median(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Median of every column: half of the mass lies on either side (between two points, their mean)."""
    order = np.argsort(points, axis=0)
    mass = np.cumsum(weights[order], axis=0) / weights.sum()
    ordered = np.take_along_axis(points, order, axis=0)
    columns = np.arange(points.shape[1])
    lower = (mass >= 0.5 - 1e-12).argmax(axis=0)
    upper = (mass > 0.5 + 1e-12).argmax(axis=0)
    return (ordered[lower, columns] + ordered[upper, columns]) / 2.0
