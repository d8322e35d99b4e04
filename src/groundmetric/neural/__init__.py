"""Networks as ground metrics, trained through exact transport plans. Needs torch: the extra `neural`."""

from .._internal.validation import need

need("torch", "networks as metrics", "neural")

from .learner import NeuralGroundMetricLearner  # noqa: E402
from .metric import NeuralDistance, NeuralMetric, load  # noqa: E402

__all__ = ["NeuralDistance", "NeuralGroundMetricLearner", "NeuralMetric", "load"]
