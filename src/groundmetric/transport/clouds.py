"""Cohorts under a ground metric, ready for any solver: every distribution is projected once, not once per pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ..distributions import Distributions
from ..metric import BlendedMetric, EuclideanMetric, GroundMetric
from ..point_distances import Cost
from .solver import Cloud, Distances

# Larger coordinates have squares that may leave the range of numbers.
_LARGEST = 1e151


def is_projection(metric: Any) -> bool:
    """Do distances depend on projected points only, through the metric's cost of a step?"""
    own = (GroundMetric.distances, EuclideanMetric.distances)
    return isinstance(metric, GroundMetric) and type(metric).distances in own


def is_euclidean(metric: Any) -> bool:
    """Is the distance Euclidean between projected points?"""
    return is_projection(metric) and metric.cost is Cost.EUCLIDEAN


def projected(metric: GroundMetric, cohorts: Sequence[Distributions]) -> list[np.ndarray]:
    """The projected points of each cohort around their common centre: far from the origin, digits are lost."""
    places = [metric.project(cohort.points) for cohort in cohorts]
    _check_range(places)
    centre = np.sum([place.sum(axis=0) for place in places], axis=0) / sum(map(len, places))
    return [place - centre for place in places]


def _check_range(places: list[np.ndarray]) -> None:
    extent = max(max(place.max(), -place.min()) for place in places)
    if not extent <= _LARGEST:
        raise ValueError(
            f"under this metric, coordinates of points reach {extent:.1e}, and the squares of such numbers are out of "
            "range: divide the points by a constant"
        )


def clouds_of(metric: Any, cohorts: Sequence[Distributions], *, dense: bool) -> tuple[list[Cloud], Distances]:
    """The distributions of all cohorts, one behind the other, and the distances between their points.

    `dense`: projected points are wanted as arrays, even where the metric could work on sparse ones.
    """
    parts = [(weight, part, _places(part, cohorts, dense)) for weight, part in _parts(metric)]
    clouds = []
    for c, cohort in enumerate(cohorts):
        for low, high in zip(cohort.bounds[:-1], cohort.bounds[1:], strict=True):
            clouds.append(Cloud([places[c][low:high] for _, _, places in parts], cohort.weights[low:high]))
    if len(parts) == 1:
        _, part, _ = parts[0]
        return [Cloud(cloud.points[0], cloud.masses) for cloud in clouds], _between(part)

    def distances(x: list, y: list) -> np.ndarray:
        return np.add.reduce([weight * _between(part)(x[k], y[k]) for k, (weight, part, _) in enumerate(parts)])

    return clouds, distances


def _parts(metric: Any, weight: float = 1.0) -> list[tuple[float, Any]]:
    """The metrics that a blend is made of, with their weights; else the metric itself."""
    if not isinstance(metric, BlendedMetric):
        return [(weight, metric)]
    return _parts(metric.one, weight * (1.0 - metric.weight)) + _parts(metric.other, weight * metric.weight)


def _places(metric: Any, cohorts: Sequence[Distributions], dense: bool) -> list[Any]:
    """The points of each cohort as `_between` takes them."""
    plain = isinstance(metric, EuclideanMetric) and any(sparse.issparse(cohort.points) for cohort in cohorts)
    if not is_projection(metric) or (plain and not dense):
        return [cohort.points for cohort in cohorts]
    return projected(metric, cohorts)


def _between(metric: Any) -> Distances:
    return metric.cost.between if is_projection(metric) else metric.distances
