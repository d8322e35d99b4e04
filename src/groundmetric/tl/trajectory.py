"""tl.trajectory: an order of samples along a disease, by diffusion pseudotime over all their distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from .._anndata.obs import find_column, listed


def trajectory(
    samples: Any,
    root: str,
    *,
    n_neighbors: int = 5,
    key: str = "groundmetric",
    key_added: str | None = None,
) -> None:
    """Pseudotime of samples: how far each is from a root along paths through similar samples, from 0 to 1.

    Diffusion pseudotime (Haghverdi et al. 2016) on all distances between samples. With tens of samples a graph of
    nearest neighbours easily falls apart, and `sc.tl.dpt` then gives infinity; here every two samples are linked, the
    more weakly the farther they are apart.

    Parameters
    ----------
    samples : AnnData of `tl.samples`
    root : the name of the sample to start from, or a label: then that sample of it that is farthest from all others on
        average
    n_neighbors : each sample's links reach about as far as to this neighbour
    key : the `key_added` of `learn`
    key_added : column of `obs` to write; None: "groundmetric_pseudotime"

    Writes
    ------
    obs["groundmetric_pseudotime"] : from 0 at the root to 1
    uns["groundmetric_pseudotime"] : the name of the root
    """
    if f"{key}_distances" not in samples.obsp:
        raise ValueError(f"obsp has no {key + '_distances'!r}: pass the AnnData that tl.samples returns")
    distances = np.asarray(samples.obsp[f"{key}_distances"])
    if len(distances) < 3:
        raise ValueError(f"there are {len(distances)} samples: an order needs at least 3")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors}: expected at least 1")
    start = _find_root(samples, root, distances, samples.uns[key]["params"].get("label_key"))
    key_added = key_added or f"{key}_pseudotime"
    samples.obs[key_added] = pseudotime(distances, start, min(n_neighbors, len(distances) - 1))
    samples.uns[key_added] = {"root": str(samples.obs_names[start])}


def _find_root(samples: Any, root: str, distances: np.ndarray, label_key: str | None) -> int:
    names = [str(name) for name in samples.obs_names]
    if str(root) in names:
        return names.index(str(root))
    labels = [] if label_key is None else find_column(samples.obs, label_key, "label_key").astype(str).to_numpy()
    mine = np.flatnonzero(np.asarray(labels) == str(root))
    if not mine.size:
        known = [*names, *dict.fromkeys(labels)]
        raise ValueError(f"root is {root!r}, which is neither a sample nor a label: {listed(root, known)}")
    others = np.setdiff1d(np.arange(len(names)), mine)
    away = distances[np.ix_(mine, others if others.size else mine)].mean(axis=1)
    return int(mine[away.argmax()])


def pseudotime(distances: np.ndarray, root: int, n_neighbors: int) -> np.ndarray:
    """Diffusion pseudotime from the root, scaled to at most 1.

    Steps of a random walk with probabilities T sum to the distance |Σ_t T^t(root, ·) - Σ_t T^t(x, ·)|, the stationary
    part left out: by eigenvalues λ of T, coordinates λ/(1 - λ).
    """
    transitions = _transitions(distances, n_neighbors)
    values, vectors = np.linalg.eigh(transitions)
    moving = np.argsort(values)[:-1]  # all but the stationary part
    coordinates = vectors[:, moving] * (values[moving] / (1.0 - values[moving]))
    away = np.linalg.norm(coordinates - coordinates[root], axis=1)
    return away / away.max() if away.max() > 0 else away


def _transitions(distances: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Symmetric transition matrix of a Gaussian kernel whose width follows the local density."""
    longest = minimum_spanning_tree(distances).data.max(initial=0.0)
    # The chain of nearest samples must hold: no link of it is longer than three widths.
    width = np.maximum(np.sort(distances, axis=1)[:, n_neighbors], longest / 3.0)
    width = np.where(width > 0, width, 1.0)
    spread = width[:, None] ** 2 + width**2
    kernel = np.sqrt(2.0 * np.outer(width, width) / spread) * np.exp(-(distances**2) / spread)
    density = kernel.sum(axis=1)
    kernel /= np.outer(density, density)
    degree = np.sqrt(kernel.sum(axis=1))
    return kernel / np.outer(degree, degree)
