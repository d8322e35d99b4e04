"""Principal components before any method, found anew in each training part."""

from __future__ import annotations

from typing import Any

from ..baselines import PCAEuclidean
from ..distributions import Distributions
from .prepared import Prepared


class PrincipalComponents(Prepared):
    """A method that is shown the leading principal components of the features, where there are more features.

    Parameters
    ----------
    method : estimator, as `evaluation.compare` takes them
    n_components : int
    random_state : int, RandomState or None

    Attributes
    ----------
    space_ : GroundMetric that projects points, None where all features are shown
    method_ : the method, fitted on them

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_200d(random_state=0)
    >>> PrincipalComponents(gm.baselines.Euclidean(), 10, random_state=0).fit(D, y).method_.n_features_in_
    10
    """

    def __init__(self, method: Any, n_components: int = 30, *, random_state: Any = None) -> None:
        self.method = method
        self.n_components = n_components
        self.random_state = random_state

    def _prepare(self, D: Distributions) -> None:
        if D.shape[1] <= self.n_components:
            self.space_ = None
            return
        components = PCAEuclidean(self.n_components, standardise=False, random_state=self.random_state)
        self.space_ = components.fit(D.with_mass()).metric_

    def _show(self, points: Any) -> Any:
        return points if self.space_ is None else self.space_.project(points)

    def _names(self, features: list | None) -> list | None:
        return features if self.space_ is None else None
