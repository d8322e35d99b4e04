"""A classifier by nearest distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from .._internal.alignment import aligned
from .._internal.validation import check_class_weight, check_labels, label_array
from ..distributions import as_distributions
from ._base import NearestDistributions, class_shares


class TransportKNeighborsClassifier(ClassifierMixin, NearestDistributions):
    """Classify a distribution by the labels of the distributions nearest to it in exact Wasserstein distance.

    Parameters
    ----------
    n_neighbors : int
    metric : GroundMetric, the name of a distance between points, or a GroundMetricLearner
        A learner is fitted to the training data first, so that its parameters can be searched together with these
        (``metric__strength``, …).
    weights : {"distance", "uniform"}
        Whether nearer neighbours count more, by one over the distance.
    class_weight : {None, "balanced"}
        "balanced" divides the votes for a class by its number of training distributions, so that a rare class is
        found as easily as a common one: what balanced accuracy asks for.
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
        class_weight: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(n_neighbors, metric=metric, weights=weights, n_jobs=n_jobs)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, strata: Any = None) -> TransportKNeighborsClassifier:
        """Keep the training distributions; fit the metric first where it is a learner, which is given the strata."""
        check_class_weight(self.class_weight)
        D = as_distributions(X)
        labels = check_labels(y, D.roll)
        self.classes_, self._codes = np.unique(labels, return_inverse=True)
        self._keep(D, labels, strata)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Share of the neighbours' votes for each class, (n_distributions, n_classes)."""
        distances, places = self.kneighbors(X)
        among = None if self.class_weight is None else self._codes
        return class_shares(distances, self._codes[places], self.classes_.size, self.weights, among=among)

    def predict(self, X: Any) -> np.ndarray:
        """The class with most votes for each distribution."""
        votes = self.predict_proba(X)
        return self.classes_[np.argmax(votes, axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; labels and weights that carry names go by those of the distributions."""
        D = as_distributions(X)
        return super().score(D, label_array(y, D.roll), aligned(sample_weight, D.roll, "sample_weight"))
