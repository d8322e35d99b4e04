"""How neighbours vote: the one rule behind every k-NN prediction here."""

from __future__ import annotations

import numpy as np

WEIGHTS = ("distance", "uniform")
CLASS_WEIGHTS = (None, "balanced")


def check_weights(weights: str) -> None:
    if weights not in WEIGHTS:
        raise ValueError(f"weights is {weights!r}: expected 'distance' or 'uniform'")


def check_class_weight(class_weight: str | None) -> None:
    if class_weight not in CLASS_WEIGHTS:
        raise ValueError(f"class_weight is {class_weight!r}: expected None or 'balanced'")


def class_shares(
    distances: np.ndarray, codes: np.ndarray, n_classes: int, weights: str, *, among: np.ndarray | None = None
) -> np.ndarray:
    """Share of the neighbours' votes for each class, (n_items, n_classes).

    `distances` and `codes` (classes as numbers) have a row per item and a column per neighbour. A vote counts one over
    the distance ("distance") or one ("uniform"). Where neighbours coincide with the item, only they vote. With `among`,
    the classes of all that could have been neighbours, a vote counts the less, the more of these share its class.

    >>> class_shares(np.array([[1.0, 2.0, 4.0]]), np.array([[0, 1, 1]]), 2, "distance").round(3).tolist()
    [[0.571, 0.429]]
    """
    votes = _votes(distances, weights)
    shares = np.stack([(votes * (codes == c)).sum(axis=1) for c in range(n_classes)], axis=1)
    if among is not None:
        shares /= np.maximum(np.bincount(among, minlength=n_classes), 1)
    return shares / shares.sum(axis=1, keepdims=True)


def mean_values(distances: np.ndarray, values: np.ndarray, weights: str) -> np.ndarray:
    """Mean of the neighbours' values, each counting as its vote does; `values` (n_items, n_neighbors, …).

    >>> mean_values(np.array([[1.0, 2.0]]), np.array([[3.0, 6.0]]), "distance").tolist()
    [4.0]
    """
    votes = _votes(distances, weights)
    return np.einsum("in,in...->i...", votes / votes.sum(axis=1, keepdims=True), values)


def _votes(distances: np.ndarray, weights: str) -> np.ndarray:
    if weights == "uniform":
        return np.ones_like(distances)
    nearest = distances.min(axis=1, keepdims=True)  # votes relative to the nearest cannot overflow
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(nearest == 0.0, distances == 0.0, nearest / distances)
