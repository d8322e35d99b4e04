"""scikit-learn estimators: the metric learner, its ensemble, and predictions from either."""

from ._base import GroundMetricMethod
from .classifier import TransportKNeighborsClassifier
from .ensemble import GroundMetricEnsemble
from .learner import GroundMetricLearner
from .multimodal import MultimodalClassifier, MultimodalRegressor
from .predictor import TransportClassifier, TransportRegressor, UnfamiliarWarning
from .preprocessing import PointwiseTransformer
from .regressor import TransportKNeighborsRegressor
from .search import GroundMetricLearnerCV
from .survival import TransportSurvival

__all__ = [
    "GroundMetricEnsemble",
    "GroundMetricLearner",
    "GroundMetricLearnerCV",
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
