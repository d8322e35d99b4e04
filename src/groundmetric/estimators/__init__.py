"""scikit-learn estimators: the metric learner, its ensemble, and predictions from either."""

from ..distances import GroundMetricMethod
from .ensemble import GroundMetricEnsemble
from .learner import GroundMetricLearner
from .neighbors import TransportKNeighborsClassifier, TransportKNeighborsRegressor
from .predictor import (
    MultimodalClassifier,
    MultimodalRegressor,
    TransportClassifier,
    TransportRegressor,
    TransportSurvival,
    UnfamiliarWarning,
)
from .preprocessing import PointwiseTransformer

__all__ = [
    "GroundMetricEnsemble",
    "GroundMetricLearner",
    "GroundMetricMethod",
    "MultimodalClassifier",
    "MultimodalRegressor",
    "PointwiseTransformer",
    "TransportClassifier",
    "TransportKNeighborsClassifier",
    "TransportKNeighborsRegressor",
    "TransportRegressor",
    "TransportSurvival",
    "UnfamiliarWarning",
]
