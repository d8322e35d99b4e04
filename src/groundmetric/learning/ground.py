"""Pairs of distributions as a function of what is learned: their exact values, bounds, and gradients."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..transport.pair_kernels import Answers
from ..transport.pairs import PairTransport
from .embedding import Embedding


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

    def solve(self, which: np.ndarray) -> np.ndarray:
        """Exact values."""
        ...

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        """Gradient of ``coefficient @ solve(which)`` with respect to the parameters of the last `place`."""
        ...


class EmbeddedPairs:
    """Pairs whose points an embedding places: transport sees only the places, and hands back the pull on each."""

    def __init__(self, embedding: Embedding, transport: PairTransport) -> None:
        self.embedding, self.transport = embedding, transport
        self.first, self.second, self.answers = transport.first, transport.second, transport.answers
        self.upper, self.lower, self.solve = transport.upper, transport.lower, transport.solve

    def place(self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool) -> None:
        for d, z in self.embedding.place(parameters, distributions, learning=learning):
            self.transport.move(d, z)

    def state(self) -> dict[str, np.ndarray]:
        return self.transport.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.transport.restore(state)

    def gradient(self, which: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        pull = self.transport.pull(which, coefficient)
        return self.embedding.pull_back(pull, np.unique([self.first[which], self.second[which]]))
