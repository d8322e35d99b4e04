"""Steps of `GroundMetricLearner.fit`: settings checked, warnings given, runs restarted and checkpointed."""

from __future__ import annotations

import numbers
import signal
import threading
import warnings
from dataclasses import asdict
from types import TracebackType
from typing import Any

import joblib
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._internal.progress import progress_bar
from .._internal.validation import check_number, real_array
from ..distances import warn_of_pivot_limit
from ..distributed import workers
from ..distributions import Distributions
from ..learning.checkpoint import Checkpoints, State, named, state_of, under
from ..learning.mining import Fresh
from ..learning.model import Model
from ..learning.penalties import has_vanished, resolve_penalty
from ..learning.training import Outcome, Settings, train
from ..supervision import Classes, Supervision
from ..supervision.triplets import candidates
from ..transport.cache import cohort_digest


def check_settings(learner: Any, n_features: int) -> Settings:
    """What a GroundMetricLearner is to do with so many features."""
    if learner.metric not in ("linear", "diagonal"):
        raise ValueError(f"metric is {learner.metric!r}: expected 'linear' or 'diagonal'")
    if learner.metric == "diagonal" and learner.n_components is not None:
        raise ValueError("a diagonal metric has a component per feature: leave n_components out")
    k = min(5, n_features) if learner.n_components is None else learner.n_components
    check_number("n_components", k, low=1, whole=True)
    if k > n_features:
        raise ValueError(f"n_components is {k}, but there are only {n_features} features: give at most that many")
    for name in ("n_neighbors", "refresh", "max_epochs", "batch_size", "patience", "n_restarts"):
        check_number(name, getattr(learner, name), low=1, whole=True)
    for name in ("margin", "learning_rate"):
        check_number(name, getattr(learner, name), low=0.0, above=True)
    for name in ("strength", "nuisance", "tol", "validation_fraction", "memory"):
        check_number(name, getattr(learner, name), low=0.0)
    if learner.validation_fraction >= 1.0:
        raise ValueError(f"validation_fraction is {learner.validation_fraction}: expected a share below 1")
    if learner.max_pivots is not None:
        check_number("max_pivots", learner.max_pivots, low=1, whole=True)
    if learner.neighbors not in ("random", "nearest"):
        raise ValueError(f"neighbors is {learner.neighbors!r}: expected 'random' or 'nearest'")
    return Settings(
        n_components=int(k),
        margin=float(learner.margin),
        penalty=resolve_penalty(learner.penalty),
        strength=float(learner.strength),
        n_neighbors=int(learner.n_neighbors),
        neighbors=learner.neighbors,
        refresh=int(learner.refresh),
        init=_check_init(learner.init, (n_features,) if learner.metric == "diagonal" else (k, n_features)),
        learning_rate=float(learner.learning_rate),
        max_epochs=int(learner.max_epochs),
        batch_size=int(learner.batch_size),
        tol=float(learner.tol),
        patience=int(learner.patience),
        memory=float(learner.memory) * 1e6,
        max_pivots=learner.max_pivots,
        nuisance=float(learner.nuisance),
    )


