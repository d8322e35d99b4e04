"""Tasks, and pairs of a distance matrix, on a Dask cluster or on the backend that joblib is configured for.

A task is an argument of a function that gives the same answer wherever it runs and however often. Scheduling and
retries are Dask's and joblib's own. A task that fails there is computed here, so that an error is raised only if it
happens here too; without workers, all tasks are computed here, after one wait and with one warning.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend

from . import __version__
from ._internal.executor import Threads, in_rounds, in_this_process
from .transport.cohort import MOST_PAIRS, Found, PairResults, Pairs, solve_in_rounds

__all__ = ["ClusterWarning", "OtherVersionError", "configured_backend", "run", "solve_pairs"]

# Seconds that a cluster without workers is given to bring some, and between two looks at whether it has any.
_NO_WORKERS, _LOOK = 5.0, 1.0
# Tasks that are sent ahead, per thread of the cluster: no thread waits, and few messages are held in memory.
_AHEAD = 3
# How often Dask, or joblib, tries a task again.
_RETRIES = 2
# Seconds for the answer of a finished task to arrive; it is computed here after that.
_FETCH = 15.0
# Seconds that an entry of a cost matrix takes, about, and that a task should take.
_RATE, _SECONDS = 4e-8, 2.0

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def __dir__() -> list[str]:
    return sorted(__all__)


class ClusterWarning(RuntimeWarning):
    """Workers failed or were missing, and their tasks are computed again or here. The result is the same."""


class OtherVersionError(RuntimeError):
    """A worker has another version of this package, or none: its numbers might be others."""


class _ClusterLostError(Exception):
    """The cluster has no workers, or its scheduler cannot be reached; the message says which."""


@dataclass(frozen=True)
class DaskBackend:
    """The workers of a Dask client."""

    client: Any

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[tuple[int, Answer]]:
        """The number and the answer of every task, as they come in."""
        run = _DaskRun(self.client, function, tasks)
        try:
            yield from run.answers()
        except _ClusterLostError as lost:
            _warn(f"{lost}: going on in this process")
            for number in sorted(run.left):
                yield number, function(tasks[number])
        finally:
            run.cancel()


@dataclass(frozen=True)
class JoblibBackend:
    """The backend that ``joblib.parallel_config`` has chosen: processes of this machine, Ray, or another."""

    n_jobs: int | None

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[tuple[int, Answer]]:
        """The number and the answer of every task, as they come in."""
        left = set(range(len(tasks)))
        for _ in range(1 + _RETRIES):
            try:
                for number, answer, error in self._calls(function, tasks, sorted(left)):
                    if error is None:
                        left.discard(number)
                        yield number, answer
                    else:
                        _warn_of_failure(error)
            except Exception as error:  # a dead worker makes joblib give up the whole call
                _warn_of_failure(error)
            if not left:
                return
        for number in sorted(left):
            yield number, function(tasks[number])

    def _calls(self, function: Callable[..., Any], tasks: Sequence[Any], numbers: list[int]) -> Any:
        # Answers that came in before a worker dies are not lost if they are given as they come; Ray cannot.
        as_they_come = getattr(get_active_backend()[0], "supports_return_generator", False)
        order = "generator_unordered" if as_they_come else "list"
        # Arrays that are mapped from files would be read-only, and tasks may write to theirs: max_nbytes.
        parallel = joblib.Parallel(self.n_jobs, return_as=order, batch_size=1, max_nbytes=None)
        return parallel(joblib.delayed(_attempt)(function, number, tasks[number]) for number in numbers)


Backend = DaskBackend | JoblibBackend


def configured_backend(n_jobs: int | None = None) -> Backend | None:
    """The cluster or pool of processes that ``joblib.parallel_config`` has chosen; None: this process.

    It is None, too, where `n_jobs` is 1, where threads are configured (everything here runs in threads anyway), and on
    a worker: a task that waited for other tasks might wait for ever.

    Parameters
    ----------
    n_jobs : int or None
        Processes, where the backend takes a number.

    Returns
    -------
    DaskBackend, JoblibBackend or None

    Examples
    --------
    >>> import joblib
    >>> configured_backend() is None
    True
    >>> with joblib.parallel_config(backend="loky", n_jobs=2):
    ...     configured_backend()
    JoblibBackend(n_jobs=2)
    """
    backend, configured = get_active_backend(prefer="threads")
    if n_jobs == 1 or in_this_process() or _on_dask_worker():
        return None
    client = getattr(backend, "client", None)
    if client is not None and hasattr(client, "nthreads"):
        return DaskBackend(client)
    return JoblibBackend(configured if n_jobs is None else n_jobs)


def run(
    function: Callable[[Task], Answer], tasks: Sequence[Task], backend: Backend | None
) -> Iterator[tuple[int, Answer]]:
    """Run independent tasks.

    Parameters
    ----------
    function : callable of a task
    tasks : sequence
        A task is taken from it when it is sent.
    backend : DaskBackend, JoblibBackend or None
        From `configured_backend`; None: this process.

    Yields
    ------
    number, answer
        Of every task, in the order in which they are done.

    Examples
    --------
    >>> list(run(abs, [-1, 2], None))
    [(0, 1), (1, 2)]
    """
    if backend is None:
        return ((number, function(task)) for number, task in enumerate(tasks))
    return backend.run(function, tasks)


def solve_pairs(
    pairs: Pairs, threads: Threads, backend: Backend | None, *, done: Callable[[int], Any], found: Found
) -> PairResults:
    """Results of all pairs in tasks of a few seconds each, the same bits wherever they are computed.

    Parameters
    ----------
    pairs : Pairs
    threads : Threads
        Of this process, where the pairs are too little work to be sent or there is no backend.
    backend : DaskBackend, JoblibBackend or None
        From `configured_backend`.
    done : callable of the number of pairs that were just solved
    found : callable of the indices and the results of pairs, as they come in

    Returns
    -------
    PairResults
    """
    if backend is None or _RATE * float(pairs.work.sum()) < 2 * _SECONDS:
        return solve_in_rounds(pairs, threads, done=done, found=found)
    tasks = _PairTasks(pairs, in_rounds(pairs.work, _SECONDS / _RATE, MOST_PAIRS))
    results = PairResults.empty(pairs.work.size)
    for number, part in run(_solve_task, tasks, backend):
        which = tasks.indices[number]
        results.put(which, part)
        found(which, part)
        done(which.size)
    return results


class _PairTasks(Sequence[Any]):
    """Pairs as tasks, each made when it is sent: all of them together may not fit into memory."""

    def __init__(self, pairs: Pairs, indices: list[np.ndarray]) -> None:
        self._pairs, self.indices = pairs, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: Any) -> Any:
        return self._pairs.part(self.indices[number])


def _solve_task(pairs: Pairs) -> PairResults:
    """Solve the pairs of a task by one thread."""
    with Threads(1) as threads:
        return pairs.start(threads, lambda count: None)(np.arange(pairs.work.size))


class _DaskRun:
    """The tasks of one call: those that are left, and the futures of those that were sent."""

    def __init__(self, client: Any, function: Callable[..., Any], tasks: Sequence[Any]) -> None:
        self._client, self._function, self._tasks = client, function, tasks
        self.left = set(range(len(tasks)))
        self._unsent = iter(range(len(tasks)))
        self._sent: dict[Any, int] = {}
        self._done: queue.Queue[Any] = queue.Queue()

    def answers(self) -> Iterator[tuple[int, Any]]:
        _check_versions(self._ask(lambda: self._client.run(_version_question(), on_error="ignore")))
        n_threads, looked, deserted = self._n_threads(), time.monotonic(), 0.0
        while self.left:
            self._send(max(2, _AHEAD * n_threads) - len(self._sent))
            try:
                future = self._done.get(timeout=min(_LOOK, _NO_WORKERS))
            except queue.Empty:
                future = None
            if future is None or time.monotonic() - looked > _NO_WORKERS:
                n_threads, looked = self._n_threads(), time.monotonic()
                deserted = 0.0 if n_threads else deserted + min(_LOOK, _NO_WORKERS)
            if deserted >= _NO_WORKERS:
                raise _ClusterLostError(
                    f"the cluster has had no workers for {_NO_WORKERS:g} s (start some, or wait for them with "
                    "client.wait_for_workers(1))"
                )
            if future is not None:
                yield self._take(future)

    def cancel(self) -> None:
        with contextlib.suppress(Exception):  # the cluster may be gone
            if self._sent:
                self._client.cancel(list(self._sent))

    def _ask(self, request: Callable[[], Any]) -> Any:
        """The answer of the scheduler; whatever fails, it cannot be reached."""
        try:
            return request()
        except Exception as error:
            raise _ClusterLostError(f"the cluster cannot be reached ({type(error).__name__}: {error})") from error

    def _n_threads(self) -> int:
        return sum(self._ask(self._client.nthreads).values())

    def _send(self, count: int) -> None:
        import dask

        for number in islice(self._unsent, max(count, 0)):
            task = self._tasks[number]
            # A task is no graph; that it is large is known, and the reason for sending it away.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                future = self._ask(partial(self._submit, task))
            self._sent[future] = number
            future.add_done_callback(self._done.put)

    def _submit(self, task: Any) -> Any:
        return self._client.submit(_on_worker, self._function, task, __version__, pure=False, retries=_RETRIES)

    def _take(self, future: Any) -> tuple[int, Any]:
        from distributed import KilledWorker

        number = self._sent.pop(future)
        if future.cancelled():
            raise _ClusterLostError("the cluster cannot be reached (it has dropped a task)")
        try:
            version, answer = future.result(timeout=_FETCH)
        except KilledWorker as error:
            raise RuntimeError(
                f"the same task ended several workers ({error}), probably for want of memory: give workers more memory "
                "or fewer threads"
            ) from error
        except Exception as error:
            _warn_of_failure(error)
            answer = self._function(self._tasks[number])
        else:
            _check_versions({"one that has joined": version})
        self.left.discard(number)
        return number, answer


def _on_worker(function: Callable[[Task], Answer], task: Task, version: str) -> tuple[str, Answer | None]:
    """This worker's version, and the answer if it is the caller's: the worker may have joined since it was asked."""
    return __version__, function(task) if version == __version__ else None


def _attempt(function: Callable[[Task], Answer], number: int, task: Task) -> tuple[int, Answer | None, Any]:
    """The answer, or the error as a value: raised, it would end the tasks of all."""
    try:
        return number, function(task), None
    except Exception as error:
        return number, None, error


def _version_question() -> Callable[[], str | None]:
    """Asks a worker for its version. Made here, it travels as code, and needs no package where it arrives."""

    def version() -> str | None:
        try:
            import groundmetric
        except ImportError:
            return None
        return groundmetric.__version__

    return version


def _check_versions(versions: dict[str, str | None]) -> None:
    other = {worker: version for worker, version in versions.items() if version != __version__}
    if other:
        worker, version = sorted(other.items())[0]
        has = "no groundmetric" if version is None else f"groundmetric {version}"
        raise OtherVersionError(
            f"workers do not have groundmetric {__version__}, as this process has: {worker} has {has} ({len(other)} of "
            f"{len(versions)} differ); install the same version everywhere, or keep the work here with n_jobs=1"
        )


def _on_dask_worker() -> bool:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def _warn_of_failure(error: BaseException) -> None:
    _warn(f"a worker failed ({type(error).__name__}: {error}): its task is computed again")


def _warn(message: str) -> None:
    warnings.warn(message, ClusterWarning, stacklevel=3)
