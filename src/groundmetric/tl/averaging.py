"""tl.average: something between the learned and the Euclidean distance, to relate condition and cell type."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from ..cells.matrix import read
from ..cells.source import Source
from .stored import recall


def average(
    adata: Any,
    weight: float = 0.5,
    *,
    use_rep: str | None = None,
    n_pcs: int = 50,
    key: str = "groundmetric",
    key_added: str | None = None,
    random_state: int = 0,
) -> None:
    """Coordinates of cells between the learned metric (weight 0) and the Euclidean one (weight 1).

    The learned metric tells conditions apart, the Euclidean one cell types; in between, both show. The Euclidean
    distance d between these coordinates is d² = (1 - weight) d²_learned + weight d²_Euclidean, each in units of its
    root mean square over all cells, because the two have no common unit. `sc.pp.neighbors` takes them:

        gm.tl.average(adata)
        sc.pp.neighbors(adata, use_rep="X_groundmetric_average")

    (`GroundMetric.blend` averages the distances themselves, as the paper does; no coordinates have those.)

    Parameters
    ----------
    adata : AnnData after `learn` or `transfer`
    weight : from 0, learned, to 1, Euclidean
    use_rep : entry of `obsm` for the Euclidean side; None: what was learned on with `use_rep`, otherwise "X_pca" where
        there is one, otherwise `n_pcs` principal components of the selected genes
    key : the `key_added` of `learn`
    key_added : entry of `obsm` to write; None: "X_groundmetric_average"
    """
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"weight is {weight}: expected a number from 0 (learned) to 1 (Euclidean)")
    with Source(adata) as source:
        stored = recall(source.noted(key), key, "adata")
        learned = np.asarray(source.representation(f"X_{key}"))
        use_rep = use_rep or stored.params.get("use_rep") or ("X_pca" if "X_pca" in adata.obsm else None)
        if use_rep is not None:
            euclidean = np.asarray(source.representation(use_rep), dtype=np.float64)
        else:
            euclidean = _principal_components(source, stored.features, stored.params.get("layer"), n_pcs, random_state)
    parts = np.sqrt(1.0 - weight) * _in_own_units(learned), np.sqrt(weight) * _in_own_units(euclidean)
    adata.obsm[key_added or f"X_{key}_average"] = np.hstack(parts)


def _in_own_units(z: np.ndarray) -> np.ndarray:
    """Centred, with a root mean square of 1 for the distance between two rows."""
    z = z - z.mean(axis=0)
    spread = np.sqrt(2.0 * np.mean(np.sum(z**2, axis=1)))
    return z / spread if spread > 0 else z


def _principal_components(source: Source, genes: list[str], layer: str | None, n_pcs: int, seed: int) -> np.ndarray:
    places = source.genes.get_indexer(genes)
    if np.any(places < 0):
        missing = genes[int(np.argmin(places))]
        raise ValueError(f"adata lacks genes of the metric, e.g. {missing!r}: name an entry of obsm (use_rep=…)")
    points = read(source.matrix(layer), np.arange(source.obs.shape[0]), np.sort(places))
    n_pcs = min(n_pcs, min(points.shape) - 1)
    if n_pcs < 1:
        return points.toarray() if hasattr(points, "toarray") else points
    return PCA(n_pcs, svd_solver="arpack", random_state=seed).fit_transform(points.astype(np.float64))
