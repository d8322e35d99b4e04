"""Refits of a learner on bootstrap samples of the distributions and with labels exchanged, for `stability`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone

from .._internal.muted import muted
from .._internal.parallel import progress_bar
from .._internal.validation import check_number
from ..distributions import Distributions
from ..evaluation.statistics import resample
from ..learning.splits import number_groups
from ..metrics.base import GroundMetric
from ._inputs import metric_of
from .axes import principal_rotation

# Least epochs of a refit: from a discriminant start, these give what the full training gives (see `stability`).
_FEW_EPOCHS = 10
# Points at which the axes of two metrics are compared at most.
_MOST_POINTS = 4000


@dataclass(frozen=True)
class Reference:
    """The leading axes of a metric as functions on some points: an orthonormal basis, (n_points, n_axes)."""

    points: Any
    basis: np.ndarray

    @classmethod
    def of(cls, metric: GroundMetric, D: Distributions, share: float) -> Reference:
        """The principal axes that carry this share of the variance of the projected points."""
        _, variance = principal_rotation(metric, D)
        carried = np.cumsum(variance) / variance.sum()
        n_axes = int(np.searchsorted(carried, share - 1e-12)) + 1
        n_points = D.points.shape[0]
        some = np.linspace(0, n_points - 1, min(n_points, _MOST_POINTS)).astype(int)
        points = D.points[some]
        return cls(points, _orthonormal(metric.project(points), n_axes))

    def angles(self, metric: GroundMetric) -> np.ndarray:
        """Principal angles, in degrees, smallest first, between these axes and as many leading ones of another metric.

        Axes are compared by where they put the points: a cosine is a canonical correlation.
        """
        other = _orthonormal(metric.project(self.points), self.basis.shape[1])
        cosines = np.linalg.svd(self.basis.T @ other, compute_uv=False)
        return np.degrees(np.arccos(np.clip(cosines, 0.0, 1.0)))


def _orthonormal(z: np.ndarray, n_axes: int) -> np.ndarray:
    """The leading principal axes of these points, as an orthonormal basis over the points."""
    return np.linalg.svd(z - z.mean(axis=0), full_matrices=False)[0][:, :n_axes]


@dataclass(frozen=True)
class Refit:
    """Importances of a fit, and the angles between its axes and those of the reference."""

    importance: np.ndarray
    angles: np.ndarray
    seconds: float


@dataclass(frozen=True)
class Refitter:
    """Learner, parameters and data that all refits share."""

    method: Any
    parameters: dict[str, Any]
    D: Distributions
    max_points: int | None
    reference: Reference

    def __call__(self, indices: np.ndarray, labels: np.ndarray, seed: int) -> Refit:
        """Learn from the distributions with these indices; the same seed gives the same points and triplets."""
        start = time.perf_counter()
        fresh = clone(self.method).set_params(**self.parameters)
        if "random_state" in fresh.get_params():
            fresh.set_params(random_state=seed)
        few = thinned(self.D, self.max_points, np.random.RandomState(seed))
        with muted(UserWarning):
            metric = fresh.fit(few[indices], labels).metric_
        return Refit(metric.importance(), self.reference.angles(metric), time.perf_counter() - start)


def fitted_metric(method: Any, D: Distributions, labels: np.ndarray) -> GroundMetric:
    fitted = method if hasattr(method, "metric_") else clone(method).fit(D, labels)
    return metric_of(fitted, D)


def refit_parameters(method: Any, epochs: int | None) -> dict[str, Any]:
    """Parameters of a refit."""
    known = method.get_params()
    quiet = {name: value for name, value in (("n_jobs", None), ("verbose", 0)) if name in known}
    if "max_epochs" not in known:
        return quiet
    if epochs is None:
        short = max(_FEW_EPOCHS, known["max_epochs"] // 5)
        epochs = short if known.get("init", "discriminant") == "discriminant" else known["max_epochs"]
    check_number("epochs", epochs, low=1, whole=True)
    return quiet | {"max_epochs": int(min(epochs, known["max_epochs"]))}


def fit_all(
    refitter: Refitter, jobs: list[tuple[np.ndarray, np.ndarray, int]], n_jobs: int | None, title: str, verbose: int
) -> list[Refit]:
    """A refit for every job (indices, labels, seed), side by side, in order."""
    run = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
    with (
        muted(UserWarning),
        progress_bar(len(jobs), title, "fit", show=bool(verbose)) as bar,
    ):
        done = []
        for refit in run(joblib.delayed(refitter)(*job) for job in jobs):
            done.append(refit)
            bar.update()
    return done


def bootstrap_indices(codes: np.ndarray, groups: Any, n_draws: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Indices of distributions drawn with replacement within their class (whole groups, where given).

    Where a group holds several classes, groups are drawn without regard to class.

    Every class that has several distributions is drawn with at least two different ones: of one alone, or copies of
    it, nothing can be learned about the class. A class of one keeps it.
    """
    members = number_groups(groups, codes.size)
    units = np.arange(codes.size) if members is None else members
    least = np.minimum(np.bincount(codes), 2)
    drawn: list[np.ndarray] = []
    for _ in range(200 * n_draws):
        if len(drawn) == n_draws:
            return drawn
        counts = resample(units, codes, 1, random)
        if len(counts) and np.all(np.bincount(codes[counts[0] > 0], minlength=least.size) >= least):
            drawn.append(np.repeat(np.arange(codes.size), counts[0].astype(int)))
    raise ValueError("distributions cannot be drawn anew: a class would be left with a single one; give fewer groups")


def thinned(D: Distributions, max_points: int | None, random: np.random.RandomState) -> Distributions:
    """The same distributions with at most so many points each, drawn without replacement."""
    if max_points is None or D.sizes.max() <= max_points:
        return D
    rows = [
        np.sort(low + random.choice(size, min(size, max_points), replace=False))
        for low, size in zip(D.bounds[:-1], D.sizes, strict=True)
    ]
    every = np.concatenate(rows)
    owner = np.repeat(np.arange(len(D)), [part.size for part in rows])
    part = Distributions(D.points[every], owner, weights=D.weights[every], features=D.features)
    part.names = list(D.names)
    return part


def canonical(codes: np.ndarray) -> np.ndarray:
    """Classes by the order in which they first occur: what they are called does not change what is learned.

    >>> canonical(np.array([2, 0, 2, 1])).tolist()
    [0, 1, 0, 2]
    """
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
