"""How many distances were found, and how far from the exact ones they can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..parallel import Threads
from .comparing_elsewhere import compare_elsewhere
from .plan import Status
from .solver import Cloud, Distances, Solver

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
