"""Finished results as small files, so that an interrupted run goes on where it stopped."""

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
from ._run import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result, heard

# Parameters that change how long it takes, but not what comes out.
_NO_MATTER = {"n_jobs", "verbose", "checkpoint"}


def fingerprint(cohort: Cohort, protocol: Protocol) -> str:
    """Changes whenever the data, the labels, the groups or the way of judging do."""
    D = cohort.D
    points = D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    told = {key: np.asarray(values) for key, values in D.annotations.items()} if protocol.only else {}
    return joblib.hash([__version__, parts, D.features, told, groups, asdict(protocol)])


def key_of(method: Any, train: np.ndarray, test: np.ndarray, data: str) -> str:
    """Name of the file for one method on one split."""
    return joblib.hash([describe(method), np.asarray(train), np.asarray(test), data])


def describe(method: Any) -> Any:
    """A method as plain data: its class and parameters, those of methods inside it as well."""
    if hasattr(method, "get_params") and not isinstance(method, type):
        parameters = method.get_params(deep=False)
        return [
            f"{type(method).__module__}.{type(method).__qualname__}",
            {name: describe(value) for name, value in sorted(parameters.items()) if name not in _NO_MATTER},
        ]
    if isinstance(method, Mapping):
        return {str(name): describe(value) for name, value in method.items()}
    if isinstance(method, list | tuple):
        return [describe(value) for value in method]
    return method


class Kept:
    """A folder of results. Each is written beside its place and then put there in one step."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, time_limit: float | None, memory_limit: float | None) -> Result | None:
        """A kept result, unless it failed and might not fail now. A damaged file counts as none."""
        try:
            kept = json.loads((self.folder / f"{key}.json").read_text())
            result = Result(**kept["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if result.status == OUT_OF_TIME:
            return result if _no_more(time_limit, kept["time_limit"]) else None
        if result.status == OUT_OF_MEMORY:
            return result if _no_more(memory_limit, kept["memory_limit"]) else None
        return result if result.status == OK else None

    def put(self, key: str, result: Result, time_limit: float | None, memory_limit: float | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)  # another process may have been done with it
        content = {"result": result.to_dict(), "time_limit": time_limit, "memory_limit": memory_limit}
        write_whole(self.folder / f"{key}.json", [json.dumps(content).encode()])


def forget(folder: Path) -> None:
    """Remove kept results, and the folder if there was nothing else in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if re.fullmatch(r"[0-9a-f]{32}\.json|\.[0-9a-f]{32}\.json\.[0-9a-f]{16}\.part", path.name):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _no_more(limit: float | None, before: float | None) -> bool:
    """Is the limit as tight as it was before, or tighter?"""
    return limit is not None and before is not None and limit <= before


def check_describable(name: str, method: Any) -> None:
    try:
        joblib.hash(describe(method))
    except Exception as error:
        raise ValueError(
            f"method {name!r} cannot be recognised in another run, because its parameters cannot be pickled "
            f"({error}): leave out `resume`, or give it named functions instead of lambdas"
        ) from None


Task = tuple[Callable[..., Any], tuple]


def finish(tasks: Mapping[str, Task], folder: Path, *, n_jobs: int | None, title: str, verbose: int) -> dict[str, Any]:
    """The answers of all tasks, by name; each is a function of plain arguments that returns plain data.

    What was answered before, by the same function for the same arguments, is read from the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{joblib.hash([__version__, f.__qualname__, a])}.json" for name, (f, a) in tasks.items()}
    answers = {name: kept for name, path in paths.items() if (kept := read(path)) is not None}
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
    with heard():  # an interrupted learner keeps what it has so far: that must not be kept as an answer
        answer = function(*arguments)
    return name, answer


def read(path: Path) -> Any:
    """What was kept, or None where there is nothing, or half of a file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write(path: Path, content: Any) -> None:
    """Beside its place first, then there in one step."""
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
