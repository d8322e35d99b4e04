"""Models on a kernel of distances: probabilities of classes, or numbers, and how well they hold for those left out.

A kernel e^(-distance / median) reads more from a matrix of distances than the votes of the nearest: what is common to
all distances drops out when it is centred, and every distribution has a say, with a sign. Logistic and ridge regression
are scikit-learn's, on the eigenvectors of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, softmax

from ._base import class_shares, mean_values

# Inverse penalties that are tried, for kernels of mean variance 1. The first leaves nearly nothing of the distances.
STRENGTHS = (0.1, 0.5, 2.5, 12.0, 60.0, 300.0, 1500.0)
# Classes times coordinates up to which Newton's method is quicker, and its steps at most.
_MOST_NEWTON = 200
_MOST_STEPS = 100
# Nearest distributions that vote.
_N_VOTES = 5
# No probability of a held-out class counts as less than this, so that one surprise does not decide.
_FLOOR = 1e-3


def unit_of(distances: np.ndarray) -> float:
    """The median distance between different distributions; 1 where all coincide."""
    off = distances[~np.eye(len(distances), dtype=bool)]
    return float(np.median(off[np.isfinite(off)])) if np.any(off > 0) else 1.0


def similarities(distances: np.ndarray, unit: float) -> np.ndarray:
    """e^(-distance / unit).

    >>> similarities(np.array([[0.0, 2.0]]), 2.0).round(3).tolist()
    [[1.0, 0.368]]
    """
    return np.exp(-distances / (unit or 1.0))


@dataclass(frozen=True)
class KernelSpace:
    """Coordinates in which a centred kernel of mean variance 1 is the inner product, as far as it is positive."""

    columns: np.ndarray
    overall: float
    scale: float
    axes: np.ndarray  # eigenvectors over the roots of their eigenvalues

    @classmethod
    def of(cls, kernel: np.ndarray) -> tuple[KernelSpace, np.ndarray]:
        """The space of a kernel (known, known), and the coordinates of the known."""
        columns, overall = kernel.mean(axis=0), float(kernel.mean())
        centred = kernel - columns - columns[:, None] + overall
        scale = float(np.mean(np.diag(centred)))
        if scale <= 1e-12 * float(np.abs(kernel).max()):  # all coincide: what is left is rounding
            return cls(columns, overall, 1.0, np.zeros((len(kernel), 1))), np.zeros((len(kernel), 1))
        values, vectors = np.linalg.eigh(centred / scale)
        positive = values > 1e-9 * max(float(values[-1]), 1e-12)
        roots = np.sqrt(values[positive])
        return cls(columns, overall, scale, vectors[:, positive] / roots), vectors[:, positive] * roots

    def coordinates(self, kernel: np.ndarray) -> np.ndarray:
        """Of others, by their kernel with the known."""
        centred = kernel - kernel.mean(axis=1, keepdims=True) - self.columns + self.overall
        return centred / self.scale @ self.axes


def balanced_weights(codes: np.ndarray, strata: np.ndarray | None = None) -> np.ndarray:
    """Weights of distributions, of mean 1, by which classes count the same; with strata, as far as can be, within each.

    So a class that is more frequent in one batch than in another is not told by the batch.

    >>> balanced_weights(np.array([0, 0, 0, 1])).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    weights = np.ones(codes.size)
    for stratum in [] if strata is None else np.unique(strata):
        inside = strata == stratum
        weights[inside] = _class_weights(codes[inside], weights[inside])
    return _class_weights(codes, weights)


def _class_weights(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weights, changed so that the classes have equal sums and the mean is 1."""
    which = np.unique(codes, return_inverse=True)[1]
    sums = np.bincount(which, weights)
    return weights * (codes.size / (sums.size * sums))[which]


class KernelModel:
    """Logistic regression of classes (whole numbers), or ridge regression of numbers, in the space of a kernel."""

    def __init__(
        self, kernel: np.ndarray, codes: np.ndarray, strength: float, n_classes: int, strata: np.ndarray | None = None
    ) -> None:
        self._space, coordinates = KernelSpace.of(kernel)
        self._n_classes = n_classes
        weights = balanced_weights(codes, strata) if n_classes else None
        self._model = _regression(coordinates, codes, weights, strength)

    def predict(self, kernel: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, or numbers, by a kernel with those that were learned from."""
        return _predicted(self._model, self._space.coordinates(kernel), self._n_classes)


def _regression(coordinates: np.ndarray, codes: np.ndarray, weights: np.ndarray | None, strength: float) -> Any:
    """A model of classes with weights, or of numbers."""
    if weights is None:
        from sklearn.linear_model import Ridge  # two classes do without, and it loads slowly

        return Ridge(alpha=1.0 / strength).fit(coordinates, codes)
    classes, which = np.unique(codes, return_inverse=True)
    if classes.size * coordinates.shape[1] > _MOST_NEWTON:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=strength, max_iter=3000).fit(coordinates, codes, sample_weight=weights)
    kind = LogisticRegressionOfTwo if classes.size == 2 else SoftmaxRegression
    return kind(classes, strength).fit(coordinates, which, weights)


