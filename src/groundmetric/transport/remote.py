"""Pairs that are solved on workers of a cluster.

Only projected points travel there, and trees come back. Bounds and gradients are computed here from the copies, by the
kernels and in the order that they are without a cluster, so the bits are the same; and when a worker is lost, another
goes on from the copy.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._internal.executor import in_batches
from ..distributed.protocol import Errand, Place
from ._kernels.pairs import Answers, Bases, Points
from .messages import COLD, KEPT, SENT, Batch, BatchAnswer, forget_session, pack_bases, solve_batch, unpack_bases
from .plan import Status
from .solvers.base import Distances, Solver

_log = logging.getLogger(__name__)

# Seconds that an entry of a cost matrix takes at first guess, from nothing and from a basis; measured as work comes in.
_COLD, _WARM = 4e-8, 6e-9
# Seconds that a message should be worth: where there is a choice, and at least, where all wait for a step to be done.
BATCH, LEAST = 1.0, 0.05
# A worker may get so much more than its share of a step for the sake of the bases that it keeps.
_UNEVEN = 1.15


class Elsewhere:
    """The far side of a PairTransport.

    Parameters
    ----------
    place : Place
    first, second : the distributions of each pair
    sizes : of the distributions
    max_pivots : int, -1 for none
    values_only : leave the trees where they are; pairs start cold then
    large : which pairs are solved without a matrix of their costs; none, unless values alone are wanted
    """

    def __init__(
        self,
        place: Place,
        first: np.ndarray,
        second: np.ndarray,
        sizes: np.ndarray,
        max_pivots: int,
        *,
        values_only: bool,
        large: np.ndarray,
    ) -> None:
        self._place, self._first, self._second = place, first, second
        self._nodes = sizes[first] + sizes[second] + 1
        self._work = (sizes[first] * sizes[second]).astype(np.float64)
        self._max_pivots, self.values_only, self._large = max_pivots, values_only, large
        self._session = uuid.uuid4().hex if place.remembers and not values_only else ""
        if self._session:
            place.at_the_end(forget_session, self._session)
        self._step = 0
        self._solved_at = np.zeros(first.size, np.int64)
        self._home = np.full(first.size, "", dtype=object)  # the worker that has each pair's last basis
        self._rate = {COLD: _COLD, SENT: _WARM}
        self.sent = self.received = self.messages = 0

    def seconds(self, which: np.ndarray, warm: np.ndarray) -> np.ndarray:
        """About how long each pair takes."""
        return self._work[which] * np.where(warm[which], self._rate[SENT], self._rate[COLD])

    def is_worth(self, which: np.ndarray, warm: np.ndarray) -> bool:
        """Whether there is enough to do for two messages."""
        return float(self.seconds(which, warm).sum()) >= 2 * (BATCH if self.values_only else LEAST)

    def forget(self, which: np.ndarray) -> None:
        """These pairs are solved here: what workers keep of them is old."""
        self._home[which] = ""

    def solve(self, which: np.ndarray, points: Points, bases: Bases, answers: Answers) -> None:
        """Values of these pairs into `answers`, and their bases in the places that they have in `bases`."""
        self._step += 1
        started, before = time.perf_counter(), (self.messages, self.sent, self.received)
        dealt = list(self._deal(which, bases.warm))
        while dealt:
            errands = [
                Errand(
                    self._message(pairs, worker, points, bases), float(self.seconds(pairs, bases.warm).sum()), worker
                )
                for worker, pairs in dealt
            ]
            self.messages += len(errands)
            self.sent += sum(errand.message.n_bytes for errand in errands)
            again = []
            for number, answer in self._place.run(solve_batch, errands):
                worker, pairs = dealt[number]
                self._take(answer, worker, pairs, points, bases, answers, errands[number].message)
                if answer.missing.size:  # the worker is a new one under an old name, or was short of memory
                    lacking = pairs[answer.missing]
                    self._home[lacking] = ""
                    again.append((worker, lacking))
            dealt = again
        traffic = (now - then for now, then in zip((self.messages, self.sent, self.received), before, strict=True))
        _log.debug(
            "%d pairs in %d messages: %d bytes there, %d back, %.3f s",
            which.size,
            *traffic,
            time.perf_counter() - started,
        )

    def _take(
        self,
        answer: BatchAnswer,
        worker: str | None,
        pairs: np.ndarray,
        points: Points,
        bases: Bases,
        answers: Answers,
        message: Batch,
    ) -> None:
        self.received += answer.n_bytes
        solved = pairs[answer.solved]
        answers.value[solved], answers.pivots[solved] = answer.value, answer.pivots
        answers.optimal[solved] = answer.optimal
        self._measure(message, answer, solved)
        if answer.bases is not None:
            packed = type(answer.bases)(*(np.require(part, requirements="W") for part in answer.bases))
            unpack_bases(solved, self._nodes, packed, self._first, self._second, points, bases)
            self._solved_at[solved] = self._step
            self._home[solved] = worker or ""

    def _measure(self, message: Batch, answer: BatchAnswer, solved: np.ndarray) -> None:
        """Learn how long pairs take, from batches that began all cold or all warm."""
        warm = message.start != COLD
        if not solved.size or (warm.any() and not warm.all()):
            return
        kind = SENT if warm.all() else COLD
        measured = answer.seconds / float(self._work[solved].sum())
        # A worker's first answer may hold the time to compile.
        self._rate[kind] = 0.5 * (self._rate[kind] + min(measured, 4.0 * self._rate[kind]))

    def _deal(self, which: np.ndarray, warm: np.ndarray) -> Iterator[tuple[str | None, np.ndarray]]:
        """Who solves what: batches of pairs, each with a worker or for anyone."""
        slots = self._place.slots()
        seconds = self.seconds(which, warm)
        if self.values_only or not self._place.remembers or not slots:
            n_slots = max(1, sum(slots.values()))
            least = BATCH if self.values_only else max(LEAST, float(seconds.sum()) / n_slots)
            for some in in_batches(seconds, max(2, n_slots), least):
                yield None, which[some]
            return
        slots = _fewer(slots, int(seconds.sum() / LEAST))
        self._settle(which, seconds, slots)
        for worker, places in _balance(seconds, self._home[which], slots).items():
            share = float(seconds[places].sum())
            n_parts = min(places.size, max(slots[worker], int(share // (4 * BATCH))))
            for part in range(n_parts):  # largest first and in turn, so that all parts are about the same
                chosen = places[np.argsort(-seconds[places], kind="stable")][part::n_parts]
                yield worker, np.sort(which[chosen])

    def _settle(self, which: np.ndarray, seconds: np.ndarray, slots: dict[str, int]) -> None:
        """Give pairs without a living home one: neighbours in the list, which share points, go together."""
        homeless = np.array([home not in slots for home in self._home[which]], bool)
        if not homeless.any():
            return
        ends = np.cumsum(list(slots.values())) / sum(slots.values())
        done = np.cumsum(seconds[homeless])
        places = np.searchsorted(ends, (done - 0.5 * seconds[homeless]) / done[-1])
        self._solved_at[which[homeless]] = 0
        self._home[which[homeless]] = np.array(list(slots), object)[np.minimum(places, len(slots) - 1)]

    def _message(self, pairs: np.ndarray, worker: str | None, points: Points, bases: Bases) -> Batch:
        owners, places = np.unique(np.concatenate([self._first[pairs], self._second[pairs]]), return_inverse=True)
        rows = [slice(points.bounds[d], points.bounds[d + 1]) for d in owners]
        uniform, large = points.uniform[owners], self._large[pairs]
        start = np.where(bases.warm[pairs], SENT, COLD).astype(np.int8)
        if self.values_only:
            start[:] = COLD
        elif self._session:
            known = (self._home[pairs] == worker) & (self._solved_at[pairs] > 0) & bases.warm[pairs]
            start[known.astype(bool)] = KEPT
        return Batch(
            pairs=pairs,
            first=places[: pairs.size],
            second=places[pairs.size :],
            z=_stretches(points.z, rows),
            bounds=np.concatenate([[0], np.cumsum(points.bounds[owners + 1] - points.bounds[owners])]),
            units=_stretches(points.units, [] if uniform.all() else rows),
            shares=_stretches(points.shares, [] if uniform.all() or not large.any() else rows),
            uniform=uniform,
            cost=points.cost,
            max_pivots=self._max_pivots,
            start=start,
            bases=pack_bases(pairs[start == SENT], self._nodes, bases),
            solved_at=self._solved_at[pairs],
            step=self._step,
            session=self._session,
            with_bases=not self.values_only,
            large=large,
        )


def _stretches(values: np.ndarray, rows: list[slice]) -> np.ndarray:
    return np.concatenate([values[:0], *(values[row] for row in rows)])


def _fewer(slots: dict[str, int], most: int) -> dict[str, int]:
    """The first workers that have `most` threads together.

    >>> _fewer({"a": 2, "b": 2, "c": 2}, 3)
    {'a': 2, 'b': 1}
    """
    chosen: dict[str, int] = {}
    for worker in sorted(slots):
        if most > 0:
            chosen[worker] = min(most, slots[worker])
            most -= chosen[worker]
    return chosen


def _balance(seconds: np.ndarray, homes: np.ndarray, slots: dict[str, int]) -> dict[str, np.ndarray]:
    """Places by worker: at home where that keeps the shares even, else with whoever has least to do.

    >>> _balance(np.ones(4), np.array(["a", "a", "a", "a"], object), {"a": 1, "b": 1})
    {'a': array([0, 1]), 'b': array([2, 3])}
    """
    total, threads = float(seconds.sum()), sum(slots.values())
    fair = {worker: _UNEVEN * total * n / threads for worker, n in slots.items()}
    load = dict.fromkeys(slots, 0.0)
    given: dict[str, list[int]] = {worker: [] for worker in slots}
    for place in np.argsort(-seconds, kind="stable").tolist():
        worker = homes[place]
        if load[worker] > 0.0 and load[worker] + seconds[place] > fair[worker]:
            worker = min(slots, key=lambda other: (load[other] / slots[other], other))
        load[worker] += seconds[place]
        given[worker].append(place)
    return {worker: np.array(sorted(places)) for worker, places in given.items() if places}


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
