"""What the classifier and the regressor share: training distributions, a metric, and the nearest of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ..distances import kneighbors
from ..distributions import Distributions, as_distributions
from ..metric import GroundMetric
from .checks import check_number
from .votes import check_weights


class NearestDistributions(BaseEstimator):
    """Nearest training distributions under a metric that is given or learned; see the classifier."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        metric: Any = "euclidean",
        weights: str = "distance",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.n_jobs = n_jobs

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances and places of the nearest training distributions (X None: of each one's nearest others)."""
        check_is_fitted(self, "metric_")
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        query, among = (self._train, None) if X is None else (as_distributions(X), self._train)
        return kneighbors(query, among, count, self.metric_, n_jobs=self.n_jobs)

    def _keep(self, D: Distributions, labels: Any, strata: Any) -> None:
        """Keep the training distributions; fit the metric first where it is a learner."""
        check_number("n_neighbors", self.n_neighbors, low=1, whole=True)
        if self.n_neighbors > len(D):
            raise ValueError(f"n_neighbors is {self.n_neighbors}, but there are only {len(D)} distributions")
        check_weights(self.weights)
        if hasattr(self.metric, "fit"):
            more = {} if strata is None else {"strata": strata}
            self.metric_ = clone(self.metric).fit(D, labels, **more).metric_
        elif strata is not None:
            raise ValueError(f"strata are given, but metric is {self.metric!r}, which learns nothing: leave them out")
        else:
            self.metric_ = self.metric
        if isinstance(self.metric_, GroundMetric):
            self.metric_.check_fit(D)
        self._train = D
        self.n_features_in_ = D.shape[1]
