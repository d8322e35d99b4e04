"""Models: the parameters of a metric, the embedding of points, and the pairs of distributions they act on.

An embedding places the points of distributions, and turns the pull on every placed point back into the gradient of its
parameters. Everything between the two, the transport, never sees a feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ..distributions import Distributions
from ..metrics.base import Cost, GroundMetric
from ..metrics.forms import DiagonalMetric
from ..transport._kernels.pairs import Answers
from ..transport.pairs import PairTransport, pair_transport
from ..transport.problem import Masses
from .optimizer import Adam, Optimiser

# Distributions with fewer points are placed together: one product for many instead of many small ones.
_SMALL = 64


class Embedding(Protocol):
    """A map of points that depends on parameters, an array."""

    n_components: int

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Each of these distributions with its points' places, (its size, n_components).

        `learning` says that `pull_back` may follow.
        """
        ...

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        """Gradient of the parameters of the last `place`.

        `pull` (n_points, n_components) is the gradient with respect to every place; it is 0 outside `distributions`.
        """
        ...


class LinearEmbedding:
    """Linear projection of points, Z = X Wᵀ, where the parameters W apply to standardised features.

    The standardisation is folded into the product, so that no copy of the points is made. The gradient F with respect
    to the projected points becomes the gradient Fᵀ X with respect to W.

    Parameters
    ----------
    D : Distributions
        The cohort.
    n_components : int
        Number of rows of W.
    scale : array of shape (n_features,)
        Standard deviation of each feature.
    centre : array of shape (n_features,)
        Mean of each feature.
    """

    def __init__(self, D: Distributions, n_components: int, scale: np.ndarray, centre: np.ndarray) -> None:
        self.n_components = n_components
        self._D, self._scale, self._centre = D, scale, centre

    def place(
        self, parameters: np.ndarray, distributions: np.ndarray, *, learning: bool
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Places less a common shift, which changes no distance."""
        components = parameters / self._scale
        shift = self._shift(components)
        for some, rows in self._blocks(distributions):
            z = self._product(self._points(rows), components) - shift
            ends = np.cumsum(self._D.sizes[some])
            for d, end in zip(some, ends, strict=True):
                yield d, z[end - self._D.sizes[d] : end]

    def pull_back(self, pull: np.ndarray, distributions: np.ndarray) -> np.ndarray:
        total = np.zeros(self._shape)
        for _, rows in self._blocks(distributions):
            total += self._gradient(self._points(rows), pull[rows])
        return total / self._scale

    @property
    def _shape(self) -> tuple[int, int]:
        return self.n_components, self._scale.size

    def _shift(self, components: np.ndarray) -> np.ndarray:
        return components @ self._centre

    def _product(self, points: Any, components: np.ndarray) -> np.ndarray:
        if sparse.issparse(points):
            return points @ components.T
        # A wide product from the left is faster than a narrow one from the right, by half.
        return np.ascontiguousarray((components @ points.T).T)

    def _gradient(self, points: Any, pull: np.ndarray) -> np.ndarray:
        return (points.T @ pull).T if sparse.issparse(points) else pull.T @ points

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


class DiagonalEmbedding(LinearEmbedding):
    """Z = X diag(w): every feature is a component of its own. The parameters are w, (1, n_features)."""

    def __init__(self, D: Distributions, scale: np.ndarray, centre: np.ndarray) -> None:
        super().__init__(D, scale.size, scale, centre)

    @property
    def _shape(self) -> tuple[int, int]:
        return 1, self._scale.size

    def _shift(self, components: np.ndarray) -> np.ndarray:
        return components[0] * self._centre

    def _product(self, points: Any, components: np.ndarray) -> np.ndarray:
        weighted = points.multiply(components) if sparse.issparse(points) else points * components
        return weighted.toarray() if sparse.issparse(weighted) else weighted

    def _gradient(self, points: Any, pull: np.ndarray) -> np.ndarray:
        weighted = points.multiply(pull) if sparse.issparse(points) else points * pull
        return np.asarray(weighted.sum(axis=0)).reshape(1, -1)


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
