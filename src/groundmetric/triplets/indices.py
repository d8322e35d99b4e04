"""Triplets as indices, the pairs of distributions behind them, and the pools that they are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Triplets:
    """Triplets of distributions, and the unordered pairs behind them.

    Each pair is listed once, however many triplets share it, because its distance has to be found only once.

    Attributes
    ----------
    i, j, k : arrays of shape (n_triplets,): one of the anchor's class (or nearer to it), the anchor, another
    first, second : arrays of shape (n_pairs,): the distinct pairs, first < second
    near, far : arrays of shape (n_triplets,): the places of the pairs (i, j) and (j, k)
    weight : array of shape (n_triplets,) of mean 1, how much each counts in the loss; None: all the same
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    first: np.ndarray
    second: np.ndarray
    near: np.ndarray
    far: np.ndarray
    weight: np.ndarray | None = None

    @classmethod
    def from_indices(
        cls, i: np.ndarray, j: np.ndarray, k: np.ndarray, n: int, weight: np.ndarray | None = None
    ) -> Triplets:
        """Triplets of n distributions, with their pairs worked out."""
        low = np.concatenate([np.minimum(i, j), np.minimum(j, k)])
        high = np.concatenate([np.maximum(i, j), np.maximum(j, k)])
        keys, places = np.unique(low * np.int64(n) + high, return_inverse=True)
        return cls(i, j, k, keys // n, keys % n, places[: i.size], places[i.size :], weight)

    @classmethod
    def joined(cls, parts: list[Triplets], shares: np.ndarray, n: int) -> Triplets:
        """Triplets of several labels at once. Each label makes up its share of the loss, however many it has."""
        i, j, k = (np.concatenate([getattr(part, name) for part in parts]) for name in "ijk")
        weight = np.concatenate(
            [part.weights * share / max(len(part), 1) for part, share in zip(parts, shares, strict=True)]
        )
        return cls.from_indices(i, j, k, n, weight * (i.size / weight.sum()))

    @property
    def weights(self) -> np.ndarray:
        """The weight of each, in any case."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def __len__(self) -> int:
        return self.i.size
