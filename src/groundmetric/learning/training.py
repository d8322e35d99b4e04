"""Training: its options as objects, and the loop of epochs with Adam, an annealed learning rate and early stopping."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal.parallel import Threads
from .._internal.validation import ParameterError, check_number, real_array
from ..distributions import Distributions
from ..transport.neighbors import Finder, nearest
from ..transport.problem import Masses
from ..transport.solvers.exact import Exact
from .checkpoint import Checkpoints, State, add_prefix, cohort_digest, strip_prefix
from .labels import Classes, ClassTarget, Distances, Ordered, Supervision
from .objective import (
    Adam,
    LinearModel,
    Objective,
    Penalty,
    StrataVariance,
    discriminating_start,
    grouped,
    has_vanished,
    mini_batches,
    nearest_agreement,
    random_start,
    resolve_penalty,
)
from .triplets import Triplets, candidates, nearest_triplets, random_triplets

if TYPE_CHECKING:
    from .._internal.types import Transformer


@dataclass(frozen=True)
class Nearest:
    """Neighbours that are nearest under the current metric (hard mining), searched again at intervals.

    Parameters
    ----------
    refresh : int, default=5
        Number of epochs between two searches.

    Examples
    --------
    >>> Nearest(refresh=2)
    Nearest(refresh=2)
    """

    refresh: int = 5

    def __post_init__(self) -> None:
        check_number("refresh", self.refresh, low=1, whole=True)


@dataclass(frozen=True)
class EarlyStopping:
    """Rule that stops learning before the last epoch.

    Parameters
    ----------
    tol : float, default=0.001
        Learning stops when the loss with penalty has varied by less than `tol` times the margin over `patience` epochs;
        with held-out distributions, when their lowest loss has not fallen by more than that. With 0, the training loss
        never stops learning.
    patience : int, default=10
        Number of epochs over which the loss is compared.
    validation_fraction : float, default=0.0
        Share of the distributions of each class that is held out to detect overfitting, at least two of each class
        remaining; the result is the W of their lowest loss. With 0, the training loss decides.

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
    """File for the state of learning, from which the same fit continues after a crash or Ctrl-C, with equal result.

    Parameters
    ----------
    path : path-like
        File of the last state; the previous state is in ``<path>.before``. Files of other kinds are never replaced.
    every : float, default=60.0
        Seconds between two states, at least.

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
    """Metric that is linear or diagonal in mapped features, and therefore non-linear in the original features.

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


def resolve_form(form: Any) -> Mapped:
    mapped = form if isinstance(form, Mapped) else Mapped(None, form)
    if mapped.form not in ("linear", "diagonal"):
        raise ValueError(f"form is {mapped.form!r}: expected 'linear', 'diagonal' or Mapped(transformer)")
    return mapped


@dataclass(frozen=True)
class Settings:
    """Parameters of GroundMetricLearner that determine the result, validated; see there for their meaning."""

    form: str
    n_components: int
    penalty: Penalty | None
    refresh: int | None  # epochs between two searches of nearest neighbours; None: random neighbours
    restart: bool  # whether to learn again with nearest neighbours if random ones did not separate the classes
    init: Any
    stopping: EarlyStopping
    memory: float  # bytes for the bases of pairs
    max_pivots: int | None
    n_neighbors: int
    max_epochs: int
    batch_size: int
    margin: float
    learning_rate: float
    strength: float
    nuisance: float


