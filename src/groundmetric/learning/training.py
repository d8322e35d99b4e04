"""Training: its options as objects, and the loop of epochs with Adam, an annealed learning rate, early stopping."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal.parallel import Threads
from .._internal.validation import ParameterError, check_number, real_array
from ..distributions import Distributions
from ..transport.cache import cohort_digest
from ..transport.problem import Masses
from ..transport.solvers.exact import Exact
from .checkpoint import Saving, State, named, random_state, restorable, set_random_state, under
from .labels import Classes, Distances, Ordered, Supervision
from .objective import (
    Adam,
    Evaluation,
    Model,
    Objective,
    discriminating_start,
    grouped,
    mini_batches,
    nearest_candidates,
    random_start,
)
from .penalties import Penalty, ProximalPenalty, StrataVariance, has_vanished, resolve_penalty
from .triplets import Triplets, nearest_triplets, random_triplets

if TYPE_CHECKING:
    from .._internal.types import Transformer


@dataclass(frozen=True)
class Nearest:
    """Neighbours that are nearest under the present metric (hard mining), chosen anew every few epochs.

    Parameters
    ----------
    refresh : int, default=5
        Epochs between two choices.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.GroundMetricLearner(neighbors=gm.learning.Nearest(refresh=2)).neighbors
    Nearest(refresh=2)
    """

    refresh: int = 5

    def __post_init__(self) -> None:
        check_number("refresh", self.refresh, low=1, whole=True)


@dataclass(frozen=True)
class EarlyStopping:
    """Rule by which learning stops before the last epoch.

    Parameters
    ----------
    tol : float, default=0.001
        Learning stops when the loss with penalty has varied by less than `tol` times the margin over `patience` epochs,
        or the best held-out loss has not fallen by more than that. With 0, the first never happens; the held-out loss
        must still fall.
    patience : int, default=10
        Number of epochs over which the loss is compared.
    validation_fraction : float, default=0.0
        Share of the distributions of each class that is held out to detect overfitting, at least two of each class
        remaining: learning stops when their loss no longer falls, and the W of the lowest held-out loss is the result.
        With 0, the training loss decides.

    Examples
    --------
    >>> EarlyStopping(patience=5)
    EarlyStopping(tol=0.001, patience=5, validation_fraction=0.0)
    """

    tol: float = 1e-3
    patience: int = 10
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        check_number("tol", self.tol, low=0.0)
        check_number("patience", self.patience, low=1, whole=True)
        check_number("validation_fraction", self.validation_fraction, low=0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction is {self.validation_fraction}: expected a share below 1")


@dataclass(frozen=True)
class Checkpoint:
    """File for the state of learning, from which the same fit continues after an accident or Ctrl-C, with equal result.

    Parameters
    ----------
    path : path-like
        File of the last state; the state before it is in ``<path>.before``. A file that is no checkpoint is refused.
    every : float, default=60.0
        Seconds between two states at least.

    Examples
    --------
    >>> Checkpoint("learning.state", every=10.0).every
    10.0
    """

    path: str | os.PathLike[str]
    every: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path of the checkpoint is {self.path!r}: expected the name of a file")
        check_number("every", self.every, low=0.0)


@dataclass(frozen=True)
class Mapped:
    """Metric that is linear or diagonal in mapped features, and so non-linear in the features themselves.

    Parameters
    ----------
    transformer : scikit-learn transformer
        Feature map; a copy is fitted to the points and applied to them first, e.g. SplineTransformer or Nystroem.
    form : {"linear", "diagonal"}, default="linear"
        Form of the metric that is learned on the mapped features.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> Mapped(StandardScaler(), "diagonal").form
    'diagonal'
    """

    transformer: Transformer | None
    form: str = "linear"


def resolve_neighbors(neighbors: Any) -> Nearest | None:
    """None stands for neighbours drawn at random."""
    if isinstance(neighbors, Nearest):
        return neighbors
    if isinstance(neighbors, str) and neighbors in ("random", "nearest"):
        return Nearest() if neighbors == "nearest" else None
    raise ValueError(f"neighbors is {neighbors!r}: expected 'random', 'nearest' or Nearest(refresh=…)")


def resolve_form(form: Any) -> Mapped:
    """What is learned, and the transformer before it (None where there is none)."""
    mapped = form if isinstance(form, Mapped) else Mapped(None, form)
    if mapped.form not in ("linear", "diagonal"):
        raise ValueError(f"form is {mapped.form!r}: expected 'linear', 'diagonal' or Mapped(transformer)")
    return mapped


def resolve_stopping(stopping: Any) -> EarlyStopping:
    if stopping is None:
        return EarlyStopping()
    if not isinstance(stopping, EarlyStopping):
        raise TypeError(f"stopping is {stopping!r}: expected EarlyStopping(tol=…, patience=…, validation_fraction=…)")
    return stopping


_EXACT = Exact()


def resolve_solver(solver: Any) -> Exact:
    """The gradient needs an exact plan, so there is no other solver to learn with."""
    if solver is None or (isinstance(solver, str) and solver == "exact"):
        return _EXACT
    if not isinstance(solver, Exact):
        raise TypeError(f"solver is {solver!r}: learning is exact, expected transport.Exact(max_pivots=…, memory=…)")
    if solver.max_pivots is not None:
        check_number("max_pivots", solver.max_pivots, low=1, whole=True)
    return solver


def resolve_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """A bare path is shorthand."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is learned; see GroundMetricLearner for what each means."""

    n_components: int
    margin: float
    penalty: Penalty | None
    strength: float
    n_neighbors: int
    refresh: int | None  # epochs between two choices of the nearest neighbours; None: neighbours at random
    init: Any
    learning_rate: float
    max_epochs: int
    batch_size: int
    tol: float
    patience: int
    memory: float
    max_pivots: int | None
    nuisance: float = 0.0


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


