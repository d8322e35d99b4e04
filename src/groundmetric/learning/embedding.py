"""Where points go: maps from features into the space in which transport happens.

An embedding places the points of distributions, and turns the pull on every placed point back into the gradient of its
parameters. Everything between the two, the transport, never sees a feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ..distributions import Distributions

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
    """Z = X Wᵀ. The parameters W apply to standardised features.

    The standardisation is folded into the product, so that no copy of the points is made. The pull F on every placed
    point comes back as Fᵀ X.

    Parameters
    ----------
    D : Distributions
    scale : array (n_features,), standard deviation of each feature
    centre : array (n_features,), mean of each feature
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
