"""How work runs: threads on this machine, work in pieces for them, progress bars, and the warning of an interruption.

Compiled kernels release the GIL, so threads suffice. This is the one file that knows tqdm. Nothing is drawn where
standard error is no terminal (a log file, a pipe, a test), so callers only pass on `verbose`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm
from tqdm import tqdm as Bar

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
        self.n_jobs = count_threads(n_jobs)
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


def count_threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` asks for, as joblib counts; workers of a configured cluster do not count."""
    if in_this_process():
        return joblib.effective_n_jobs(n_jobs)
    with joblib.parallel_config(backend="threading"):
        return joblib.effective_n_jobs(1 if n_jobs is None else n_jobs)


def in_this_process() -> bool:
    """Whether joblib is configured for threads (its default here), not for other processes or a cluster."""
    return bool(getattr(get_active_backend(prefer="threads")[0], "uses_threads", False))


def in_rounds(work: np.ndarray, size: float, most: int) -> list[np.ndarray]:
    """Indices 0, 1, … in order, in rounds of about `size` units of work and at most `most` indices.

    A round should be so long that waiting for its last item is a small loss, and so short that little is lost in an
    accident. There is at least one round.

    >>> [indices.tolist() for indices in in_rounds(np.array([1e9, 1.0, 1.0]), 1e6, 512)]
    [[0], [1, 2]]
    """
    full = np.floor((np.cumsum(work) - 0.5 * work) / size)
    many = np.arange(work.size) // most
    cuts = np.flatnonzero((np.diff(full) > 0) | (np.diff(many) > 0)) + 1
    return np.split(np.arange(work.size), cuts)


def in_batches(work: np.ndarray, n_jobs: int, batch: float) -> list[np.ndarray]:
    """Indices 0, 1, … in batches of about `batch` units of work, the largest work first.

    Large pieces first keeps the threads busy to the end; small pieces together keep the cost of a hand-over low.

    >>> [indices.tolist() for indices in in_batches(np.array([1.0, 5.0, 1.0]), 2, 4.0)]
    [[1], [0, 2]]
    """
    order = np.argsort(-work, kind="stable")
    if n_jobs == 1 or order.size == 0:
        return [order] if order.size else []
    filled = np.cumsum(work[order])
    cuts = np.flatnonzero(np.diff(np.floor((filled - work[order]) / batch)) > 0) + 1
    return np.split(order, cuts)


def progress_bar(total: float | None, title: str, unit: str, *, show: bool = True, **look: Any) -> Bar:
    """A bar, as a context manager with `update`, `set_postfix` and `write`.

    Parameters
    ----------
    total : float or None
        Units of work; None where that is not known.
    title, unit : str
        What is done, and what is counted: "distances", "pair".
    show : bool
        False draws nothing anywhere.
    **look
        Options of tqdm, such as ``unit_scale``.
    """
    # disable=None is tqdm's way to say: only on a terminal
    return tqdm(total=total, desc=title, unit=unit, disable=None if show else True, leave=False, **look)


def write_line(text: str) -> None:
    """A line on standard error that no bar is drawn over."""
    tqdm.write(text, file=sys.stderr)


def use_thread_lock() -> None:
    """Lock bars among threads only.

    tqdm's own lock is a semaphore among processes as well, which a child that is killed leaves behind.
    """
    tqdm.set_lock(threading.RLock())


class InterruptedWarning(ConvergenceWarning):
    """Training was ended by the user (Ctrl-C) before it had converged: what was learned so far is kept."""
