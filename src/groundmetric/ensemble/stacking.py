"""Targets (labels of distributions, with their model, likelihood and score), and stacking of the views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import call
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import softmax

from .._internal.files import Damaged
from .._internal.parallel import Tasks, progress_bar, run_in_threads
from ..learning.labels import binary_unit
from ..learning.survival import SurvivalTimes, expected_percentiles
from .geometry import ArrayReader, centre_within, positive

if TYPE_CHECKING:
    from .members import View

# Smallest probability in scores: limits the effect of a single wrong prediction.
_FLOOR = 1e-3
# Smallest sum of a kernel over other distributions, against a division by 0.
_TINY = 1e-300
# Ridge of the intercept of logistic regression: small, but enough to keep the Hessian regular.
_INTERCEPT_RIDGE = 1e-3
_MAX_NEWTON_STEPS = 30
# Inverse penalties of kernel models, for kernels of mean variance 1.
STRENGTHS = np.array([0.03, 0.3, 3.0, 30.0, 300.0, 3000.0])
# Eigenvectors of a kernel that a model uses at most.
_MAX_AXES = 64
# Smallest gain over chance in stacking weights, and the same times the number of samples: smaller gains are noise.
_MIN_GAIN, _MIN_GAIN_TIMES_N = 0.02, 2.0
_GAIN_POWER = 3.0


@dataclass(frozen=True)
class Classes:
    """Class labels."""

    codes: np.ndarray  # class of each distribution as index of the sorted classes
    n_classes: int  # whether or not all occur in a subset
    strata: np.ndarray | None = None  # stratum (batch) of each distribution; classes have equal weight within each
    kind = "classes"  # target of the `GroundMetricLearner` that trains "learned" members

    def __len__(self) -> int:
        return self.codes.size

    @property
    def labels(self) -> np.ndarray:
        """Labels that a metric is trained on: codes, or numbers relative to the mean of their stratum."""
        return self.codes

    def subset(self, rows: np.ndarray) -> Classes:
        """Return the target of the distributions `rows`: a model that receives it cannot use another label."""
        return Classes(self.codes[rows], self.n_classes, None if self.strata is None else self.strata[rows])

    def relabelled(self, labels: np.ndarray) -> Classes:
        """Return the target with permuted labels of the same distributions."""
        return replace(self, codes=np.asarray(labels))

    def without_labels(self) -> Classes:
        """Return a target without distributions, with the same units: predictions need no labels."""
        return self.subset(np.empty(0, dtype=np.intp))

    def pack(self) -> dict[str, Any]:
        """Return the entry from which `unpack_target` restores `without_labels`."""
        return {"kind": "Classes", "n_classes": self.n_classes}

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array for predictions of `shape` distributions."""
        return np.empty((*shape, self.n_classes))

    def decode(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions in the units of the labels."""
        return predictions

    encode = decode  # the inverse

    def weights(self, training: np.ndarray | None = None) -> np.ndarray:
        """Return weights of mean 1 that balance the classes (within strata) of the mask `training`, 0 outside of it."""
        weights = np.ones(len(self)) if training is None else training.astype(np.float64)
        for stratum in [] if self.strata is None else np.unique(self.strata):
            rows = self.strata == stratum
            weights[rows] = _balanced(self.codes[rows], weights[rows])
        return _balanced(self.codes, weights)

    def fit(self, x: np.ndarray, masks: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        """Return coefficients on `x` (last column: intercept) for each row of `masks` and entry of `strengths`."""
        weights = np.repeat([self.weights(mask) for mask in masks], strengths.size, axis=0)
        return fit_logistic(x, self.codes, weights, np.tile(strengths, len(masks)), self.n_classes)

    def predict(self, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return predictions (n_models, n_distributions, ...) from the coefficients of `fit`."""
        return np.moveaxis(softmax(coefficients @ x.T, axis=-2), -2, -1)

    def complete(self, mask: np.ndarray) -> bool:
        """Return whether a model can be fitted to these distributions: all classes occur."""
        return np.unique(self.codes[mask]).size == self.n_classes

    def score(self, predictions: np.ndarray) -> float:
        """Return the mean log-probability of the true class, with balanced classes."""
        logs = np.log(np.clip(predictions[np.arange(len(self)), self.codes], _FLOOR, 1.0))
        return float(np.mean(logs * self.weights()))

    def chance(self, folds: np.ndarray) -> np.ndarray:
        """Return predictions without information: equal probabilities, or the mean of the other folds."""
        return np.full((len(self), self.n_classes), 1.0 / self.n_classes)

    def can_train(self, rows: np.ndarray, groups: np.ndarray) -> bool:
        """Return whether each class has at least two groups."""
        # Not within strata: the design would depend on the labels of every fold.
        codes = self.codes[rows]
        return all(np.unique(groups[rows][codes == c]).size >= 2 for c in np.unique(self.codes))

    def deal(self, groups: np.ndarray, order: np.ndarray, n_folds: int) -> np.ndarray:
        """Return the fold of each group, balanced by label; `order` is a random number per group."""
        # Groups of the same classes and strata are consecutive, the rarest classes first: each fold gets one in turn.
        n_groups = range(order.size)
        classes = [tuple(np.unique(self.codes[groups == g])) for g in n_groups]
        strata = [() if self.strata is None else tuple(np.unique(self.strata[groups == g])) for g in n_groups]
        frequency = Counter(classes)
        ranked = sorted(n_groups, key=lambda g: (frequency[classes[g]], classes[g], strata[g], order[g]))
        folds = np.empty(order.size, dtype=np.intp)
        folds[ranked] = np.arange(order.size) % n_folds
        return folds

    def contrast(self, i: int, partners: np.ndarray) -> np.ndarray | None:
        """Return weights of the partners of i with sum 0, positive for other labels; None without both kinds."""
        codes, code = self.codes[partners], self.codes[i]
        like = codes == code
        unlike = [codes == c for c in np.unique(codes) if c != code]
        if not like.any() or not unlike:
            return None
        weights = np.zeros(codes.size)
        weights[like] = -1.0 / like.sum()
        for mask in unlike:
            weights[mask] = 1.0 / (mask.sum() * len(unlike))
        return weights

    def regressors(self) -> np.ndarray:
        """Return regressors (n_distributions, n_columns) that represent the label in a linear model of a feature."""
        return (self.codes[:, None] == np.unique(self.codes)).astype(np.float64)

    def leave_one_out(self, kernel: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss of predicting each distribution by the others, and its derivative by minus the log kernel.

        The loss is minus the mean log-probability of the true class, with balanced classes. The kernel is
        exp(-distance), with zeros on the diagonal; with strata, only distributions of the same stratum are used.
        """
        weights = self.weights()
        kernel = _within(kernel, self.strata) * weights
        same = self.codes[:, None] == self.codes
        total = kernel.sum(axis=1, keepdims=True) + _TINY
        # A share of the total keeps the logarithm finite where no distribution of the class is near.
        own = (kernel * same).sum(axis=1, keepdims=True) + _FLOOR * total
        loss = -float(np.mean(weights * np.log(own / total)[:, 0]))
        return loss, weights[:, None] * kernel * ((same + _FLOOR) / own - 1.0 / total) / len(self)


@dataclass(frozen=True)
class Numbers:
    """Numeric labels: ages, doses, ranks of ordered categories. Methods are those of `Classes`."""

    values: np.ndarray  # label of each distribution, divided by `unit`
    strata: np.ndarray | None = None  # stratum of each distribution; slopes of the model are fitted within strata
    # Power of two close to the largest absolute label. A subset has its own unit: labels outside the subset do not
    # affect its rounding errors.
    unit: float = 1.0
    kind = "ordered"

    def __len__(self) -> int:
        return self.values.size

    def empty(self, *shape: int) -> np.ndarray:
        return np.empty(shape)

    @classmethod
    def of(cls, values: np.ndarray, strata: np.ndarray | None = None) -> Numbers:
        """Return the target of numbers, in units in which no square overflows or underflows."""
        unit = binary_unit(values)
        return cls(values / unit, strata, unit)

    @cached_property
    def labels(self) -> np.ndarray:
        return centre_within(self.values, self.strata)

    def subset(self, rows: np.ndarray) -> Numbers:
        return Numbers.of(self.decode(self.values[rows]), None if self.strata is None else self.strata[rows])

    def relabelled(self, labels: np.ndarray) -> Numbers:
        return replace(self, values=np.asarray(labels))

    def without_labels(self) -> Self:
        return replace(self, values=np.empty(0), strata=None)

    def pack(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "unit": self.unit}

    def decode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions * self.unit

    def encode(self, predictions: np.ndarray) -> np.ndarray:
        return predictions / self.unit

    def fit(self, x: np.ndarray, masks: np.ndarray, strengths: np.ndarray) -> np.ndarray:
        """Fit ridge regressions; the intercept (last column) is the mean of the training labels."""
        n_columns = x.shape[1] - 1
        coefficients = np.empty((len(masks), strengths.size, n_columns + 1))
        for fitted, mask in zip(coefficients, masks, strict=True):
            columns, values = x[mask, :-1], self.values[mask]
            # Within strata: the coordinates must not explain differences of labels between strata.
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

    def complete(self, mask: np.ndarray) -> bool:
        return bool(np.ptp(self.values[mask]) > 0)

    def score(self, predictions: np.ndarray) -> float:
        """Return -log(root mean squared error in standard deviations): up to a constant, a normal log-likelihood."""
        scale = float(np.std(self.values)) or 1.0
        return float(-0.5 * np.log(np.mean(np.square((predictions - self.values) / scale)) + 1e-12))

    def chance(self, folds: np.ndarray) -> np.ndarray:
        predictions = np.empty(len(self))
        for fold in np.unique(folds):
            training = self.values[folds != fold]
            predictions[folds == fold] = training.mean() if training.size else 0.0
        return predictions

    def can_train(self, rows: np.ndarray, groups: np.ndarray) -> bool:
        """Return whether there are at least four groups and three different values."""
        return bool(np.unique(groups[rows]).size >= 4 and np.unique(self.values[rows]).size >= 3)

    def deal(self, groups: np.ndarray, order: np.ndarray, n_folds: int) -> np.ndarray:
        # Groups of similar labels are dealt to different folds: each run of n_folds groups has one in every fold.
        means = [float(self.values[groups == g].mean()) for g in range(order.size)]
        ranked = sorted(range(order.size), key=lambda g: (means[g], order[g]))
        folds = np.empty(order.size, dtype=np.intp)
        for start in range(0, order.size, n_folds):
            run = sorted(ranked[start : start + n_folds], key=lambda g: order[g])
            folds[run] = np.arange(len(run))
        return folds

    def contrast(self, i: int, partners: np.ndarray) -> np.ndarray | None:
        gaps = np.abs(self.labels[partners] - self.labels[i])
        centred = gaps - gaps.mean() if gaps.size else gaps
        total = np.abs(centred).sum()
        return centred / total if total > 0 else None

    def regressors(self) -> np.ndarray:
        return self.values[:, None]

    def leave_one_out(self, kernel: np.ndarray) -> tuple[float, np.ndarray]:
        """Return half the squared error of kernel regression in units of the variance, and its derivative."""
        values = self.labels
        kernel = _within(kernel, self.strata)
        total = kernel.sum(axis=1) + _TINY
        predictions = kernel @ values / total
        errors = (predictions - values) / (len(self) * (float(np.var(values)) or 1.0))
        loss = 0.5 * float(errors @ (predictions - values))
        return loss, -(errors / total)[:, None] * kernel * (values - predictions[:, None])


@dataclass(frozen=True)
class Survival(Numbers):
    """Right-censored survival times as expected percentiles of survival, by the times of the distributions alone."""

    times: SurvivalTimes | None = None

    @classmethod
    def of_times(cls, times: SurvivalTimes, strata: np.ndarray | None = None) -> Survival:
        """Return the target of survival times."""
        return cls(expected_percentiles(times), strata, times=times)

    def subset(self, rows: np.ndarray) -> Survival:
        assert self.times is not None
        indices = np.arange(len(self))[rows]
        return Survival.of_times(self.times.at(indices), None if self.strata is None else self.strata[rows])

    def relabelled(self, labels: np.ndarray) -> Survival:
        """Return the target with permuted times: `labels` are indices of distributions."""
        assert self.times is not None
        return Survival.of_times(self.times.at(np.asarray(labels)), self.strata)


Target = Classes | Numbers


def unpack_target(entry: Mapping[str, Any]) -> Target:
    """Return the target without labels from the output of `Target.pack`."""
    kind, empty = entry["kind"], np.empty(0)
    if kind == "Classes":
        n_classes = int(entry["n_classes"])
        if n_classes < 2:
            raise Damaged(f"there are {n_classes} classes")
        return Classes(empty.astype(np.intp), n_classes)
    return {"Numbers": Numbers, "Survival": Survival}[kind](empty, unit=positive(entry["unit"], "the unit of labels"))


def fit_logistic(
    x: np.ndarray, codes: np.ndarray, weights: np.ndarray, strengths: np.ndarray, n_classes: int
) -> np.ndarray:
    """Fit many penalised multinomial logistic regressions at once, by Newton's method.

    Problem b has the sample weights ``weights[b]`` and the inverse penalty ``strengths[b]``; the last column of `x` is
    the intercept. Returns coefficients (n_problems, n_classes, n_columns) of sum 0 over classes. An ensemble needs
    thousands of such fits, often on tens of distributions; scikit-learn needs milliseconds for each.
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
    """Scale weights to equal sums over classes, and to a mean of 1 over positive weights."""
    sums = np.bincount(codes, weights)
    positive = int(np.count_nonzero(weights))
    scale = np.where(sums > 0, positive / np.maximum(sums, 1e-300) / max(int(np.count_nonzero(sums)), 1), 0.0)
    return weights * scale[codes]


def _within(kernel: np.ndarray, strata: np.ndarray | None) -> np.ndarray:
    """Return the kernel with zeros between strata."""
    return kernel if strata is None else kernel * (strata[:, None] == strata)


@dataclass(frozen=True)
class KernelModel:
    """Logistic or ridge regression in the space of a centred kernel, mixed over penalties."""

    columns: np.ndarray  # mean of each column of the kernel between landmarks, (n_landmarks,)
    overall: float  # mean of this kernel
    scale: float  # mean variance of the centred kernel
    axes: np.ndarray  # eigenvectors of the centred kernel over the roots of their eigenvalues, (n_landmarks, n_axes)
    coefficients: np.ndarray  # of the model for each penalty, (n_strengths, ...), from all training labels
    mixture: np.ndarray  # weight of each penalty, from predictions of each fold by the labels of the other folds

    @classmethod
    def fit(
        cls, kernel: np.ndarray, target: Target, folds: np.ndarray, landmarks: np.ndarray | None = None
    ) -> tuple[KernelModel, np.ndarray]:
        """Return the model, and held-out predictions of its training distributions by cross-validation over `folds`.

        Column j of the kernel belongs to training distribution ``landmarks[j]`` (None: j). The axes are those of the
        kernel between landmarks (Nyström approximation), so training and new distributions get coordinates alike.
        """
        n = len(kernel)
        square = kernel if landmarks is None or landmarks.size == n else kernel[landmarks]
        columns, overall = square.mean(axis=0), float(square.mean())
        centred = square - columns - columns[:, None] + overall
        scale = float(np.mean(np.diag(centred)))
        if scale <= 1e-12 * float(np.abs(square).max()):  # all distributions coincide
            scale, axes, x = 1.0, np.zeros((len(square), 1)), np.zeros((n, 1))
        else:
            values, vectors = np.linalg.eigh(centred / scale)
            # Kernels of averaged distances are not positive definite. Eigenvalues up to the size of the most negative
            # one are noise: new distributions have large coordinates on their axes, which makes predictions extreme.
            noise = max(1e-6 * float(values[-1]), -float(values[0]), 1e-18)
            selected = np.flatnonzero(values >= min(noise, float(values[-1])))[-_MAX_AXES:]
            roots = np.sqrt(values[selected])
            axes, x = vectors[:, selected] / roots, vectors[:, selected] * roots
            if square is not kernel:
                x = _coordinates(kernel, columns, overall, scale, axes)
        x = np.column_stack([x, np.ones(n)])
        # One model per fold from the labels of the other folds, and the last from all labels; coordinates use no label.
        masks = np.array([folds != fold for fold in np.unique(folds)] + [np.ones(n, dtype=bool)])
        coefficients = target.fit(x, masks, STRENGTHS)
        coefficients = coefficients.reshape(len(masks), STRENGTHS.size, *coefficients.shape[1:])
        held_out, chance = target.empty(STRENGTHS.size, n), target.chance(folds)
        for mask, fitted in zip(masks[:-1], coefficients[:-1], strict=True):
            held_out[:, ~mask] = target.predict(fitted, x[~mask]) if target.complete(mask) else chance[~mask]
        # Penalties are mixed by the root of the held-out likelihood: in small cohorts no penalty is clearly best.
        logs = 0.5 * len(target) * np.array([target.score(predictions) for predictions in held_out])
        mixture = np.exp(logs - logs.max())
        mixture /= mixture.sum()
        model = cls(columns, overall, scale, axes, coefficients[-1], mixture)
        return model, np.tensordot(mixture, held_out, axes=1)

    def predict(self, kernel: np.ndarray, target: Target) -> np.ndarray:
        """Return predictions from the kernel between new distributions (rows) and the columns of `fit`."""
        x = _coordinates(kernel, self.columns, self.overall, self.scale, self.axes)
        x = np.column_stack([x, np.ones(len(kernel))])
        return np.tensordot(self.mixture, target.predict(self.coefficients, x), axes=1)

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Add the arrays of the model, and return the numbers that JSON holds."""
        arrays |= {f"{prefix}.{name}": getattr(self, name) for name in ("columns", "axes", "coefficients", "mixture")}
        return {"overall": self.overall, "scale": self.scale}

    @classmethod
    def unpack(cls, reader: ArrayReader, entry: Mapping[str, Any], prefix: str, n: int, target: Target) -> KernelModel:
        """Return the validated model of n landmarks from the output of `pack`."""
        axes, mixture = reader.numbers(f"{prefix}.axes", n, None), reader.numbers(f"{prefix}.mixture", None)
        shape = target.empty(mixture.size).shape
        overall, scale = float(entry["overall"]), positive(entry["scale"], "the scale of a kernel")
        if np.any(mixture < 0) or not np.isclose(mixture.sum(), 1.0) or not np.isfinite(overall):
            raise Damaged("weights of penalties are not positive numbers of sum 1, or the mean of a kernel is infinite")
        coefficients = reader.numbers(f"{prefix}.coefficients", *shape, axes.shape[1] + 1)
        return cls(reader.numbers(f"{prefix}.columns", n), overall, scale, axes, coefficients, mixture)


def _coordinates(kernel: np.ndarray, columns: np.ndarray, overall: float, scale: float, axes: np.ndarray) -> np.ndarray:
    """Return the coordinates of distributions (rows of the kernel) on the axes of a centred kernel."""
    centred = kernel - kernel.mean(axis=1, keepdims=True) - columns + overall
    return centred / scale @ axes


@dataclass(frozen=True)
class Stack:
    """Kernel models of several views and their stacking weights, which sum to 1."""

    models: list[KernelModel]
    weights: np.ndarray

    @classmethod
    def fit(
        cls, kernels: Sequence[np.ndarray], prior: np.ndarray, target: Target, folds: np.ndarray,
        landmarks: np.ndarray | None = None,
    ) -> Stack:  # fmt: skip
        """Fit a model to each kernel between training distributions and landmarks, weighted by held-out predictions."""
        fits = [KernelModel.fit(kernel, target, folds, landmarks) for kernel in kernels]
        held_out = [predictions for _, predictions in fits]
        return cls([model for model, _ in fits], stacking_weights(held_out, prior, target, folds))

    def predict_views(self, kernels: Sequence[np.ndarray], target: Target) -> np.ndarray:
        """Return predictions of each view, (n_views, n_distributions, ...)."""
        return np.array([model.predict(k, target) for model, k in zip(self.models, kernels, strict=True)])


def prior_weights(groups: Sequence[str]) -> np.ndarray:
    """Return prior weights of views that are equal for all groups of similar views.

    Views of a group make similar errors: with equal weights for views, the largest group would dominate the mean.

    >>> prior_weights(["summary", "summary", "euclidean"]).tolist()
    [0.5, 0.5, 1.0]
    """
    sizes = Counter(groups)
    return np.array([1.0 / sizes[group] for group in groups])


def stacking_weights(
    held_out: Sequence[np.ndarray], prior: np.ndarray, target: Target, folds: np.ndarray
) -> np.ndarray:
    """Return weights of views: the third power of the gain of their held-out score over chance, times their prior."""
    chance = target.score(target.chance(folds))
    gains = np.array([target.score(predictions) - chance for predictions in held_out])
    gains = np.maximum(gains, max(_MIN_GAIN, _MIN_GAIN_TIMES_N / len(target))) ** _GAIN_POWER
    weights = prior * gains
    return weights / weights.sum()


@dataclass(frozen=True)
class HeldOut:
    """Held-out predictions of all training distributions."""

    predictions: np.ndarray  # of the stack, (n_distributions, ...)
    by_view: np.ndarray  # of each view alone, (n_views, n_distributions, ...)


def predict_held_out(
    views: Sequence[View], target: Target, folds: np.ndarray, *, n_jobs: int | None = None, verbose: bool = False
) -> tuple[HeldOut, Stack]:
    """Predict every fold by a stack that uses no label of the fold at any step; also return the stack of all folds."""
    # The kernels of fold f average members that leave out f. The stack receives only the labels of the other folds, and
    # chooses penalties and stacking weights by inner folds among them.
    every: list[int | None] = [*map(int, np.unique(folds)), None]  # None: the stack of all folds
    landmarks, prior = views[0].landmarks, prior_weights([view.group for view in views])

    def task(number: int) -> Callable[[], tuple[Stack, np.ndarray]]:
        fold = every[number]
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        columns = np.flatnonzero(folds[landmarks] != fold)
        kernels = [view.kernel(fold) for view in views]
        training, tested = ([kernel[np.ix_(rows, columns)] for kernel in kernels] for rows in (train, test))
        labels, positions = target.subset(train) if fold is not None else target, landmarks[columns]
        return partial(_predict_fold, training, tested, prior, labels, folds[train], np.searchsorted(train, positions))

    *results, (full_stack, _) = run_all(task, len(every), "cross-validation", "fold", n_jobs=n_jobs, verbose=verbose)
    predictions, by_view = target.empty(len(target)), target.empty(len(views), len(target))
    for fold, (stack, predicted) in zip(every, results, strict=False):
        test = np.flatnonzero(folds == fold)
        by_view[:, test] = target.encode(predicted)
        predictions[test] = np.tensordot(stack.weights, by_view[:, test], axes=1)
    return HeldOut(predictions, by_view), full_stack


def _predict_fold(
    training_kernels: Sequence[np.ndarray], test_kernels: Sequence[np.ndarray], prior: np.ndarray, target: Target,
    folds: np.ndarray, landmarks: np.ndarray,
) -> tuple[Stack, np.ndarray]:  # fmt: skip
    """Return the stack of the training distributions, whose labels `target` holds, and predictions by each view."""
    stack = Stack.fit(training_kernels, prior, target, folds, landmarks)
    return stack, target.decode(stack.predict_views(test_kernels, target))


def run_all(
    task: Callable[[int], Callable[[], Any]], count: int, title: str, unit: str, *, n_jobs: int | None, verbose: bool
) -> list[Any]:
    """Return the results of independent tasks in their order; they run in threads or on the configured cluster."""
    results: list[Any] = [None] * count
    with progress_bar(count, title, unit, show=verbose) as bar:
        # `task` makes each task shortly before it runs: all tasks together may exceed the memory.
        for number, result in run_in_threads(call, Tasks(count, task), n_jobs):
            results[number] = result
            bar.update()
    return results
