"""Small computations that figures rest on: places in the plane, and an order of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

ONE_AXIS = 0.95  # share of the variance at which the first principal axis is shown alone


def embed(distances: np.ndarray, n_components: int = 2) -> np.ndarray:
    """Places whose distances are close to those given: classical multidimensional scaling.

    >>> embed(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]), 1).round(3).ravel().tolist()
    [-1.333, -0.333, 1.667]
    """
    squares = np.asarray(distances, dtype=np.float64) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    last = slice(None, -n_components - 1, -1)
    places = with_sign(vectors[:, last]) * np.sqrt(np.maximum(values[last], 0.0))
    return np.pad(places, ((0, 0), (0, n_components - places.shape[1])))


def arrange(distances: np.ndarray, y: Any) -> np.ndarray:
    """An order that keeps each class together, and within it near ones beside each other (average linkage).

    >>> arrange(np.abs(np.subtract.outer([0, 9, 1, 8], [0, 9, 1, 8])), ["a", "b", "a", "b"]).tolist()
    [0, 2, 3, 1]
    """
    distances = np.asarray(distances)
    codes = np.unique(np.asarray(y), return_inverse=True)[1]
    order: list[np.ndarray] = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        if members.size > 2:
            members = members[leaves_list(tree(distances[np.ix_(members, members)]))]
        # A tree has no direction: begin at the end that is nearer to where the first class began.
        start = order[0][0] if order else members[0]
        order.append(members[:: -1 if distances[start, members[-1]] < distances[start, members[0]] else 1])
    return np.concatenate(order)


def tree(distances: np.ndarray) -> np.ndarray:
    """Average linkage, with near leaves beside each other (for many leaves, that would take too long)."""
    condensed = squareform(np.asarray(distances), checks=False)
    return linkage(condensed, "average", optimal_ordering=len(distances) <= 300)


def principal_axes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points turned onto their principal axes, and each axis's share of the variance."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    values, vectors = np.maximum(values[::-1], 0.0), with_sign(vectors[:, ::-1])
    return z @ vectors, values / (values.sum() or 1.0)


def with_sign(vectors: np.ndarray) -> np.ndarray:
    """Columns with their largest entry positive: an eigenvector's sign is arbitrary, a figure should not be."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)
