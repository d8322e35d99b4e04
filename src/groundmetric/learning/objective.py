"""A step of learning: the GGML loss of a mini-batch of triplets, its exact gradient, and Adam.

The loss depends on the metric only through the transport of pairs (`GroundPairs`). Mini-batches consist of all triplets
of some anchors. `nearest_candidates` searches neighbours for triplets of nearest neighbours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .._internal.parallel import Threads
from ..metrics.base import Cost
from ..transport.neighbors import Finder, nearest
from ..transport.problem import Answers, Masses
from .labels import Supervision
from .penalties import ProximalPenalty
from .triplets import Triplets, candidates


class GroundPairs(Protocol):
    """A fixed list of pairs of distributions whose transport values depend on parameters."""

    first: np.ndarray  # (n_pairs,) the distributions of each pair
    second: np.ndarray
    answers: Answers

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        """Bring these distributions up to the parameters. `learning` says that `gradient` may follow."""
        ...

    def upper(self, which: np.ndarray) -> np.ndarray:
        """Upper bounds of the present values."""
        ...

    def lower(self, which: np.ndarray) -> np.ndarray:
        """Lower bounds of the present values."""
        ...

    def solve(self, which: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        """Exact values; may be infinite where the value is certainly at least `enough`."""
        ...

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        """Gradient of ``coefficient @ solve(which)`` with respect to the parameters of the last `place`."""
        ...


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

    def typical_distance(self, parameters: np.ndarray, batch: np.ndarray) -> float:
        """Mean distance over the pairs of some triplets."""
        pairs = np.unique([self.triplets.near[batch], self.triplets.far[batch]])
        self.pairs.place(parameters, np.unique([self.pairs.first[pairs], self.pairs.second[pairs]]), learning=False)
        return float(self.pairs.solve(pairs).mean())

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
        values, open_ = self._values(pairs, near, far, margin)
        solved = np.flatnonzero(np.isfinite(values))
        clock.lap("transport")

        hinge = np.zeros(batch.size)
        # A far value of infinity, or a near value of NaN, means that the hinge is certainly 0: `fmax` ignores NaN.
        hinge[open_] = np.fmax(values[near[open_]] - values[far[open_]] + margin, 0.0)
        active = hinge > 0
        weight = None if self.triplets.weight is None else self.triplets.weight[batch]
        heavy = None if weight is None else weight[active]
        result = Evaluation(
            loss=float((hinge if weight is None else weight * hinge).mean()) / self.unit,
            active=int(active.sum()),
            solved=solved.size,
            saved=pairs.size - solved.size,
            pivots=int(self.pairs.answers.pivots[pairs[solved]].sum()),
            pairs=pairs[solved],
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

    def _values(
        self, pairs: np.ndarray, near: np.ndarray, far: np.ndarray, margin: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact values of the pairs that the loss of these triplets depends on, and which triplets may have a loss.

        The hinge of a triplet is max(near - far + margin, 0). Its gradient needs exact plans, but only if it is
        positive, and most triplets are satisfied later in training. Solves are avoided in three steps:

        1. Bounds without a solve. A triplet with ``upper(near) - lower(far) + margin <= 0`` is satisfied and not looked
           at again (`open_` marks the others).
        2. Near pairs of open triplets that violate the margin even if the far pair is as far as its upper bound allows.
           These triplets are violated for certain, or nearly so, and their near pairs are needed in any case.
        3. Far pairs. ``enough[pair]`` is the value from which on all its triplets are satisfied, so that the solver may
           stop as soon as the old potentials, made feasible, prove that the value is at least this (result: infinity).
           It is infinite, so that the solve is exact, for pairs of triplets that are violated by the upper bounds,
           whose gradient needs the plan, and for pairs that are the near pair of another triplet.
        4. The near pairs that are still missing, of triplets that the far values did not rule out.

        A value is NaN if the pair was not solved, and infinite if the solve stopped at `enough`. The exact values and
        gradients do not depend on the bounds: they only decide which solves are skipped.
        """
        upper, values = self.pairs.upper(pairs), np.full(pairs.size, np.nan)
        open_ = upper[near] - self.pairs.lower(pairs)[far] + margin > 0
        near, far = near[open_], far[open_]

        def violated(near_values: np.ndarray, far_values: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # inf - inf: neither pair has a plan yet, so nothing is known
                return near_values - far_values + margin > 0

        def solve(some: np.ndarray, enough: np.ndarray | None = None) -> None:
            some = np.unique(some[np.isnan(values[some])])
            values[some] = self.pairs.solve(pairs[some], None if enough is None else enough[some])
            upper[some] = np.fmin(values[some], upper[some])

        solve(near[violated(upper[near], upper[far])])
        enough = np.full(pairs.size, -np.inf)
        np.maximum.at(enough, far, upper[near] + margin)
        enough[far[violated(upper[near], upper[far])]] = np.inf
        enough[near] = np.inf
        solve(far, enough)
        solve(near[violated(upper[near], values[far])])
        return values, open_


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


def nearest_candidates(
    masses: Masses,
    z: np.ndarray,
    known: Supervision,
    held_out: np.ndarray,
    n_neighbors: int,
    threads: Threads,
    *,
    cost: Cost = Cost.EUCLIDEAN,
) -> np.ndarray:
    """Distances of every distribution to its nearest candidates of each level, infinite where they were not needed.

    Lower bounds rule most pairs out without a solve. Distributions that are held out are not looked for.
    """
    finder = Finder(masses, z, threads, cost=cost)
    n = len(masses)
    rows, cols = np.triu_indices(n, 1)
    lower = np.full((n, n), np.inf)
    lower[rows, cols] = lower[cols, rows] = finder.lower(rows, cols)
    distances = np.full((n, n), np.inf)
    for wanted in _by_place(known, held_out, n):
        exact = nearest(np.where(wanted, lower, np.inf), min(n_neighbors, n), finder.solve, finder.sharpen)
        np.minimum(distances, exact, out=distances)
    return distances


def _by_place(known: Supervision, held_out: np.ndarray, n: int) -> list[np.ndarray]:
    """Masks (anchor, candidate): the first levels of all anchors, the second ones, and so on."""
    masks: dict[tuple[Any, ...], np.ndarray] = {}
    for label, target in enumerate(known.targets):
        for some in candidates(target, held_out, known.strata):
            sides = {"near": some.near} if some.far is some.near else {"near": some.near, "far": some.far}
            for side, pools in sides.items():
                for place, pool in enumerate(pools):
                    mask = masks.setdefault((label, side, place), np.zeros((n, n), bool))
                    mask[some.anchor, pool.all()] = True
    return list(masks.values())


def grouped(triplets: Triplets, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen triplets that are learned from together: of a mini-batch, or at least of an anchor.

    They share distributions and pairs, so that a step needs few projections and solves.
    """
    group = (triplets.j if triplets.batch is None else triplets.batch)[chosen]
    order = np.argsort(group, kind="stable")
    return np.split(chosen[order], np.flatnonzero(np.diff(group[order])) + 1)


def mini_batches(groups: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Mini-batches of about `size` triplets: whole groups in random order."""
    order = [groups[place] for place in random.permutation(len(groups))]
    ends = np.cumsum([group.size for group in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    middles = (ends[:-1] + ends[1:]) / 2.0  # a batch ends with the group whose end is nearest
    cuts = 1 + np.searchsorted(middles, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[place] for place in part]) for part in parts if part.size]


class Optimiser(Protocol):
    learning_rate: float

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray: ...


class Adam:
    """Adam (Kingma & Ba 2015), the optimiser of the paper, and its proximal form for penalties with a kink.

    Steps are of about `learning_rate` per entry, whatever the gradient's scale.
    """

    def __init__(self, learning_rate: float, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.learning_rate = learning_rate
        self._decay = decay
        self._epsilon = epsilon
        self._steps = 0
        self._mean: np.ndarray | float = 0.0
        self._square: np.ndarray | float = 0.0

    def state(self) -> dict[str, Any]:
        """What the next steps depend on, for `restore`."""
        return {"steps": self._steps, "mean": self._mean, "square": self._square}

    def restore(self, state: dict[str, Any]) -> None:
        self._steps, self._mean, self._square = state["steps"], state["mean"], state["square"]

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """W after one step against the gradient."""
        mean, square = self._moments(gradient, gradient)
        return W - self.learning_rate * mean / (np.sqrt(square) + self._epsilon)

    def proximal_step(self, W: np.ndarray, gradient: np.ndarray, penalty: ProximalPenalty, weight: float) -> np.ndarray:
        """W after one step on the loss, whose gradient is given, and one on ``weight`` times the penalty.

        Both use the same step sizes, entry by entry: W stays where it is exactly if the penalty balances the gradient,
        which a proximal step of one size behind Adam's of many would miss. Entries that the penalty ties together
        (`penalty.tied`) share theirs. The sizes follow the gradient of the sum, so they are bounded when no triplet
        pulls.
        """
        total = gradient + weight * penalty.gradient(W)
        mean, square = self._moments(gradient, total)
        size = self.learning_rate / (np.sqrt(np.mean(square, axis=penalty.tied, keepdims=True)) + self._epsilon)
        return penalty.proximal(W - size * mean, size * weight)

    def _moments(self, gradient: np.ndarray, scaling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Averages of the gradient, and of the square of what the steps are scaled by, without their first bias."""
        first, second = self._decay
        self._steps += 1
        self._mean = first * self._mean + (1.0 - first) * gradient
        self._square = second * self._square + (1.0 - second) * scaling**2
        return self._mean / (1.0 - first**self._steps), self._square / (1.0 - second**self._steps)
