"""Work that is done once: answers are kept as small files, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import joblib
from tqdm import tqdm

from .. import __version__
from ..evaluation.running import heard
from ..safe_files import write_whole

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
