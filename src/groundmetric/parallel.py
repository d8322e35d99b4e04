"""Where the work runs: threads on this machine. Compiled kernels release the GIL, so threads suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import joblib
import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads:
    """A pool of `n_jobs` threads (None: one, -1: one per core) that keeps the order of what it is given.

    With one thread the work runs in the caller's, so that a profiler and Ctrl-C see it as it is.

    >>> with Threads(2) as threads:
    ...     threads.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

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
