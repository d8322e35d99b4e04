"""The pairs of a distance matrix in stretches: rounds in threads here, or tasks of a few seconds each on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .._internal.executor import Threads, in_rounds
from ..transport.cohort import PairResults, Pairs
from .tasks import Backend, run

# Seconds that an entry of a cost matrix takes, about, and that a task should take.
_RATE, _SECONDS = 4e-8, 2.0
# Entries of cost matrices (about ten seconds) per thread between two calls of `found`.
_ROUND = 2.5e8
# Pairs in a round or a task, at most.
_MOST_PAIRS = 512

Found = Callable[[np.ndarray, PairResults], Any]


def solve_pairs(
    pairs: Pairs, threads: Threads, backend: Backend | None, *, done: Callable[[int], Any], found: Found
) -> PairResults:
    """Results of all pairs, the same bits wherever they are computed.

    Parameters
    ----------
    pairs : Pairs
    threads : Threads
        Of this process, where the pairs are not worth the way or there is no backend.
    backend : DaskBackend, JoblibBackend or None
        From `configured_backend`.
    done : callable of the number of pairs that were just solved
    found : callable of the indices and the results of pairs, as they come in

    Returns
    -------
    PairResults
    """
    results = PairResults.empty(pairs.work.size)
    for which, part in _parts(pairs, threads, backend, done):
        for whole, some in zip(results, part, strict=True):
            whole[which] = some
        found(which, part)
    return results


def _parts(
    pairs: Pairs, threads: Threads, backend: Backend | None, done: Callable[[int], Any]
) -> Iterator[tuple[np.ndarray, PairResults]]:
    if backend is None or _RATE * float(pairs.work.sum()) < 2 * _SECONDS:
        solve = pairs.start(threads, done)
        for which in in_rounds(pairs.work, _ROUND * threads.n_jobs, _MOST_PAIRS * threads.n_jobs):
            yield which, solve(which)
        return
    stretches = in_rounds(pairs.work, _SECONDS / _RATE, _MOST_PAIRS)
    for number, part in run(solve_part, _PartsOfPairs(pairs, stretches), backend):
        yield stretches[number], part
        done(stretches[number].size)


class _PartsOfPairs(Sequence):
    """Stretches as tasks, each made when it is sent: all of them together may not fit into memory."""

    def __init__(self, pairs: Pairs, stretches: list[np.ndarray]) -> None:
        self._pairs, self._stretches = pairs, stretches

    def __len__(self) -> int:
        return len(self._stretches)

    def __getitem__(self, number: Any) -> Any:
        return self._pairs.part(self._stretches[number])


def solve_part(pairs: Pairs) -> PairResults:
    """A task: solve these pairs by one thread."""
    with Threads(1) as threads:
        return pairs.start(threads, lambda count: None)(np.arange(pairs.work.size))
