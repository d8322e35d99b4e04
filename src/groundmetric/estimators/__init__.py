"""scikit-learn estimators: the metric learner, its ensemble, and predictions from either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._internal import find

# Where each name lives. It is imported when it is first used: a prediction by neighbours needs no learner.
_HOME = {
    "GroundMetricEnsemble": "ensemble",
    "GroundMetricLearner": "learner",
    "GroundMetricMethod": ".distances",
    "MultimodalClassifier": "predictor",
    "MultimodalRegressor": "predictor",
    "PointwiseTransformer": "preprocessing",
    "TransportClassifier": "predictor",
    "TransportKNeighborsClassifier": "neighbors",
    "TransportKNeighborsRegressor": "neighbors",
    "TransportRegressor": "predictor",
    "TransportSurvival": "predictor",
    "UnfamiliarWarning": "predictor",
}

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

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    return find(name, _HOME, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
