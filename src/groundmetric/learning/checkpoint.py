"""Checkpoints: the state of training as plain numbers, and the last two states on the disk."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from .._internal.arrays import Damaged, beginning_of, read_arrays, write_arrays
from .._internal.files import Foreign, refuse_foreign, remove_leftovers
from ..supervision import Triplets
from .mining import Fresh, take_again
from .optimizer import Adam

# What a run consists of beside its arrays: numbers that JSON can hold.
_PLAIN = ("finished", "converged", "stopped_pivoting", "penalty_weight", "best", "since_best")

State = dict[str, Any]  # arrays and plain numbers, by name


def state_of(run: Any) -> State:
    """All that the rest of a run depends on, between two steps. Arrays are not copied."""
    state: State = {name: getattr(run, name) for name in _PLAIN}
    state |= {
        "W": run.W,
        "kept": run.kept,
        "unit": run.objective.unit,
        "drawn": run.drawn,
        "part_names": list(run.parts[0] if run.parts else ()),
    }
    state |= named("optimiser", optimiser_state(run.optimiser))
    state |= named("random", random_state(run.random))
    triplets = run.objective.triplets
    state |= named("triplets", {field.name: getattr(triplets, field.name) for field in fields(triplets)})
    state |= named("history", {name: np.array(values) for name, values in run.history.items()})
    state |= named("pairs", run.objective.pairs.state())
    state["batches"] = np.concatenate([*run.batches, np.empty(0, np.int64)]).astype(np.int64)
    state["batch_sizes"] = np.array([batch.size for batch in run.batches], np.int64)
    state |= named("parts", {name: np.array([part[name] for part in run.parts]) for name in state["part_names"]})
    return {name: value for name, value in state.items() if value is not None}


def restore(run: Any, state: State, fresh: Fresh | None = None) -> None:
    """Put a run, as its constructor leaves it, where `state_of` found another one.

    `fresh` must give the points again that the other one had, where these changed from epoch to epoch.
    """
    for name in (*_PLAIN, "W", "kept"):
        setattr(run, name, state[name])
    set_optimiser_state(run.optimiser, under("optimiser", state))
    set_random_state(run.random, under("random", state))
    # The last epoch is followed by no other, and by no other points.
    take_again(run, fresh, len(state["history.loss"]) - int(run.finished), state.get("drawn"))
    run.use(Triplets(**under("triplets", state)))
    run.objective.unit = state["unit"]
    run.objective.pairs.restore(under("pairs", state))
    run.history = {name: values.tolist() for name, values in under("history", state).items()}
    ends = np.cumsum(state["batch_sizes"])
    run.batches = np.split(state["batches"], ends[:-1]) if ends.size else []
    columns = {name: values.tolist() for name, values in under("parts", state).items()}
    n_parts = len(columns["loss"]) if columns else 0
    run.parts = [{name: columns[name][place] for name in state["part_names"]} for place in range(n_parts)]


def optimiser_state(optimiser: Any) -> State:
    if not isinstance(optimiser, Adam):
        raise TypeError(f"{type(optimiser).__name__} cannot be put into a checkpoint: leave `checkpoint` out")
    return optimiser.state()


def set_optimiser_state(optimiser: Adam, state: State) -> None:
    optimiser.restore(state)


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


_KIND, _VERSION = "groundmetric checkpoint", 1


def check_place(path: str | os.PathLike) -> Path:
    """Raise if a checkpoint would replace something else; returns where the one before it is kept."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"checkpoint is the folder {str(path)!r}: expected the name of a file")
    before = path.with_name(f"{path.name}.before")
    for some in (path, before):
        refuse_foreign(some, beginning_of(_KIND), _KIND)
    return before


class Checkpoints:
    """States of a run in a file; the one before is kept beside it, as ``<path>.before``.

    Parameters
    ----------
    path : file
    every : seconds between two states at least
    belongs_to : dict of str to str
        What the states are of, by name ("data", "labels", …): digests that must be the same when they are read again.
    """

    def __init__(self, path: str | os.PathLike, every: float, belongs_to: dict[str, str]) -> None:
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
