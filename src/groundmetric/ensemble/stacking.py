"""Stacking: kernel models of all views, and their weights, by nested cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .geometry import Description
from .targets import Target
from .views import View

# Inverse penalties of kernel models, for kernels of mean variance 1.
STRENGTHS = np.array([0.03, 0.3, 3.0, 30.0, 300.0, 3000.0])
# Eigenvectors of a kernel that a model uses at most.
_MAX_AXES = 64
# Gains over chance count at least this much in stacking weights: of few samples they are chance themselves.
_MIN_GAIN, _MIN_GAIN_TIMES_N = 0.02, 2.0
_GAIN_POWER = 2.0


@dataclass(frozen=True)
class KernelModel:
    """Logistic or ridge regression in the space of a centred kernel, mixed over penalties.

    Attributes
    ----------
    columns : array of shape (n_distributions,)
        Mean of each column of the training kernel.
    overall : float
        Mean of the training kernel.
    scale : float
        Mean variance of the centred kernel.
    axes : array of shape (n_distributions, n_axes)
        Eigenvectors of the centred kernel over the roots of their eigenvalues.
    coefficients : array of shape (n_strengths, ...)
        Coefficients of the model for each penalty.
    mixture : array of shape (n_strengths,)
        Weight of each penalty.
    """

    columns: np.ndarray
    overall: float
    scale: float
    axes: np.ndarray
    coefficients: np.ndarray
    mixture: np.ndarray

    @classmethod
    def fit(cls, kernel: np.ndarray, target: Target, folds: np.ndarray) -> tuple[KernelModel, np.ndarray]:
        """Return the model, and held-out predictions of its training distributions by cross-validation over `folds`."""
        columns, overall = kernel.mean(axis=0), float(kernel.mean())
        centred = kernel - columns - columns[:, None] + overall
        scale = float(np.mean(np.diag(centred)))
        if scale <= 1e-12 * float(np.abs(kernel).max()):  # all distributions coincide
            scale, axes, x = 1.0, np.zeros((len(kernel), 1)), np.zeros((len(kernel), 1))
        else:
            values, vectors = np.linalg.eigh(centred / scale)
            # Kernels of averaged distances are not positive definite. Eigenvalues up to the size of the most negative
            # one are noise: new distributions have large coordinates on their axes, which makes predictions extreme.
            noise = max(1e-6 * float(values[-1]), -float(values[0]), 1e-18)
            kept = np.flatnonzero(values >= min(noise, float(values[-1])))[-_MAX_AXES:]
            roots = np.sqrt(values[kept])
            axes, x = vectors[:, kept] / roots, vectors[:, kept] * roots
        x = np.column_stack([x, np.ones(len(kernel))])
        inside = np.array([folds != fold for fold in np.unique(folds)] + [np.ones(len(kernel), dtype=bool)])
        coefficients = target.fit(x, inside, STRENGTHS)
        coefficients = coefficients.reshape(len(inside), STRENGTHS.size, *coefficients.shape[1:])
        held_out, chance = target.empty(STRENGTHS.size, len(kernel)), target.chance(folds)
        for mask, fitted in zip(inside[:-1], coefficients[:-1], strict=True):
            held_out[:, ~mask] = target.predict(fitted, x[~mask]) if target.complete(mask) else chance[~mask]
        # Penalties are mixed by the root of the held-out likelihood: with few distributions none is clearly best.
        logs = 0.5 * len(target) * np.array([target.score(predictions) for predictions in held_out])
        mixture = np.exp(logs - logs.max())
        mixture /= mixture.sum()
        model = cls(columns, overall, scale, axes, coefficients[-1], mixture)
        return model, np.tensordot(mixture, held_out, axes=1)

    def predict(self, kernel: np.ndarray, target: Target) -> np.ndarray:
        """Return predictions from the kernel between new (rows) and training distributions."""
        centred = kernel - kernel.mean(axis=1, keepdims=True) - self.columns + self.overall
        x = np.column_stack([centred / self.scale @ self.axes, np.ones(len(kernel))])
        return np.tensordot(self.mixture, target.predict(self.coefficients, x), axes=1)


@dataclass(frozen=True)
class Stack:
    """Kernel models of several views and their stacking weights.

    Attributes
    ----------
    models : list of KernelModel
        One model per view.
    weights : array of shape (n_views,)
        Stacking weights, of sum 1.
    """

    models: list[KernelModel]
    weights: np.ndarray

    @classmethod
    def fit(cls, kernels: Sequence[np.ndarray], target: Target, folds: np.ndarray) -> Stack:
        """Fit a model to each kernel between training distributions, and weight them by held-out predictions."""
        fits = [KernelModel.fit(kernel, target, folds) for kernel in kernels]
        held_out = [predictions for _, predictions in fits]
        return cls([model for model, _ in fits], stacking_weights(held_out, target, folds))

    def predict_views(self, kernels: Sequence[np.ndarray], target: Target) -> np.ndarray:
        """Return predictions of each view, (n_views, n_distributions, ...)."""
        return np.array([model.predict(k, target) for model, k in zip(self.models, kernels, strict=True)])


def stacking_weights(held_out: Sequence[np.ndarray], target: Target, folds: np.ndarray) -> np.ndarray:
    """Return weights of views, proportional to the squared gain of their held-out score over chance."""
    chance = target.score(target.chance(folds))
    gains = np.array([target.score(predictions) - chance for predictions in held_out])
    gains = np.maximum(gains, max(_MIN_GAIN, _MIN_GAIN_TIMES_N / len(target))) ** _GAIN_POWER
    return gains / gains.sum()


def combine(weights: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the weighted mean over views."""
    return np.tensordot(weights, predictions, axes=1)


@dataclass(frozen=True)
class HeldOut:
    """Held-out predictions of all training distributions.

    Attributes
    ----------
    predictions : array of shape (n_distributions, ...)
        Predictions of the stack.
    by_view : array of shape (n_views, n_distributions, ...)
        Predictions of each view.
    """

    predictions: np.ndarray
    by_view: np.ndarray


def predict_held_out(views: Sequence[View], target: Target, folds: np.ndarray) -> HeldOut:
    """Predict every fold by a stack that uses no label of the fold at any step.

    The kernels of fold f average members that leave out f; penalties and stacking weights are chosen by inner folds
    among the other folds. The labels of f are not passed on: the stack receives the subset of the others.
    """
    predictions, by_view = target.empty(len(target)), target.empty(len(views), len(target))
    for fold in np.unique(folds):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        kernels = [view.kernel(int(fold)) for view in views]
        known = target.subset(train)
        stack = Stack.fit([kernel[np.ix_(train, train)] for kernel in kernels], known, folds[train])
        predicted = stack.predict_views([kernel[np.ix_(test, train)] for kernel in kernels], known)
        by_view[:, test] = target.encode(known.decode(predicted))
        predictions[test] = combine(stack.weights, by_view[:, test])
    return HeldOut(predictions, by_view)


def predict_new(views: Sequence[View], stack: Stack, target: Target, descriptions: Sequence[Description]) -> np.ndarray:
    """Return predictions for new distributions; `descriptions` has the description that each view reads."""
    kernels = [view.kernel_to(description) for view, description in zip(views, descriptions, strict=True)]
    return combine(stack.weights, stack.predict_views(kernels, target))
