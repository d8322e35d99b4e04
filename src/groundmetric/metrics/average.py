"""One metric from several: units in which they can be averaged, and the average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..distributions import Distributions
from .base import Cost, GroundMetric

# Components that an average keeps at most: with so few, costs are filled inside the solver.
MOST_COMPONENTS = 25
# Points that spreads and principal components are estimated from at most.
_MOST_POINTS = 4000


def of_unit_spread(metric: GroundMetric, D: Distributions) -> GroundMetric:
    """The metric in units in which the projected points have total variance 1, so that metrics can be averaged."""
    if metric.cost is not Cost.EUCLIDEAN:
        raise ValueError(f"metrics of {metric.cost.name.lower()} cost have no average: learn one metric instead")
    z = metric.project(some_points(D))
    spread = float(np.sqrt(z.var(axis=0).sum()))
    if spread == 0.0:
        return metric
    return GroundMetric(metric.components / spread, metric.features, variances=metric.variances)


def average_metric(metrics: Sequence[GroundMetric], weights: Sequence[float], D: Distributions) -> GroundMetric:
    """The Mahalanobis distance of the weighted sum of the matrices M, of few components.

    The components side by side are rotated to the principal axes of the projected points, which changes no distance,
    and those that carry less than 10⁻³ of the variance in all are left out.
    """
    used = [(metric, weight) for metric, weight in zip(metrics, weights, strict=True) if weight > 0.0]
    stacked = np.vstack([np.sqrt(weight) * metric.components for metric, weight in used])
    z = GroundMetric(stacked).project(some_points(D))
    variances, axes = np.linalg.eigh(np.cov(z, rowvar=False, ddof=0).reshape(len(stacked), len(stacked)))
    variances, axes = variances[::-1], axes[:, ::-1]
    total = np.cumsum(variances)
    kept = min(MOST_COMPONENTS, int(np.searchsorted(total, (1.0 - 1e-3) * total[-1])) + 1, len(stacked))
    return GroundMetric(axes[:, :kept].T @ stacked, D.features, variances=D.moments(weighted=False)[1])


def some_points(D: Distributions):  # type: ignore[no-untyped-def]
    if D.points.shape[0] <= _MOST_POINTS:
        return D.points
    return D.points[np.linspace(0, D.points.shape[0] - 1, _MOST_POINTS).astype(int)]