_BY_NAME = {kind.__name__: kind for kind in (Nearest, EarlyStopping, Exact, Classes, Ordered, Distances)}


def read_parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a learner from a file, in which objects are stored as text (their `repr`).

    >>> read_parameters({"margin": 1.0, "stopping": "EarlyStopping(tol=0.0)"})["stopping"].tol
    0.0
    """
    return {name: _read_object(value) for name, value in stored.items()}


def _read_object(value: Any) -> Any:
    """Return the object of a text such as "Nearest(refresh=2)"; other values are returned unchanged."""
    if not isinstance(value, str) or not value.endswith(")"):
        return value
    try:
        call = ast.parse(value, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _BY_NAME:
            return value
        fields = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        return value
    return _BY_NAME[call.func.id](**fields)  # type: ignore[arg-type]


# Function from the number of finished epochs to the same distributions with other points.
Fresh = Callable[[int], Distributions]


class CoincidingError(ValueError):
    """All distributions coincide under the starting metric."""


@dataclass
class Outcome:
    """Result of a training."""

    kept: Any  # input of the model's `metric`
    history: dict[str, list[Any]]
    loss: float
    converged: bool
    interrupted: bool
    stopped_pivoting: int  # solves that ended at the pivot limit


HISTORY = (
    "loss", "penalty", "active", "solved", "saved", "pivots", "validation_loss",
    "seconds_project", "seconds_transport", "seconds_gradient",
)  # fmt: skip


class Training:
    """One run of the training loop. `state` and `restore` save and continue it between two steps.

    Attributes
    ----------
    held_out : array of bool
        Distributions that are used only to decide when to stop.
    W, kept : array and object
        Parameters of the metric, and the copy of the best ones that becomes the result.
    objective : Objective
        Loss of the present triplets and points.
    learning, validating : list of arrays, array
        Triplets to learn from, grouped by mini-batch, and those with a held-out anchor.
    penalty_weight : float
        `strength` over the value of the penalty at the start.
    best, since_best : float and int
        Lowest held-out loss, and the number of epochs since then.
    batches, parts : lists
        Mini-batches of the present epoch, and the contribution of each finished one to the history; both are empty
        between two epochs.
    drawn : str or None
        Digest of the present points if `fresh` has replaced the first ones.
    """

    W: np.ndarray
    kept: Any
    objective: Objective
    threads: Threads
    learning: list[np.ndarray]
    validating: np.ndarray
    penalty_weight: float
    best: float
    since_best: int

    def __init__(
        self,
        D: Distributions,
        known: Supervision,
        settings: Settings,
        model: Model,
        scale: np.ndarray,
        held_out: np.ndarray,
        random: np.random.RandomState,
    ) -> None:
        self.settings, self.random = settings, random
        self.D, self.known, self.held_out = D, known, held_out
        self.drawn: str | None = None
        self.model, self.scale = model, scale
        self.history: dict[str, list[Any]] = {name: [] for name in HISTORY}
        self.finished = self.converged = self.interrupted = False
        self.stopped_pivoting = 0
        self.optimiser = model.optimiser(settings.learning_rate)
        self.nuisance = self._nuisance()
        self.batches: list[np.ndarray] = []
        self.parts: list[dict[str, float]] = []

    def run(
        self,
        threads: Threads,
        *,
        on_epoch: Callable[[dict[str, list[Any]]], None],
        saving: Saving | None = None,
        fresh: Fresh | None = None,
    ) -> Outcome:
        """Train from the start, or from the saved state, to the end; `fresh` gives other points for every epoch."""
        self.threads = threads
        if saving is None or saving.state is None:
            self._begin()
        else:
            self.restore(saving.state, fresh)
        try:
            while not self.finished:
                if self.step():
                    on_epoch(self.history)
                if fresh is not None and not self.batches and not self.finished:
                    self._renew(fresh)
                if saving is not None:
                    saving.after_step(self)
        except KeyboardInterrupt:
            self.interrupted = True
        return self.outcome()

    def state(self) -> State:
        """Return everything that the remaining training depends on, between two steps. Arrays are not copied."""
        state: State = {name: getattr(self, name) for name in _PLAIN}
        state |= {
            "W": self.W,
            "kept": self.kept,
            "held_out": self.held_out,
            "unit": self.objective.unit,
            "drawn": self.drawn,
            "part_names": list(self.parts[0] if self.parts else ()),
        }
        state |= named("optimiser", restorable(self.optimiser).state())
        state |= named("random", random_state(self.random))
        triplets = self.objective.triplets
        state |= named("triplets", {field.name: getattr(triplets, field.name) for field in fields(triplets)})
        state |= named("history", {name: np.array(values) for name, values in self.history.items()})
        state |= named("pairs", restorable(self.objective.pairs).state())
        state["batches"] = np.concatenate([*self.batches, np.empty(0, np.int64)]).astype(np.int64)
        state["batch_sizes"] = np.array([batch.size for batch in self.batches], np.int64)
        state |= named("parts", {name: np.array([part[name] for part in self.parts]) for name in state["part_names"]})
        return {name: value for name, value in state.items() if value is not None}

    def restore(self, state: State, fresh: Fresh | None = None) -> None:
        """Continue from a saved state. `fresh` must return the same points for the same epoch as in the saved run."""
        for name in (*_PLAIN, "W", "kept", "held_out"):
            setattr(self, name, state[name])
        self.nuisance = self._nuisance()  # depends on `held_out`
        restorable(self.optimiser).restore(under("optimiser", state))
        set_random_state(self.random, under("random", state))
        # After the last epoch, no fresh points are drawn.
        n_epochs = len(state["history.loss"]) - int(self.finished)
        if fresh is not None and n_epochs > 0:
            self._take_again(fresh, n_epochs, state.get("drawn"))
        self.use(Triplets(**under("triplets", state)))
        self.objective.unit = state["unit"]
        restorable(self.objective.pairs).restore(under("pairs", state))
        self.history = {name: values.tolist() for name, values in under("history", state).items()}
        ends = np.cumsum(state["batch_sizes"])
        self.batches = np.split(state["batches"], ends[:-1]) if ends.size else []
        columns = {name: values.tolist() for name, values in under("parts", state).items()}
        n_parts = len(columns["loss"]) if columns else 0
        self.parts = [{name: columns[name][place] for name in state["part_names"]} for place in range(n_parts)]

    def _renew(self, fresh: Fresh) -> None:
        """Replace the points by fresh ones, between two epochs.

        Triplets, units and the optimiser stay: it is the same loss, estimated from another subsample. Bases of the old
        points do not fit the new ones, so that all pairs start cold.
        """
        triplets, unit = self.objective.triplets, self.objective.unit
        del self.objective  # it refers to the old points
        self._take(fresh, len(self.history["loss"]))
        self.use(triplets)
        self.objective.unit = unit

    def _take_again(self, fresh: Fresh, n_epochs: int, drawn: str | None) -> None:
        """Draw the points of the saved run after `n_epochs` again; `drawn` is their digest."""
        self._take(fresh, n_epochs)
        if self.drawn != drawn:
            raise ValueError(
                f"the fresh points after {n_epochs} epochs are not those of the checkpoint: the data have changed "
                "since, or `fresh` returns other points in every call; delete the checkpoint to start anew"
            )

    def _take(self, fresh: Fresh, n_epochs: int) -> None:
        names, shape = self.D.names, self.D.shape
        del self.D  # so that memory never holds two draws
        D = fresh(n_epochs)
        if (D.names, D.shape) != (names, shape):
            raise ValueError(
                f"fresh points are {D!r}, which begin with {D.names[:3]}: expected {shape[0]} distributions with "
                f"{shape[1]} features, all with a label, and in their order, which begins with {names[:3]}"
            )
        self.D, self.drawn = D, cohort_digest(D).hex()

    def _begin(self) -> None:
        self.W = self.model.start(self._first_components)
        self.use(self._choose_triplets())
        self._begin_epoch(0)
        self._set_units()
        self.best, self.kept, self.since_best = np.inf, self.model.keep(self.W), 0

    def _first_components(self, k: int) -> np.ndarray:
        """Rows of a linear metric for standardised features."""
        init = self.settings.init
        if isinstance(init, np.ndarray):
            return init * self.scale
        if init == "random":
            return random_start(self.scale, k, self.random)
        seen = np.flatnonzero(~self.held_out)
        return discriminating_start(self.D[seen], self.known.at(seen), self.scale, k, self.random)

    def _choose_triplets(self) -> Triplets:
        """Triplets drawn at random, or mined under the present metric."""
        t, known, held_out = self.settings.n_neighbors, self.known, self.held_out
        if self.settings.refresh is not None:
            return nearest_triplets(known, t, self._nearest_candidates(), held_out=held_out)
        return random_triplets(known, t, self.random, batch_size=self.settings.batch_size, held_out=held_out)

    def use(self, triplets: Triplets) -> None:
        """Set the triplets; those with a held-out anchor are used for validation only."""
        held_out = self.held_out
        if np.all(held_out[triplets.j]):
            raise ValueError(
                "the labels give no triplet to learn from: lower the `gap` of `target`, or label more distributions"
            )
        self.learning = grouped(triplets, np.flatnonzero(~held_out[triplets.j]))
        self.validating = np.flatnonzero(held_out[triplets.j])
        pairs = self.model.pairs(
            self.D,
            triplets.first,
            triplets.second,
            threads=self.threads,
            memory=self.settings.memory,
            max_pivots=self.settings.max_pivots,
        )
        self.objective = Objective(triplets, pairs, margin=self.settings.margin)

    def _nearest_candidates(self) -> np.ndarray:
        z, t = self.model.project(self.D, self.W), self.settings.n_neighbors
        return nearest_candidates(
            Masses.of(self.D), z, self.known, self.held_out, t, self.threads, cost=self.model.cost
        )

    def _set_units(self) -> None:
        """Measure distances in units of the mean distance at the start, and the penalty in units of its start.

        The mean over the first mini-batch, which is then solved already; over all where that is 0.
        """
        for triplets in (self.batches[0], np.concatenate(self.batches)):
            self.objective.unit = self.objective.typical_distance(self.W, triplets)
            if self.objective.unit > 0.0:
                break
        else:
            raise CoincidingError(
                "all distributions coincide under the starting metric: there is nothing to learn from"
            )
        penalty = self.settings.penalty
        first = penalty.value(self.W) if penalty is not None else 0.0
        self.penalty_weight = self.settings.strength / first if first > 0 else 0.0

    def _nuisance(self) -> StrataVariance | None:
        if self.settings.nuisance == 0.0 or self.known.strata is None:
            return None
        seen = np.flatnonzero(~self.held_out)
        return StrataVariance(self.D[seen].means() / self.scale, self.known.at(seen))

    def step(self) -> bool:
        """Learn from a mini-batch; returns whether it was the last of an epoch."""
        settings, epoch = self.settings, len(self.history["loss"])
        if not self.batches:
            self._begin_epoch(epoch)
        batch = self.batches[len(self.parts)]
        progress = (epoch + len(self.parts) / len(self.batches)) / settings.max_epochs
        self.optimiser.learning_rate = settings.learning_rate * _schedule(progress)
        part = self.objective.evaluate(self.W, batch)
        self._count_pivot_limits(part.pairs)
        assert part.gradient is not None
        self.W = self._step(part.gradient)
        self.parts.append(_summed_up(part, batch.size))
        if len(self.parts) < len(self.batches):
            return False
        self._record(self.parts)
        self._decide()
        self.batches, self.parts = [], []
        return True

    def _begin_epoch(self, epoch: int) -> None:
        settings = self.settings
        if settings.refresh is not None and epoch > 0 and epoch % settings.refresh == 0:
            unit = self.objective.unit
            self.use(self._choose_triplets())
            self.objective.unit = unit
        self.batches = mini_batches(self.learning, settings.batch_size, self.random)

    def _step(self, gradient: np.ndarray) -> np.ndarray:
        """Return the parameters after a step on loss and penalties; penalties with a kink, like L1, by proximal map."""
        penalty, weight, nuisance = self.settings.penalty, self.penalty_weight, self._nuisance_gradient()
        if penalty is None or weight == 0.0:
            return self.optimiser.step(self.W, gradient + nuisance)
        if isinstance(penalty, ProximalPenalty) and isinstance(self.optimiser, Adam):
            return self.optimiser.proximal_step(self.W, gradient + nuisance, penalty, weight)
        return self.optimiser.step(self.W, gradient + weight * penalty.gradient(self.W) + nuisance)

    def _nuisance_gradient(self) -> np.ndarray | float:
        if self.nuisance is None:
            return 0.0
        return self.settings.nuisance * self.model.chain(self.nuisance.gradient(self.model.rows(self.W)))

    def _penalty_value(self) -> float:
        """Return the weighted penalties on W and on the variance between strata."""
        value = 0.0
        if self.settings.penalty is not None and self.penalty_weight > 0.0:
            value += self.penalty_weight * self.settings.penalty.value(self.W)
        if self.nuisance is not None:
            value += self.settings.nuisance * self.nuisance.value(self.model.rows(self.W))
        return value

    def _record(self, parts: list[dict[str, float]]) -> None:
        row = {name: sum(part[name] for part in parts) for name in parts[0]}
        size = row.pop("size")
        row |= {
            "loss": row["loss"] / size,
            "penalty": self._penalty_value(),
            "active": row["active"] / size,
            "validation_loss": np.nan,
        }
        if self.validating.size:
            row["validation_loss"] = self.objective.evaluate(self.W, self.validating, gradient=False).loss
        for name, value in row.items():
            self.history[name].append(value)

    def _decide(self) -> None:
        """Stop when the held-out loss, or without one the minimised loss, no longer improves."""
        history, patience = self.history, self.settings.patience
        small = self.settings.tol * self.settings.margin
        if self.validating.size:
            if history["validation_loss"][-1] < self.best - small:
                self.best, self.since_best = history["validation_loss"][-1], 0
                self.kept = self.model.keep(self.W)
            else:
                self.since_best += 1
            settled = self.since_best >= patience
        else:
            recent = np.add(history["loss"], history["penalty"])[-patience - 1 :]
            settled = recent.size > patience and np.ptp(recent) < small
        pulled = self.penalty_weight > 0.0 or self.nuisance is not None
        done = history["active"][-1] == 0.0 and not pulled  # no active triplet: the gradient is 0
        vanished = has_vanished(history, self.settings.margin, self.settings.strength)
        self.converged = bool(settled or done or vanished)
        self.finished = self.converged or len(history["loss"]) >= self.settings.max_epochs

    def _count_pivot_limits(self, pairs: np.ndarray) -> None:
        self.stopped_pivoting += int(np.sum(~self.objective.pairs.answers.optimal[pairs]))

    def outcome(self) -> Outcome:
        history = self.history
        if not self.validating.size:
            self.kept = self.model.keep(self.W)
            self.best = history["loss"][-1] + history["penalty"][-1] if history["loss"] else np.inf
        return Outcome(self.kept, history, float(self.best), self.converged, self.interrupted, self.stopped_pivoting)


# Attributes of a training that are saved as JSON.
_PLAIN = ("finished", "converged", "stopped_pivoting", "penalty_weight", "best", "since_best")


def _summed_up(part: Evaluation, size: int) -> dict[str, float]:
    """Return the contribution of a mini-batch to the history; contributions are added."""
    row: dict[str, float] = {"size": size, "loss": part.loss * size}
    row |= {name: getattr(part, name) for name in ("active", "solved", "saved", "pivots")}
    return row | {f"seconds_{name}": part.seconds[name] for name in ("project", "transport", "gradient")}


def _schedule(progress: float) -> float:
    """Factor of the learning rate: from 1 to 0 along half a cosine, so that late steps settle."""
    return 0.5 * (1.0 + np.cos(np.pi * progress))
