"""What a learner's checkpoints belong to, and several runs as one state."""

from __future__ import annotations

import numbers
from dataclasses import asdict
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


class Saving:
    """The state of several runs, one after the other: loaded at first, then written as it grows.

    Attributes
    ----------
    runs : outcomes of the runs that are done
    state : where the next run goes on, or None
    held_out : array, or None where nothing was saved
    """

    def __init__(self, checkpoints: Checkpoints | None) -> None:
        self._checkpoints = checkpoints
        saved = None if checkpoints is None else checkpoints.load()
        self.runs: list[Outcome] = []
        self.state: State | None = None
        self.held_out: np.ndarray | None = None
        if saved is not None:
            self.held_out = saved["held_out"]
            self.runs = [_outcome(under(f"done{number}", saved)) for number in range(saved["n_done"])]
            self.state = under("run", saved) or None

    def after_step(self, run: Any) -> None:
        if self._checkpoints is not None and (run.finished or self._checkpoints.is_due()):
            self._checkpoints.write({**self._done(run.held_out), **named("run", state_of(run))})

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
