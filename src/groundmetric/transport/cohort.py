"""Cohorts of distributions under a ground metric: projected once, then compared pair by pair by any solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from .._internal.executor import Threads
from ..distributions import Distributions
from ..metrics.base import BlendedMetric, EuclideanMetric, GroundMetric
from ..metrics.cost import BadDistances, Cost, checked_distances
from .plan import Status
from .remote import compare_elsewhere
from .solvers.base import Cloud, Distances, Solver

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


# Pairs that tell what a typical cost is.
_SAMPLE = 16


@dataclass(frozen=True)
class Details:
    """What solver found distances, why, and what is certain about each.

    Attributes
    ----------
    solver : the solver object, as it was used
    reason : why it was picked, where it was ("auto")
    values : the distances
    lower, upper : arrays of the same shape, between which the optimal values lie up to rounding
    statuses : how many pairs ended how
    """

    solver: Solver
    reason: str
    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    statuses: Counter[Status]

    @property
    def gap(self) -> float:
        """The most by which any of the values can differ from the optimal one."""
        return float(np.max(np.maximum(self.values - self.lower, self.upper - self.values), initial=0.0))

    def __str__(self) -> str:
        because = f", because {self.reason}" if self.reason else ""
        mean = float(self.values.mean()) if self.values.size else 0.0
        share = f" ({self.gap / mean:.2g} of the mean distance)" if mean > 0 else ""
        return f"{self.solver}{because}; {self.values.size} pairs, error at most {self.gap:.3g}{share}"


def compare_all(
    solver: Solver,
    reason: str,
    clouds: list[Cloud],
    distances: Distances,
    first: np.ndarray,
    second: np.ndarray,
    threads: Threads,
    done: Callable[[], object],
) -> Details:
    """Every pair by a solver; what it needs of each distribution is worked out once."""
    solver = solver.at_scale(lambda: typical_cost(clouds, distances, first, second))
    prepared = threads.map(lambda cloud: solver.prepare(cloud, distances), clouds)

    def one(pair: int) -> tuple[float, float, float, Status]:
        plan = solver.compare(prepared[first[pair]], prepared[second[pair]], distances)
        done()
        return plan.value, *plan.bounds, plan.status

    results = None
    if threads.place is not None:
        sizes = np.array([cloud.masses.size for cloud in clouds])
        results = compare_elsewhere(solver, distances, prepared, sizes, first, second, threads.place, done)
    if results is None:
        results = threads.map(one, range(first.size))
    numbers = np.array([result[:3] for result in results], dtype=np.float64).reshape(-1, 3)
    values, lower, upper = np.ascontiguousarray(numbers.T)
    return Details(solver, reason, values, lower, upper, Counter(result[3] for result in results))


def typical_cost(clouds: list[Cloud], distances: Distances, first: np.ndarray, second: np.ndarray) -> float:
    """Mean cost between independent points, over a few of the pairs."""
    costs = []
    for pair in np.unique(np.linspace(0, first.size - 1, _SAMPLE).astype(int)) if first.size else ():
        x, y = clouds[first[pair]], clouds[second[pair]]
        costs.append(float(x.masses @ distances(x.points, y.points) @ y.masses))
    return float(np.mean(costs)) if costs else 0.0
