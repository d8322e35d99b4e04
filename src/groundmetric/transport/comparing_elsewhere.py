"""Pairs that a solver compares on other machines, where there is no projection to few components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cluster.errands import Errand, Place
from ..parallel import in_batches
from .plan import Status
from .solver import Distances, Solver

# Seconds that an entry of a cost matrix takes, and that a message should be worth.
_RATE, BATCH = 4e-8, 1.0

Compared = tuple[float, float, float, Status]  # value, lower and upper bound, how it ended


@dataclass(frozen=True)
class Comparisons:
    """A message: what the solver has prepared of some distributions, and which of them to compare."""

    solver: Solver
    distances: Distances
    prepared: list[Any]
    first: np.ndarray
    second: np.ndarray


def compare_some(message: Comparisons) -> list[Compared]:
    prepared, results = message.prepared, []
    for d, e in zip(message.first, message.second, strict=True):
        plan = message.solver.compare(prepared[d], prepared[e], message.distances)
        results.append((plan.value, *plan.bounds, plan.status))
    return results


def compare_elsewhere(
    solver: Solver,
    distances: Distances,
    prepared: list[Any],
    sizes: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    place: Place,
    done: Callable[[], object],
) -> list[Compared] | None:
    """Results by pair; None if it is not worth the way."""
    seconds = _RATE * sizes[first].astype(np.float64) * sizes[second]
    if float(seconds.sum()) < 2 * BATCH:
        return None
    batches = in_batches(seconds, max(2, sum(place.slots().values())), BATCH)
    errands = []
    for some in batches:
        owners, places = np.unique(np.concatenate([first[some], second[some]]), return_inverse=True)
        sides = places[: some.size], places[some.size :]
        message = Comparisons(solver, distances, [prepared[d] for d in owners], *sides)
        errands.append(Errand(message, float(seconds[some].sum())))
    results: dict[int, Compared] = {}
    for number, answer in place.run(compare_some, errands):
        for pair, result in zip(batches[number].tolist(), answer, strict=True):
            results[pair] = result
            done()
    return [results[pair] for pair in range(first.size)]
