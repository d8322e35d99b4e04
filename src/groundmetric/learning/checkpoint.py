"""Checkpoints: the state of a training as arrays and plain values, written to two alternating files."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from .._internal.cache import digest
from .._internal.files import (
    Damaged,
    Foreign,
    beginning_of,
    read_arrays,
    refuse_foreign,
    remove_leftovers,
    write_arrays,
)
from ..distributions import Distributions
from ..transport.cohort import distribution_digests
from .labels import Supervision

if TYPE_CHECKING:
    from .training import Training

State = dict[str, Any]  # arrays and plain values, by name

# Format version: 6 stores the fields of `training.Progress`.
_KIND, _VERSION = "groundmetric checkpoint", 6


def add_prefix(prefix: str, state: State) -> State:
    return {f"{prefix}.{name}": value for name, value in state.items()}


def strip_prefix(prefix: str, state: State) -> State:
    """Return the entries whose names begin with the prefix, without it.

    >>> strip_prefix("a", {"a.b": 1, "c": 2})
    {'b': 1}
    """
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}


def check_path(path: str | os.PathLike[str]) -> Path:
    """Raise if a checkpoint would replace a file of another kind; return the path of the previous checkpoint."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"checkpoint is the folder {str(path)!r}: expected the name of a file")
    before = path.with_name(f"{path.name}.before")
    for file in (path, before):
        refuse_foreign(file, beginning_of(_KIND), _KIND)
    return before


class Checkpoints:
    """File of the last state of a run, with the previous state in ``<path>.before``; at least `every` seconds apart.

    `belongs_to` has digests of data, labels and parameters. A run with other digests raises an error, because the file
    may still be needed. As a context manager, it loads the last state and defers an interruption (Ctrl-C) to the end of
    the current step, to write the state first; a second signal acts at once.
    """

    state: State | None = None  # the last state, when training began

    def __init__(self, path: str | os.PathLike[str], every: float, belongs_to: dict[str, str]) -> None:
        self.path, self.every, self.belongs_to = Path(path), every, belongs_to
        self.before = check_path(path)
        self._written = time.monotonic()
        self._warned = False
        self._handlers: dict[int, Any] = {}  # original handler of each signal
        self._received: tuple[int, Any] | None = None

    def __enter__(self) -> Checkpoints:
        self.state = self.load()
        if threading.current_thread() is threading.main_thread():  # only there are signals handled
            # SIGTERM is deferred only if the program (the command line) handles it: by default it ends the process.
            handled = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
            self._handlers = {number: signal.signal(number, self._note) for number in handled}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self._act()

    def _note(self, number: int, frame: Any) -> None:
        self._received, earlier = (number, frame), self._received
        if earlier is not None:
            self._act()

    def _act(self) -> None:
        """Call the original handler of a received signal, which usually raises KeyboardInterrupt."""
        if self._received is not None:
            (number, frame), self._received = self._received, None
            self._handlers[number](number, frame)

    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self.every

    def after_step(self, training: Training) -> None:
        """Write the state if it is due, if training has finished, or if a signal was received."""
        if self.is_due() or training.progress.finished or self._received is not None:
            self.write(training.state())
        self._act()

    def load(self) -> State | None:
        """Return the last undamaged state, or None without a file; a damaged file causes a warning."""
        remove_leftovers(self.path)
        damaged = []
        for path in (self.path, self.before):
            if not path.exists():
                continue
            try:
                description, arrays = read_arrays(path, _KIND, _VERSION)
            except Damaged as error:
                damaged.append(str(error))
                continue
            except ValueError as error:  # of another version
                raise ValueError(
                    f"{error}, delete it to start anew, or continue with the groundmetric that wrote it"
                ) from None
            stored = description["belongs_to"]
            different = [name for name, digest in self.belongs_to.items() if stored.get(name) != digest]
            if different:
                raise ValueError(
                    f"{str(path)!r} is a checkpoint of other {' and '.join(different)}: continue with those it was "
                    "made with, delete it to start anew, or give another path"
                )
            if damaged:
                self._warn(f"{damaged[0]}; continuing from the checkpoint before it")
            return {**description["values"], **arrays}
        if damaged:
            self._warn(f"{'; '.join(damaged)}; both checkpoints are damaged or missing, so learning starts anew")
        return None

    def write(self, state: State) -> None:
        """Write a state. If that fails, warn once and continue: the previous file is intact."""
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        values = {name: state[name] for name in state if name not in arrays}
        values |= {name: value.item() for name, value in values.items() if isinstance(value, np.generic)}
        description = {"belongs_to": self.belongs_to, "values": values}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_path(self.path)  # another program may have written there meanwhile
            write_arrays(self.path, _KIND, _VERSION, description, arrays, keep=self.before)
        except (OSError, Foreign) as error:
            if not self._warned:
                self._warn(f"no checkpoint could be written to {str(self.path)!r} ({error}); learning goes on")
            self._warned = True
        self._written = time.monotonic()

    def _warn(self, message: str) -> None:
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def belonging(D: Distributions, labels: Supervision, parameters: list[Any]) -> dict[str, str]:
    """Return digests of the data, labels and parameters that a state depends on."""
    # Labels by class name and content: a class may move to another module between two versions.
    targets = [(type(target).__name__, asdict(target)) for target in labels.targets]  # type: ignore[call-overload]
    digests = {"data": cohort_digest(D).hex()}
    for name, value in (("labels", [targets, labels.shares, labels.strata]), ("parameters", parameters)):
        try:
            digests[name] = joblib.hash(value)
        except Exception as error:
            raise ValueError(
                f"the {name} cannot be recognised in another run, because they cannot be pickled ({error}): leave out "
                "`checkpoint`, or give named classes and functions instead of lambdas"
            ) from None
    return digests


def cohort_digest(D: Distributions) -> bytes:
    """Return a digest of all distributions in their order, and of the names of their features."""
    return digest(*distribution_digests(D), str(D.features))
