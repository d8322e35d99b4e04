"""GGML with the margin and strength of the paper's grid that classify held-out distributions best."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from groundmetric.distances import GroundMetricMethod
from groundmetric.estimators import GroundMetricLearner, TransportKNeighborsClassifier


class GridSearch(GroundMetricMethod, BaseEstimator):
    """Metric of the margin and strength with the highest k-NN accuracy in stratified cross-validation.

    The first of several best settings is taken, and the learner's own setting comes first.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> search = GridSearch(gm.GroundMetricLearner(max_epochs=10, random_state=0), [1.0], [0.1, 1.0], n_splits=2)
    >>> search.fit(D, y).best_params_
    {'margin': 1.0, 'strength': 0.1}
    """

    def __init__(
        self,
        learner: GroundMetricLearner,
        margins: Sequence[float],
        strengths: Sequence[float],
        *,
        n_neighbors: int = 5,
        n_splits: int = 3,
        random_state: int | None = None,
    ) -> None:
        self.learner = learner
        self.margins = margins
        self.strengths = strengths
        self.n_neighbors = n_neighbors
        self.n_splits = n_splits
        self.random_state = random_state

    def fit(self, D: Any, y: Any) -> GridSearch:
        """Choose the parameters on the given distributions, and learn from all of them."""
        voters = TransportKNeighborsClassifier(self.n_neighbors, metric=clone(self.learner), weights="uniform")
        grid = {
            "metric__margin": sorted(self.margins, key=lambda margin: margin != self.learner.margin),
            "metric__strength": sorted(self.strengths, key=lambda strength: strength != self.learner.strength),
        }
        splits = StratifiedKFold(self.n_splits, shuffle=True, random_state=self.random_state)
        with warnings.catch_warnings():
            # Strengths at which the penalty outweighs the labels give a metric of 0 or fail, and are not chosen.
            warnings.simplefilter("ignore")
            search = GridSearchCV(voters, grid, cv=splits).fit(D, np.asarray(y))
        self.best_params_ = {name.removeprefix("metric__"): value for name, value in search.best_params_.items()}
        self.metric_ = search.best_estimator_.metric_
        self.n_features_in_ = search.best_estimator_.n_features_in_
        return self
