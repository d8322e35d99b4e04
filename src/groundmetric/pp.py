"""Preprocessing of AnnData in the style of scanpy: gene selection, subsampling, and spatial coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from ._anndata.cohort import SELECTED, Samples, above_average, check_draw, draw, samples_of
from ._anndata.source import Source, check_anndata, moments, read, warn_of_counts
from ._internal.validation import ParameterError, check_number

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["select_genes", "spatial", "subsample"]


def __dir__() -> list[str]:
    return __all__


def select_genes(adata: AnnData, *, layer: str | None = None, key_added: str = SELECTED) -> None:
    """Mark the genes with a variance above the average over all cells (the paper's rule, for genes on a log scale).

    By default, `tl.learn` uses the genes marked in ``var["selected_genes"]``; with another `key_added`, pass its name
    as `genes`. For an unbiased test on held-out samples, select genes in the training samples only. After
    `sc.pp.highly_variable_genes`, give `tl.learn` ``genes="highly_variable"`` instead.

    Parameters
    ----------
    adata : AnnData
        Cells, in memory or backed.
    layer : str or None, default=None
        Layer with the values; None: X.
    key_added : str, default="selected_genes"
        Column of `var` for the mask, and entry of `uns` for the method and the numbers of selected genes and of all.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.pp.select_genes(adata)
    >>> int(adata.var["selected_genes"].sum())
    89
    """
    check_anndata(adata)
    with Source(adata) as source:
        statistics = moments(source.matrix(layer), np.arange(adata.n_obs))
    warn_of_counts(statistics.looks_raw, layer, stacklevel=3)
    mask = above_average(statistics, adata.var_names)
    adata.var[key_added] = mask
    adata.uns[key_added] = {"method": "variance", "n_selected": int(mask.sum()), "n_genes": adata.n_vars}


@overload
def subsample(
    adata: AnnData, sample_key: str, n: int = 1000, *, random_state: int = 0, copy: Literal[False] = False
) -> None: ...
@overload
def subsample(
    adata: AnnData, sample_key: str, n: int = 1000, *, random_state: int = 0, copy: Literal[True]
) -> AnnData: ...
def subsample(
    adata: AnnData, sample_key: str, n: int = 1000, *, random_state: int = 0, copy: bool = False
) -> AnnData | None:
    """Draw n random cells of every sample; smaller samples keep all their cells.

    Cells keep their order. The draw of a sample depends on the seed, its name and its cells only.

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
        Whether to return the drawn cells in memory and not change `adata`.

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
    check_anndata(adata)
    check_draw(n, random_state, "n")
    rows = draw(samples_of(adata.obs, sample_key), n, random_state)
    if copy:
        return adata[rows].to_memory() if adata.isbacked else adata[rows].copy()
    if adata.isbacked:
        raise ValueError("a backed AnnData cannot be changed in place: adata = pp.subsample(adata, …, copy=True)")
    adata._inplace_subset_obs(rows)
    return None


def spatial(
    adata: AnnData,
    sample_key: str,
    *,
    weight: float = 0.2,
    n_neighbors: int | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    spatial_key: str = "spatial",
    key_added: str = "X_spatial",
) -> None:
    """Combine the values of each cell with its position, or with the mean values of its neighbours, in one array.

    Distances between rows then also compare the arrangement of cells. `tl.learn` with ``use_rep="X_spatial"`` learns
    its own weights.

    Parameters
    ----------
    adata : AnnData
        Cells in memory, with coordinates in `obsm`.
    sample_key : str
        Column of `obs` with the sample (slide) of each cell.
    weight : float, default=0.2
        Share of space in the mean squared distance between two cells, from 0 to 1.
    n_neighbors : int or None, default=None
        None: coordinates relative to the centre of the sample, in units of their root mean square, for slides with the
        same orientation (registered, or layered from top to bottom). A number: mean values of this number of nearest
        cells of the sample, which do not depend on the orientation of the slide.
    use_rep : str or None, default=None
        Entry of `obsm` with the values of cells, such as "X_pca", or after `tl.learn` "X_groundmetric" for the learned
        metric. None: the genes marked by `pp.select_genes`, or all genes without marks.
    layer : str or None, default=None
        Layer with the values of genes; None: X.
    spatial_key : str, default="spatial"
        Entry of `obsm` with the coordinates.
    key_added : str, default="X_spatial"
        Entry of `obsm` for the result: values, then space, each scaled to its share of the mean squared distance. The
        entry of `uns` has the parameters, and "n_values", the number of columns of values.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata.obsm["spatial"] = np.random.default_rng(0).uniform(size=(adata.n_obs, 2))
    >>> gm.pp.select_genes(adata)
    >>> gm.pp.spatial(adata, "sample", weight=0.3)
    >>> adata.obsm["X_spatial"].shape
    (426, 91)
    """
    check_anndata(adata)
    check_number("weight", weight, low=0, high=1)
    if n_neighbors is not None:
        check_number("n_neighbors", n_neighbors, low=1, whole=True)
    samples = samples_of(adata.obs, sample_key)
    with Source(adata) as source:
        coordinates = np.asarray(source.representation(spatial_key, "spatial_key"), dtype=np.float64)
        if coordinates.shape[1] not in (2, 3):
            raise ValueError(f"obsm[{spatial_key!r}] has shape {coordinates.shape}: expected (n_cells, 2 or 3)")
        bad = np.flatnonzero(~np.isfinite(coordinates).all(axis=1))
        if bad.size:
            problem = f"NaN or infinity for {bad.size} of {adata.n_obs} cells, e.g. in row {bad[0]}: drop these cells"
            raise ValueError(f"obsm[{spatial_key!r}] holds {problem}")
        rows = np.arange(adata.n_obs)
        if use_rep is not None:
            if layer is not None:
                raise ParameterError("use_rep", use_rep, ", which excludes layer: leave it out")
            values = read(source.representation(use_rep), rows)
        else:
            marked = source.var[SELECTED].to_numpy(dtype=bool) if SELECTED in source.var.columns else None
            values = read(source.matrix(layer), rows, None if marked is None else np.flatnonzero(marked))
            warn_of_counts(moments(values, rows).looks_raw, layer, stacklevel=3)
        values = np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)
    if n_neighbors is None:
        space = standardised_coordinates(coordinates, samples, spatial_key)
    else:
        space = neighborhood_means(values, coordinates, samples, int(n_neighbors))
    adata.obsm[key_added] = side_by_side(values, space, float(weight))
    parameters = {"weight": float(weight), "n_neighbors": n_neighbors, "use_rep": use_rep, "layer": layer}
    parameters = {name: value for name, value in parameters.items() if value is not None}
    adata.uns[key_added] = {**parameters, "spatial_key": spatial_key, "n_values": values.shape[1]}


