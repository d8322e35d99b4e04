"""Adam (Kingma & Ba 2015), the optimiser of the paper."""

from __future__ import annotations

import numpy as np


class Adam:
    """Steps of about `learning_rate` per entry, whatever the gradient's scale."""

    def __init__(self, learning_rate: float, decay: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.learning_rate = learning_rate
        self._decay = decay
        self._epsilon = epsilon
        self._steps = 0
        self._mean: np.ndarray | float = 0.0
        self._square: np.ndarray | float = 0.0

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """W after one step against the gradient."""
        first, second = self._decay
        self._steps += 1
        self._mean = first * self._mean + (1.0 - first) * gradient
        self._square = second * self._square + (1.0 - second) * gradient**2
        mean = self._mean / (1.0 - first**self._steps)
        square = self._square / (1.0 - second**self._steps)
        return W - self.learning_rate * mean / (np.sqrt(square) + self._epsilon)
