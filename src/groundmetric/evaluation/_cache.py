"""Cache of finished results as small JSON files, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from tqdm import tqdm

from .. import __version__
from .._internal.files import write_whole
from ._run import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result, recorded_warnings

# Parameters that change how long it takes, but not what comes out.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}

Task = tuple[Callable[..., Any], tuple]


class ResultCache:
    """Results of a comparison in a folder, a file for every method on every split; without a folder, nothing is kept.

    A file is found by what it depends on: data, labels, groups, protocol, split, and the method with its parameters.
    """

    def __init__(
        self,
        folder: str | os.PathLike | None,
        cohort: Cohort,
        protocol: Protocol,
        methods: Mapping[str, Any],
        time_limit: float | None = None,
        memory_limit: float | None = None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.time_limit, self.memory_limit = time_limit, memory_limit
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, method in methods.items():
                _check_describable(name, method)
            self._data = fingerprint(cohort, protocol)

    def get(self, method: Any, train: np.ndarray, test: np.ndarray) -> Result | None:
        """A cached result, unless it failed and might not fail now. A damaged file counts as none."""
        if self.folder is None:
            return None
        try:
            cached = json.loads(self._path(method, train, test).read_text())
            result = Result(**cached["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if result.status == OUT_OF_TIME:
            return result if _as_tight(self.time_limit, cached["time_limit"]) else None
        if result.status == OUT_OF_MEMORY:
            return result if _as_tight(self.memory_limit, cached["memory_limit"]) else None
        return result if result.status == OK else None

    def put(self, method: Any, train: np.ndarray, test: np.ndarray, result: Result) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)  # another process may have cleared and removed it
        limits = {"time_limit": self.time_limit, "memory_limit": self.memory_limit}
        write(self._path(method, train, test), {"result": result.to_dict(), **limits})

    def _path(self, method: Any, train: np.ndarray, test: np.ndarray) -> Path:
        assert self.folder is not None
        return self.folder / f"{key_of(method, train, test, self._data)}.json"


def fingerprint(cohort: Cohort, protocol: Protocol) -> str:
    """Hash of the data, the labels, the groups and the protocol."""
    D = cohort.D
    points = D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    annotations = {key: np.asarray(values) for key, values in D.annotations.items()} if protocol.only else {}
    return joblib.hash([__version__, parts, D.features, annotations, groups, asdict(protocol)])


def key_of(method: Any, train: np.ndarray, test: np.ndarray, data: str) -> str:
    """Name of the file for one method on one split of the data with this fingerprint."""
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
    try:
        joblib.hash(describe(method))
    except Exception as error:
        raise ValueError(
            f"method {name!r} cannot be recognised in another run, because its parameters cannot be pickled "
            f"({error}): leave out `resume`, or give it named functions instead of lambdas"
        ) from None


def _as_tight(limit: float | None, before: float | None) -> bool:
    """Is the limit as tight as it was before, or tighter?"""
    return limit is not None and before is not None and limit <= before


def clear(folder: Path) -> None:
    """Remove cached results, and the folder if there was nothing else in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if re.fullmatch(r"[0-9a-f]{32}\.json|\.[0-9a-f]{32}\.json\.[0-9a-f]{16}\.part", path.name):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def run_cached(
    tasks: Mapping[str, Task], folder: Path, *, n_jobs: int | None, title: str, verbose: int
) -> dict[str, Any]:
    """The answers of all tasks, by name; each is a function of plain arguments that returns plain data.

    What was answered before, by the same function for the same arguments, is read from the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{joblib.hash([__version__, f.__qualname__, a])}.json" for name, (f, a) in tasks.items()}
    answers = {name: cached for name, path in paths.items() if (cached := read(path)) is not None}
    left = {name: task for name, task in tasks.items() if name not in answers}
    with tqdm(total=len(tasks), desc=title, unit="fit", disable=None if verbose else True, leave=False) as bar:
        bar.update(len(answers))
        jobs = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for name, answer in jobs(joblib.delayed(_answer)(name, *task) for name, task in left.items()):
            write(paths[name], answer)
            answers[name] = answer
            bar.update()
    return {name: answers[name] for name in tasks}


def _answer(name: str, function: Callable[..., Any], arguments: tuple) -> tuple[str, Any]:
    with recorded_warnings():  # raises where a learner was interrupted: half an answer must not be cached
        answer = function(*arguments)
    return name, answer


def read(path: Path) -> Any:
    """Content of a cached file; None where there is none, or half of one."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write(path: Path, content: Any) -> None:
    """Write a file that is there whole or not at all."""
    write_whole(path, [json.dumps(content).encode()])


def without_nan(value: Any) -> Any:
    """JSON has no NaN: None stands for it.

    >>> without_nan({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
