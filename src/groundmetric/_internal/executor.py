"""Where the work runs: threads on this machine. Compiled kernels release the GIL, so threads suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import joblib
import numpy as np

# Entries of cost matrices (about ten seconds) and pairs, per thread, between two looks at what has been found.
_ROUND, _MOST_PAIRS = 2.5e8, 512

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """A pool of `n_jobs` threads (None: one, -1: one per core) that keeps the order of what it is given.

    With one thread the work runs in the caller's, so that a profiler and Ctrl-C see it as it is.

    >>> with Threads(2) as threads:
    ...     threads.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    place: Any = None  # where else work may go: see `cluster`

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = joblib.effective_n_jobs(n_jobs)
        self._pool = ThreadPoolExecutor(self.n_jobs) if self.n_jobs > 1 else None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def in_rounds(work: np.ndarray, threads: Threads) -> list[np.ndarray]:
    """Places 0, 1, … in rounds, in order: enough for every thread or slot for some seconds, so that waiting for the
    last is a small loss, and few enough that little is lost in an accident.

    `work` is in entries of cost matrices. There is at least one round.

    >>> [places.tolist() for places in in_rounds(np.array([1e9, 1.0, 1.0]), Threads(1))]
    [[0], [1, 2]]
    """
    n_workers = threads.n_jobs if threads.place is None else max(1, sum(threads.place.slots().values()))
    full = np.floor((np.cumsum(work) - 0.5 * work) / (_ROUND * n_workers))
    many = np.arange(work.size) // (_MOST_PAIRS * n_workers)
    cuts = np.flatnonzero((np.diff(full) > 0) | (np.diff(many) > 0)) + 1
    return np.split(np.arange(work.size), cuts)


def in_batches(work: np.ndarray, n_jobs: int, batch: float) -> list[np.ndarray]:
    """Places 0, 1, … in batches of about `batch` units of work, the largest work first.

    Large pieces first keeps the threads busy to the end; small pieces together keep the cost of a hand-over low.

    >>> [places.tolist() for places in in_batches(np.array([1.0, 5.0, 1.0]), 2, 4.0)]
    [[1], [0, 2]]
    """
    order = np.argsort(-work, kind="stable")
    if n_jobs == 1 or order.size == 0:
        return [order] if order.size else []
    filled = np.cumsum(work[order])
    cuts = np.flatnonzero(np.diff(np.floor((filled - work[order]) / batch)) > 0) + 1
    return np.split(order, cuts)
