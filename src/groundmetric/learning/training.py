"""The training loop: epochs of mini-batches with Adam, an annealed learning rate, early stopping, restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..distributions import Distributions
from ..parallel import Threads
from ..transport.masses import Masses
from ..transport.search import nearest_in_classes
from ..triplets import Triplets, nearest_triplets, random_triplets
from .objective import Evaluation, Objective
from .optimiser import Adam
from .penalties import Penalty
from .start import discriminating_start, random_start


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is learned; see GroundMetricLearner for what each means."""

    n_components: int
    margin: float
    penalty: Penalty | None
    strength: float
    n_neighbors: int
    neighbors: str
    refresh: int
    init: Any
    learning_rate: float
    max_epochs: int
    batch_size: int
    tol: float
    patience: int
    memory: float
    max_pivots: int | None


@dataclass
class Outcome:
    """What one run of training gives."""

    W: np.ndarray  # for standardised features
    history: dict[str, list]
    loss: float
    converged: bool
    interrupted: bool
    stopped_pivoting: int  # solves that ended at the pivot limit


HISTORY = (
    "loss", "penalty", "active", "solved", "saved", "pivots", "validation_loss",
    "seconds_project", "seconds_transport", "seconds_gradient",
)  # fmt: skip


def train(
    D: Distributions,
    labels: np.ndarray,
    settings: Settings,
    *,
    scale: np.ndarray,
    centre: np.ndarray,
    held_out: np.ndarray,
    threads: Threads,
    random: np.random.RandomState,
    on_epoch: Callable[[dict[str, list]], None],
) -> Outcome:
    """One run from one start. `held_out` marks distributions that are only used to decide when to stop."""
    run = _Run(D, labels, settings, scale, centre, held_out, threads, random)
    try:
        while not run.finished:
            run.epoch()
            on_epoch(run.history)
    except KeyboardInterrupt:
        run.interrupted = True
    return run.outcome()