def _predicted(model: Any, coordinates: np.ndarray, n_classes: int) -> np.ndarray:
    if not n_classes:
        return model.predict(coordinates)
    found = np.zeros((len(coordinates), n_classes))  # a class may be absent from a part
    found[:, model.classes_] = model.predict_proba(coordinates)
    return found


class LogisticRegressionOfTwo:
    """LogisticRegression(C=strength) of two classes with weights by Newton's method, for a few dozen items.

    A p-value takes a hundred thousand of these fits. Of this size scikit-learn's take 4 to 20 ms, nearly all of it
    checks, and these a quarter of one.
    """

    def __init__(self, classes: np.ndarray, strength: float) -> None:
        self.classes_, self._strength = classes, strength

    def fit(self, coordinates: np.ndarray, which: np.ndarray, weights: np.ndarray) -> LogisticRegressionOfTwo:
        x = np.column_stack([coordinates, np.ones(which.size)])
        signed = (2.0 * which - 1.0)[:, None] * x
        ridge = np.full(x.shape[1], 1.0 / self._strength)
        ridge[-1] = 1e-9  # the intercept is free
        slopes = np.zeros(x.shape[1])
        value, margins = _logistic_loss(slopes, signed, weights, ridge)
        for _ in range(_MOST_STEPS):
            wrong = expit(-margins)  # probability of the other class
            gradient = ridge * slopes - (weights * wrong) @ signed
            hessian = (x.T * (weights * wrong * (1.0 - wrong))) @ x
            hessian.flat[:: x.shape[1] + 1] += ridge
            step, size = np.linalg.solve(hessian, gradient), 1.0
            trial, there = _logistic_loss(slopes - step, signed, weights, ridge)
            while trial > value and size > 1e-6:
                size *= 0.5
                trial, there = _logistic_loss(slopes - size * step, signed, weights, ridge)
            slopes, gained, value, margins = slopes - size * step, value - trial, trial, there
            if gained <= 1e-10 * max(value, 1e-10):
                break
        self._slopes = slopes
        return self

    def predict_proba(self, coordinates: np.ndarray) -> np.ndarray:
        second = coordinates @ self._slopes[:-1] + self._slopes[-1]
        return np.column_stack([expit(-second), expit(second)])


def _logistic_loss(
    slopes: np.ndarray, signed: np.ndarray, weights: np.ndarray, ridge: np.ndarray
) -> tuple[float, np.ndarray]:
    """The loss, and how far each item is on its own side."""
    margins = signed @ slopes
    return float(0.5 * ridge @ np.square(slopes) + weights @ np.logaddexp(0.0, -margins)), margins


