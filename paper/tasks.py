"""Independent tasks of the experiments, cached by function and arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import joblib

from groundmetric import __version__
from groundmetric._internal.cache import Cache
from groundmetric._internal.parallel import progress_bar, run_tasks
from groundmetric.evaluation.compare import recorded_warnings

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments


def run_cached(
    tasks: Mapping[str, Call], path: str | os.PathLike[str], *, n_jobs: int | None, title: str, verbose: int
) -> dict[str, Any]:
    """Return the results of all tasks by name; each is a function of plain arguments that returns plain data.

    Results of the same function for the same arguments are read from the cache at `path`.
    """
    cache = Cache(path)
    keys = {name: joblib.hash([__version__, function.__qualname__, a]) for name, (function, a) in tasks.items()}
    results = {name: entry[0] for name, key in keys.items() if (entry := cache.get_json(key)) is not None}
    missing = [name for name in tasks if name not in results]
    with progress_bar(len(tasks), title, "fit", show=bool(verbose)) as bar:
        bar.update(len(results))
        for number, result in run_tasks(_call, [tasks[name] for name in missing], n_jobs):
            cache.put_json(keys[missing[number]], [result])  # in a list: None is a valid result
            results[missing[number]] = result
            bar.update()
    return {name: results[name] for name in tasks}


def _call(task: Call) -> Any:
    function, arguments = task
    with recorded_warnings():  # raises if a learner was interrupted: its result must not be cached
        return function(*arguments)
