"""Tasks of a comparison (a method on a split): a cache of finished ones, workers with limits of time and memory.

An interrupted evaluation goes on where it stopped: a result is found by what it depends on.
"""

from __future__ import annotations

import functools
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky import ProcessPoolExecutor
from scipy import sparse

from .. import __version__
from .._internal.cache import Cache
from .._internal.executor import progress_bar, use_thread_lock
from ._run import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result, attempt, recorded_warnings

# Parameters that change how long it takes, but not what comes out.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments


@dataclass(frozen=True)
class Task:
    """One method on one split; in a rehearsal, on at most `max_points` points of each distribution."""

    name: str
    split: int
    method: Any
    train: np.ndarray
    test: np.ndarray
    max_points: int | None = None


class Workers:
    """Runs tasks: in this process, or in workers where several run at a time or there are limits to keep.

    The cohort is written to a file once and mapped by every worker. A method that ran out of time or memory on one
    split is not run on the next.
    """

    def __init__(
        self,
        cohort: Cohort,
        protocol: Protocol,
        *,
        n_jobs: int | None = None,
        time_limit: float | None = None,
        memory_limit: float | None = None,
    ) -> None:
        self.cohort, self.protocol = cohort, protocol
        jobs = joblib.effective_n_jobs(n_jobs)
        here = jobs == 1 and time_limit is None and memory_limit is None
        self._workers = [] if here else [Worker(time_limit, memory_limit, n_workers=jobs) for _ in range(jobs)]
        self._gave_up: dict[str, Result] = {}

    def __enter__(self) -> Workers:
        self._idle: queue.Queue[Worker] = queue.Queue()
        for worker in self._workers:
            self._idle.put(worker)
        if self._workers:
            self._folder = tempfile.TemporaryDirectory(prefix="groundmetric-", ignore_cleanup_errors=True)
            self._path = str(Path(self._folder.name) / "cohort.joblib")
            joblib.dump(self.cohort, self._path)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.close()
        if self._workers:
            self._folder.cleanup()

    def run(self, tasks: list[Task]) -> Iterator[tuple[Task, Result]]:
        """Every task with its result, in the order in which they are done."""
        if not self._workers:
            yield from map(self._run, tasks)
            return
        threads = ThreadPoolExecutor(len(self._workers))
        try:
            for future in as_completed([threads.submit(self._run, task) for task in tasks]):
                yield future.result()
        except BaseException:  # Ctrl-C among them: what runs is ended, so that the threads have nothing to wait for
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in self._workers:
                worker.close()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _run(self, task: Task) -> tuple[Task, Result]:
        if task.name in self._gave_up:
            return task, self._gave_up[task.name]
        result = self._in_worker(task) if self._workers else attempt_task(task, self.cohort, self.protocol)
        if result.status in (OUT_OF_TIME, OUT_OF_MEMORY):
            note = f"not tried, because split {task.split} was {result.status}"
            self._gave_up.setdefault(task.name, Result(result.status, notes=[note]))
        return task, result

    def _in_worker(self, task: Task) -> Result:
        worker = self._idle.get()
        try:
            status, result = worker.call(_attempt_from_file, task, self._path, self.protocol)
        finally:
            self._idle.put(worker)
        return result if status == OK else Result(status)


def attempt_task(task: Task, cohort: Cohort, protocol: Protocol) -> Result:
    if task.max_points is None:
        return attempt(task.method, cohort, task.train, task.test, protocol)
    chosen = np.concatenate([task.train, task.test])
    groups = None if cohort.groups is None else [cohort.groups[d] for d in chosen]
    few_points = cohort.D[chosen].with_mass().subsample(task.max_points, random_state=0)
    few = Cohort(few_points, cohort.labels[chosen], cohort.classes, groups)
    train, test = np.split(np.arange(chosen.size), [task.train.size])
    return attempt(task.method, few, train, test, protocol)


def _attempt_from_file(task: Task, path: str, protocol: Protocol) -> Result:
    return attempt_task(task, _load(path), protocol)