class _Run:
    def __init__(
        self,
        D: Distributions,
        labels: np.ndarray,
        settings: Settings,
        scale: np.ndarray,
        centre: np.ndarray,
        held_out: np.ndarray,
        threads: Threads,
        random: np.random.RandomState,
    ) -> None:
        self.settings, self.random, self.threads = settings, random, threads
        self.D, self.labels, self.held_out = D, labels, held_out
        self.scale, self.centre = scale, centre
        self.history: dict[str, list] = {name: [] for name in HISTORY}
        self.finished = self.converged = self.interrupted = False
        self.stopped_pivoting = 0
        self.W = self._first_components()
        self.optimiser = Adam(settings.learning_rate)
        self.objective = self._objective()
        self._set_units()
        self.best, self.best_W, self.since_best = np.inf, self.W, 0

    def _first_components(self) -> np.ndarray:
        init, k = self.settings.init, self.settings.n_components
        if isinstance(init, np.ndarray):
            return init * self.scale
        if init == "random":
            return random_start(self.scale, k, self.random)
        seen = np.flatnonzero(~self.held_out)
        return discriminating_start(self.D[seen], self.labels[seen], self.scale, k, self.random)

    def _objective(self) -> Objective:
        """The loss over triplets drawn at random, or mined under the present metric.

        Triplets with a held-out anchor are for validation; nobody learns from them.
        """
        t, labels, held_out = self.settings.n_neighbors, self.labels, self.held_out
        if self.settings.neighbors == "nearest":
            distances = nearest_in_classes(Masses.of(self.D), self._project(), labels, held_out, t, self.threads)
            triplets = nearest_triplets(labels, t, distances, held_out=held_out)
        else:
            triplets = random_triplets(labels, t, self.random, held_out=held_out)
        self.learning = _by_anchor(triplets, np.flatnonzero(~held_out[triplets.j]))
        self.validating = np.flatnonzero(held_out[triplets.j])
        return Objective(
            self.D,
            triplets,
            self.settings.n_components,
            margin=self.settings.margin,
            scale=self.scale,
            centre=self.centre,
            threads=self.threads,
            memory=self.settings.memory,
            max_pivots=self.settings.max_pivots,
        )

    def _set_units(self) -> None:
        """Measure distances in units of the mean distance at the start, and the penalty in units of its start."""
        self.objective.unit = self.objective.typical_distance(self.W)
        self._count_pivot_limits(np.arange(self.objective.triplets.first.size))
        if not self.objective.unit > 0.0:
            raise ValueError("all distributions coincide under the starting metric: there is nothing to learn from")
        penalty = self.settings.penalty
        first = penalty.value(self.W) if penalty is not None else 0.0
        self.penalty_weight = self.settings.strength / first if first > 0 else 0.0

    def epoch(self) -> None:
        settings, epoch = self.settings, len(self.history["loss"])
        if settings.neighbors == "nearest" and epoch > 0 and epoch % settings.refresh == 0:
            unit = self.objective.unit
            self.objective = self._objective()
            self.objective.unit = unit
        parts = []
        batches = _batches(self.learning, settings.batch_size, self.random)
        for step, batch in enumerate(batches):
            progress = (epoch + step / len(batches)) / settings.max_epochs
            self.optimiser.learning_rate = settings.learning_rate * _schedule(progress)
            part = self.objective.evaluate(self.W, batch)
            self._count_pivot_limits(part.pairs)
            assert part.gradient is not None
            self.W = self.optimiser.step(self.W, part.gradient + self._penalty_gradient())
            parts.append((part, batch.size))
        self._record(parts)
        self._decide()

    def _penalty_gradient(self) -> np.ndarray | float:
        if self.penalty_weight == 0.0:
            return 0.0
        assert self.settings.penalty is not None
        return self.penalty_weight * self.settings.penalty.gradient(self.W)

    def _penalty_value(self) -> float:
        if self.penalty_weight == 0.0:
            return 0.0
        assert self.settings.penalty is not None
        return self.penalty_weight * self.settings.penalty.value(self.W)

    def _record(self, parts: list[tuple[Evaluation, int]]) -> None:
        size = sum(batch for _, batch in parts)
        row = {
            "loss": sum(part.loss * batch for part, batch in parts) / size,
            "penalty": self._penalty_value(),
            "active": sum(part.active for part, _ in parts) / size,
            "solved": sum(part.solved for part, _ in parts),
            "saved": sum(part.saved for part, _ in parts),
            "pivots": sum(part.pivots for part, _ in parts),
            "validation_loss": np.nan,
        }
        for name in ("project", "transport", "gradient"):
            row[f"seconds_{name}"] = sum(part.seconds[name] for part, _ in parts)
        if self.validating.size:
            row["validation_loss"] = self.objective.evaluate(self.W, self.validating, gradient=False).loss
        for name, value in row.items():
            self.history[name].append(value)

    def _decide(self) -> None:
        """Stop when nothing improves any more: the held-out loss, or without one the loss that is minimised."""
        history, patience = self.history, self.settings.patience
        small = self.settings.tol * self.settings.margin
        if self.validating.size:
            if history["validation_loss"][-1] < self.best - small:
                self.best, self.best_W, self.since_best = history["validation_loss"][-1], self.W, 0
            else:
                self.since_best += 1
            settled = self.since_best >= patience
        else:
            recent = np.add(history["loss"], history["penalty"])[-patience - 1 :]
            settled = recent.size > patience and np.ptp(recent) < small
        done = history["active"][-1] == 0.0 and self.penalty_weight == 0.0  # no triplet pulls: W will not move again
        self.converged = bool(settled or done)
        self.finished = self.converged or len(history["loss"]) >= self.settings.max_epochs

    def _count_pivot_limits(self, pairs: np.ndarray) -> None:
        self.stopped_pivoting += int(np.sum(~self.objective.transport.answers.optimal[pairs]))

    def _project(self) -> np.ndarray:
        components = self.W / self.scale
        return np.asarray(self.D.points @ components.T, dtype=np.float64) - components @ self.centre

    def outcome(self) -> Outcome:
        history = self.history
        if not self.validating.size:
            self.best_W = self.W
            self.best = history["loss"][-1] + history["penalty"][-1] if history["loss"] else np.inf
        return Outcome(self.best_W, history, float(self.best), self.converged, self.interrupted, self.stopped_pivoting)


def _schedule(progress: float) -> float:
    """Factor of the learning rate: from 1 to 0 along half a cosine, so that late steps settle."""
    return 0.5 * (1.0 + np.cos(np.pi * progress))


def _by_anchor(triplets: Triplets, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen triplets, those of one anchor together: they share pairs, so a batch of them needs few solves."""
    order = chosen[np.argsort(triplets.j[chosen], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(triplets.j[order])) + 1)


def _batches(anchors: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Mini-batches of about `size` triplets: whole anchors in random order."""
    order = [anchors[place] for place in random.permutation(len(anchors))]
    ends = np.cumsum([anchor.size for anchor in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[place] for place in part]) for part in parts if part.size]
