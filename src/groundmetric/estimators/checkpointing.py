"""What a learner's checkpoints belong to, and several runs as one state."""

from __future__ import annotations

import numbers
import signal
import threading
from dataclasses import asdict
from types import TracebackType
from typing import Any

import joblib
import numpy as np

from .. import fingerprints
from ..distributions import Distributions
from ..learning.checkpoints import Checkpoints
from ..learning.run_states import State, named, state_of, under
from ..learning.training import Outcome, Settings
from ..triplets import Supervision
from .checks import check_number

# Parameters of a learner that decide what is learned, beside those that are in `Settings`.
_MATTER = ("metric", "cost", "validation_fraction", "n_restarts", "label_weights", "class_weight")


def checkpoints_of(
    learner: Any, D: Distributions, known: Supervision, settings: Settings, *, fresh: bool
) -> Checkpoints | None:
    """Where a learner's states go, if anywhere. `fresh`: its points change from epoch to epoch."""
    if learner.checkpoint is None:
        return None
    check_number("checkpoint_every", learner.checkpoint_every, low=0.0)
    seed = learner.random_state if isinstance(learner.random_state, numbers.Integral) else None
    parameters = [asdict(settings), *(getattr(learner, name) for name in _MATTER), seed, *["fresh points"] * fresh]
    belongs_to = {
        "data": fingerprints.of_cohort(D).hex(),
        "labels": _hash(known, "labels"),
        "parameters": _hash(parameters, "parameters"),
    }
    return Checkpoints(learner.checkpoint, float(learner.checkpoint_every), belongs_to)


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
    """The state of several runs, one after the other: loaded at first, then written as it grows.

    As a context, an interruption (Ctrl-C) waits for the end of the present step, and the state is written before it.

    Attributes
    ----------
    runs : outcomes of the runs that are done
    state : where the next run goes on, or None
    held_out : array, or None where nothing was saved
    """

    def __init__(self, checkpoints: Checkpoints | None) -> None:
        self._checkpoints, self._interruption = checkpoints, _Deferred()
        saved = None if checkpoints is None else checkpoints.load()
        self.runs: list[Outcome] = []
        self.state: State | None = None
        self.held_out: np.ndarray | None = None
        if saved is not None:
            self.held_out = saved["held_out"]
            self.runs = [_outcome(under(f"done{number}", saved)) for number in range(saved["n_done"])]
            self.state = under("run", saved) or None

    def __enter__(self) -> Saving:
        if self._checkpoints is not None:
            self._interruption.begin()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._interruption.end()
        if error is None:
            self._interruption.act()

    def after_step(self, run: Any) -> None:
        if self._checkpoints is not None and (run.finished or self._interruption or self._checkpoints.is_due()):
            self._checkpoints.write({**self._done(run.held_out), **named("run", state_of(run))})
        self._interruption.act()

    def _done(self, held_out: np.ndarray) -> State:
        state: State = {"held_out": held_out, "n_done": len(self.runs)}
        for number, run in enumerate(self.runs):
            state |= named(f"done{number}", _state(run))
        return state


def _state(run: Outcome) -> State:
    history = named("history", {name: np.array(values) for name, values in run.history.items()})
    plain = {"loss": run.loss, "converged": run.converged, "stopped_pivoting": run.stopped_pivoting}
    return {"kept": run.kept, **plain, **history}


def _outcome(state: State) -> Outcome:
    history = {name: values.tolist() for name, values in under("history", state).items()}
    return Outcome(state["kept"], history, state["loss"], state["converged"], False, state["stopped_pivoting"])