def _check_init(init: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(init, str):
        if init not in ("discriminant", "random"):
            raise ValueError(f"init is {init!r}: expected 'discriminant', 'random' or an array")
        return init
    start = np.array(real_array(init, "init"), dtype=np.float64)
    if start.shape != shape or not np.isfinite(start).all():
        raise ValueError(f"init has shape {start.shape}: expected finite numbers of shape {shape}")
    return np.atleast_2d(start)


def check_classes(D: Distributions, known: Supervision, classes: Any) -> None:
    """Look at every label that is a class; `classes` has the values of each label."""
    for target, values in zip(known.targets, classes, strict=True):
        if isinstance(target, Classes):
            check_class_sizes(D, target.levels, values.tolist())


def check_fresh(learner: Any, X: Any, fresh: Any) -> None:
    """Fresh points can be learned from if they are used as they come."""
    if fresh is None:
        return
    if not callable(fresh):
        raise TypeError(f"fresh is a {type(fresh).__name__}: expected a function from epochs to Distributions")
    if not isinstance(X, Distributions):
        raise ValueError("fresh is given, but X are points: give Distributions, of which there can be others")
    if learner.feature_map is not None:
        raise ValueError("fresh points go together with no feature_map: leave one of the two out")


def check_class_sizes(D: Distributions, codes: np.ndarray, classes: list) -> None:
    """There must be something to tell apart, and somebody to be near to."""
    counts = np.bincount(codes[codes >= 0])
    if counts.size < 2:
        raise ValueError(f"all distributions have one class ({classes[0]!r}): at least two are needed")
    if counts.max() < 2:
        raise ValueError(
            "every class has a single distribution: no triplet can be formed; at least one class needs two"
        )
    for place in np.flatnonzero(counts == 1):
        name = D.names[int(np.flatnonzero(codes == place)[0])]
        warnings.warn(
            f"class {classes[place]!r} has a single distribution ({name!r}): others are kept away from it, "
            "but it is not an anchor itself",
            UserWarning,
            stacklevel=4,
        )


def warn_of_strata(known: Supervision, held_out: np.ndarray) -> None:
    """Say how many distributions cannot be compared across strata."""
    if known.strata is None:
        return
    relaxed = [some.relaxed for target in known.targets for some in candidates(target, held_out, known.strata)]
    if any(relaxed):
        warnings.warn(
            f"{sum(relaxed)} of {len(relaxed)} distributions have no like label in another stratum, or no unlike one "
            "in their own: they are compared with any, so that strata may be learned from them",
            UserWarning,
            stacklevel=3,
        )


def warn_of_training(runs: list[Outcome], planned: int) -> None:
    """Say what the numbers alone do not show: that training was interrupted, or transport stopped early."""
    if runs[-1].interrupted:
        done = sum(len(run.history["loss"]) for run in runs)
        message = f"interrupted after {done} of {planned} epochs: what was learned so far is kept"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    warn_of_pivot_limit(sum(run.stopped_pivoting for run in runs))


def warn_of_zero(learner: Any) -> None:
    """A penalty may leave nothing, or so little that its direction is chance."""
    if not np.any(getattr(learner, "components_", True)):
        message = "the penalty has set the whole metric to 0, which tells nothing apart: lower `strength`"
    elif has_vanished(learner.history_, learner.margin, learner.strength):
        message = (
            f"a penalty of strength {learner.strength:g} outweighs the labels: the metric has shrunk to nearly 0, and "
            "what is left of it is chance; lower `strength`"
        )
    else:
        return
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


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
        "data": cohort_digest(D).hex(),
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


def train_all(
    D: Distributions,
    known: Supervision,
    settings: Settings,
    model: Model,
    scale: np.ndarray,
    held_out: np.ndarray,
    random: np.random.RandomState,
    *,
    n_restarts: int,
    n_jobs: int | None,
    verbose: int,
    checkpoints: Checkpoints | None = None,
    fresh: Fresh | None = None,
) -> list[Outcome]:
    """Runs from different starts and triplets, with a progress bar. An interruption ends them, but loses nothing."""
    saving = Saving(checkpoints)
    runs, state = saving.runs, saving.state
    held_out = held_out if saving.held_out is None else saving.held_out
    total = settings.max_epochs * n_restarts
    with (
        saving,
        workers(n_jobs) as threads,
        progress_bar(total, "learning", "epoch", show=bool(verbose)) as bar,
    ):

        def show(history: dict[str, list]) -> None:
            bar.set_postfix(loss=f"{history['loss'][-1]:.3f}", active=f"{history['active'][-1]:.0%}", refresh=False)
            bar.update()

        for _ in range(len(runs), n_restarts):
            try:
                run = train(
                    D,
                    known,
                    settings,
                    model=model,
                    scale=scale,
                    held_out=held_out,
                    threads=threads,
                    random=random,
                    on_epoch=show,
                    on_step=saving.after_step,
                    state=state,
                    fresh=fresh,
                )
            except KeyboardInterrupt:  # before this run had a start; an earlier one is still worth keeping
                if not runs:
                    raise
                runs[-1].interrupted = True
                break
            runs.append(run)
            state = None
            if run.interrupted:
                break
    return runs
