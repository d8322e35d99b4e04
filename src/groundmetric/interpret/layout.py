"""Where a figure puts things: places from distances, an order of rows, principal axes of points and of components.

Figures (`pl`), `tl.samples` and reports share these, so that all show the same places in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

__all__ = ["average_linkage", "classical_scaling", "fix_signs", "order_by_class", "principal_axes", "rotate_components"]

_MOST_ORDERED = 300  # leaves up to which the best order of a tree is looked for: it takes long for more


def classical_scaling(distances: np.ndarray, n_components: int = 2) -> np.ndarray:
    """Places whose distances are close to those given: classical multidimensional scaling.

    Parameters
    ----------
    distances : array of shape (n, n)
        Symmetric, 0 on the diagonal.
    n_components : int
        Dimensions of the places.

    Returns
    -------
    array of shape (n, n_components)
        Centred, the dimension with most of the variance first.

    Examples
    --------
    >>> distances = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
    >>> classical_scaling(distances, 1).round(3).ravel().tolist()
    [-1.333, -0.333, 1.667]
    """
    squares = np.asarray(distances, dtype=np.float64) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    last = slice(None, -n_components - 1, -1)
    places = fix_signs(vectors[:, last]) * np.sqrt(np.maximum(values[last], 0.0))
    return np.pad(places, ((0, 0), (0, n_components - places.shape[1])))


def order_by_class(distances: np.ndarray, y: Any) -> np.ndarray:
    """Order of rows that keeps each class together, and within it near ones beside each other (average linkage).

    Parameters
    ----------
    distances : array of shape (n, n)
        Symmetric, 0 on the diagonal.
    y : array-like of shape (n,)
        The class of each row.

    Returns
    -------
    array of shape (n,)
        Row numbers.

    Examples
    --------
    >>> order_by_class(np.abs(np.subtract.outer([0, 9, 1, 8], [0, 9, 1, 8])), ["a", "b", "a", "b"]).tolist()
    [0, 2, 3, 1]
    """
    distances = np.asarray(distances)
    codes = np.unique(np.asarray(y), return_inverse=True)[1]
    order: list[np.ndarray] = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        if members.size > 2:
            members = members[leaves_list(average_linkage(distances[np.ix_(members, members)]))]
        # A tree has no direction: begin at the end that is nearer to where the first class began.
        start = order[0][0] if order else members[0]
        order.append(members[:: -1 if distances[start, members[-1]] < distances[start, members[0]] else 1])
    return np.concatenate(order)


def average_linkage(distances: np.ndarray) -> np.ndarray:
    """Tree of average linkage, near leaves beside each other where there are at most 300."""
    condensed = squareform(np.asarray(distances), checks=False)
    return linkage(condensed, "average", optimal_ordering=len(distances) <= _MOST_ORDERED)


def principal_axes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points rotated onto their principal axes, and each axis's share of the variance."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    values, vectors = np.maximum(values[::-1], 0.0), fix_signs(vectors[:, ::-1])
    return z @ vectors, values / (values.sum() or 1.0)


def rotate_components(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components rotated onto their principal axes, and the share of the squared weights of each.

    >>> rotated, shares = rotate_components(np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]))
    >>> rotated.round(3).tolist(), shares.round(3).tolist()
    ([[0.0, 2.449], [1.414, 0.0]], [0.75, 0.25])
    """
    _, sizes, axes = np.linalg.svd(weights, full_matrices=False)
    kept = sizes > 1e-9 * (sizes[0] or 1.0)
    kept[0] = True
    shares = sizes**2 / (np.sum(sizes**2) or 1.0)
    return (fix_signs(axes.T).T * sizes[:, None])[kept], shares[kept]


def fix_signs(vectors: np.ndarray) -> np.ndarray:
    """Columns with their largest entry positive: an eigenvector's sign is arbitrary, a figure should not be."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)
