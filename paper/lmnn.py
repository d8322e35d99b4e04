"""Large margin nearest neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from groundmetric._internal.validation import check_number

from .points import PointLearner, check_components, class_scatter, directions, principal_axes

# Points whose distances to all others are held at a time.
_BLOCK = 512


class LMNN(PointLearner):
    """Large margin nearest neighbours (Weinberger & Saul 2009) on points with their distribution's label.

    Pulls every point's nearest neighbours of its own class (its targets, fixed at the start) near, and pushes points of
    other classes out to a margin of 1 beyond each target, in squared distances. As in metric-learn: gradient descent on
    the map itself, with a step that is halved until it helps and grows by a hundredth when it does.

    The defaults are the paper's. metric-learn's own are 3 neighbours, a learning rate of 1e-7 and 1000 iterations; both
    stay close to the start, which is the identity (a linear discriminant where that has a row for every feature).

    Parameters
    ----------
    n_components : int or None
        Rows of the map; None: as many as features.
    n_neighbors : int
        Targets of each point; a class that has fewer gives those it has.
    learning_rate : float
        First step.
    max_iter, min_iter, tol : int, int, float
        Iterations at most, and the change of the objective below which they end once there were `min_iter`.
    regularization : float
        Share of the pull in the objective, the rest is the push.
    max_points : int or None
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int
        More features are reduced to as many principal components first.
    standardise : bool
        Divide every feature by its standard deviation first. The paper did not standardise features.
    random_state : int, RandomState or None

    Attributes
    ----------
    metric_, components_, classes_, n_features_in_
    objective_ : float, the last value
    n_iter_ : int

    Notes
    -----
    Points of no mass are left out; other weights are not used.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 30,
        learning_rate: float = 1e-6,
        max_iter: int = 100,
        min_iter: int = 50,
        tol: float = 1e-3,
        regularization: float = 0.5,
        max_points: int | None = 1500,
        max_features: int = 300,
        standardise: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.min_iter = min_iter
        self.tol = tol
        self.regularization = regularization
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        check_components(self.n_components, n_features)
        for name in ("n_neighbors", "max_iter"):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_number("min_iter", self.min_iter, low=0, whole=True)
        check_number("learning_rate", self.learning_rate, low=0.0, above=True)
        check_number("tol", self.tol, low=0.0)
        check_number("regularization", self.regularization, low=0.0)
        if self.regularization > 1.0:
            raise ValueError(f"regularization is {self.regularization}: expected a share from 0 to 1")

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        problem = margin_problem(points, codes, self.n_neighbors, self.regularization)
        start = starting_map(points, codes, self.n_components, random)
        L, self.objective_, self.n_iter_ = descend(
            problem, start, self.learning_rate, self.max_iter, self.min_iter, self.tol
        )
        return L