@functools.lru_cache(maxsize=1)
def _load(path: str) -> Cohort:
    """The cohort, once per process; its arrays are views of the file."""
    return joblib.load(path, mmap_mode="r")


class Worker:
    """A process that answers one call at a time; started when it is needed, and anew after it had to be ended.

    Parameters
    ----------
    time_limit : float or None
        Seconds per call.
    memory_limit : float or None
        Megabytes that a call may allocate beyond what the process holds already. Kept by the system where it can
        (Linux): an allocation beyond it fails.
    n_workers : int
        Workers that run at the same time, among which the cores are divided.
    """

    def __init__(
        self, time_limit: float | None = None, memory_limit: float | None = None, *, n_workers: int = 1
    ) -> None:
        self.time_limit, self.memory_limit = time_limit, memory_limit
        threads = str(max(1, joblib.cpu_count() // n_workers))
        self._settings = {name: os.environ.get(name, threads) for name in _THREAD_SETTINGS}
        self._executor: ProcessPoolExecutor | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
        """Status and answer; the answer is None unless the status is "ok"."""
        if self._executor is None:
            self._executor = ProcessPoolExecutor(max_workers=1, env=self._settings)
            self._executor.submit(_prepare).result()  # the time that Python needs to start does not count
        processes = list(self._executor._processes.values())  # they know how they ended, the executor only tells it
        future = self._executor.submit(_within, self.memory_limit, function, arguments)
        try:
            return OK, future.result(self.time_limit)
        except TimeoutError:
            self.close()
            return OUT_OF_TIME, None
        except BrokenProcessPool:
            self.close()
            return _status_of_exit([process.exitcode for process in processes]), None
        except MemoryError:
            return OUT_OF_MEMORY, None
        except Exception as error:
            return f"error: {type(error).__name__}: {error}", None

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


def check_limits(time_limit: float | None, memory_limit: float | None) -> None:
    for name, limit in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} is {limit!r}: expected a number above 0, or None")
    if memory_limit is not None and not sys.platform.startswith("linux"):
        raise ValueError(f"memory_limit is {memory_limit}, but {sys.platform} does not keep such limits: leave it out")


def _status_of_exit(codes: list[int | None]) -> str:
    """Status of a call whose process died. The system ends processes by SIGKILL when memory runs out."""
    died = [code for code in codes if code]
    if -9 in died:  # signal.SIGKILL, a name that Windows does not have
        return OUT_OF_MEMORY
    ends = ", ".join(f"exit code {code}" if code > 0 else signal.Signals(-code).name for code in died)
    return f"error: the process died ({ends or 'it left no exit code'})"


def _prepare() -> None:
    """Import what every call needs, and let progress bars do without a lock between processes: a process that is
    ended could not release it."""
    from .. import distances  # noqa: F401

    use_thread_lock()


def _within(memory_limit: float | None, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call the function while no more than so many megabytes may be allocated on top of what is there."""
    if memory_limit is None:
        return function(*arguments)
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_private_bytes() + int(memory_limit * 1e6), hard))
    try:
        return function(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _private_bytes() -> int:
    """What RLIMIT_DATA counts: memory that is this process's own, not files mapped into it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))


class ResultCache:
    """Results of methods on splits, in a file; without a path, nothing is cached.

    A result is found by what it depends on: data, labels, groups, protocol, split, and the method with its parameters.

    Parameters
    ----------
    path : str, os.PathLike[str] or None
        File; made when the first result is written.
    cohort, protocol, methods
        What is compared, on what, and how.
    time_limit, memory_limit : float or None
        Limits of this run. A fit that ran out of time or memory is tried again where it has more of it now.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        cohort: Cohort,
        protocol: Protocol,
        methods: Mapping[str, Any],
        time_limit: float | None = None,
        memory_limit: float | None = None,
    ) -> None:
        self._cache = None if path is None else Cache(path, "resume")
        self._limits = {"time_limit": time_limit, "memory_limit": memory_limit}
        if self._cache is not None:
            for name, method in methods.items():
                _check_describable(name, method)
            self._data = fingerprint(cohort, protocol)

    def get(self, method: Any, train: np.ndarray, test: np.ndarray) -> Result | None:
        """A cached result, unless there is none or it failed and might not fail now."""
        entry = None if self._cache is None else self._cache.get_json(key_of(method, train, test, self._data))
        if entry is None:
            return None
        try:
            result = Result(**entry["result"])
        except (KeyError, TypeError):  # of a state of the code between two versions
            return None
        limit = {OUT_OF_TIME: "time_limit", OUT_OF_MEMORY: "memory_limit"}.get(result.status)
        if limit is not None:
            return result if _as_tight(self._limits[limit], entry[limit]) else None
        return result if result.status == OK else None

    def put(self, method: Any, train: np.ndarray, test: np.ndarray, result: Result) -> None:
        if self._cache is not None:
            self._cache.put_json(key_of(method, train, test, self._data), {"result": result.to_dict(), **self._limits})


def _as_tight(limit: float | None, before: float | None) -> bool:
    """Is the limit as tight as it was before, or tighter?"""
    return limit is not None and before is not None and limit <= before


def fingerprint(cohort: Cohort, protocol: Protocol) -> str:
    """Changes whenever the data, the names, the labels, the groups or the protocol do."""
    D = cohort.D
    points = D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    annotations = {key: np.asarray(values) for key, values in D.annotations.items()} if protocol.only else {}
    names = [str(name) for name in D.names]  # equal numbers of points are drawn by name
    return joblib.hash([__version__, parts, names, D.features, annotations, groups, asdict(protocol)])


def key_of(method: Any, train: np.ndarray, test: np.ndarray, data: str) -> str:
    """Key of one method on one split of the data with this fingerprint."""
    return joblib.hash([describe(method), np.asarray(train), np.asarray(test), data])


def describe(method: Any) -> Any:
    """A method as plain data: its class and parameters, those of methods inside it as well."""
    if hasattr(method, "get_params") and not isinstance(method, type):
        parameters = method.get_params(deep=False)
        return [
            f"{type(method).__module__}.{type(method).__qualname__}",
            {name: describe(value) for name, value in sorted(parameters.items()) if name not in _IRRELEVANT},
        ]
    if isinstance(method, Mapping):
        return {str(name): describe(value) for name, value in method.items()}
    if isinstance(method, list | tuple):
        return [describe(value) for value in method]
    return method


def _check_describable(name: str, method: Any) -> None:
    """Raise if a method could not be recognised in another run."""
    try:
        joblib.hash(describe(method))
    except Exception as error:
        raise ValueError(
            f"method {name!r} cannot be recognised in another run, because its parameters cannot be pickled "
            f"({error}): leave out `resume`, or give it named functions instead of lambdas"
        ) from None


def run_cached(
    tasks: Mapping[str, Call], path: str | os.PathLike[str], *, n_jobs: int | None, title: str, verbose: int
) -> dict[str, Any]:
    """Answers of all tasks, by name; each is a function of plain arguments that returns plain data.

    What was answered before, by the same function for the same arguments, is read from the cache at this path.
    """
    cache = Cache(path)
    keys = {name: joblib.hash([__version__, function.__qualname__, a]) for name, (function, a) in tasks.items()}
    answers = {name: entry[0] for name, key in keys.items() if (entry := cache.get_json(key)) is not None}
    missing = {name: task for name, task in tasks.items() if name not in answers}
    with progress_bar(len(tasks), title, "fit", show=bool(verbose)) as bar:
        bar.update(len(answers))
        jobs = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for name, answer in jobs(joblib.delayed(_answer)(name, *task) for name, task in missing.items()):
            cache.put_json(keys[name], [answer])  # in a list, so that None is an answer too
            answers[name] = answer
            bar.update()
    return {name: answers[name] for name in tasks}


def _answer(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    with recorded_warnings():  # an interrupted learner returns what it has so far: that must not be cached as an answer
        answer = function(*arguments)
    return name, answer
