"""Checkpoints: the state of training as plain numbers, the last two states on the disk, and when they are written."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import joblib
import numpy as np

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
from ..transport.cache import cohort_digest
from .labels import Supervision

if TYPE_CHECKING:
    from .training import Training

State = dict[str, Any]  # arrays and plain numbers, by name


@runtime_checkable
class Restorable(Protocol):
    """What can be put into a checkpoint: it gives its state, and goes on from the state of another."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


def restorable(part: object) -> Restorable:
    """A part of a training, an error where it has no state."""
    if not isinstance(part, Restorable):
        raise TypeError(f"{type(part).__name__} cannot be put into a checkpoint: leave `checkpoint` out")
    return part


def random_state(random: np.random.RandomState) -> State:
    kind, keys, place, has_gauss, gauss = random.get_state(legacy=True)
    return {"kind": kind, "keys": keys, "place": place, "has_gauss": has_gauss, "gauss": gauss}


def set_random_state(random: np.random.RandomState, state: State) -> None:
    random.set_state((state["kind"], state["keys"], state["place"], state["has_gauss"], state["gauss"]))


def named(prefix: str, state: State) -> State:
    """The same under longer names.

    >>> named("a", {"b": 1})
    {'a.b': 1}
    """
    return {f"{prefix}.{name}": value for name, value in state.items()}


def under(prefix: str, state: State) -> State:
    """What `named` was given.

    >>> under("a", {"a.b": 1, "c": 2})
    {'b': 1}
    """
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}


# 3: digests of the labels no longer depend on where their classes are defined.
_KIND, _VERSION = "groundmetric checkpoint", 4


def check_place(path: str | os.PathLike[str]) -> Path:
    """Raise if a checkpoint would replace something else; returns where the one before it is kept."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"checkpoint is the folder {str(path)!r}: expected the name of a file")
    before = path.with_name(f"{path.name}.before")
    for some in (path, before):
        refuse_foreign(some, beginning_of(_KIND), _KIND)
    return before


class Checkpoints:
    """File of the last state of a run, with the state before it in ``<path>.before``.

    Parameters
    ----------
    path : path-like
        File of the last state.
    every : float
        Seconds between two states at least.
    belongs_to : dict of str to str
        Digests by name ("data", "labels", …) of what the states depend on, which must be the same when they are read.
    """

    def __init__(self, path: str | os.PathLike[str], every: float, belongs_to: dict[str, str]) -> None:
        self.path, self.every, self.belongs_to = Path(path), every, belongs_to
        self.before = check_place(path)
        self._written = time.monotonic()
        self._warned = False

    def load(self) -> State | None:
        """The last state that is whole; None where there is none.

        A damaged one is passed over with a warning. One of other data or parameters is an error: it may be wanted.
        """
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
                    f"{error}, delete it to start anew, or go on with the groundmetric that wrote it"
                ) from None
            self._check(path, description["belongs_to"])
            if damaged:
                self._warn(f"{damaged[0]}; going on from the checkpoint before it")
            return {**description["values"], **arrays}
        if damaged:
            self._warn(f"{'; '.join(damaged)}; there is no other checkpoint, so learning starts anew")
        return None

    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self.every

    def write(self, state: State) -> None:
        """Put a state on the disk. If that fails, say so and go on: the last one is intact."""
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        values = {name: _plain(value) for name, value in state.items() if name not in arrays}
        description = {"belongs_to": self.belongs_to, "values": values}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            check_place(self.path)  # somebody may have written there meanwhile
            write_arrays(self.path, _KIND, _VERSION, description, arrays, keep=self.before)
        except (OSError, Foreign) as error:
            if not self._warned:
                self._warn(f"no checkpoint could be written to {str(self.path)!r} ({error}); learning goes on")
            self._warned = True
        self._written = time.monotonic()

    def _check(self, path: Path, belongs_to: dict[str, str]) -> None:
        other = [name for name, found in self.belongs_to.items() if belongs_to.get(name) != found]
        if other:
            raise ValueError(
                f"{str(path)!r} is a checkpoint of other {' and '.join(other)}: go on with those it was made with, "
                "delete it to start anew, or give another path"
            )

    def _warn(self, message: str) -> None:
        warnings.warn(message, RuntimeWarning, stacklevel=5)


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def belonging(D: Distributions, known: Supervision, parameters: list[Any]) -> dict[str, str]:
    """Digests by name of what the states of a training depend on."""
    # By name and content, so that a class may move to another file.
    targets = [(type(target).__name__, asdict(target)) for target in known.targets]  # type: ignore[call-overload]
    return {
        "data": cohort_digest(D).hex(),
        "labels": _hash([targets, known.shares, known.strata], "labels"),
        "parameters": _hash(parameters, "parameters"),
    }


def _hash(value: Any, what: str) -> str:
    try:
        return joblib.hash(value)
    except Exception as error:
        raise ValueError(
            f"the {what} cannot be recognised in another run, because they cannot be pickled ({error}): leave out "
            "`checkpoint`, or give named classes and functions instead of lambdas"
        ) from None


class _Deferred:
    """Signals that end a program wait for the end of a step, so that the state can be written before they act.

    A second one acts at once. Only where signals arrive: in the main thread.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: tuple[int, Any] | None = None

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread():
            # SIGTERM ends a process without a word, unless somebody (the command line) listens to it.
            listening = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
            self._handlers = {number: signal.signal(number, self._note) for number in listening}

    def end(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self._came, before = (number, frame), self._came
        if before is not None:
            self.act()

    def __bool__(self) -> bool:
        return self._came is not None

    def act(self) -> None:
        """Do what would have been done without us: as a rule, raise KeyboardInterrupt."""
        if self._came is not None:
            (number, frame), self._came = self._came, None
            self._handlers[number](number, frame)


class Saving:
    """The state of a training: loaded at first, then written as it goes on.

    As a context, an interruption (Ctrl-C) waits for the end of the present step, and the state is written before it.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints, self._interruption = checkpoints, _Deferred()
        self.state: State | None = checkpoints.load()

    def __enter__(self) -> Saving:
        self._interruption.begin()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._interruption.end()
        if error is None:
            self._interruption.act()

    def after_step(self, training: Training) -> None:
        if training.finished or self._interruption or self._checkpoints.is_due():
            self._checkpoints.write(training.state())
        self._interruption.act()
