"""A step before any method: the choice of features, made anew from each training part."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..distributions import Distributions, as_distributions
from ..estimators.checks import check_number
from ..estimators.preparation import feature_moments


class SelectedFeatures(BaseEstimator):
    """A method that is shown only some features, chosen by their variance over the points that it is fitted on.

    Chosen beforehand from everybody, the features would have seen the distributions that are tested. Here the choice is
    part of the fit, so that an evaluation repeats it in every split.

    Parameters
    ----------
    method : estimator, as `evaluation.compare` takes them
    rule : "variance" (those whose variance is above the average, the paper's rule), or how many of the most variable

    Attributes
    ----------
    places_ : the chosen features
    method_ : the method, fitted on them

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

    @property
    def takes_groups(self) -> bool:
        return getattr(self.method, "takes_groups", False)

    @property
    def uses_labels(self) -> bool:
        return getattr(self.method, "uses_labels", True)

    def fit(self, D: Any, y: Any = None, groups: Any = None) -> SelectedFeatures:
        """Choose the features, then fit the method on them."""
        D = as_distributions(D)
        variance = feature_moments(D.with_mass())[1]
        self.places_ = self._choose(variance)
        shown, more = self._cut(D), {} if groups is None else {"groups": groups}
        self.method_ = clone(self.method).fit(shown, y, **more)
        if hasattr(self.method_, "classes_"):
            self.classes_ = self.method_.classes_
        self.n_features_in_ = D.shape[1]
        return self

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """The method's distances between distributions, by the chosen features."""
        check_is_fitted(self, "places_")
        return self.method_.distances(self._cut(A), None if B is None else self._cut(B), n_jobs=n_jobs)

    @available_if(lambda self: hasattr(self.method, "point_distances"))
    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        """The method's distances between points, by the chosen features."""
        check_is_fitted(self, "places_")
        return self.method_.point_distances(x[:, self.places_], None if y is None else y[:, self.places_])

    @available_if(lambda self: hasattr(self.method, "predict_proba"))
    def predict_proba(self, D: Any) -> np.ndarray:
        """The method's own probabilities, by the chosen features."""
        check_is_fitted(self, "places_")
        return self.method_.predict_proba(self._cut(D))

    def _choose(self, variance: np.ndarray) -> np.ndarray:
        if self.rule == "variance":
            chosen = np.flatnonzero(variance > variance.mean())
            return chosen if chosen.size else np.arange(variance.size)  # all vary the same
        check_number("rule", self.rule, low=1, whole=True)
        return np.sort(np.argsort(-variance, kind="stable")[: int(self.rule)])

    def _cut(self, D: Any) -> Distributions:
        return with_features(as_distributions(D), self.places_)


def with_features(D: Distributions, places: np.ndarray) -> Distributions:
    """The same distributions with some of their features."""
    features = None if D.features is None else [D.features[place] for place in places]
    part = D[:]
    part.points, part.features = D.points[:, places], features
    return part
