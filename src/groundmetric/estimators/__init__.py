"""scikit-learn estimators: the metric learner, and a classifier and a regressor by nearest distributions."""

from .classifier import TransportKNeighborsClassifier
from .learner import GroundMetricLearner
from .method import GroundMetricMethod
from .regressor import TransportKNeighborsRegressor

__all__ = [
    "GroundMetricLearner",
    "GroundMetricMethod",
    "TransportKNeighborsClassifier",
    "TransportKNeighborsRegressor",
]
