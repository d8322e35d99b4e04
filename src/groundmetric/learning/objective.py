"""The GGML loss and its exact gradient.

Features never enter the transport code: points are projected, Z = X Wᵀ, pairs are solved in the few dimensions of Z,
and the pull F on every projected point comes back as Fᵀ X, the gradient with respect to W.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..distributions import Distributions
from ..parallel import Threads
from ..transport.masses import Masses
from ..transport.pairs import PairTransport, pair_transport
from ..triplets import Triplets

# Distributions with fewer points are projected together: one product for many instead of many small ones.
_SMALL = 64


@dataclass
class Evaluation:
    """Loss of a batch of triplets, with what it cost."""

    loss: float
    active: int
    solved: int
    saved: int
    pivots: int
    pairs: np.ndarray  # those that were solved
    gradient: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Objective:
    """Mean hinge loss over triplets, in units of a typical distance, as a function of W.

    W applies to standardised features; the standardisation is folded into the projection, so that no copy of the points
    is made. A triplet whose hinge is certainly 0, by bounds, costs no solve.

    Parameters
    ----------
    D : Distributions
    triplets : Triplets
    margin : float, in units of `unit`
    scale : array (n_features,), standard deviation of each feature
    centre : array (n_features,), mean of each feature
    """

    def __init__(
        self,
        D: Distributions,
        triplets: Triplets,
        n_components: int,
        *,
        margin: float,
        scale: np.ndarray,
        centre: np.ndarray,
        threads: Threads,
        memory: float,
        max_pivots: int | None,
    ) -> None:
        self.triplets = triplets
        self.margin = margin
        self.unit = 1.0
        self._D, self._scale, self._centre = D, scale, centre
        self.transport: PairTransport = pair_transport(
            Masses.of(D),
            triplets.first,
            triplets.second,
            n_components,
            threads=threads,
            memory=memory,
            max_pivots=max_pivots,
        )

    def typical_distance(self, W: np.ndarray) -> float:
        """Mean distance over all pairs."""
        self._project(W, np.arange(len(self._D)))
        return float(self.transport.solve(np.arange(self.triplets.first.size)).mean())

    def evaluate(self, W: np.ndarray, batch: np.ndarray, *, gradient: bool = True) -> Evaluation:
        """Loss of the triplets `batch` at W, and its gradient."""
        clock = _Clock()
        near, far = self.triplets.near[batch], self.triplets.far[batch]
        pairs, places = np.unique(np.concatenate([near, far]), return_inverse=True)
        near, far = places[: near.size], places[near.size :]
        self._project(W, np.unique([self.triplets.first[pairs], self.triplets.second[pairs]]))
        clock.lap("project")

        margin = self.margin * self.unit
        open_ = self.transport.upper(pairs)[near] - self.transport.lower(pairs)[far] + margin > 0
        needed = np.unique(np.concatenate([near[open_], far[open_]]))
        values = np.full(pairs.size, np.nan)
        values[needed] = self.transport.solve(pairs[needed])
        clock.lap("transport")

        hinge = np.zeros(batch.size)
        hinge[open_] = np.maximum(values[near[open_]] - values[far[open_]] + margin, 0.0)
        active = hinge > 0
        result = Evaluation(
            loss=float(hinge.mean()) / self.unit,
            active=int(active.sum()),
            solved=needed.size,
            saved=pairs.size - needed.size,
            pivots=int(self.transport.answers.pivots[pairs[needed]].sum()),
            pairs=pairs[needed],
        )
        if gradient:
            # A pair counts once for every active triplet that wants it near, and against every one that wants it far.
            coefficient = np.bincount(near[active], minlength=pairs.size) - np.bincount(
                far[active], minlength=pairs.size
            )
            pulling = np.flatnonzero(coefficient)
            share = coefficient[pulling] / (batch.size * self.unit)
            result.gradient = self._pull_back(self.transport.pull(pairs[pulling], share), pairs[pulling])
            clock.lap("gradient")
        result.seconds = clock.laps
        return result

    def _project(self, W: np.ndarray, distributions: np.ndarray) -> None:
        """Move the transport's points to where W puts them, less a common shift, which changes no distance."""
        components = W / self._scale
        shift = components @ self._centre
        for some, rows in self._blocks(distributions):
            z = np.asarray(self._points(rows) @ components.T, dtype=np.float64) - shift
            ends = np.cumsum(self._D.sizes[some])
            for d, end in zip(some, ends, strict=True):
                self.transport.move(d, z[end - self._D.sizes[d] : end])

    def _pull_back(self, pull: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Fᵀ X over the distributions that are pulled at, for standardised features."""
        total = np.zeros((pull.shape[1], self._scale.size))
        for _, rows in self._blocks(np.unique([self.triplets.first[pairs], self.triplets.second[pairs]])):
            total += (self._points(rows).T @ pull[rows]).T
        return total / self._scale

    def _blocks(self, distributions: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Distributions with their rows: a large one by itself, as a slice without a copy, small ones together."""
        small = self._D.sizes[distributions] < _SMALL
        for d in distributions[~small]:
            yield np.array([d]), slice(self._D.bounds[d], self._D.bounds[d + 1])
        for low in range(0, int(small.sum()), _SMALL):
            some = distributions[small][low : low + _SMALL]
            yield some, np.concatenate([np.arange(self._D.bounds[d], self._D.bounds[d + 1]) for d in some])

    def _points(self, rows: Any) -> Any:
        """Points in float64: only these rows are copied where the cohort is float32."""
        return self._D.points[rows].astype(np.float64, copy=False)


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
