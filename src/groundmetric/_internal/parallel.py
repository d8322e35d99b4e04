"""Parallel execution: threads of this process, tasks in other processes or on a cluster, progress bars.

A task returns the same bits wherever it runs. A task that fails on the workers is computed in this process, so an error
reaches the caller only if it also occurs here.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm
from tqdm import tqdm as Bar

from .. import __version__

_NO_WORKERS = 5.0  # seconds to wait for the first worker of an empty cluster
_AHEAD = 3  # tasks queued per thread of the cluster: threads never wait for a task, and memory is bounded
_RETRIES = 2  # further attempts after a task failed on a worker
_FETCH = 15.0  # seconds to fetch the result of a finished task: the worker that holds it may be lost

Item = TypeVar("Item")
Result = TypeVar("Result")


class InterruptedWarning(ConvergenceWarning):
    """The user interrupted training (Ctrl-C) before convergence; the metric learned so far is kept."""


class ClusterWarning(RuntimeWarning):
    """Workers failed or were missing, so their tasks are computed again or in this process; results are the same."""


class OtherVersionError(RuntimeError):
    """A worker lacks this package or has another version of it, which might compute different numbers."""


class _ClusterLostError(Exception):
    """The cluster has no workers, or its scheduler cannot be reached."""


class Threads:
    """Pool of `n_jobs` threads (None: one, -1: one per core) whose `map` keeps the order of its items.

    With one thread the work runs in the caller's thread: profilers and Ctrl-C work as usual.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        if _uses_threads():
            self.n_jobs = joblib.effective_n_jobs(n_jobs)
        else:  # n_jobs=None must not be the number of workers of a configured cluster
            with joblib.parallel_config(backend="threading"):
                self.n_jobs = joblib.effective_n_jobs(1 if n_jobs is None else n_jobs)
        self._pool = ThreadPoolExecutor(self.n_jobs) if self.n_jobs > 1 else None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _uses_threads() -> bool:
    """Return whether joblib is configured for threads (the default) rather than processes or a cluster."""
    return bool(getattr(get_active_backend(prefer="threads")[0], "uses_threads", False))


def in_rounds(work: np.ndarray, size: float, most: int) -> list[np.ndarray]:
    """Split the indices 0, 1, … in order into rounds of about `size` units of work and at most `most` indices."""
    by_work = np.floor((np.cumsum(work) - 0.5 * work) / size)
    by_number = np.arange(work.size) // most
    cuts = np.flatnonzero((np.diff(by_work) > 0) | (np.diff(by_number) > 0)) + 1
    return np.split(np.arange(work.size), cuts)


def in_batches(work: np.ndarray, n_jobs: int, batch: float) -> list[np.ndarray]:
    """Split the indices 0, 1, … into batches of about `batch` units of work, the largest work first.

    Starting with the largest keeps all threads busy to the end; batches keep the overhead per item low.
    """
    order = np.argsort(-work, kind="stable")
    if n_jobs == 1 or order.size == 0:
        return [order] if order.size else []
    filled = np.cumsum(work[order])
    cuts = np.flatnonzero(np.diff(np.floor((filled - work[order]) / batch)) > 0) + 1
    return np.split(order, cuts)


def progress_bar(total: float | None, title: str, unit: str, *, show: bool = True, **options: Any) -> Bar:
    """Return a tqdm bar of `total` units (None: unknown), drawn only if `show` and standard error is a terminal."""
    # disable=None draws on terminals only
    return tqdm(total=total, desc=title, unit=unit, disable=None if show else True, leave=False, **options)


def write_line(text: str) -> None:
    """Write a line to standard error without disturbing a progress bar."""
    tqdm.write(text, file=sys.stderr)


