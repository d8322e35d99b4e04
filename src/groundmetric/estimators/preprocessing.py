"""Preprocessing of distributions: moments of features, held-out distributions, selected or transformed features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._internal.validation import check_number
from ..distributions import Distributions, as_distributions

# Entries of the points that are copied at a time: 2 MB.
_BLOCK = 2**18
# The square of anything smaller is 0, or has few digits.
_LEAST = 1e-150


def feature_moments(D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every feature over all points, in float64, without a copy of the points."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = _sparse_moments(D.points) if sparse.issparse(D.points) else _dense_moments(D.points)
    _refuse(D, ~np.isfinite(variance), "divide")
    _refuse(D, _lost(D.points, variance), "multiply")
    return mean, variance


def _refuse(D: Distributions, features: np.ndarray, remedy: str) -> None:
    """An error that names the first of these features, if there are any."""
    if features.any():
        worst = int(np.argmax(features))
        name = worst if D.features is None else repr(D.features[worst])
        raise ValueError(f"the variance of feature {name} is out of the range of numbers: {remedy} it by a constant")


def _lost(points: Any, variance: np.ndarray) -> np.ndarray:
    """Which features have a variance of 0 although they vary: by so little that the squares are no numbers above 0."""
    lost, still = np.zeros(variance.size, bool), np.flatnonzero(variance == 0)
    if still.size:
        some = points[:, still]
        lowest, highest = some.min(axis=0), some.max(axis=0)
        apart = (highest - lowest).toarray().ravel() if sparse.issparse(some) else highest - lowest
        lost[still] = (apart > 0) & (apart < _LEAST)
    return lost


def _sparse_moments(points: Any) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.utils.sparsefuncs import mean_variance_axis

    mean, variance = mean_variance_axis(points, axis=0)
    return mean.astype(np.float64), variance.astype(np.float64)


def _dense_moments(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Deviations from the first point rather than from zero: a constant feature comes out with variance 0 exactly.
    origin = points[0].astype(np.float64)
    total, squares = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    rows = max(1, _BLOCK // points.shape[1])
    for low in range(0, points.shape[0], rows):
        deviation = points[low : low + rows] - origin
        total += deviation.sum(axis=0)
        squares += np.einsum("pf,pf->f", deviation, deviation)
    shift = total / points.shape[0]
    return origin + shift, np.maximum(squares / points.shape[0] - shift**2, 0.0)


def hold_out(codes: np.ndarray, fraction: float, random: np.random.RandomState) -> np.ndarray:
    """Marks a share of every class, at most all but two of its distributions."""
    held_out = np.zeros(codes.size, bool)
    if fraction > 0.0:
        for c in np.unique(codes):
            members = random.permutation(np.flatnonzero(codes == c))
            held_out[members[: min(int(np.ceil(fraction * members.size)), max(members.size - 2, 0))]] = True
        if not held_out.any():
            raise ValueError("validation_fraction leaves nothing to hold out: no class has three distributions")
    return held_out


class Prepared(BaseEstimator):
    """A method that is shown something else than the features as they are.

    Prepared beforehand from everybody, that would have seen the distributions that are tested. Here it is part of the
    fit, so that an evaluation repeats it in every split. A kind of preparation says what it learns from the training
    part (`_prepare`), and what it then shows of any (`_show`).
    """

    method: Any

    @property
    def takes_groups(self) -> bool:
        return getattr(self.method, "takes_groups", False)

    @property
    def uses_labels(self) -> bool:
        return getattr(self.method, "uses_labels", True)

    def fit(self, D: Any, y: Any = None, groups: Any = None) -> Any:
        """Prepare, then fit the method on what it is shown."""
        D = as_distributions(D)
        self._prepare(D)
        more = {} if groups is None else {"groups": groups}
        self.method_ = clone(self.method).fit(self._shown(D), y, **more)
        if hasattr(self.method_, "classes_"):
            self.classes_ = self.method_.classes_
        self.n_features_in_ = D.shape[1]
        return self

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """The method's distances between distributions."""
        check_is_fitted(self, "method_")
        return self.method_.distances(self._shown(A), None if B is None else self._shown(B), n_jobs=n_jobs)

    @available_if(lambda self: hasattr(self.method, "point_distances"))
    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        """The method's distances between points."""
        check_is_fitted(self, "method_")
        return self.method_.point_distances(self._show(x), None if y is None else self._show(y))

    @available_if(lambda self: hasattr(self.method, "predict_proba"))
    def predict_proba(self, D: Any) -> np.ndarray:
        """The method's own probabilities."""
        check_is_fitted(self, "method_")
        return self.method_.predict_proba(self._shown(D))

    def _shown(self, D: Any) -> Distributions:
        D = as_distributions(D)
        return with_points(D, self._show(D.points), self._names(D.features))

    def _prepare(self, D: Distributions) -> None:
        raise NotImplementedError

    def _show(self, points: Any) -> Any:
        raise NotImplementedError

    def _names(self, features: list | None) -> list | None:
        return None


def with_points(D: Distributions, points: Any, features: list | None) -> Distributions:
    """The same distributions with other features of their points."""
    other = D[:]
    other.points, other.features = points, features
    return other


class SelectedFeatures(Prepared):
    """A method on selected features, chosen by their variance over the points that it is fitted on.

    Parameters
    ----------
    method : estimator
        Method, as `evaluation.compare` takes them.
    rule : "variance" or int, default="variance"
        "variance" selects the features whose variance is above the average (the paper's rule); an int, so many of the
        most variable.

    Attributes
    ----------
    places_ : array of int
        Columns of the selected features.
    method_ : estimator
        The method, fitted on the selected features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> SelectedFeatures(gm.baselines.Euclidean(), 1).fit(D, y).places_.tolist()  # the noise varies most
    [1]
    """

    def __init__(self, method: Any, rule: Any = "variance") -> None:
        self.method = method
        self.rule = rule

    def _prepare(self, D: Distributions) -> None:
        variance = feature_moments(D.with_mass())[1]
        if self.rule == "variance":
            chosen = np.flatnonzero(variance > variance.mean())
            self.places_ = chosen if chosen.size else np.arange(variance.size)  # all vary the same
            return
        check_number("rule", self.rule, low=1, whole=True)
        self.places_ = np.sort(np.argsort(-variance, kind="stable")[: int(self.rule)])

    def _show(self, points: Any) -> Any:
        return points[:, self.places_]

    def _names(self, features: list | None) -> list | None:
        return None if features is None else [features[place] for place in self.places_]


def with_features(D: Distributions, places: np.ndarray) -> Distributions:
    """The same distributions with some of their features."""
    features = None if D.features is None else [D.features[place] for place in places]
    return with_points(D, D.points[:, places], features)
