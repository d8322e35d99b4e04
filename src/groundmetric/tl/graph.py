"""The graph of nearest samples, as `sc.pp.neighbors` would leave it.

Scanpy has no way to give it exact distances without loading and compiling all of umap, which takes longer than the rest
of `tl.samples`; for the number of samples in a cohort the graph is a few lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def set_neighbors(adata: Any, distances: np.ndarray, n_neighbors: int, use_rep: str) -> None:
    """Write `uns["neighbors"]`, `obsp["distances"]` and `obsp["connectivities"]`.

    `n_neighbors` counts the sample itself, as in scanpy.
    """
    others = distances + np.diag(np.full(len(distances), np.inf))
    columns = np.argsort(others, axis=1, kind="stable")[:, : n_neighbors - 1]
    near = np.take_along_axis(others, columns, axis=1)
    adata.obsp["distances"] = _graph(columns, near)
    adata.obsp["connectivities"] = connectivities(columns, near)
    adata.uns["neighbors"] = {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {
            "n_neighbors": n_neighbors,
            "method": "umap",
            "random_state": 0,
            "metric": "precomputed",
            "use_rep": use_rep,
        },
    }


def connectivities(columns: np.ndarray, near: np.ndarray) -> sparse.csr_matrix:
    """UMAP's fuzzy graph: a neighbour counts exp(-(d - nearest) / width), and a link holds if either side holds it."""
    nearest = _smallest_positive(near)
    beyond = np.maximum(near - nearest[:, None], 0.0)
    one_way = _graph(columns, np.exp(-beyond / _widths(beyond, near, nearest)[:, None])).astype(np.float32)
    both = one_way.multiply(one_way.T)
    return (one_way + one_way.T - both).tocsr()


def _smallest_positive(near: np.ndarray) -> np.ndarray:
    smallest = np.where(near > 0, near, np.inf).min(axis=1)
    return np.where(np.isfinite(smallest), smallest, 0.0)


def _widths(beyond: np.ndarray, near: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """The width for which the weights of a row sum to log2 of the neighbours, itself included; found by bisection."""
    target = np.log2(near.shape[1] + 1)
    low, high = np.zeros(len(near)), np.full(len(near), beyond.max() * 1e3 + 1.0)
    for _ in range(100):
        middle = (low + high) / 2.0
        too_wide = np.exp(-beyond / middle[:, None]).sum(axis=1) > target
        low, high = np.where(too_wide, low, middle), np.where(too_wide, middle, high)
    # As umap: not narrower than a thousandth of the mean distance, of the row or, where all of it coincide, of all.
    n = near.shape[1] + 1
    floor = 1e-3 * np.where(nearest > 0, near.sum(axis=1) / n, near.sum() / (n * len(near)))
    return np.maximum(np.maximum((low + high) / 2.0, floor), np.finfo(float).tiny)


def _graph(columns: np.ndarray, values: np.ndarray) -> sparse.csr_matrix:
    n, k = columns.shape
    return sparse.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * k + 1, k)), (n, n))
