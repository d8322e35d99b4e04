"""Small methods to compare, defined inside functions: child processes get them by value."""

import numpy as np
from sklearn.base import BaseEstimator

from groundmetric.baselines import Euclidean
from groundmetric.datasets import make_modes
from groundmetric.estimators import GroundMetricMethod
from groundmetric.metrics.base import GroundMetric


def tiny_cohort(**options):
    """Three classes of six distributions with nine points each; only feature 0 tells them apart."""
    return make_modes(
        **{"points_per_mode": 3, "offsets": (1.5, 7.5, 13.5, 19.5, 25.5, 28.5), "random_state": 0, **options}
    )


def euclidean():
    return Euclidean()


def knowing(scale=1.0):
    """Looks at feature 0 only: right where Euclid is wrong."""

    class Knowing(GroundMetricMethod, BaseEstimator):
        def __init__(self, scale=1.0):
            self.scale = scale

        def fit(self, D, y):
            self.metric_ = GroundMetric(self.scale * np.eye(1, D.shape[1]))
            return self

    return Knowing(scale)


def means(feature=slice(None)):
    """Distances between means along all features or one: quick."""

    class Means(BaseEstimator):
        def __init__(self, feature=slice(None)):
            self.feature = feature

        def fit(self, D, y):
            return self

        def distances(self, A, B=None, *, n_jobs=None):
            a, b = (
                subset.means()[:, np.atleast_1d(np.arange(subset.shape[1])[self.feature])] for subset in (A, B or A)
            )
            return np.linalg.norm(a[:, None] - b, axis=2)

    return Means(feature)


def failing(when="always", message="no good"):
    """Fail always, or only for large or small training sets."""

    class Failing(BaseEstimator):
        def __init__(self, when="always", message="no good"):
            self.when = when
            self.message = message

        def fit(self, D, y):
            large = D.sizes.max() > 5 and len(D) > 9
            if self.when == "always" or (self.when == "large") == large:
                raise RuntimeError(self.message)
            return self

        def distances(self, A, B=None, *, n_jobs=None):
            return np.ones((len(A), len(A if B is None else B)))

    return Failing(when, message)


def oracle(classes, truth):
    """A classifier that knows the label of every distribution by its name."""

    class Oracle(BaseEstimator):
        def __init__(self, classes, truth):
            self.classes = classes
            self.truth = truth

        def fit(self, D, y):
            self.classes_ = np.array(self.classes)
            self.seen_ = list(D.names)
            return self

        def predict_proba(self, D):
            return np.array([[float(self.truth[name] == c) for c in self.classes_] for name in D.names])

    return Oracle(classes, truth)
