"""groundmetric: learn the ground metric of optimal transport from labels on distributions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._internal import find

__version__ = "0.3.0.dev0"

# Module of each public name. Modules are imported at first use, which keeps `import groundmetric` fast.
_HOME = {
    "Distributions": "distributions", "GroundMetric": "metrics", "GroundMetricEnsemble": "estimators",
    "GroundMetricLearner": "estimators", "Modalities": "modalities", "MultimodalClassifier": "estimators",
    "MultimodalRegressor": "estimators", "PointwiseTransformer": "estimators", "TransportClassifier": "estimators",
    "TransportKNeighborsClassifier": "estimators", "TransportKNeighborsRegressor": "estimators",
    "TransportRegressor": "estimators", "TransportSurvival": "estimators", "kneighbors": "distances",
    "pairwise_distances": "distances",
}  # fmt: skip
__all__ = [
    "Distributions", "GroundMetric", "GroundMetricEnsemble", "GroundMetricLearner", "Modalities",
    "MultimodalClassifier", "MultimodalRegressor", "PointwiseTransformer", "TransportClassifier",
    "TransportKNeighborsClassifier", "TransportKNeighborsRegressor", "TransportRegressor", "TransportSurvival",
    "__version__", "baselines", "datasets", "evaluation", "get", "interpret", "kneighbors", "learning", "metrics",
    "pairwise_distances", "pl", "pp", "report", "tl", "transport",
]  # fmt: skip

# Modules of extras are importable as attributes, but `from groundmetric import *` does not need them.
_MODULES = {*__all__, "integrations", "neural"} - {*_HOME, "__version__"}

if TYPE_CHECKING:
    from . import baselines, datasets, evaluation, get, interpret, learning, metrics, pl, pp, report, tl, transport
    from .distances import kneighbors, pairwise_distances
    from .distributions import Distributions
    from .estimators import (
        GroundMetricEnsemble,
        GroundMetricLearner,
        MultimodalClassifier,
        MultimodalRegressor,
        PointwiseTransformer,
        TransportClassifier,
        TransportKNeighborsClassifier,
        TransportKNeighborsRegressor,
        TransportRegressor,
        TransportSurvival,
    )
    from .metrics import GroundMetric
    from .modalities import Modalities


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    return find(name, _HOME, __name__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
