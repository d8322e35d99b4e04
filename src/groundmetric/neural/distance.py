"""A torch module d(x, y) as what is learned: its gradient runs through the few arcs of the optimal plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..distributions import Distributions
from ..learning.ground import GroundPairs
from ..parallel import Threads
from ..transport import solve
from ..transport.pair_kernels import Answers
from ..transport.plan import Plan
from .embedding import EmbeddingModel
from .metric import NeuralDistance, distance_matrix
from .modules import StandardisedModule


class MeasuredPairs:
    """Pairs whose costs a module measures, point by point.

    Costs are computed without a gradient. The plan is optimal, so it may be held fixed (Danskin), and the gradient
    needs only its at most n + m - 1 arcs. Pairs restart from their last basis. There are no bounds but 0 from below.
    """

    def __init__(
        self,
        D: Distributions,
        inside: StandardisedModule,
        first: np.ndarray,
        second: np.ndarray,
        *,
        threads: Threads,
        memory: float = 0.0,
        max_pivots: int | None = None,
    ) -> None:
        self._D, self._inside, self._max_pivots = D, inside, max_pivots
        self.first, self.second = first, second
        self._inputs = inside.inputs(D.points)
        self._plans: list[Plan | None] = [None] * first.size
        self.answers = Answers(np.full(first.size, np.nan), np.zeros(first.size, np.int64), np.ones(first.size, bool))
        self._check_symmetry()

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        """Dropout and the like stay off: costs and gradient must be of the same function."""
        self._inside.parameters = parameters
        self._inside.module.eval()

    def upper(self, which: np.ndarray) -> np.ndarray:
        return np.full(which.size, np.inf)

    def lower(self, which: np.ndarray) -> np.ndarray:
        return np.zeros(which.size)

    def solve(self, which: np.ndarray) -> np.ndarray:
        for p in which:
            last = self._plans[p]
            x, y = (self._rows(side[p]) for side in (self.first, self.second))
            cost = distance_matrix(self._inside, self._inputs[x], self._inputs[y])
            start = None if last is None else last.basis
            plan = solve(cost, self._D.weights[x], self._D.weights[y], start=start, max_pivots=self._max_pivots)
            self._plans[p] = plan
            self.answers.value[p], self.answers.pivots[p], self.answers.optimal[p] = (
                plan.value,
                plan.pivots,
                plan.optimal,
            )
        return self.answers.value[which]

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        self._inside.forget_gradient()
        if which.size:
            x, y, weight = (np.concatenate(part) for part in zip(*map(self._arcs, which, coefficient), strict=True))
            measured = self._inside.measure(self._inputs[x], self._inputs[y])
            torch.sum(measured * self._inside.tensor(weight)).backward()
        return self._inside.gradient()

    def _arcs(self, p: int, coefficient: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of the senders and receivers of a pair's plan, and how much each arc counts."""
        plan = self._plans[p]
        assert plan is not None
        start, end = self._D.bounds[self.first[p]], self._D.bounds[self.second[p]]
        return start + plan.rows, end + plan.cols, coefficient * plan.mass

    def _rows(self, d: int) -> slice:
        return slice(self._D.bounds[d], self._D.bounds[d + 1])

    def _check_symmetry(self) -> None:
        """A distance is the same there and back; look at a few points."""
        some = self._inputs[:: max(1, len(self._inputs) // 8)]
        self._inside.module.eval()
        matrix = distance_matrix(self._inside, some, some)
        if np.abs(matrix - matrix.T).max() > 1e-4 * np.abs(matrix).max():
            raise ValueError("module(x, y) differs from module(y, x): a distance must be symmetric; average the two")


class DistanceModel(EmbeddingModel):
    """What is learned is a module that computes d(x, y) itself."""

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        return MeasuredPairs(D, self.inside, first, second, **options)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        raise ValueError("neighbors='nearest' needs an embedding, but the module measures distances: use 'random'")

    def metric(self, kept: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.inside.module.load_state_dict(kept)
        return NeuralDistance(self.inside.module, self.inside.centre, self.inside.scale, features)
