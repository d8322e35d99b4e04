"""scikit-learn estimators: the metric learner, and a classifier and a regressor by nearest distributions."""

from ._base import GroundMetricMethod
from .classifier import TransportKNeighborsClassifier
from .learner import GroundMetricLearner
from .regressor import TransportKNeighborsRegressor
from .search import GroundMetricLearnerCV

__all__ = [
    "GroundMetricLearner",
    "GroundMetricLearnerCV",
    "GroundMetricMethod",
    "TransportKNeighborsClassifier",
    "TransportKNeighborsRegressor",
]
