"""Preparation of AnnData, in scanpy's manner: which genes, and how many cells per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._anndata import need
from ._anndata.annotations import SELECTED, above_average, check_draw, draw, samples_of
from ._anndata.scale import moments, warn_of_counts
from ._anndata.source import Source, layout, read

__all__ = ["select_genes", "subsample"]


def __dir__() -> list[str]:
    return __all__


def select_genes(
    adata: Any,
    *,
    method: str = "variance",
    layer: str | None = None,
    key_added: str = SELECTED,
    **options: Any,
) -> None:
    """Mark the genes to learn from in `var`.

    No values are copied. `tl.learn` takes the genes that are marked in ``var["selected_genes"]`` by default; with
    another `key_added`, pass that as its `genes`.

    For an honest test on held-out samples, select genes in the training samples alone; functions that hold samples out
    themselves do so.

    Parameters
    ----------
    adata : AnnData
        Cells, in memory or backed.
    method : {"variance", "highly_variable"}, default="variance"
        "variance": genes whose variance over all cells is above the average variance (the paper's rule). It depends on
        the units of features: it is for genes on a log scale, not for panels of markers or measurements.
        "highly_variable": as scanpy marks them; `sc.pp.highly_variable_genes` is run unless ``var["highly_variable"]``
        exists.
    layer : str or None, default=None
        Layer with the values; None: X.
    key_added : str, default="selected_genes"
        Column of `var` and entry of `uns` for the results.
    **options : dict
        Options of `sc.pp.highly_variable_genes`, e.g. ``n_top_genes=2000``; with any, it is run in every case.

    Notes
    -----
    Results, with "selected_genes" standing for `key_added`:

    - ``var["selected_genes"]``: True for the genes to learn from
    - ``uns["selected_genes"]``: dict with the method, and the numbers of selected genes and of all

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.pp.select_genes(adata)
    >>> int(adata.var["selected_genes"].sum())
    89
    """
    if method == "variance":
        if options:
            raise TypeError(f"{sorted(options)} are options of method='highly_variable', not of 'variance'")
        adata.var[key_added] = _by_variance(adata, layer)
    elif method == "highly_variable":
        adata.var[key_added] = _highly_variable(adata, layer, options)
    else:
        raise ValueError(f"method is {method!r}: expected 'variance' or 'highly_variable'")
    selected = int(np.count_nonzero(adata.var[key_added]))
    adata.uns[key_added] = {"method": method, "n_selected": selected, "n_genes": adata.n_vars}


def _by_variance(adata: Any, layer: str | None) -> Any:
    with Source(adata) as source:
        found = moments(source.matrix(layer), np.arange(adata.n_obs))
    warn_of_counts(found.looks_raw, layer, stacklevel=4)
    return above_average(found.variance, adata.var_names)


def _highly_variable(adata: Any, layer: str | None, options: dict[str, Any]) -> Any:
    if "highly_variable" in adata.var and not options:
        return adata.var["highly_variable"].to_numpy(dtype=bool)
    if adata.isbacked:
        raise ValueError("highly variable genes cannot be found in backed mode: load the cells, or method='variance'")
    need("scanpy")
    import scanpy as sc

    return sc.pp.highly_variable_genes(adata, layer=layer, inplace=False, **options)["highly_variable"].to_numpy()


def subsample(adata: Any, sample_key: str, n: int = 1000, *, random_state: int = 0, copy: bool = False) -> Any:
    """Subsample of n random cells of every sample; samples with fewer keep all of theirs.

    Cells stay in their order. The draw from a sample depends on the seed, the sample's name and its own cells alone.

    Parameters
    ----------
    adata : AnnData
        Cells, in memory, or backed with ``copy=True``.
    sample_key : str
        Column of `obs` with the sample of each cell.
    n : int, default=1000
        Cells per sample; 1000 in the paper.
    random_state : int, default=0
        Seed of the draw.
    copy : bool, default=False
        Whether to return the drawn cells and leave `adata` as it is. In backed mode only the drawn cells are read into
        memory.

    Returns
    -------
    AnnData or None
        The drawn cells with ``copy=True``; otherwise None, and `adata` is reduced to them.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(2, 50, 200, random_state=0)
    >>> gm.pp.subsample(adata, "sample", 10)
    >>> adata.obs["sample"].value_counts().tolist()
    [10, 10, 10, 10]
    """
    check_draw(n, random_state, "n")
    rows = draw(samples_of(adata.obs, sample_key), n, random_state)
    if copy:
        return _read_cells(adata, rows) if adata.isbacked else adata[rows].copy()
    if adata.isbacked:
        raise ValueError("a backed AnnData cannot be cut down in place: adata = pp.subsample(adata, …, copy=True)")
    adata._inplace_subset_obs(rows)
    return None


def _read_cells(adata: Any, rows: np.ndarray) -> Any:
    """These cells of a backed AnnData; of one stored by columns, anndata itself would load all cells first."""
    part = adata[rows]
    if layout(adata.X) != "csc" or adata.raw is not None:
        return part.to_memory()
    axes = ("obs", "var", "uns", "obsm", "varm", "obsp", "varp")
    layers = {name: part.layers[name] for name in part.layers if name is not None}  # from anndata 0.13 on, X is one
    return type(adata)(read(adata.X, rows), layers=layers, **{name: getattr(part, name) for name in axes})
