"""scikit-learn estimators: the metric learner, and a classifier by nearest distributions."""

from .classifier import TransportKNeighborsClassifier
from .learner import GroundMetricLearner
from .method import GroundMetricMethod

__all__ = ["GroundMetricLearner", "GroundMetricMethod", "TransportKNeighborsClassifier"]
