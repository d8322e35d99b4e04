"""Adam (Kingma & Ba 2015), the optimiser of the paper, and its proximal form for penalties with a kink."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .penalties import ProximalPenalty


class Optimiser(Protocol):
    learning_rate: float

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray: ...


class Adam:
    """Steps of about `learning_rate` per entry, whatever the gradient's scale."""

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
