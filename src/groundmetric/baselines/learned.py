"""What the metrics learned on points have in common: every point is an example with its distribution's label."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..distances import pairwise_distances
from ..distributions import Distributions, as_distributions
from ..estimators.checks import check_number
from ..estimators.method import GroundMetricMethod
from ..metric import GroundMetric
from .scatter import class_scatter, directions
from .space import principal_axes, working_space
from .training import draw, labelled, moments, owners, point_weights, spread

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
