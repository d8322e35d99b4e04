"""Triplets (i, j, k): the anchor j should be nearer to i, of its own class, than to k, of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Triplets:
    """Triplets of distributions, and the unordered pairs behind them.

    Each pair is listed once, however many triplets share it, because its distance has to be found only once.

    Attributes
    ----------
    i, j, k : arrays of shape (n_triplets,): neighbour of the same class, anchor, neighbour of another class
    first, second : arrays of shape (n_pairs,): the distinct pairs, first < second
    near, far : arrays of shape (n_triplets,): the places of the pairs (i, j) and (j, k)
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    first: np.ndarray
    second: np.ndarray
    near: np.ndarray
    far: np.ndarray

    @classmethod
    def from_indices(cls, i: np.ndarray, j: np.ndarray, k: np.ndarray, n: int) -> Triplets:
        """Triplets of n distributions, with their pairs worked out."""
        low = np.concatenate([np.minimum(i, j), np.minimum(j, k)])
        high = np.concatenate([np.maximum(i, j), np.maximum(j, k)])
        keys, places = np.unique(low * np.int64(n) + high, return_inverse=True)
        return cls(i, j, k, keys // n, keys % n, places[: i.size], places[i.size :])

    def __len__(self) -> int:
        return self.i.size


def random_triplets(
    labels: np.ndarray, n_neighbors: int, random: np.random.RandomState, *, held_out: np.ndarray | None = None
) -> Triplets:
    """For every anchor, `n_neighbors` (t) of its own class × t of each other class, drawn without replacement.

    Distributions that are held out (a mask) are anchors, but nobody's neighbours.

    >>> len(random_triplets(np.array([0, 0, 1, 1]), 3, np.random.RandomState(0)))
    8
    """

    def choose(anchor: int, candidates: np.ndarray) -> np.ndarray:
        return random.permutation(candidates)[:n_neighbors]

    return _build(labels, choose, held_out)


def nearest_triplets(
    labels: np.ndarray, n_neighbors: int, distances: np.ndarray, *, held_out: np.ndarray | None = None
) -> Triplets:
    """For every anchor, the t nearest of its own class × the t nearest of each other class, none of them held out.

    `distances` is a matrix between the distributions; entries that need not be looked at may be infinite.
    """

    def choose(anchor: int, candidates: np.ndarray) -> np.ndarray:
        return candidates[np.argsort(distances[anchor, candidates], kind="stable")[:n_neighbors]]

    return _build(labels, choose, held_out)


def _build(
    labels: np.ndarray, choose: Callable[[int, np.ndarray], np.ndarray], held_out: np.ndarray | None
) -> Triplets:
    """All combinations of an anchor's chosen neighbours. A class smaller than t + 1 gives what it has."""
    classes = np.unique(labels)
    free = np.ones(labels.size, bool) if held_out is None else ~held_out
    members = {c: np.flatnonzero((labels == c) & free) for c in classes}
    parts = []
    for anchor in range(labels.size):
        own = members[labels[anchor]]
        near = choose(anchor, own[own != anchor])
        far = [choose(anchor, members[c]) for c in classes if c != labels[anchor]]
        i, k = (grid.ravel() for grid in np.meshgrid(near, np.concatenate(far), indexing="ij"))
        parts.append((i, np.full(i.size, anchor), k))
    i, j, k = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    return Triplets.from_indices(i, j, k, labels.size)
