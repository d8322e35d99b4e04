"""Information theoretic metric learning."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh
from sklearn.utils import check_random_state

from groundmetric._internal.validation import check_number
from groundmetric.metrics.base import euclidean

from .points import PointLearner


class ITML(PointLearner):
    """Information theoretic metric learning (Davis et al. 2007) on points with their distribution's label.

    Pairs of points are drawn. Those of one class should have a squared distance of at most u, those of two classes at
    least l; among all matrices that obey (up to slack), the one nearest to the identity in LogDet divergence is sought,
    by projecting on one constraint after the other. The defaults are metric-learn's (ITML_Supervised), as in the paper.

    Parameters
    ----------
    n_constraints : int or None
        Pairs of one class, and as many of two classes; None: 20 times the squared number of classes.
    gamma : float
        Price of slack: large means that the bounds are kept.
    max_iter, tol : int, float
        Sweeps over the constraints at most, and the relative change of their multipliers at which they end.
    bounds : {"distances", "squared"} or (float, float)
        u and l for squared distances. "distances": the 5th and 95th percentile of the distances between the points of
        the pairs, not squared, as in metric-learn; the metric then depends on the unit of the features. "squared":
        the percentiles of the squared distances, as in the publication.
    max_points : int or None
        Points that the pairs are drawn from, the same share of every distribution; None: all.
    max_features : int
        More features are reduced to as many principal components first.
    standardise : bool
        Divide every feature by its standard deviation first. The paper did not standardise features.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_, components_, classes_, n_features_in_
    bounds_ : (u, l)
    n_iter_ : int, sweeps done

    Notes
    -----
    Points are drawn into pairs in proportion to their weight.
    """

    def __init__(
        self,
        *,
        n_constraints: int | None = None,
        gamma: float = 1.0,
        max_iter: int = 1000,
        tol: float = 1e-3,
        bounds: Any = "distances",
        max_points: int | None = 10_000,
        max_features: int = 300,
        standardise: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_constraints = n_constraints
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.bounds = bounds
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        if self.n_constraints is not None:
            check_number("n_constraints", self.n_constraints, low=1, whole=True)
        check_number("max_iter", self.max_iter, low=1, whole=True)
        check_number("gamma", self.gamma, low=0.0, above=True)
        check_number("tol", self.tol, low=0.0)
        if isinstance(self.bounds, str) and self.bounds in ("distances", "squared"):
            return
        if isinstance(self.bounds, str) or np.shape(self.bounds) != (2,) or not min(self.bounds) > 0.0:
            raise ValueError(f"bounds is {self.bounds!r}: expected 'distances', 'squared' or two positive numbers")

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        count = 20 * self.classes_.size**2 if self.n_constraints is None else self.n_constraints
        pairs = draw_pairs(codes, weights, count, random)
        if isinstance(self.bounds, str):
            self.bounds_ = percentile_bounds(points, pairs, squared=self.bounds == "squared")
        else:
            self.bounds_ = float(self.bounds[0]), float(self.bounds[1])
        similar, dissimilar = (points[first] - points[second] for first, second in pairs)
        outcome = project_in_turn(similar, dissimilar, self.bounds_, self.gamma, self.max_iter, self.tol)
        self.n_iter_ = outcome.n_iter
        return factor(outcome.matrix)


class Pairs(NamedTuple):
    """Places of the points of each pair, (2, n_pairs): of one class, and of two."""

    similar: np.ndarray
    dissimilar: np.ndarray


class Outcome(NamedTuple):
    matrix: np.ndarray  # (n_features, n_features), M
    multipliers: np.ndarray  # of the similar pairs, then of the dissimilar
    limits: np.ndarray  # the bounds with slack, in the same order
    n_iter: int


def draw_pairs(codes: np.ndarray, weights: np.ndarray, count: int, random: Any = None) -> Pairs:
    """Random pairs without repetition, up to `count` of each kind; in ten rounds, if need be, as metric-learn does.

    The first point of a pair is drawn from all, the second from those that fit it.
    """
    random = check_random_state(random)
    share = weights / weights.sum()
    result = []
    for same in (True, False):
        pairs = np.empty((2, 0), np.intp)
        for _ in range(10):
            first = random.choice(codes.size, count - pairs.shape[1], p=share)
            second = _partners(first, codes, share, same, random)
            drawn = np.stack([first, second])[:, second >= 0]
            pairs = _distinct(np.hstack([pairs, drawn]))
            if pairs.shape[1] == count:
                break
        result.append(pairs)
    return Pairs(*result)


def _partners(
    first: np.ndarray, codes: np.ndarray, share: np.ndarray, same: bool, random: np.random.RandomState
) -> np.ndarray:
    """A random partner for each, of the same class or of another; -1 where the draw was the point itself."""
    second = np.full(first.size, -1)
    for c in np.unique(codes[first]):
        positions = np.flatnonzero((codes == c) == same)
        anchors = np.flatnonzero(codes[first] == c)
        second[anchors] = random.choice(positions, anchors.size, p=share[positions] / share[positions].sum())
    second[second == first] = -1
    return second


def _distinct(pairs: np.ndarray) -> np.ndarray:
    """The pairs without repetitions, in the order of first appearance."""
    _, stored = np.unique(pairs, axis=1, return_index=True)
    return pairs[:, np.sort(stored)]


def percentile_bounds(points: np.ndarray, pairs: Pairs, *, squared: bool) -> tuple[float, float]:
    """The 5th and 95th percentile of the distances between all points of the pairs."""
    involved = np.unique(points[np.unique(np.hstack(pairs))], axis=0)
    distances = euclidean(involved, involved)
    low, high = np.percentile(distances**2 if squared else distances, (5, 95))
    return float(low) or 1e-9, float(high) or 1e-9


def project_in_turn(
    similar: np.ndarray, dissimilar: np.ndarray, bounds: tuple[float, float], gamma: float, max_iter: int, tol: float
) -> Outcome:
    """Bregman projections of the identity on one constraint after the other, until their multipliers settle.

    A constraint is the difference v of a pair. Throughout, M⁻¹ = I + Σ λ v vᵀ over similar pairs - Σ λ v vᵀ over
    dissimilar ones with λ ≥ 0, so M stays positive definite. The limits move with the slack that `gamma` allows.
    """
    v = np.vstack([similar, dissimilar])
    # +1: M must become smaller along v until the limit is kept, -1: larger.
    sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
    limits = np.repeat(np.asarray(bounds, dtype=np.float64), [len(similar), len(dissimilar)])
    differ = np.flatnonzero(v.any(axis=1))  # points that coincide have distance 0 under any M
    M, multipliers = np.eye(v.shape[1]), np.zeros(len(v))
    settle = gamma / (gamma + 1.0)
    n_iter = 0
    for _ in range(max_iter):
        n_iter += 1
        before = multipliers.copy()
        for i in differ:
            Mv = M @ v[i]
            squared = v[i] @ Mv
            alpha = min(multipliers[i], sign[i] * settle * (1.0 / squared - 1.0 / limits[i]))
            if alpha == 0.0:
                continue
            multipliers[i] -= alpha
            limits[i] = 1.0 / (1.0 / limits[i] + sign[i] * alpha / gamma)
            M += sign[i] * alpha / (1.0 - sign[i] * alpha * squared) * np.outer(Mv, Mv)
        size = np.linalg.norm(multipliers) + np.linalg.norm(before)
        if size == 0.0 or np.abs(before - multipliers).sum() < tol * size:
            break
    return Outcome(M, multipliers, limits, n_iter)


def factor(matrix: np.ndarray) -> np.ndarray:
    """Rows L with LᵀL equal to the matrix."""
    try:
        return cholesky(matrix)
    except LinAlgError:  # positive definite up to rounding
        strength, vectors = eigh(matrix)
        return (vectors * np.sqrt(np.maximum(strength, 0.0))).T
