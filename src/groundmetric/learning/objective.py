"""The GGML loss and its exact gradient, whatever metric is learned."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from ..supervision import Triplets
from .model import GroundPairs


@dataclass
class Evaluation:
    """Loss of a batch of triplets, its gradient, and the number and time of the solves."""

    loss: float
    active: int
    solved: int
    saved: int
    pivots: int
    pairs: np.ndarray  # those that were solved
    gradient: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Objective:
    """Mean hinge loss over triplets, in units of a typical distance, as a function of the metric's parameters.

    A triplet whose hinge is certainly 0, by bounds, needs no solve.

    Parameters
    ----------
    triplets : Triplets
        Triplets over which the loss is averaged.
    pairs : GroundPairs
        Pairs of distributions of the triplets.
    margin : float
        Margin of the hinge, in units of the attribute `unit`.
    """

    def __init__(self, triplets: Triplets, pairs: GroundPairs, *, margin: float) -> None:
        self.triplets, self.pairs, self.margin = triplets, pairs, margin
        self.unit = 1.0

    def typical_distance(self, parameters: np.ndarray) -> float:
        """Mean distance over all pairs."""
        distributions = np.unique([self.pairs.first, self.pairs.second])
        self.pairs.place(parameters, distributions, learning=False)
        return float(self.pairs.solve(np.arange(self.pairs.first.size)).mean())

    def evaluate(self, parameters: np.ndarray, batch: np.ndarray, *, gradient: bool = True) -> Evaluation:
        """Loss of the triplets `batch`, and its gradient."""
        clock = _Clock()
        near, far = self.triplets.near[batch], self.triplets.far[batch]
        pairs, places = np.unique(np.concatenate([near, far]), return_inverse=True)
        near, far = places[: near.size], places[near.size :]
        distributions = np.unique([self.pairs.first[pairs], self.pairs.second[pairs]])
        self.pairs.place(parameters, distributions, learning=gradient)
        clock.lap("project")

        margin = self.margin * self.unit
        open_ = self.pairs.upper(pairs)[near] - self.pairs.lower(pairs)[far] + margin > 0
        needed = np.unique(np.concatenate([near[open_], far[open_]]))
        values = np.full(pairs.size, np.nan)
        values[needed] = self.pairs.solve(pairs[needed])
        clock.lap("transport")

        hinge = np.zeros(batch.size)
        hinge[open_] = np.maximum(values[near[open_]] - values[far[open_]] + margin, 0.0)
        active = hinge > 0
        weight = None if self.triplets.weight is None else self.triplets.weight[batch]
        heavy = None if weight is None else weight[active]
        result = Evaluation(
            loss=float((hinge if weight is None else weight * hinge).mean()) / self.unit,
            active=int(active.sum()),
            solved=needed.size,
            saved=pairs.size - needed.size,
            pivots=int(self.pairs.answers.pivots[pairs[needed]].sum()),
            pairs=pairs[needed],
        )
        if gradient:
            # A pair counts once for every active triplet that wants it near, and against every one that wants it far.
            coefficient = np.bincount(near[active], heavy, pairs.size) - np.bincount(far[active], heavy, pairs.size)
            pulling = np.flatnonzero(coefficient)
            share = coefficient[pulling] / (batch.size * self.unit)
            result.gradient = self.pairs.gradient(pairs[pulling], share)
            clock.lap("gradient")
        result.seconds = clock.laps
        return result


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