def standardised_coordinates(coordinates: np.ndarray, samples: Samples, spatial_key: str) -> np.ndarray:
    """Return coordinates relative to the centre of their sample, in units of their root mean square distance from it.

    They do not depend on the origin and unit of a slide, but on its orientation.
    """
    standardised = np.empty_like(coordinates)
    for name, rows in zip(samples.names, samples.rows, strict=True):
        centred = coordinates[rows] - coordinates[rows].mean(axis=0)
        size = float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))
        if rows.size > 1 and size <= 1e-12 * max(float(np.abs(coordinates[rows]).max()), 1e-300):
            problem = f"have the same coordinates in obsm[{spatial_key!r}]: drop the sample, or correct its coordinates"
            raise ValueError(f"all {rows.size} cells of sample {str(name)!r} {problem}")
        standardised[rows] = centred / (size if rows.size > 1 else 1.0)
    return standardised


def neighborhood_means(values: np.ndarray, coordinates: np.ndarray, samples: Samples, n_neighbors: int) -> np.ndarray:
    """Return mean values of the nearest other cells of the sample; of the cell itself if it is alone."""
    means = np.empty(values.shape)
    for rows in samples.rows:
        count = min(n_neighbors, rows.size - 1)
        if count == 0:
            means[rows] = values[rows]
            continue
        nearest = cKDTree(coordinates[rows]).query(coordinates[rows], count + 1)[1]
        # The nearest cell is usually the cell itself, but cells with equal coordinates may displace it.
        is_self = nearest == np.arange(rows.size)[:, None]
        is_self[~is_self.any(axis=1), -1] = True
        neighbors = nearest[~is_self]
        steps = np.arange(0, neighbors.size + 1, count)
        averaging = sparse.csr_matrix((np.full(neighbors.size, 1.0 / count), neighbors, steps), (rows.size, rows.size))
        means[rows] = averaging @ values[rows]
    return means


def side_by_side(values: np.ndarray, space: np.ndarray, weight: float) -> np.ndarray:
    """Concatenate values and space; space has the share `weight` of the mean squared distance between two cells."""
    shares = ((1.0 - weight, values), (weight, space))
    return np.hstack([np.sqrt(share) * (x / (float(np.sqrt(x.var(axis=0).sum())) or 1.0)) for share, x in shares])