def check_settings(learner: Any, n_features: int) -> Settings:
    form = resolve_form(learner.form).form
    if form == "diagonal" and learner.n_components is not None:
        raise ValueError("a diagonal metric has a component per feature: leave n_components out")
    k = min(5, n_features) if learner.n_components is None else learner.n_components
    check_number("n_components", k, low=1, whole=True)
    if k > n_features:
        raise ParameterError("n_components", k, f", but there are only {n_features} features: give at most that many")
    values: dict[str, Any] = {}
    for name in ("n_neighbors", "max_epochs", "batch_size"):
        check_number(name, getattr(learner, name), low=1, whole=True)
        values[name] = int(getattr(learner, name))
    for name in ("margin", "learning_rate", "strength", "nuisance"):
        check_number(name, getattr(learner, name), low=0.0, above=name in ("margin", "learning_rate"))
        values[name] = float(getattr(learner, name))
    neighbors = Nearest() if str(learner.neighbors) == "nearest" else learner.neighbors
    if not isinstance(neighbors, Nearest) and str(neighbors) not in ("auto", "random"):
        raise ValueError(f"neighbors is {neighbors!r}: expected 'auto', 'random', 'nearest' or Nearest(refresh=…)")
    stopping = EarlyStopping() if learner.stopping is None else learner.stopping
    if not isinstance(stopping, EarlyStopping):
        raise TypeError(f"stopping is {stopping!r}: expected EarlyStopping(tol=…, patience=…, validation_fraction=…)")
    solver = Exact() if learner.solver is None or learner.solver == "exact" else learner.solver
    if not isinstance(solver, Exact):  # the gradient needs an exact plan
        raise TypeError(f"solver is {solver!r}: learning is exact, expected transport.Exact(max_pivots=…, memory=…)")
    if solver.max_pivots is not None:
        check_number("max_pivots", solver.max_pivots, low=1, whole=True)
    init = learner.init
    if not isinstance(init, str):
        init = np.array(real_array(init, "init"), np.float64)
        shape = (n_features,) if form == "diagonal" else (k, n_features)
        if init.shape != shape or not np.isfinite(init).all():
            raise ValueError(f"init has shape {init.shape}: expected finite numbers of shape {shape}")
        init = np.atleast_2d(init)
    elif init not in ("discriminant", "random"):
        raise ValueError(f"init is {init!r}: expected 'discriminant', 'random' or an array")
    return Settings(
        form=form,
        n_components=int(k),
        penalty=resolve_penalty(learner.penalty),
        refresh=int(neighbors.refresh) if isinstance(neighbors, Nearest) else None,
        restart=neighbors == "auto",
        init=init,
        stopping=stopping,
        memory=float(solver.memory) * 1e6,
        max_pivots=solver.max_pivots,
        **values,
    )


_BY_NAME: dict[str, Any] = {
    kind.__name__: kind for kind in (Nearest, EarlyStopping, Exact, Classes, Ordered, Distances)
}


