"""tl.samples: an AnnData with a row per sample, ready for scanpy."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

from ..cells.columns import Samples, constant_columns, find_column, samples_of
from ..cells.matrix import pieces
from ..cells.source import Source
from ..distances import pairwise_distances
from .graph import set_neighbors
from .stored import Stored, compared_cells, recall


def samples(
    adata: Any,
    *,
    sample_key: str | None = None,
    cell_type_key: str | None = None,
    n_neighbors: int = 15,
    key: str = "groundmetric",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ad.AnnData:
    """An AnnData with a row per sample: how far samples are from each other under the learned metric.

    Neighbours are set, so that `sc.tl.umap`, `sc.tl.leiden`, `sc.tl.diffmap` and `sc.tl.dpt` run on it as they are.

    Parameters
    ----------
    adata : AnnData after `learn` or `transfer`, or the path of its file
    sample_key : column of `obs`; None: the one of `learn`
    cell_type_key : column of `obs` whose values are counted; None: "cell_type" where there is one
    n_neighbors : of the graph of samples, each one itself included, as in scanpy; at most one less than there are
    key : the `key_added` of `learn`
    n_jobs, verbose : threads for the distances; 1 shows a progress bar where there is a terminal

    Returns
    -------
    AnnData with, per sample,

    X : mean of each selected gene over its drawn cells (where `adata` has them)
    obs : what is the same for all of its cells, and `n_cells`
    obsm["X_groundmetric_distances"] : its distances to all samples
    obsm["cell_types"] : how many cells it has of each type
    obsp["groundmetric_distances"] : the distances again, between all pairs
    obsp["distances"], obsp["connectivities"], uns["neighbors"] : the graph of nearest samples
    """
    if n_neighbors < 2:
        raise ValueError(f"n_neighbors is {n_neighbors}: at least 2 are needed, the sample itself and another")
    with Source(adata) as source:
        stored = recall(source.noted(key), key, "adata")
        who = samples_of(source.obs, sample_key or stored.params["sample_key"])
        distances = pairwise_distances(compared_cells(source, who, key), n_jobs=n_jobs, verbose=verbose)
        obs = constant_columns(source.obs.drop(columns=f"{key}_sampled"), who)
        obs["n_cells"] = who.sizes
        X, var = _means(source, who, stored)
        types = count_cell_types(source.obs, who, cell_type_key)
    result = ad.AnnData(X, obs=obs, var=var)
    if types is not None:
        result.obsm["cell_types"] = types
    result.obsm[f"X_{key}_distances"] = distances
    result.obsp[f"{key}_distances"] = distances
    result.uns[key] = {"params": {name: value for name, value in stored.params.items() if value is not None}}
    if len(who) > 2:  # fewer make no graph
        set_neighbors(result, distances, min(n_neighbors, len(who) - 1), f"X_{key}_distances")
    return result


def _means(source: Source, who: Samples, stored: Stored) -> tuple[np.ndarray | None, pd.DataFrame | None]:
    """Mean of each selected gene over the drawn cells of every sample; nothing where they are not there."""
    places = source.genes.get_indexer(stored.features) if source.genes.is_unique else np.array([-1])
    layer = stored.params.get("layer")
    if stored.params.get("use_rep") is not None or np.any(places < 0) or not source.has_matrix(layer):
        return None, None
    matrix = source.matrix(layer)
    rows = np.flatnonzero(source.obs[f"{stored.key}_sampled"])
    columns, order = np.sort(places), np.argsort(np.argsort(places))
    counts = np.bincount(who.codes[rows], minlength=len(who))
    averaging = sparse.csr_matrix((1.0 / counts[who.codes[rows]], (who.codes[rows], np.arange(rows.size))))
    X = np.zeros((len(who), columns.size))
    for piece in pieces(matrix, rows, columns):
        part = averaging[:, piece.rows] @ piece.values
        X[:, piece.columns] += part.toarray() if sparse.issparse(part) else part
    return X[:, order], source.var.iloc[places].copy()


def count_cell_types(obs: pd.DataFrame, who: Samples, cell_type_key: str | None) -> pd.DataFrame | None:
    """Cells of each type in each sample."""
    if cell_type_key is None:
        if "cell_type" not in obs.columns:
            return None
        cell_type_key = "cell_type"
    kinds = find_column(obs, cell_type_key, "cell_type_key")
    counts = pd.crosstab(who.codes, kinds.astype(object).to_numpy()).reindex(range(len(who)), fill_value=0)
    return pd.DataFrame(counts.to_numpy(), index=who.names.astype(str), columns=as_keys(counts.columns))


def as_keys(values: Any) -> list[str]:
    """Column names that a file can hold: a slash would be read as a path."""
    return [str(value).replace("/", "|") for value in values]