class Tasks(Sequence[Any]):
    """Tasks that `make` makes from their numbers on access: all tasks together may exceed the memory."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self._numbers, self._make = range(count), make

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: Any) -> Any:
        return self._make(self._numbers[number])


@dataclass(frozen=True)
class DaskBackend:
    """The workers of a Dask client."""

    client: Any

    def run(self, function: Callable[[Item], Result], tasks: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield the number and the result of every task in order of completion."""
        unfinished = set(range(len(tasks)))
        with contextlib.closing(self._completed(function, tasks)) as completed:
            try:
                for number, future in completed:
                    yield number, self._result(future, function, tasks[number])
                    unfinished.discard(number)
            except _ClusterLostError as error:
                _warn(f"{error}: continuing in this process")
                for number in sorted(unfinished):
                    yield number, function(tasks[number])

    def _completed(self, function: Callable[..., Any], tasks: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the future of every task when it is done; finally cancel unfinished tasks."""
        import dask

        import distributed

        wait: Any = distributed.wait
        unsent, sent = iter(range(len(tasks))), dict[Any, int]()
        try:
            _check_versions(self.client.run(_version_query(), on_error="ignore"))
            while True:
                n_threads = sum(self.client.nthreads().values())
                for number in islice(unsent, max(0, max(2, _AHEAD * n_threads) - len(sent))):
                    # Dask warns of large graphs; large tasks are intended here.
                    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                        sent[self._submit(function, tasks[number])] = number
                if not sent:
                    return
                try:
                    done = wait(list(sent), timeout=_NO_WORKERS, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    if n_threads or self.client.nthreads():
                        continue
                    raise _ClusterLostError(
                        f"the cluster has had no workers for {_NO_WORKERS:g} s (start workers, or wait for them with "
                        "client.wait_for_workers(1))"
                    ) from None
                for future in done:
                    yield sent.pop(future), future
        except (_ClusterLostError, OtherVersionError):
            raise
        except Exception as error:
            raise _ClusterLostError(f"the cluster cannot be reached ({type(error).__name__}: {error})") from error
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.client.cancel(list(sent))

    def _submit(self, function: Callable[..., Any], task: Any) -> Any:
        import distributed.protocol.pickle

        dumps: Any = distributed.protocol.pickle.dumps
        # Arrays of an object that Dask sends are views of one message, and may be unaligned. Those of a pickle are
        # aligned, as the C++ core needs them.
        return self.client.submit(_on_worker, function, dumps(task), __version__, pure=False, retries=_RETRIES)

    def _result(self, future: Any, function: Callable[[Item], Result], task: Item) -> Result:
        """Return the result of a finished task; compute the task here if it failed on the workers."""
        from distributed import KilledWorker

        if future.cancelled():
            raise _ClusterLostError("the cluster cannot be reached (it has dropped a task)")
        try:
            version, result = future.result(timeout=_FETCH)
        except KilledWorker as error:  # the task might end this process as well
            problem = f"the same task ended several workers ({error}), probably for want of memory"
            raise RuntimeError(f"{problem}: give workers more memory or fewer threads") from error
        except Exception as error:
            _warn_of_failure(error)
            return function(task)
        _check_versions({"a new worker": version})
        return result


@dataclass(frozen=True)
class JoblibBackend:
    """The backend that ``joblib.parallel_config`` has chosen: processes of this machine, Ray, or another.

    Arrays larger than `max_nbytes` are shared with processes as read-only files; None: all arrays are sent.
    """

    n_jobs: int | None
    max_nbytes: str | None = field(default=None, repr=False)

    def run(self, function: Callable[[Item], Result], tasks: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield the number and the result of every task in order of completion."""
        unfinished = set(range(len(tasks)))
        # A generator yields results before a later worker failure can lose them; Ray's backend supports lists only.
        streams = getattr(get_active_backend()[0], "supports_return_generator", False)
        order = "generator_unordered" if streams else "list"
        parallel = joblib.Parallel(self.n_jobs, return_as=order, batch_size=1, max_nbytes=self.max_nbytes)
        for _ in range(1 + _RETRIES):
            try:
                attempts = (joblib.delayed(_attempt)(function, k, tasks[k]) for k in sorted(unfinished))
                for number, result, error in parallel(attempts):
                    if error is None:
                        unfinished.discard(number)
                        yield number, result
                    else:
                        _warn_of_failure(error)
            except Exception as error:  # a dead worker ends all tasks of the call
                _warn_of_failure(error)
            if not unfinished:
                return
        for number in sorted(unfinished):
            yield number, function(tasks[number])


Backend = DaskBackend | JoblibBackend


def configured_backend(n_jobs: int | None = None) -> Backend | None:
    """Return the cluster or the pool of processes that ``joblib.parallel_config`` has chosen; None: this process.

    None if `n_jobs` is 1, if threads are configured, and on a Dask worker, because a task that waits for other tasks
    might wait forever.
    """
    backend, configured = get_active_backend(prefer="threads")
    if n_jobs == 1 or _uses_threads() or _on_dask_worker():
        return None
    client = getattr(backend, "client", None)
    if client is not None and hasattr(client, "nthreads"):
        return DaskBackend(client)
    return JoblibBackend(configured if n_jobs is None else n_jobs)


def run_tasks(
    function: Callable[[Item], Result], tasks: Sequence[Item], n_jobs: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Run independent tasks in `n_jobs` processes or on the configured cluster; with one job, in this process.

    Yields the number and the result of every task in order of completion.
    """
    backend = configured_backend(n_jobs)
    if backend is None and joblib.effective_n_jobs(n_jobs) > 1 and not _on_dask_worker():
        backend = JoblibBackend(n_jobs, max_nbytes="1M")
    if backend is None or len(tasks) < 2:
        return ((number, function(task)) for number, task in enumerate(tasks))
    return backend.run(function, tasks)


def run_in_threads(
    function: Callable[[Item], Result], tasks: Sequence[Item], n_jobs: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Run independent tasks that release the GIL in `n_jobs` threads, or on the configured cluster.

    Yields the number and the result of every task in order of completion.
    """
    backend = configured_backend(n_jobs)
    if backend is not None and len(tasks) > 1:
        yield from backend.run(function, tasks)
        return
    with Threads(n_jobs) as threads:
        n_threads = threads.n_jobs
    run = joblib.delayed(lambda number: (number, function(tasks[number])))
    parallel = joblib.Parallel(n_threads, backend="threading", return_as="generator_unordered")
    yield from parallel(run(number) for number in range(len(tasks)))


def _on_worker(function: Callable[[Any], Result], task: bytes, version: str) -> tuple[str, Result | None]:
    """Return the worker's version, and the result if versions agree: workers may join after the first check."""
    return __version__, function(pickle.loads(task)) if version == __version__ else None


def _attempt(function: Callable[[Item], Result], number: int, task: Item) -> tuple[int, Result | None, Any]:
    """Return the result or the error: raising the error would end all tasks of the call."""
    try:
        return number, function(task), None
    except Exception as error:
        return number, None, error


def _version_query() -> Callable[[], str | None]:
    """Return a closure that reports a worker's version; it is sent as code, so the worker needs no package."""

    def version() -> str | None:
        try:
            import groundmetric
        except ImportError:
            return None
        return groundmetric.__version__

    return version


def _check_versions(versions: dict[str, str | None]) -> None:
    differing = {worker: version for worker, version in versions.items() if version != __version__}
    if differing:
        worker, version = sorted(differing.items())[0]
        has = "no groundmetric" if version is None else f"groundmetric {version}"
        raise OtherVersionError(
            f"workers do not have groundmetric {__version__}, as this process has: {worker} has {has} "
            f"({len(differing)} of {len(versions)} differ); install the same version everywhere, or use n_jobs=1"
        )


def _on_dask_worker() -> bool:
    if (distributed := sys.modules.get("distributed")) is not None:
        with contextlib.suppress(ValueError):  # outside a task
            return distributed.get_worker() is not None
    return False


def _warn_of_failure(error: BaseException) -> None:
    _warn(f"a worker failed ({type(error).__name__}: {error}): its task is computed again")


def _warn(message: str) -> None:
    warnings.warn(message, ClusterWarning, stacklevel=3)