def read_parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a learner from a file, in which objects are stored as text (their `repr`).

    >>> read_parameters({"margin": 1.0, "stopping": "EarlyStopping(tol=0.0)"})["stopping"].tol
    0.0
    """
    parameters = dict(stored)
    for name, value in stored.items():
        try:
            call: Any = ast.parse(value if isinstance(value, str) else "", mode="eval").body
            kind = _BY_NAME[call.func.id]
            arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        except (AttributeError, KeyError, SyntaxError, ValueError):  # not the text of an object
            continue
        parameters[name] = kind(**arguments)
    return parameters


# With neighbors="auto": learn again with nearest neighbours if fewer than this share of the training distributions are
# nearest to one of their class.
MIN_AGREEMENT = 0.5
# The search compares all pairs of distributions by bounds, which is cheap up to this number.
_MOST_DISTRIBUTIONS = 1000

# Function from the number of finished epochs to the same distributions with other points.
Fresh = Callable[[int], Distributions]


class CoincidingError(ValueError):
    """Error if all distributions coincide under the starting metric."""


HISTORY = (
    "loss", "penalty", "active", "solved", "saved", "pivots", "validation_loss",
    "seconds_project", "seconds_transport", "seconds_gradient",
)  # fmt: skip
# Parts of the state of a random generator, in the order of `RandomState.get_state`.
_RANDOM = ("kind", "keys", "position", "has_gauss", "gauss")


@dataclass
class Progress:
    """State of a training between two steps; a training continued from it gives the same result, bit by bit."""

    W: np.ndarray
    kept: Any  # copy of the parameters of the lowest held-out loss (`LinearModel.keep`)
    held_out: np.ndarray  # mask of the distributions that only decide when to stop
    triplets: Triplets
    unit: float = 1.0  # mean distance at the start
    penalty_weight: float = 0.0  # `strength` over the value of the penalty at the start
    best: float = np.inf  # lowest held-out loss, and the number of epochs since then
    since_best: int = 0
    history: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in HISTORY})
    # Mini-batches of the current epoch, and the contributions of the finished ones to the history.
    batches: list[np.ndarray] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    drawn: str | None = None  # digest of the current points if `fresh` has replaced the first ones
    stopped_pivoting: int = 0  # solves that ended at the pivot limit
    finished: bool = False
    converged: bool = False  # finished because the loss settled
    refresh: int | None = None  # epochs between two searches of nearest neighbours; None: random neighbours
    agreement: float = np.nan  # share of distributions whose nearest distribution is of their class, if computed
    interrupted: bool = False

    @property
    def n_epochs(self) -> int:
        return len(self.history["loss"])

    def pack(self) -> State:  # without entries that are None
        groups: dict[str, Any] = {"triplets": vars(self.triplets), "history": self.history, "parts": self.parts}
        state = {name: value for name, value in vars(self).items() if name not in groups}
        for prefix, group in groups.items():
            state |= add_prefix(prefix, {k: None if v is None else np.asarray(v) for k, v in group.items()})
        state["batches"] = np.concatenate([*self.batches, np.empty(0, np.int64)]).astype(np.int64)
        state["batch_sizes"] = np.array([batch.size for batch in self.batches], np.int64)
        return {name: value for name, value in state.items() if value is not None}

    @classmethod
    def unpack(cls, state: State) -> Progress:
        fields: State = {name: state[name] for name in cls.__dataclass_fields__ if name in state}
        for group in ("history", "parts"):
            fields[group] = {name: values.tolist() for name, values in strip_prefix(group, state).items()}
        fields["triplets"] = Triplets(**strip_prefix("triplets", state))
        ends = np.cumsum(state["batch_sizes"])
        fields["batches"] = np.split(state["batches"], ends[:-1]) if ends.size else []
        return cls(**fields)


@dataclass(eq=False)
class Training:
    """One run of the training loop, in steps of a mini-batch.

    A checkpoint saves `progress`, the optimiser, the random generator and the pairs. All other attributes follow from
    these and the arguments, and are set again after a restart.
    """

    D: Distributions
    labels: Supervision
    settings: Settings
    model: LinearModel
    scale: np.ndarray
    held_out: np.ndarray
    random: np.random.RandomState
    progress: Progress = field(init=False)
    objective: Objective = field(init=False)  # loss of the current triplets and points
    groups: list[np.ndarray] = field(init=False)  # groups of triplets to learn from
    validating: np.ndarray = field(init=False)  # triplets with a held-out anchor
    threads: Threads = field(init=False)

    def __post_init__(self) -> None:
        self.optimiser = self.model.optimiser(self.settings.learning_rate)
        self.strata_variance = self._strata_variance()

    def run(
        self,
        threads: Threads,
        *,
        on_epoch: Callable[[dict[str, list[Any]]], None],
        saving: Checkpoints | None = None,
        fresh: Fresh | None = None,
    ) -> Progress:
        """Train from the start, or from the saved state, to the end; `fresh` returns other points for every epoch."""
        self.threads = threads
        if saving is None or saving.state is None:
            self._begin(self.settings.refresh)
        else:
            self.restore(saving.state, fresh)
        try:
            while not self.progress.finished:
                if self.step():
                    on_epoch(self.progress.history)
                    if self.progress.finished:
                        self._restart_if_misled()
                if fresh is not None and not self.progress.batches and not self.progress.finished:
                    # Triplets, units and the optimiser stay: it is the same loss, estimated from another subsample.
                    # Bases of the old points do not fit the new ones, which means a cold start of all pairs.
                    del self.objective  # it refers to the old points
                    self._take(fresh, self.progress.n_epochs)
                    self._use_triplets()
                if saving is not None:
                    saving.after_step(self)
        except KeyboardInterrupt:
            self.progress.interrupted = True
        now = self.progress
        if not self.validating.size:
            now.kept = self.model.keep(now.W)
            now.best = now.history["loss"][-1] + now.history["penalty"][-1] if now.n_epochs else np.inf
        return now

    def state(self) -> State:
        """Return everything that the remaining training depends on; arrays are not copied."""
        return {
            **self.progress.pack(),
            **add_prefix("optimiser", vars(self.optimiser)),
            **add_prefix("random", dict(zip(_RANDOM, self.random.get_state(legacy=True), strict=True))),
            **add_prefix("pairs", self.objective.pairs.state()),
        }

    def restore(self, state: State, fresh: Fresh | None = None) -> None:
        """Continue from a saved state. `fresh` must return the same points for the same epoch as in the saved run."""
        now = self.progress = Progress.unpack(state)
        self.held_out = now.held_out
        self.strata_variance = self._strata_variance()  # depends on `held_out`
        vars(self.optimiser).update(strip_prefix("optimiser", state))
        random = strip_prefix("random", state)
        self.random.set_state(tuple(random[name] for name in _RANDOM))
        # After the last epoch, no fresh points are drawn.
        n_epochs, drawn = now.n_epochs - int(now.finished), now.drawn
        if fresh is not None and n_epochs > 0:
            self._take(fresh, n_epochs)
            if now.drawn != drawn:
                raise ValueError(
                    f"the fresh points after {n_epochs} epochs are not those of the checkpoint: the data have changed "
                    "since, or `fresh` returns other points in every call; delete the checkpoint to start anew"
                )
        self._use_triplets()
        self.objective.pairs.restore(strip_prefix("pairs", state))

    def _take(self, fresh: Fresh, n_epochs: int) -> None:
        names, shape = self.D.names, self.D.shape
        del self.D  # memory must not hold two draws at the same time
        D = fresh(n_epochs)
        if (D.names, D.shape) != (names, shape):
            raise ValueError(
                f"fresh points are {D!r}, which begin with {D.names[:3]}: expected {shape[0]} distributions with "
                f"{shape[1]} features, all with a label, and in their order, which begins with {names[:3]}"
            )
        self.D, self.progress.drawn = D, cohort_digest(D).hex()

    def _begin(self, refresh: int | None) -> None:
        self.optimiser = self.model.optimiser(self.settings.learning_rate)

        def components(k: int) -> np.ndarray:
            init = self.settings.init
            if isinstance(init, np.ndarray):
                return init * self.scale
            if init == "random":
                return random_start(self.scale, k, self.random)
            training = np.flatnonzero(~self.held_out)
            return discriminating_start(self.D[training], self.labels.at(training), self.scale, k, self.random)

        W = self.model.start(components)
        triplets = self._choose_triplets(W, refresh)
        now = self.progress = Progress(W, self.model.keep(W), self.held_out, triplets, refresh=refresh)
        self._use_triplets()
        now.batches = mini_batches(self.groups, self.settings.batch_size, self.random)
        # Distances are measured in units of their mean at the start. The pairs of the first mini-batch suffice, and
        # must be solved anyway; only if all of them coincide, the mean over all pairs is used.
        for batch in (now.batches[0], np.concatenate(now.batches)):
            now.unit = self.objective.unit = self.objective.typical_distance(W, batch)
            if now.unit > 0.0:
                break
        else:
            raise CoincidingError(
                "all distributions coincide under the starting metric: there is nothing to learn from"
            )
        penalty = self.settings.penalty
        first = penalty.value(W) if penalty is not None else 0.0
        now.penalty_weight = self.settings.strength / first if first > 0 else 0.0

    def _restart_if_misled(self) -> None:
        """Learn again with nearest neighbours if the metric does not separate the classes of the training set."""
        # A nuisance direction associated with the classes reduces the loss of random triplets, even to 0. Nearest
        # neighbours are not used from the start: on real cohorts they overfit more and take three times as long.
        now, labels, target = self.progress, self.labels, self.labels.targets[0]
        if not self.settings.restart or not isinstance(self.model, LinearModel) or len(self.D) > _MOST_DISTRIBUTIONS:
            return
        if not isinstance(target, ClassTarget) or len(labels.targets) > 1 or labels.strata is not None:
            return
        z = self.model.project(self.D, now.kept if self.validating.size else now.W)
        now.agreement = nearest_agreement(Masses.of(self.D), z, target.levels, self.threads, cost=self.model.cost)
        if now.agreement < MIN_AGREEMENT and now.refresh is None:
            self._begin(Nearest().refresh)

    def _choose_triplets(self, W: np.ndarray, refresh: int | None) -> Triplets:
        t, labels, held_out = self.settings.n_neighbors, self.labels, self.held_out
        if refresh is None:
            return random_triplets(labels, t, self.random, batch_size=self.settings.batch_size, held_out=held_out)
        # Distances of every distribution to its nearest candidates of each level. Lower bounds rule most pairs out.
        z, n = self.model.project(self.D, W), len(self.D)
        finder = Finder(Masses.of(self.D), z, self.threads, cost=self.model.cost)
        lower, distances = finder.lower_bounds(), np.full((n, n), np.inf)
        # One search per level: of all anchors in their first level, in their second level, and so on.
        masks: dict[tuple[Any, ...], np.ndarray] = {}
        for number, target in enumerate(labels.targets):
            for candidate in candidates(target, held_out, labels.strata):
                sides = [candidate.near] if candidate.far is candidate.near else [candidate.near, candidate.far]
                for side, pools in enumerate(sides):
                    for level, pool in enumerate(pools):
                        mask = masks.setdefault((number, side, level), np.zeros((n, n), bool))
                        mask[candidate.anchor, pool.all()] = True
        for mask in masks.values():
            exact = nearest(np.where(mask, lower, np.inf), min(t, n), finder.solve, finder.sharpen)
            np.minimum(distances, exact, out=distances)
        return nearest_triplets(labels, t, distances, held_out=held_out)

    def _use_triplets(self) -> None:
        triplets = self.progress.triplets
        validating = self.held_out[triplets.j]
        if np.all(validating):
            raise ValueError(
                "the labels give no triplet to learn from: lower the `gap` of `target`, or label more distributions"
            )
        self.groups, self.validating = grouped(triplets, np.flatnonzero(~validating)), np.flatnonzero(validating)
        options = {"memory": self.settings.memory, "max_pivots": self.settings.max_pivots}
        pairs = self.model.pairs(self.D, triplets.first, triplets.second, threads=self.threads, **options)
        self.objective = Objective(triplets, pairs, margin=self.settings.margin)
        self.objective.unit = self.progress.unit

    def _strata_variance(self) -> StrataVariance | None:
        if self.settings.nuisance == 0.0 or self.labels.strata is None:
            return None
        training = np.flatnonzero(~self.held_out)
        return StrataVariance(self.D[training].means() / self.scale, self.labels.at(training))

    def step(self) -> bool:
        """Learn from one mini-batch; return whether it was the last of an epoch."""
        settings, now, optimiser = self.settings, self.progress, self.optimiser
        epoch = now.n_epochs
        if not now.batches:
            if now.refresh is not None and epoch > 0 and epoch % now.refresh == 0:
                now.triplets = self._choose_triplets(now.W, now.refresh)
                self._use_triplets()
            now.batches = mini_batches(self.groups, settings.batch_size, self.random)
        n_finished = len(now.parts.get("size", ()))
        batch = now.batches[n_finished]
        # The learning rate falls from its first value to 0 along half a cosine: late steps settle.
        progress = (epoch + n_finished / len(now.batches)) / settings.max_epochs
        optimiser.learning_rate = settings.learning_rate * (0.5 * (1.0 + np.cos(np.pi * progress)))
        result = self.objective.evaluate(now.W, batch)
        now.stopped_pivoting += int(np.sum(~self.objective.pairs.answers.optimal[result.pairs]))
        assert result.gradient is not None

        W, penalty, weight = now.W, settings.penalty, now.penalty_weight
        nuisance: Any = 0.0
        if self.strata_variance is not None:
            nuisance = settings.nuisance * self.model.chain(self.strata_variance.gradient(self.model.rows(W)))
        if penalty is None or weight == 0.0:
            now.W = optimiser.step(W, result.gradient + nuisance)
        elif all(hasattr(penalty, name) for name in ("proximal", "tied")) and isinstance(optimiser, Adam):
            now.W = optimiser.proximal_step(W, result.gradient + nuisance, penalty, weight)
        else:
            now.W = optimiser.step(W, result.gradient + weight * penalty.gradient(W) + nuisance)

        part: dict[str, float] = {"size": batch.size, "loss": result.loss * batch.size}
        part |= {name: getattr(result, name) for name in ("active", "solved", "saved", "pivots")}
        part |= {f"seconds_{name}": seconds for name, seconds in result.seconds.items()}
        for name, value in part.items():
            now.parts.setdefault(name, []).append(value)
        if n_finished + 1 < len(now.batches):
            return False

        # Add the epoch to the history; stop when the held-out or the minimised loss no longer improves.
        history, row = now.history, {name: sum(values) for name, values in now.parts.items()}
        size, total_penalty = row.pop("size"), 0.0
        if penalty is not None and weight > 0.0:
            total_penalty += weight * penalty.value(now.W)
        if self.strata_variance is not None:
            total_penalty += settings.nuisance * self.strata_variance.value(self.model.rows(now.W))
        row |= {"loss": row["loss"] / size, "penalty": total_penalty, "active": row["active"] / size}
        row["validation_loss"] = np.nan
        if self.validating.size:
            row["validation_loss"] = self.objective.evaluate(now.W, self.validating, gradient=False).loss
        for name, value in row.items():
            history[name].append(value)

        small, patience = settings.stopping.tol * settings.margin, settings.stopping.patience
        if self.validating.size:
            now.since_best += 1
            if row["validation_loss"] < now.best - small:
                now.best, now.since_best, now.kept = row["validation_loss"], 0, self.model.keep(now.W)
            settled = now.since_best >= patience
        else:
            recent = np.add(history["loss"], history["penalty"])[-patience - 1 :]
            settled = recent.size > patience and np.ptp(recent) < small
        # Without an active triplet the gradient of the loss is 0: only a penalty would still change W.
        penalised = weight > 0.0 or self.strata_variance is not None
        done = row["active"] == 0.0 and not penalised
        vanished = has_vanished(history, settings.margin, settings.strength)
        now.converged = bool(settled or done or vanished)
        now.finished = now.converged or now.n_epochs >= settings.max_epochs
        now.batches, now.parts = [], {}
        return True
