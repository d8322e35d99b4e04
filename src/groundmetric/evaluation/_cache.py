"""Cache of finished fits, so that an interrupted evaluation goes on where it stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import joblib
import numpy as np
from scipy import sparse

from .. import __version__
from .._internal.cache import Cache
from .._internal.executor import progress_bar
from ._run import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result, recorded_warnings

# Parameters that change how long it takes, but not what comes out.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}

Task = tuple[Callable[..., Any], tuple]  # a function and its arguments


class ResultCache:
    """Results of methods on splits, in a file; without a path, nothing is cached.

    A result is found by what it depends on: data, labels, groups, protocol, split, and the method with its parameters.

    Parameters
    ----------
    path : str, os.PathLike or None
        File; made when the first result is written.
    cohort, protocol, methods
        What is compared, on what, and how.
    time_limit, memory_limit : float or None
        Limits of this run. A fit that ran out of time or memory is tried again where it has more of it now.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
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
    """Changes whenever the data, the labels, the groups or the protocol do."""
    D = cohort.D
    points = D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    annotations = {key: np.asarray(values) for key, values in D.annotations.items()} if protocol.only else {}
    return joblib.hash([__version__, parts, D.features, annotations, groups, asdict(protocol)])


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
    tasks: Mapping[str, Task], path: str | os.PathLike, *, n_jobs: int | None, title: str, verbose: int
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


def _answer(name: str, function: Callable[..., Any], arguments: tuple) -> tuple[str, Any]:
    with recorded_warnings():  # an interrupted learner returns what it has so far: that must not be cached as an answer
        answer = function(*arguments)
    return name, answer