class MarginProblem(NamedTuple):
    """Points, their classes, the targets of each (-1: none), and the weight of the pull term."""

    points: np.ndarray  # (n_points, n_features)
    codes: np.ndarray  # (n_points,)
    targets: np.ndarray  # (n_points, n_neighbors)
    pull: float

    def value_and_gradient(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        """pull · Σ d²(i, j) + (1 - pull) · Σ max(1 + d²(i, j) - d²(i, l), 0) and its derivative by L.

        The sums run over targets j of i and points l of other classes. Every pair's squared distance enters the
        objective with some coefficient, so the gradient is that of a weighted sum of squared distances.
        """
        z = self.points @ L.T
        exists = self.targets >= 0
        to_target = _paired_squares(z, self.targets)
        thresholds = np.where(exists, 1.0 + to_target, -np.inf)
        order = np.argsort(thresholds, axis=1)
        thresholds = np.take_along_axis(thresholds, order, axis=1)
        push = 1.0 - self.pull
        lower, hinge, force = _push(z, self.codes, thresholds)
        hits = np.empty_like(to_target)  # points of other classes within the margin of each target
        np.put_along_axis(hits, order, lower, axis=1)
        value = self.pull * to_target[exists].sum() + push * hinge
        force = push * force + _spring_force(z, self.targets, np.where(exists, self.pull + push * hits, 0.0))
        return float(value), 2.0 * force.T @ self.points


def _paired_squares(z: np.ndarray, partners: np.ndarray) -> np.ndarray:
    """Squared distance of every row to each of its partners, one column of partners at a time."""
    steps = (z - z[column] for column in partners.T)
    return np.stack([np.einsum("nc,nc->n", step, step) for step in steps], axis=1)


def _spring_force(z: np.ndarray, partners: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
    """Half the derivative by z of the sum of coefficient times squared distance over all rows and partners."""
    n, k = partners.shape
    springs = sparse.csr_matrix((coefficient.ravel(), partners.ravel() % n, np.arange(0, n * k + 1, k)), (n, n))
    springs = springs + springs.T
    return np.asarray(springs.sum(axis=1)) * z - springs @ z


def margin_problem(points: np.ndarray, codes: np.ndarray, n_neighbors: int, pull: float) -> MarginProblem:
    """The targets are the nearest points of the same class, in the initial space."""
    targets = np.full((len(points), n_neighbors), -1)
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        count = min(n_neighbors, members.size - 1)
        if count > 0:
            nearest = NearestNeighbors(n_neighbors=count).fit(points[members]).kneighbors(return_distance=False)
            targets[members, :count] = members[nearest]
    return MarginProblem(points, codes, targets, pull)


def _push(z: np.ndarray, codes: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Points of other classes below each threshold, the sum of all hinges, and the force of the pushing pairs.

    A pair of points is looked at once, for both its ends; rows are handled some at a time to save memory.
    """
    lower, force, hinge = np.zeros(thresholds.shape), np.zeros_like(z), 0.0
    norms = np.einsum("nc,nc->n", z, z)
    for low in range(0, len(z), _BLOCK):
        rows, remaining = z[low : low + _BLOCK], z[low:]
        pushes = rows @ remaining.T
        hinge -= count_pushes(pushes, norms[low:], codes[low:], thresholds[low:], lower[low:])
        force[low : low + _BLOCK] -= pushes.sum(axis=1)[:, None] * rows - pushes @ remaining
        force[low:] -= pushes.sum(axis=0)[:, None] * remaining - pushes.T @ rows
    lower = lower.cumsum(axis=1)
    hinge += float(np.vdot(lower, np.where(lower > 0, thresholds, 0.0)))
    return lower, hinge, force


def count_pushes(
    products: np.ndarray, norms: np.ndarray, codes: np.ndarray, thresholds: np.ndarray, lower: np.ndarray
) -> float:
    """Turn scalar products of the first points with all points into the number of active hinges of each pair.

    A hinge of point i and threshold t is active if the squared distance to a point of another class is less than t.
    Thresholds rise along a row; the first one above the distance is counted in `below`: cumulative counts are
    those of each threshold. Returns the sum of the squared distances, each times its hinges.
    """
    n_rows, n = products.shape
    k = thresholds.shape[1]
    total = 0.0
    for i in range(n_rows):
        squared = np.maximum(norms[i] + norms - 2.0 * products[i], 0.0)
        alternatives = (np.arange(n) > i) & (codes != codes[i])
        hinges = np.zeros(n)
        close = np.flatnonzero(alternatives & (squared < thresholds[i, -1]))
        first = np.searchsorted(thresholds[i], squared[close], side="right")
        lower[i] += np.bincount(first, minlength=lower.shape[1])
        hinges[close] += k - first
        close = np.flatnonzero(alternatives & (squared < thresholds[:, -1]))
        first = np.count_nonzero(thresholds[close] <= squared[close, None], axis=1)
        lower[close, first] += 1.0
        hinges[close] += k - first
        total += float(hinges[alternatives] @ squared[alternatives])
        products[i] = hinges
    return total


def descend(
    problem: MarginProblem, L: np.ndarray, learning_rate: float, max_iter: int, min_iter: int, tol: float
) -> tuple[np.ndarray, float, int]:
    """Gradient descent whose objective never rises: the map, its objective, and the iterations done.

    As in metric-learn, the start is the first iteration, and the last is not done.
    """
    value, gradient = problem.value_and_gradient(L)
    iteration = 1
    for iteration in range(2, max_iter):
        while True:
            with np.errstate(over="ignore", invalid="ignore"):  # a step that is far too long
                trial = L - learning_rate * gradient
                trial_value, trial_gradient = problem.value_and_gradient(trial)
            # A step too small to change L is the end of halving.
            if trial_value <= value or np.array_equal(trial, L):
                break
            learning_rate /= 2.0
        change = trial_value - value
        L, value, gradient = trial, trial_value, trial_gradient
        learning_rate *= 1.01
        if iteration > min_iter and abs(change) < tol:
            break
    return L, value, iteration


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
