"""Steps of `GroundMetricLearner.fit`: settings checked, warnings given, training run and checkpointed."""

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

from .._internal.executor import Threads
from .._internal.progress import progress_bar
from .._internal.validation import ParameterError, check_number, real_array
from .._internal.warnings import InterruptedWarning
from ..distances import warn_of_pivot_limit
from ..distributions import Distributions
from ..learning.checkpoint import Checkpoints, State
from ..learning.mining import Fresh
from ..learning.options import (
    resolve_checkpoint,
    resolve_form,
    resolve_neighbors,
    resolve_solver,
    resolve_stopping,
)
from ..learning.penalties import has_vanished, resolve_penalty
from ..learning.training import Outcome, Settings, Training
from ..supervision import ClassTarget, Supervision
from ..supervision.triplets import candidates
from ..transport.cache import cohort_digest


def check_settings(learner: Any, n_features: int) -> Settings:
    """What a GroundMetricLearner is to do with so many features."""
    form = resolve_form(learner.form).form
    if form == "diagonal" and learner.n_components is not None:
        raise ValueError("a diagonal metric has a component per feature: leave n_components out")
    k = min(5, n_features) if learner.n_components is None else learner.n_components
    check_number("n_components", k, low=1, whole=True)
    if k > n_features:
        raise ParameterError("n_components", k, f", but there are only {n_features} features: give at most that many")
    for name in ("n_neighbors", "max_epochs", "batch_size"):
        check_number(name, getattr(learner, name), low=1, whole=True)
    for name in ("margin", "learning_rate"):
        check_number(name, getattr(learner, name), low=0.0, above=True)
    for name in ("strength", "nuisance"):
        check_number(name, getattr(learner, name), low=0.0)
    nearest, stopping = resolve_neighbors(learner.neighbors), resolve_stopping(learner.stopping)
    solver = resolve_solver(learner.solver)
    return Settings(
        n_components=int(k),
        margin=float(learner.margin),
        penalty=resolve_penalty(learner.penalty),
        strength=float(learner.strength),
        n_neighbors=int(learner.n_neighbors),
        refresh=None if nearest is None else int(nearest.refresh),
        init=_check_init(learner.init, (n_features,) if form == "diagonal" else (k, n_features)),
        learning_rate=float(learner.learning_rate),
        max_epochs=int(learner.max_epochs),
        batch_size=int(learner.batch_size),
        tol=float(stopping.tol),
        patience=int(stopping.patience),
        memory=float(solver.memory) * 1e6,
        max_pivots=solver.max_pivots,
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
        if isinstance(target, ClassTarget):
            check_class_sizes(D, target.levels, values.tolist())


def check_fresh(learner: Any, X: Any, fresh: Any) -> None:
    """Fresh points can be learned from if they are used as they come."""
    if fresh is None:
        return
    if not callable(fresh):
        raise TypeError(f"fresh is a {type(fresh).__name__}: expected a function from epochs to Distributions")
    if not isinstance(X, Distributions):
        raise ValueError("fresh is given, but X are points: give Distributions, of which there can be others")
    if resolve_form(learner.form).transformer is not None:
        raise ValueError("fresh points are not mapped: leave out `fresh`, or the transformer of `form`")


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


def warn_of_training(run: Outcome, planned: int) -> None:
    """Say what the numbers alone do not show: that training was interrupted, or transport stopped early."""
    if run.interrupted:
        done = len(run.history["loss"])
        message = f"interrupted after {done} of {planned} epochs: what was learned so far is kept"
        warnings.warn(message, InterruptedWarning, stacklevel=3)
    warn_of_pivot_limit(run.stopped_pivoting)


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


def checkpoints_of(
    learner: Any, D: Distributions, known: Supervision, settings: Settings, *, fresh: bool
) -> Checkpoints | None:
    """Where a learner's states go, if anywhere. `fresh`: its points change from epoch to epoch."""
    checkpoint = resolve_checkpoint(learner.checkpoint)
    if checkpoint is None:
        return None
    seed = learner.random_state if isinstance(learner.random_state, numbers.Integral) else None
    # What decides what is learned, beside the settings.
    more = [
        resolve_form(learner.form).form,
        learner.cost,
        resolve_stopping(learner.stopping).validation_fraction,
        learner.class_weight,
    ]
    parameters = [asdict(settings), *more, seed, *["fresh points"] * fresh]
    belongs_to = {
        "data": cohort_digest(D).hex(),
        "labels": _hash(known, "labels"),
        "parameters": _hash(parameters, "parameters"),
    }
    return Checkpoints(checkpoint.path, float(checkpoint.every), belongs_to)


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

    def __init__(self, checkpoints: Checkpoints | None) -> None:
        self._checkpoints, self._interruption = checkpoints, _Deferred()
        self.state: State | None = None if checkpoints is None else checkpoints.load()

    def __enter__(self) -> Saving:
        if self._checkpoints is not None:
            self._interruption.begin()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._interruption.end()
        if error is None:
            self._interruption.act()

    def after_step(self, training: Training) -> None:
        if self._checkpoints is not None and (training.finished or self._interruption or self._checkpoints.is_due()):
            self._checkpoints.write(training.state())
        self._interruption.act()


def run_training(
    training: Training,
    *,
    n_jobs: int | None,
    verbose: int,
    checkpoints: Checkpoints | None = None,
    fresh: Fresh | None = None,
) -> Outcome:
    """A training to its end, or on from its checkpoint, with a progress bar. An interruption loses nothing."""
    saving, total = Saving(checkpoints), training.settings.max_epochs
    with (
        saving,
        Threads(n_jobs) as threads,
        progress_bar(total, "learning", "epoch", show=bool(verbose)) as bar,
    ):

        def show(history: dict[str, list]) -> None:
            bar.set_postfix(loss=f"{history['loss'][-1]:.3f}", active=f"{history['active'][-1]:.0%}", refresh=False)
            bar.update()

        return training.run(threads, on_epoch=show, on_step=saving.after_step, state=saving.state, fresh=fresh)
