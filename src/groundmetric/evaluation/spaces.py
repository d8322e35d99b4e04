"""Where a search learns: among the features, or among the leading principal components of the points.

Thousands of features leave a learner free to fit a few dozen distributions by chance. The leading components leave out
most of that freedom, and where the signal is among them, what is learned there holds better for others.
"""

from __future__ import annotations

import numpy as np

from ..distributions import Distributions
from ..estimators.learner import GroundMetricLearner
from ..metric import GroundMetric
from .averaging import MOST_COMPONENTS, reference_metric

SPACES = ("features", "components")


def usable_spaces(spaces: tuple[str, ...], D: Distributions, learner: GroundMetricLearner) -> list[str]:
    """Those that differ here: components are for many more features than there are components, and a plain W."""
    plain = learner.metric == "linear" and learner.feature_map is None and isinstance(learner.init, str)
    wide = D.shape[1] > 2 * MOST_COMPONENTS
    return [space for space in spaces if space == "features" or (plain and wide)] or ["features"]


def components_of(D: Distributions) -> GroundMetric:
    """A projection to the leading principal components of the features as given."""
    return reference_metric(D, "given")


def fit_in(
    projection: GroundMetric | None, learner: GroundMetricLearner, D: Distributions, codes: np.ndarray
) -> GroundMetric:
    """The metric that is learned, among projected points where there is a projection; it is one of the features."""
    if projection is None:
        return learner.fit(D, codes).metric_
    projected = Distributions(projection.project(D.points), np.repeat(np.arange(len(D)), D.sizes), weights=D.weights)
    inner = learner.fit(projected, codes).metric_
    return GroundMetric(inner.components @ projection.components, D.features, cost=inner.cost)