class SoftmaxRegression:
    """`LogisticRegressionOfTwo` for more classes."""

    def __init__(self, classes: np.ndarray, strength: float) -> None:
        self.classes_, self._strength = classes, strength

    def fit(self, coordinates: np.ndarray, which: np.ndarray, weights: np.ndarray) -> SoftmaxRegression:
        n, k = which.size, self.classes_.size
        x = np.column_stack([coordinates, np.ones(n)])
        truth = np.eye(k)[which]
        ridge = np.full(x.shape[1], 1.0 / self._strength)
        ridge[-1] = 1e-9  # the intercepts are free; their common shift says nothing
        self._slopes = np.zeros((k, x.shape[1]))
        value = self._loss(self._slopes, x, truth, weights, ridge)
        for _ in range(_MOST_STEPS):
            step = self._step(x, truth, weights, ridge)
            size = 1.0
            while (trial := self._loss(self._slopes - size * step, x, truth, weights, ridge)) > value and size > 1e-6:
                size *= 0.5
            self._slopes, gained, value = self._slopes - size * step, value - trial, trial
            if gained <= 1e-10 * max(value, 1e-10):
                break
        return self

    def predict_proba(self, coordinates: np.ndarray) -> np.ndarray:
        return softmax(coordinates @ self._slopes[:, :-1].T + self._slopes[:, -1], axis=1)

    @staticmethod
    def _loss(slopes: np.ndarray, x: np.ndarray, truth: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> float:
        logs = log_softmax(x @ slopes.T, axis=1)
        return float(0.5 * np.sum(ridge * slopes**2) - weights @ np.sum(truth * logs, axis=1))

    def _step(self, x: np.ndarray, truth: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> np.ndarray:
        p = softmax(x @ self._slopes.T, axis=1)
        k, d = self._slopes.shape
        gradient = (weights[:, None] * (p - truth)).T @ x + ridge * self._slopes
        hessian = np.empty((k, d, k, d))
        for a in range(k):
            for b in range(a, k):
                inner = weights * p[:, a] * (float(a == b) - p[:, b])
                hessian[a, :, b, :] = hessian[b, :, a, :] = (x * inner[:, None]).T @ x
        square = hessian.reshape(k * d, k * d)
        square[np.diag_indices(k * d)] += np.tile(ridge, k)
        return np.linalg.solve(square, gradient.ravel()).reshape(k, d)


@dataclass(frozen=True)
class Reading:
    """What a kernel says about distributions that were left out.

    Attributes
    ----------
    strength : float
        The strength that serves all folds best.
    held_out : array of shape (n_distributions, n_classes) or (n_distributions,)
        Predictions, those of each fold with the strength that serves the other folds best.
    """

    strength: float
    held_out: np.ndarray


def read_kernel(
    kernel: np.ndarray, codes: np.ndarray, folds: list[np.ndarray], n_classes: int, strata: np.ndarray | None = None
) -> Reading:
    """Predict each fold from the others, trying strengths from the middle one on as long as predictions get better."""
    spaces, weights = [], balanced_weights(codes, strata) if n_classes else None
    for fold in folds:
        known, left = np.flatnonzero(~fold), np.flatnonzero(fold)
        space, coordinates = KernelSpace.of(kernel[np.ix_(known, known)])
        own = None
        if n_classes:
            own = balanced_weights(codes[known], None if strata is None else strata[known])
        spaces.append((left, codes[known], own, coordinates, space.coordinates(kernel[np.ix_(left, known)])))
    tried: dict[int, np.ndarray] = {}

    def score(place: int) -> float:
        held_out = np.full((codes.size, n_classes) if n_classes else codes.size, np.nan)
        for left, learned, own, coordinates, others in spaces:
            model = _regression(coordinates, learned, own, STRENGTHS[place])
            held_out[left] = _predicted(model, others, n_classes)
        tried[place] = held_out
        return log_likelihood(held_out, codes, weights)

    place = len(STRENGTHS) // 2
    best = score(place)
    while place > 0 and (found := score(place - 1)) >= best:  # of equally good ones, the weakest
        best, place = found, place - 1
    while place + 1 < len(STRENGTHS) and (found := score(place + 1)) > best:
        best, place = found, place + 1
    return Reading(STRENGTHS[place], _chosen_by_others(tried, codes, weights, folds))


def _chosen_by_others(
    tried: dict[int, np.ndarray], codes: np.ndarray, weights: np.ndarray | None, folds: list[np.ndarray]
) -> np.ndarray:
    """Predictions of each fold with the strength that serves the others best: its own labels have no say."""
    found = np.empty_like(tried[len(STRENGTHS) // 2])
    for fold in folds:
        others = ~fold
        own = None if weights is None else weights[others]
        scores = {place: log_likelihood(tried[place][others], codes[others], own) for place in sorted(tried)}
        found[fold] = tried[max(scores, key=scores.__getitem__)][fold]
    return found


def votes(distances: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Shares of the classes among the five nearest, each with a vote for every class beside; or their mean number.

    Votes count by one over the distance and the less, the more of the known share their class. A kernel model is moved
    by all that lies between two halves of a cohort, a batch for one; votes see the neighbourhood alone.
    """
    count = min(_N_VOTES, distances.shape[1])
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :count]
    found = np.take_along_axis(distances, nearest, axis=1)
    if not n_classes:
        return mean_values(found, codes[nearest], "distance")
    shares = class_shares(found, codes[nearest], n_classes, "distance", among=codes)
    return (count * shares + 1.0) / (count + n_classes)


def read_votes(distances: np.ndarray, codes: np.ndarray, groups: np.ndarray, n_classes: int) -> Reading:
    """Predict each distribution by the votes of those of other groups."""
    held_out = np.full((codes.size, n_classes) if n_classes else codes.size, np.nan)
    for group in np.unique(groups):
        left, known = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        held_out[left] = votes(distances[np.ix_(left, known)], codes[known], n_classes)
    return Reading(0.0, held_out)


def log_likelihood(predicted: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of held-out classes, by weights or each counting the same; or of numbers around those predicted."""
    if predicted.ndim == 1:
        return float(-0.5 * codes.size * np.log(np.mean(np.square(predicted - codes)) + 1e-12))
    logs = np.log(np.clip(predicted[np.arange(codes.size), codes], _FLOOR, 1.0))
    return float(logs @ (balanced_weights(codes) if weights is None else weights))
