"""A torch module as what is learned: it embeds points, and transport hands back the pull on each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..distributions import Distributions
from ..learning.ground import EmbeddedPairs, GroundPairs
from ..point_distances import Cost
from ..transport.masses import Masses
from ..transport.pairs import pair_transport
from .metric import NeuralMetric
from .modules import StandardisedModule, as_array


class ModuleEmbedding:
    """z = f(x). All points of a batch go through the module together, forward once and backward once."""

    def __init__(self, D: Distributions, inside: StandardisedModule) -> None:
        self._D, self._inside = D, inside
        with torch.no_grad():
            inside.module.eval()
            self.n_components = inside.embed(inside.inputs(D.points[:1])).shape[1]

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        inside, bounds = self._inside, self._D.bounds
        inside.parameters = parameters
        self._rows = np.concatenate([np.arange(bounds[d], bounds[d + 1]) for d in distributions])
        inside.module.train(learning)
        with torch.set_grad_enabled(learning):
            self._z = inside.embed(inside.inputs(self._D.points[self._rows]))
        z, ends = as_array(self._z), np.cumsum(self._D.sizes[distributions])
        for d, end in zip(distributions, ends, strict=True):
            yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        self._inside.forget_gradient()
        self._z.backward(self._inside.tensor(pull[self._rows]))
        return self._inside.gradient()


class TorchOptimiser:
    """A torch optimiser that is handed its gradients. Its rates fall as `learning_rate` does from its first value."""

    def __init__(
        self, inside: StandardisedModule, make: Callable[[Any], torch.optim.Optimizer], learning_rate: float
    ) -> None:
        self._inside, self._inner = inside, make(inside.learned)
        self._rates = [group["lr"] for group in self._inner.param_groups]
        self.learning_rate = self._first = learning_rate

    def step(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        inside = self._inside
        inside.parameters = W
        for group, rate in zip(self._inner.param_groups, self._rates, strict=True):
            group["lr"] = rate * self.learning_rate / self._first
        flat, place = inside.tensor(gradient[0]), 0
        for parameter in inside.learned:
            parameter.grad = flat[place : place + parameter.numel()].view_as(parameter).clone()
            place += parameter.numel()
        self._inner.step()
        return inside.parameters


class EmbeddingModel:
    """What is learned is a module f with d(x, y) = |f(x) - f(y)|."""

    def __init__(
        self,
        inside: StandardisedModule,
        optimiser: Callable[[Any], torch.optim.Optimizer] | None,
        cost: Cost = Cost.EUCLIDEAN,
    ) -> None:
        self.inside, self.cost = inside, cost
        self._make = optimiser
        self._first = copy.deepcopy(inside.module.state_dict())

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """The module as it was given."""
        self.inside.module.load_state_dict(self._first)
        return self.inside.parameters

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        embedding = ModuleEmbedding(D, self.inside)
        k = embedding.n_components
        return EmbeddedPairs(embedding, pair_transport(Masses.of(D), first, second, k, cost=self.cost, **options))

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        self.inside.parameters = parameters
        return NeuralMetric(self.inside.module, self.inside.centre, self.inside.scale).project(D.points)

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        raise TypeError("a network has no rows of W: nuisance is for linear and diagonal metrics")

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def optimiser(self, learning_rate: float) -> TorchOptimiser:
        make = self._make or (lambda learned: torch.optim.Adam(learned, lr=learning_rate))
        return TorchOptimiser(self.inside, make, learning_rate)

    def keep(self, parameters: np.ndarray) -> dict[str, Any]:
        """The module's whole state: running averages of its layers are no parameters, but part of what was learned."""
        self.inside.parameters = parameters
        return copy.deepcopy(self.inside.module.state_dict())

    def metric(self, kept: dict[str, Any], features: Sequence[str] | None, variances: np.ndarray) -> Any:
        self.inside.module.load_state_dict(kept)
        return NeuralMetric(self.inside.module, self.inside.centre, self.inside.scale, features, cost=self.cost)
