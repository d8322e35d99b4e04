"""What is learned: the start of its parameters, the pairs they act on, how they step, and the metric they end as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ..diagonal_metric import DiagonalMetric
from ..distributions import Distributions
from ..metric import GroundMetric
from ..point_distances import Cost
from ..transport.masses import Masses
from ..transport.pairs import pair_transport
from .embedding import DiagonalEmbedding, LinearEmbedding
from .ground import EmbeddedPairs, GroundPairs
from .optimiser import Adam, Optimiser

# Rows of the linear start that the weights of a diagonal metric are taken from.
_FEW = 5


class Model(Protocol):
    """A family of metrics with parameters, an array."""

    cost: Cost

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """First parameters; ``components(k)`` gives a linear metric of k rows to begin with."""
        ...

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        """Pairs of distributions as a function of the parameters; `options` as in PairTransport."""
        ...

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        """Places of all points."""
        ...

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        """The parameters as rows of W, for penalties on linear metrics."""
        ...

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        """Gradient of the parameters from that of `rows`."""
        ...

    def optimiser(self, learning_rate: float) -> Optimiser: ...

    def keep(self, parameters: np.ndarray) -> Any:
        """Everything that `metric` needs later, when the parameters have moved on."""
        ...

    def metric(self, kept: Any, features: Sequence[str] | None, variances: np.ndarray) -> Any: ...


class LinearModel:
    """d(x, y) = |W(x - y)|, W of shape (n_components, n_features) for standardised features."""

    def __init__(self, n_components: int, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        self.n_components, self.scale, self.centre, self.cost = n_components, scale, centre, cost

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        return components(self.n_components)

    def embedding(self, D: Distributions) -> LinearEmbedding:
        return LinearEmbedding(D, self.n_components, self.scale, self.centre)

    def pairs(self, D: Distributions, first: np.ndarray, second: np.ndarray, **options: Any) -> GroundPairs:
        embedding = self.embedding(D)
        k = embedding.n_components
        return EmbeddedPairs(embedding, pair_transport(Masses.of(D), first, second, k, cost=self.cost, **options))

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        components = parameters / self.scale
        return GroundMetric(components).project(D.points) - components @ self.centre

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        return parameters

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def optimiser(self, learning_rate: float) -> Optimiser:
        return Adam(learning_rate)

    def keep(self, parameters: np.ndarray) -> np.ndarray:
        return parameters

    def metric(self, kept: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return GroundMetric(kept / self.scale, features, variances=variances, cost=self.cost)


class DiagonalModel(LinearModel):
    """A weight for every feature: W = diag(w). The parameters are w, (1, n_features), for standardised features.

    The metric depends on w² alone, so a weight that has become 0 stays 0.
    """

    def __init__(self, scale: np.ndarray, centre: np.ndarray, cost: Cost = Cost.EUCLIDEAN) -> None:
        super().__init__(scale.size, scale, centre, cost)

    def start(self, components: Callable[[int], np.ndarray]) -> np.ndarray:
        """As much weight for a feature as a linear metric of few rows gives it."""
        return np.linalg.norm(components(min(_FEW, self.scale.size)), axis=0, keepdims=True)

    def embedding(self, D: Distributions) -> DiagonalEmbedding:
        return DiagonalEmbedding(D, self.scale, self.centre)

    def project(self, D: Distributions, parameters: np.ndarray) -> np.ndarray:
        weights = parameters[0] / self.scale
        points = D.points.toarray() if sparse.issparse(D.points) else D.points
        return (points - self.centre) * weights

    def rows(self, parameters: np.ndarray) -> np.ndarray:
        return np.diag(parameters[0])

    def chain(self, gradient: np.ndarray) -> np.ndarray:
        return np.diagonal(gradient)[None]

    def metric(self, kept: np.ndarray, features: Sequence[str] | None, variances: np.ndarray) -> GroundMetric:
        return DiagonalMetric(np.abs(kept[0]) / self.scale, features, variances=variances, cost=self.cost)
