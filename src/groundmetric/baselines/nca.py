"""Neighbourhood components analysis, and what metrics learned on labelled points have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._internal.validation import check_number
from ..distances import pairwise_distances
from ..distributions import Distributions, as_distributions
from ..estimators._base import GroundMetricMethod
from ..metrics.base import GroundMetric
from ._base import (
    class_scatter,
    directions,
    draw,
    labelled,
    moments,
    owners,
    point_weights,
    principal_axes,
    spread,
    working_space,
)

# Up to so many features the paper's experiments applied M itself; beyond, a factor of this rank.
_PAPER_FEATURES, _PAPER_RANK = 100, 5


class PointLearner(GroundMetricMethod, BaseEstimator):
    """A ground metric learned on points that carry the label of their distribution.

    Subclasses give `_check_settings`, which raises on impossible parameters, and `_learn`, which turns points, their
    classes and their weights into rows of a linear map.
    """

    max_points: int | None
    max_features: int
    standardise: bool
    random_state: Any

    def fit(self, D: Any, y: Any) -> PointLearner:
        """Learn from Distributions with a label each."""
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
        centre, variance = moments(D)
        scale = spread(variance) if self.standardise else np.ones(variance.size)
        space = working_space(points, weights, centre, scale, self.max_features, random)
        components = space.components(self._learn(space.coordinates(points), codes, weights, random))
        if getattr(self, "as_in_paper", False):
            components = paper_map(components)
        self.components_ = components
        self.metric_ = GroundMetric(components, D.features, variances=variance)
        self.n_features_in_ = D.shape[1]
        return self

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """Exact Wasserstein distances between the distributions of A and of B (or among those of A)."""
        check_is_fitted(self, "metric_")
        return pairwise_distances(self._projected(A), None if B is None else self._projected(B), n_jobs=n_jobs)

    def _projected(self, D: Any) -> Distributions:
        """Distributions in the learned space: with many components, projecting once is cheaper than for every pair."""
        D = as_distributions(D)
        self.metric_.check_fit(D)
        owner = np.repeat(np.arange(len(D)), D.sizes)
        return Distributions(self.metric_.project(D), owner, weights=D.weights)

    def _check_settings(self, n_features: int) -> None:
        raise NotImplementedError

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        raise NotImplementedError


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


def paper_map(components: np.ndarray) -> np.ndarray:
    """The linear map that the code of the paper's experiments has in place of W, to see what difference it makes.

    Up to 100 features it applies M = WᵀW itself to the points, so that the distance is that of M²; beyond, five rows of
    a pivoted Cholesky factor of M, which keeps the distance along the five features that add most to it. It does not by
    itself give the published figures: with LMNN on the synthetic data it gives far better ones.
    """
    if components.shape[1] <= _PAPER_FEATURES:
        return components.T @ components
    return pivoted_cholesky(components, _PAPER_RANK)


def pivoted_cholesky(components: np.ndarray, rank: int) -> np.ndarray:
    """At most `rank` rows F such that FᵀF approximates M = WᵀW, each chosen at the largest diagonal entry left.

    >>> F = pivoted_cholesky(np.array([[1.0, 0.0], [2.0, 3.0]]), rank=2)
    >>> (F.T @ F).round(12).tolist()
    [[5.0, 6.0], [6.0, 9.0]]
    """
    left = np.einsum("cf,cf->f", components, components)  # diagonal of M - FᵀF
    smallest = 1e-12 * left.max()
    rows: list[np.ndarray] = []
    while len(rows) < rank and left.max() > smallest:
        pivot = int(left.argmax())
        row = components.T @ components[:, pivot] - sum(done * done[pivot] for done in rows)
        rows.append(row / np.sqrt(left[pivot]))
        left = np.maximum(left - rows[-1] ** 2, 0.0)
    return np.array(rows) if rows else np.zeros((1, components.shape[1]))


class NCA(PointLearner):
    """Neighbourhood components analysis (Goldberger et al. 2004) on points with their distribution's label.

    Maximises the chance that a point, choosing a neighbour at random with near ones preferred, chooses one of its own
    class. The work is scikit-learn's; the defaults are metric-learn's (all components, 100 iterations), as in the
    paper. Every step takes the distances between all pairs of points, so that their number is limited.

    Parameters
    ----------
    n_components : int or None
        Rows of the map; None: as many as features.
    max_iter : int
    tol : float
        Stop when a step gains less than this share; 1e-7 is about where metric-learn stops.
    max_points : int or None
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int
        More features are reduced to as many principal components first.
    standardise : bool
        Divide every feature by its standard deviation first. The paper used the features as they are.
    as_in_paper : bool
        Apply the paper's map in place of W: see `groundmetric.baselines.nca.paper_map`.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_, components_, classes_, n_features_in_
    n_iter_ : int

    Notes
    -----
    Points of no mass are left out; other weights are not used.
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
        as_in_paper: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.as_in_paper = as_in_paper
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
