"""Preparation of AnnData, in scanpy's manner: which genes, how many cells per sample, and where cells lie in space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from ._anndata.annotations import SELECTED, Samples, above_average, check_draw, draw, samples_of
from ._anndata.source import Source, layout, moments, read, warn_of_counts
from ._internal.validation import ParameterError, check_number, need

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["select_genes", "spatial", "subsample"]


def __dir__() -> list[str]:
    return __all__


def select_genes(
    adata: AnnData,
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
    """Put the place of each cell, or what its neighbours are like, beside its values, with a weight.

    Samples with the same cells in another arrangement are then told apart. Distances between rows of the result have
    the weight as it is given; `tl.learn` with ``use_rep="X_spatial"`` learns weights of its own.

    Parameters
    ----------
    adata : AnnData
        Cells in memory, with coordinates in `obsm`.
    sample_key : str
        Column of `obs` with the sample (slide) of each cell.
    weight : float, default=0.2
        Share of space in the mean squared distance between two cells: 0 leaves it out, 1 is nothing but space.
    n_neighbors : int or None, default=None
        None: coordinates from the centre of the sample, in units of the root mean square distance from it. These can
        be compared between slides that are turned alike (registered, or layered from top to bottom). A number: mean
        values of so many nearest cells of the sample, which do not depend on how a slide is turned.
    use_rep : str or None, default=None
        Entry of `obsm` with the values of cells, such as "X_pca", or after `tl.learn` "X_groundmetric", in which
        distances are those of the learned metric. None: genes, those marked by `pp.select_genes` where there are any.
    layer : str or None, default=None
        Layer with the values of genes; None: X.
    spatial_key : str, default="spatial"
        Entry of `obsm` with the coordinates.
    key_added : str, default="X_spatial"
        Entry of `obsm` and of `uns` for the results.

    Notes
    -----
    Results, with "X_spatial" standing for `key_added`:

    - ``obsm["X_spatial"]``: values, then space; each in units of its spread, times the root of its share
    - ``uns["X_spatial"]``: dict with the parameters, and "n_values", the number of columns before those of space

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
    check_number("weight", weight, low=0.0)
    if weight > 1.0:
        raise ParameterError("weight", weight, ": expected a share of at most 1")
    if n_neighbors is not None:
        check_number("n_neighbors", n_neighbors, low=1, whole=True)
    samples = samples_of(adata.obs, sample_key)
    with Source(adata) as source:
        coordinates = check_coordinates(source.representation(spatial_key, "spatial_key"), spatial_key)
        values = _values_of_cells(source, adata.n_obs, layer, use_rep)
    if n_neighbors is None:
        space = standardised_coordinates(coordinates, samples, spatial_key)
    else:
        space = neighborhood_means(values, coordinates, samples, int(n_neighbors))
    adata.obsm[key_added] = side_by_side(values, space, float(weight))
    given = {"weight": float(weight), "n_neighbors": n_neighbors, "use_rep": use_rep, "layer": layer}
    kept = {name: value for name, value in given.items() if value is not None}
    adata.uns[key_added] = {**kept, "spatial_key": spatial_key, "n_values": values.shape[1]}


def _values_of_cells(source: Source, n_cells: int, layer: str | None, use_rep: str | None) -> np.ndarray:
    """An array of all cells: a representation, or the marked genes (else all)."""
    rows = np.arange(n_cells)
    if use_rep is not None:
        if layer is not None:
            raise ParameterError("use_rep", use_rep, ": then there is no choice of layer, leave it out")
        return np.asarray(read(source.representation(use_rep), rows), dtype=np.float64)
    marked = source.var[SELECTED].to_numpy(dtype=bool) if SELECTED in source.var.columns else None
    values = read(source.matrix(layer), rows, None if marked is None else np.flatnonzero(marked))
    warn_of_counts(moments(values, rows).looks_raw, layer, stacklevel=4)
    return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


def check_coordinates(coordinates: np.ndarray, spatial_key: str) -> np.ndarray:
    """Finite numbers in two or three dimensions."""
    found = np.asarray(coordinates, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] not in (2, 3):
        raise ValueError(f"obsm[{spatial_key!r}] has shape {found.shape}: expected two or three coordinates per cell")
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise ValueError(
            f"obsm[{spatial_key!r}] holds NaN or infinity for {bad.size} of {len(found)} cells, e.g. that at row "
            f"{bad[0]}: drop these cells"
        )
    return found


def standardised_coordinates(coordinates: np.ndarray, samples: Samples, spatial_key: str) -> np.ndarray:
    """Coordinates from the centre of their sample, in units of the root mean square distance from it.

    So neither where a slide begins nor the unit of its coordinates matters; how it is turned does.

    >>> samples = Samples(np.array(["a"]), np.zeros(2, int))
    >>> standardised_coordinates(np.array([[100.0, 7.0], [300.0, 7.0]]), samples, "spatial").tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    found = np.empty_like(coordinates)
    for name, rows in zip(samples.names, samples.rows, strict=True):
        centred = coordinates[rows] - coordinates[rows].mean(axis=0)
        size = float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))
        if rows.size > 1 and size <= 1e-12 * max(float(np.abs(coordinates[rows]).max()), 1e-300):
            raise ValueError(
                f"all {rows.size} cells of sample {str(name)!r} have the same place in obsm[{spatial_key!r}]: drop the "
                "sample, or give its coordinates"
            )
        found[rows] = centred / (size if rows.size > 1 else 1.0)
    return found


def neighborhood_means(values: np.ndarray, coordinates: np.ndarray, samples: Samples, n_neighbors: int) -> np.ndarray:
    """Mean values of the nearest other cells of the same sample; of a lone cell, its own.

    >>> samples = Samples(np.array(["a"]), np.zeros(3, int))
    >>> places = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    >>> neighborhood_means(np.array([[1.0], [2.0], [9.0]]), places, samples, 1).ravel().tolist()
    [2.0, 1.0, 2.0]
    """
    found = np.empty(values.shape)
    for rows in samples.rows:
        count = min(n_neighbors, rows.size - 1)
        if count == 0:
            found[rows] = values[rows]
            continue
        tree = cKDTree(coordinates[rows])
        _, nearest = tree.query(coordinates[rows], count + 1)
        # A cell is its own nearest, unless others are at the same place.
        own = nearest == np.arange(rows.size)[:, None]
        own[~own.any(axis=1), -1] = True
        others = nearest[~own].reshape(rows.size, count)
        steps = np.arange(0, others.size + 1, count)
        mean = sparse.csr_matrix((np.full(others.size, 1.0 / count), others.ravel(), steps), (rows.size, rows.size))
        found[rows] = mean @ values[rows]
    return found


def side_by_side(values: np.ndarray, space: np.ndarray, weight: float) -> np.ndarray:
    """Both in one table, so that space makes up the share `weight` of the mean squared distance between two cells."""
    return np.hstack([np.sqrt(1.0 - weight) * _of_unit_spread(values), np.sqrt(weight) * _of_unit_spread(space)])


def _of_unit_spread(values: np.ndarray) -> np.ndarray:
    return values / (float(np.sqrt(values.var(axis=0).sum())) or 1.0)
