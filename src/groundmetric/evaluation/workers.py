"""Many methods on many splits: here one after the other, or in child processes side by side and within limits."""

from __future__ import annotations

import functools
import queue
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import joblib
import numpy as np

from .limits import Child
from .running import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result, attempt


@dataclass(frozen=True)
class Task:
    """One method on one split; in a rehearsal, on a few points of each distribution."""

    name: str
    split: int
    method: Any
    train: np.ndarray
    test: np.ndarray
    thin: int | None = None


class Workers:
    """Where tasks run: in this process, or in children where several run at a time or there are limits to keep.

    The cohort is written to a file once and mapped by every child. A method that ran out of time or memory on one split
    is not tried on the next.
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
        alone = jobs == 1 and time_limit is None and memory_limit is None
        self._children = [] if alone else [Child(time_limit, memory_limit, n_siblings=jobs) for _ in range(jobs)]
        self._gave_up: dict[str, Result] = {}

    def __enter__(self) -> Workers:
        self._idle: queue.Queue[Child] = queue.Queue()
        for child in self._children:
            self._idle.put(child)
        if self._children:
            self._folder = tempfile.TemporaryDirectory(prefix="groundmetric-", ignore_cleanup_errors=True)
            self._path = str(Path(self._folder.name) / "cohort.joblib")
            joblib.dump(self.cohort, self._path)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children:
            child.close()
        if self._children:
            self._folder.cleanup()

    def run(self, tasks: list[Task]) -> Iterator[tuple[Task, Result]]:
        """Every task with its result, in the order in which they are done."""
        if not self._children:
            yield from map(self._run, tasks)
            return
        threads = ThreadPoolExecutor(len(self._children))
        try:
            for future in as_completed([threads.submit(self._run, task) for task in tasks]):
                yield future.result()
        except BaseException:  # Ctrl-C among them: what runs is ended, so that the threads have nothing to wait for
            threads.shutdown(wait=False, cancel_futures=True)
            for child in self._children:
                child.close()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _run(self, task: Task) -> tuple[Task, Result]:
        if task.name in self._gave_up:
            return task, self._gave_up[task.name]
        result = self._in_child(task) if self._children else attempt_task(task, self.cohort, self.protocol)
        if result.status in (OUT_OF_TIME, OUT_OF_MEMORY):
            note = f"not tried, because split {task.split} was {result.status}"
            self._gave_up.setdefault(task.name, Result(result.status, notes=[note]))
        return task, result

    def _in_child(self, task: Task) -> Result:
        child = self._idle.get()
        try:
            status, result = child.call(_attempt_from_file, task, self._path, self.protocol)
        finally:
            self._idle.put(child)
        return result if status == OK else Result(status)


def attempt_task(task: Task, cohort: Cohort, protocol: Protocol) -> Result:
    if task.thin is None:
        return attempt(task.method, cohort, task.train, task.test, protocol)
    chosen = np.concatenate([task.train, task.test])
    groups = None if cohort.groups is None else [cohort.groups[place] for place in chosen]
    few_points = cohort.D[chosen].with_mass().subsample(task.thin, random_state=0)
    few = Cohort(few_points, cohort.labels[chosen], cohort.classes, groups)
    places = np.arange(chosen.size)
    return attempt(task.method, few, places[: task.train.size], places[task.train.size :], protocol)


def _attempt_from_file(task: Task, path: str, protocol: Protocol) -> Result:
    return attempt_task(task, _load(path), protocol)


@functools.lru_cache(maxsize=1)
def _load(path: str) -> Cohort:
    """The cohort, once per process; its arrays are views of the file."""
    return joblib.load(path, mmap_mode="r")
