"""A step before any method: the choice of features, made anew from each training part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..distributions import Distributions
from ..estimators.checks import check_number
from ..estimators.preparation import feature_moments
from .prepared import Prepared, with_points


class SelectedFeatures(Prepared):
    """A method that is shown only some features, chosen by their variance over the points that it is fitted on.

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
