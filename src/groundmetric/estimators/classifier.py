"""A classifier by nearest distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from ..distances import kneighbors
from ..distributions import as_distributions
from ..metric import GroundMetric
from .checks import check_labels, check_number
from .votes import check_weights, class_shares


class TransportKNeighborsClassifier(ClassifierMixin, BaseEstimator):
    """Classify a distribution by the labels of the distributions nearest to it in exact Wasserstein distance.

    Parameters
    ----------
    n_neighbors : int
    metric : GroundMetric, the name of a distance between points, or a GroundMetricLearner
        A learner is fitted to the training data first, so that its parameters can be searched together with these
        (``metric__strength``, …).
    weights : {"distance", "uniform"}
        Whether nearer neighbours count more, by one over the distance.
    n_jobs : int or None

    Attributes
    ----------
    classes_ : array of labels
    metric_ : the metric that is used

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=20, random_state=0)
    >>> classifier = gm.TransportKNeighborsClassifier(metric=learner).fit(D[::2], y[::2])
    >>> float(classifier.score(D[1::2], y[1::2]))
    1.0
    """

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

    def fit(self, X: Any, y: Any) -> TransportKNeighborsClassifier:
        """Keep the training distributions; fit the metric first where it is a learner."""
        D = as_distributions(X)
        labels = check_labels(y, len(D))
        check_number("n_neighbors", self.n_neighbors, low=1, whole=True)
        if self.n_neighbors > len(D):
            raise ValueError(f"n_neighbors is {self.n_neighbors}, but there are only {len(D)} distributions")
        check_weights(self.weights)
        self.classes_, self._codes = np.unique(labels, return_inverse=True)
        self.metric_ = clone(self.metric).fit(D, labels).metric_ if hasattr(self.metric, "fit") else self.metric
        if isinstance(self.metric_, GroundMetric):
            self.metric_.check_fit(D)
        self._train = D
        self.n_features_in_ = D.shape[1]
        return self

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances and places of the nearest training distributions (X None: of each one's nearest others)."""
        check_is_fitted(self, "classes_")
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        query, among = (self._train, None) if X is None else (as_distributions(X), self._train)
        return kneighbors(query, among, count, self.metric_, n_jobs=self.n_jobs)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Share of the neighbours' votes for each class, (n_distributions, n_classes)."""
        distances, places = self.kneighbors(X)
        return class_shares(distances, self._codes[places], self.classes_.size, self.weights)

    def predict(self, X: Any) -> np.ndarray:
        """The class with most votes for each distribution."""
        votes = self.predict_proba(X)
        return self.classes_[np.argmax(votes, axis=1)]
