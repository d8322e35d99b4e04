"""Targets of an ensemble: classes, numbers and survival times, each with its model, likelihood and score.

A target holds the labels of a set of distributions. `subset` returns the target of some of them, which knows no other
label: whatever is fitted for a cross-validation fold receives the subset of the other folds, so that it cannot use a
label of the fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import softmax

from ..learning.labels import binary_unit
from ..learning.survival import SurvivalTimes, expected_percentiles

# Probabilities below this count as this much in scores, so that a single surprise does not decide.
_FLOOR = 1e-3
# Ridge of the intercept of logistic regression: small, but enough to keep the Hessian regular.
_INTERCEPT_RIDGE = 1e-3
_MAX_NEWTON_STEPS = 30


class Target(Protocol):
    """What stacking needs to know about labels."""

    def __len__(self) -> int: ...

    def subset(self, rows: np.ndarray) -> Target:
        """Return the target of these distributions, without any information about the others."""
        ...

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array for predictions of `shape` distributions."""
        ...

    def decode(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions in the units of the labels."""
        ...

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions in the units of this target, the inverse of `decode`."""
        ...

    def relabelled(self, labels: np.ndarray, /) -> Target:
        """Return the target with permuted labels of the same distributions."""
        ...

    def without_labels(self) -> Target:
        """Return a target of no distribution with the units of this one, which is enough to predict."""
        ...

    def fit(self, x: np.ndarray, inside: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        """Fit one regression per row of `inside` (a mask of training distributions) and entry of `strengths`.

        `x` are coordinates (n_distributions, n_columns), the last column the intercept. Returns coefficients.
        """
        ...

    def predict(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return predictions (n_models, n_distributions, ...) of the models that `fit` returned."""
        ...

    def complete(self, inside: np.ndarray) -> bool:
        """Return whether a model can be fitted to these distributions."""
        ...

    def score(self, predictions: np.ndarray) -> float:
        """Return the mean log-likelihood of the labels given predictions for all distributions of this target."""
        ...

    def chance(self, folds: np.ndarray) -> np.ndarray:
        """Return predictions that ignore the distributions: equal probabilities, or the mean of the other folds."""
        ...

    def can_train(self, rows: np.ndarray, groups: np.ndarray) -> bool:
        """Return whether a metric can be trained on these distributions."""
        ...

    def fold_keys(self, groups: np.ndarray) -> list[Any]:
        """Return a sortable value per group that cross-validation folds are balanced by."""
        ...


@dataclass(frozen=True)
class Classes:
    """Class labels.

    Attributes
    ----------
    codes : array of int of shape (n_distributions,)
        Class of each distribution as index of the sorted classes.
    n_classes : int
        Number of classes, whether or not all occur in a subset.
    strata : array of int of shape (n_distributions,) or None
        Stratum (batch) of each distribution: classes have equal weight within each stratum.
    """

    codes: np.ndarray
    n_classes: int
    strata: np.ndarray | None = None

    def __len__(self) -> int:
        return self.codes.size

    def subset(self, rows: np.ndarray) -> Classes:
        return Classes(self.codes[rows], self.n_classes, None if self.strata is None else self.strata[rows])

    def relabelled(self, codes: np.ndarray) -> Classes:
        """Return the target with other labels of the same distributions."""
        return replace(self, codes=np.asarray(codes))

    def empty(self, *shape: int) -> np.ndarray:
        return np.empty((*shape, self.n_classes))

    def decode(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions as they are: probabilities."""
        return predictions

    encode = decode

    def without_labels(self) -> Classes:
        return self.subset(np.empty(0, dtype=np.intp))

    def weights(self, inside: np.ndarray | None = None) -> np.ndarray:
        """Return weights of mean 1 (0 outside) that balance the classes, as far as possible within each stratum.

        >>> Classes(np.array([0, 0, 0, 1]), 2).weights().round(2).tolist()
        [0.67, 0.67, 0.67, 2.0]
        """
        weights = np.ones(len(self)) if inside is None else inside.astype(np.float64)
        for stratum in [] if self.strata is None else np.unique(self.strata):
            rows = self.strata == stratum
            weights[rows] = _balanced(self.codes[rows], weights[rows])
        return _balanced(self.codes, weights)

    def fit(self, x: np.ndarray, inside: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        weights = np.repeat([self.weights(mask) for mask in inside], strengths.size, axis=0)
        return fit_logistic(x, self.codes, weights, np.tile(strengths, len(inside)), self.n_classes)

    def predict(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.moveaxis(softmax(coefficients @ x.T, axis=-2), -2, -1)

    def complete(self, inside: np.ndarray) -> bool:
        """Return whether all classes occur inside."""
        return np.unique(self.codes[inside]).size == self.n_classes

    def score(self, predictions: np.ndarray) -> float:
        """Return the mean log-probability of the true class, with balanced classes."""
        return float(np.mean(self.log_probabilities(predictions) * self.weights()))

    def log_probabilities(self, predictions: np.ndarray) -> np.ndarray:
        """Return the log-probability of each true class."""
        return np.log(np.clip(predictions[np.arange(len(self)), self.codes], _FLOOR, 1.0))

    def chance(self, folds: np.ndarray) -> np.ndarray:
        return np.full((len(self), self.n_classes), 1.0 / self.n_classes)

    def can_train(self, rows: np.ndarray, groups: np.ndarray) -> bool:
        """Return whether each class has at least two groups.

        It does not depend on which labels go with which stratum: a member whose strata have one class each learns
        nothing, but a design that depended on it would depend on the labels of every fold.
        """
        codes = self.codes[rows]
        return all(np.unique(groups[rows][codes == c]).size >= 2 for c in np.unique(self.codes))

    def fold_keys(self, groups: np.ndarray) -> list[Any]:
        """Return the classes of each group, those of fewest groups first, and its strata."""
        classes = [tuple(np.unique(self.codes[groups == g])) for g in range(groups.max() + 1)]
        frequency = {key: classes.count(key) for key in set(classes)}
        strata = _strata_of_groups(self.strata, groups)
        return [(frequency[key], key, stratum) for key, stratum in zip(classes, strata, strict=True)]


@dataclass(frozen=True)
class Numbers:
    """Numeric labels: ages, doses, ranks of ordered categories.

    Attributes
    ----------
    values : array of shape (n_distributions,)
        Label of each distribution, divided by `unit`.
    strata : array of int of shape (n_distributions,) or None
        Stratum (batch) of each distribution; slopes of the model are fitted within strata.
    unit : float
        Power of two close to the largest absolute label. A subset has a unit of its own, so that labels outside do not
        decide its rounding.
    """

    values: np.ndarray
    strata: np.ndarray | None = None
    unit: float = 1.0

    @classmethod
    def of(cls, values: np.ndarray, strata: np.ndarray | None = None) -> Numbers:
        """Return the target of these labels, in units in which no square overflows or underflows."""
        unit = binary_unit(values)
        return cls(values / unit, strata, unit)

    def __len__(self) -> int:
        return self.values.size

    def subset(self, rows: np.ndarray) -> Numbers:
        return Numbers.of(self.decode(self.values[rows]), None if self.strata is None else self.strata[rows])

    def decode(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions in the units of the labels."""
        return predictions * self.unit

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions / self.unit

    def without_labels(self) -> Self:
        return replace(self, values=np.empty(0), strata=None)

    def relabelled(self, values: np.ndarray) -> Numbers:
        """Return the target with other labels of the same distributions."""
        return replace(self, values=np.asarray(values))

    def empty(self, *shape: int) -> np.ndarray:
        return np.empty(shape)

    def fit(self, x: np.ndarray, inside: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        """Fit ridge regressions; the intercept (last column) is the mean of the training labels."""
        n_columns = x.shape[1] - 1
        coefficients = np.empty((len(inside), strengths.size, n_columns + 1))
        for fitted, mask in zip(coefficients, inside, strict=True):
            columns, values = x[mask, :-1], self.values[mask]
            # Within strata: what sets strata apart in the labels is not to be explained by the coordinates.
            strata = None if self.strata is None else self.strata[mask]
            centred, residual = centre_within(columns, strata), centre_within(values, strata)
            scales, axes = np.linalg.eigh(centred.T @ centred)
            moments = axes.T @ (centred.T @ residual)
            slopes = (moments / (np.maximum(scales, 0.0) + 1.0 / strengths[:, None])) @ axes.T
            fitted[:, :-1] = slopes
            fitted[:, -1] = values.mean() - slopes @ columns.mean(axis=0)
        return coefficients.reshape(-1, n_columns + 1)

    def predict(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        return coefficients @ x.T

    def complete(self, inside: np.ndarray) -> bool:
        """Return whether two different labels occur inside."""
        return bool(np.ptp(self.values[inside]) > 0)

    def score(self, predictions: np.ndarray) -> float:
        """Return -log(error) with the root mean squared error in standard deviations of the labels.

        It is the log-likelihood per distribution, up to a constant, under normal errors of the best variance.
        """
        scale = float(np.std(self.values)) or 1.0
        return float(-0.5 * np.log(np.mean(np.square((predictions - self.values) / scale)) + 1e-12))

    def chance(self, folds: np.ndarray) -> np.ndarray:
        predictions = np.empty(len(self))
        for fold in np.unique(folds):
            others = self.values[folds != fold]
            predictions[folds == fold] = others.mean() if others.size else 0.0
        return predictions

    def can_train(self, rows: np.ndarray, groups: np.ndarray) -> bool:
        """Return whether four groups and three values are there."""
        return bool(np.unique(groups[rows]).size >= 4 and np.unique(self.values[rows]).size >= 3)

    def fold_keys(self, groups: np.ndarray) -> list[Any]:
        """Return the mean label of each group."""
        return [float(self.values[groups == g].mean()) for g in range(groups.max() + 1)]


@dataclass(frozen=True)
class Survival(Numbers):
    """Right-censored survival times, as the expected percentile of survival of each distribution (Kaplan-Meier).

    Percentiles of a subset are computed from the times of the subset alone.

    Attributes
    ----------
    times : SurvivalTimes
        Times and events.
    """

    times: SurvivalTimes | None = None

    @classmethod
    def of_times(cls, times: SurvivalTimes, strata: np.ndarray | None = None) -> Survival:
        """Return the target of these times."""
        return cls(expected_percentiles(times), strata, times=times)

    def subset(self, rows: np.ndarray) -> Survival:
        assert self.times is not None
        places = np.arange(len(self))[rows]
        return Survival.of_times(self.times.at(places), None if self.strata is None else self.strata[rows])

    def relabelled(self, values: np.ndarray) -> Survival:
        """Return the target with the times of other distributions: `values` are their indices."""
        assert self.times is not None
        return Survival.of_times(self.times.at(np.asarray(values)), self.strata)

    def without_labels(self) -> Survival:
        return Survival(np.empty(0), unit=self.unit)


def centre_within(rows: np.ndarray, strata: np.ndarray | None = None) -> np.ndarray:
    """Subtract the mean of all rows or, with strata, of the rows of the same stratum.

    >>> centre_within(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 1])).tolist()
    [-1.0, 1.0, 0.0]
    """
    if strata is None:
        return rows - rows.mean(axis=0)
    centred = np.array(rows, dtype=np.result_type(rows, np.float32))
    for stratum in np.unique(strata):
        centred[strata == stratum] -= rows[strata == stratum].mean(axis=0)
    return centred


def fit_logistic(
    x: np.ndarray, codes: np.ndarray, weights: np.ndarray, strengths: np.ndarray, n_classes: int
) -> np.ndarray:
    """Fit many penalised multinomial logistic regressions at once, by Newton's method.

    Problem b has the sample weights ``weights[b]`` and the inverse penalty ``strengths[b]``. The last column of `x` is
    the intercept, which is nearly free. An ensemble takes thousands of these fits on a few dozen distributions;
    scikit-learn needs milliseconds for each, nearly all of it in checks.

    Returns coefficients of shape (n_problems, n_classes, n_columns); those of the classes sum to 0.
    """
    n_columns = x.shape[1]
    n_contrasts = n_classes - 1
    # Coefficients are parametrised by n_classes - 1 orthonormal contrasts, which removes the common shift of classes.
    contrasts = np.linalg.svd(np.eye(n_classes) - 1.0 / n_classes)[0][:, :n_contrasts]
    ridge = np.repeat(1.0 / strengths[:, None], n_columns, axis=1)
    ridge[:, -1] = _INTERCEPT_RIDGE
    truth = np.eye(n_classes)[codes].T

    def evaluate(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = contrasts @ (free @ x.T)
        logits -= logits.max(axis=1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = 0.5 * np.einsum("bd,bcd->b", ridge, free**2) - np.einsum("bn,cn,bcn->b", weights, truth, logs)
        return loss, np.exp(logs)

    coefficients = np.zeros((len(weights), n_classes, n_columns))
    free = np.zeros((len(weights), n_contrasts, n_columns))
    active = np.arange(len(weights))  # problems that have not converged
    loss, probabilities = evaluate(free)
    for _ in range(_MAX_NEWTON_STEPS):
        residual = weights[:, None] * (probabilities - truth)
        gradient = contrasts.T @ residual @ x + ridge[:, None] * free
        hessian = np.empty((len(free), n_contrasts, n_columns, n_contrasts, n_columns))
        for a in range(n_contrasts):
            pa = contrasts[:, [a]] * probabilities
            for b in range(a, n_contrasts):
                pb = contrasts[:, [b]] * probabilities
                curvature = weights * ((pa * contrasts[:, [b]]).sum(1) - pa.sum(1) * pb.sum(1))
                hessian[:, a, :, b] = hessian[:, b, :, a] = (x.T * curvature[:, None]) @ x
        size = n_contrasts * n_columns
        square = hessian.reshape(-1, size, size)
        square[:, np.arange(size), np.arange(size)] += np.tile(ridge, n_contrasts)
        step = np.linalg.solve(square, gradient.reshape(-1, size, 1)).reshape(free.shape)
        length = np.ones((len(free), 1, 1))
        for _ in range(12):  # halve the steps of problems whose loss would rise
            new_loss, new_probabilities = evaluate(free - length * step)
            rising = new_loss > loss + 1e-12
            if not rising.any():
                break
            length[rising] /= 2.0
        free, decrease = free - length * step, loss - new_loss
        loss, probabilities = new_loss, new_probabilities
        done = decrease < 1e-7
        if done.any():
            coefficients[active[done]] = contrasts @ free[done]
            active, free, loss, probabilities = active[~done], free[~done], loss[~done], probabilities[~done]
            weights, ridge = weights[~done], ridge[~done]
            if not active.size:
                break
    coefficients[active] = contrasts @ free
    return coefficients


def _balanced(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Scale weights so that the classes with any weight have equal sums, and the mean over these entries is 1."""
    sums = np.bincount(codes, weights)
    positive = int(np.count_nonzero(weights))
    scale = np.where(sums > 0, positive / np.maximum(sums, 1e-300) / max(int(np.count_nonzero(sums)), 1), 0.0)
    return weights * scale[codes]


def _strata_of_groups(strata: np.ndarray | None, groups: np.ndarray) -> list[tuple[Any, ...]]:
    if strata is None:
        return [()] * (int(groups.max()) + 1)
    return [tuple(np.unique(strata[groups == g])) for g in range(groups.max() + 1)]
