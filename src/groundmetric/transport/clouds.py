"""Cohorts under a ground metric, ready for any solver: every distribution is projected once, not once per pair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ..distributions import Distributions
from ..metric import BlendedMetric, EuclideanMetric, GroundMetric
from ..point_distances import BadDistances, Cost, checked_distances
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
    """The projected points of each cohort.

    They are not moved to a common centre: one point that is far away would draw it so far off that all others round to
    the same place. Whoever needs coordinates around a centre takes that of the pair of distributions it compares.
    """
    places = [metric.project(cohort.points) for cohort in cohorts]
    for place, cohort in zip(places, cohorts, strict=True):
        _check_range(place, cohort)
    return places


def _check_range(place: np.ndarray, cohort: Distributions) -> None:
    extent = max(place.max(), -place.min())
    if not extent <= _LARGEST:
        row = int(np.argmax(~(np.abs(place) <= _LARGEST).all(axis=1)))
        raise ValueError(
            f"under this metric, coordinates of points of distribution {owner_of(row, cohort)!r} reach {extent:.1e}, "
            "and the squares of such numbers are out of range: divide the points by a constant, or leave out those "
            "that stand for missing values"
        )


def owner_of(row: int, cohort: Distributions) -> Any:
    """The name of the distribution that a point belongs to."""
    return cohort.names[int(np.searchsorted(cohort.bounds, row, side="right")) - 1]


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
    return metric.cost.between if is_projection(metric) else partial(checked_distances, metric)


def name_the_bad(
    bad: BadDistances, metric: Any, cohorts: Sequence[Distributions], first: np.ndarray, second: np.ndarray
) -> BadDistances:
    """The same error with the names of the distributions: one alone, or the first such pair.

    Wherever a bad distance turned up, in a thread or on another machine, it is looked for again here.
    """
    clouds, distances = clouds_of(metric, cohorts, dense=False)
    names = [name for cohort in cohorts for name in cohort.names]
    alone = np.unique(np.concatenate([first, second]))
    for d, e in [*zip(alone, alone, strict=True), *zip(first, second, strict=True)]:
        try:
            distances(clouds[d].points, clouds[e].points)
        except BadDistances as found:
            who = f"distribution {names[d]!r}" if d == e else f"distributions {names[d]!r} and {names[e]!r}"
            return BadDistances(f"{who}: {found}")
    return bad
