"""Mini-batches of triplets: those that share pairs stay together."""

from __future__ import annotations

import numpy as np

from ..triplets import Triplets


def by_anchor(triplets: Triplets, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen triplets, those of one anchor together: they share pairs, so a batch of them needs few solves."""
    order = chosen[np.argsort(triplets.j[chosen], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(triplets.j[order])) + 1)


def mini_batches(anchors: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Mini-batches of about `size` triplets: whole anchors in random order."""
    order = [anchors[place] for place in random.permutation(len(anchors))]
    ends = np.cumsum([anchor.size for anchor in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[place] for place in part]) for part in parts if part.size]
