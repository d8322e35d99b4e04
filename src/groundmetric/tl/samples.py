"""tl.samples: an AnnData with a row per sample and its graph; tl.average and tl.trajectory: what is made of it.

Scanpy has no way to give it exact distances without loading and compiling all of umap, which takes longer than the rest
of `tl.samples`; for the number of samples in a cohort the graph is a few lines.
"""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.decomposition import PCA

from .._anndata.annotations import Samples, constant_columns, find_column, samples_of
from .._anndata.source import Source, listed, pieces, read
from .._anndata.store import EnsembleResults, Stored, drawn_cells, read_entry
from .._internal.types import CellsLike
from ..distances import pairwise_distances


def samples(
    adata: CellsLike,
    *,
    sample_key: str | None = None,
    cell_type_key: str | None = None,
    n_neighbors: int = 15,
    key: str = "groundmetric",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ad.AnnData:
    """AnnData with a row per sample, and the distances between samples under the learned metric.

    The graph of nearest neighbours is included, so that `sc.tl.umap`, `sc.tl.leiden`, `sc.tl.diffmap` and `sc.tl.dpt`
    run on the result.

    Parameters
    ----------
    adata : AnnData or path
        Cells after `tl.learn` or `tl.transfer`, or the path of their file.
    sample_key : str or None, default=None
        Column of `obs` with the sample of each cell; None: that of `tl.learn`.
    cell_type_key : str or None, default=None
        Column of `obs` whose values are counted in each sample; None: "cell_type", where there is one.
    n_neighbors : int, default=15
        Neighbours of each sample in the graph, itself included, as in scanpy; at most the number of samples less one.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    n_jobs : int or None, default=None
        Threads for the distances; None: one.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Returns
    -------
    AnnData
        A row per sample, with the entries below.

    Notes
    -----
    Entries of the result, with "groundmetric" standing for `key`:

    - ``X``: mean of each selected gene over the drawn cells (where `adata` has the values; not with `use_rep`)
    - ``obs``: columns that are the same for all cells of a sample, and "n_cells", the number of its cells, whether they
      were drawn or not
    - ``obsm["X_groundmetric_distances"]``: distances to all samples. With an ensemble, two training samples are
      compared by members that were trained on neither (out of bag), in units that give the same mean as the metric
    - ``obsm["cell_types"]``: number of cells of each type among those in `adata` (where it has cell types), which of a
      file that was learned from are the drawn ones
    - ``obsp["groundmetric_distances"]``: the same distances, as a pairwise entry
    - ``obsp["groundmetric_in_sample"]`` (ensemble): distances under the metric itself, which was trained on the labels
      of these samples. Labels are better separated in them than labels of new samples would be
    - ``obs["groundmetric_held_out"]``, ``obs["groundmetric_held_out_probability"]`` (ensemble): held-out label of a
      training sample, and its probability (not of ordered labels); missing for other samples
    - ``obsp["distances"]``, ``obsp["connectivities"]``, ``uns["neighbors"]``: graph of nearest samples (from 3 samples
      on)

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> samples = gm.tl.samples(adata)
    >>> samples.n_obs, samples.obsp["groundmetric_distances"].shape
    (8, (8, 8))
    """
    if n_neighbors < 2:
        raise ValueError(f"n_neighbors is {n_neighbors}: at least 2 are needed, the sample itself and another")
    with Source(adata) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "adata")
        who = samples_of(source.obs, sample_key or stored.params["sample_key"])
        cells = drawn_cells(source, who, key)
        distances = pairwise_distances(cells.equalize(), n_jobs=n_jobs, verbose=verbose)
        obs = constant_columns(source.obs.drop(columns=f"{key}_sampled"), who)
        obs["n_cells"] = _counts(entry, who, sample_key in (None, stored.params["sample_key"]))
        X, var = _means(source, who, stored)
        types = count_cell_types(source.obs, who, cell_type_key)
    result = ad.AnnData(X, obs=obs, var=var)
    if types is not None:
        result.obsm["cell_types"] = types
    results = EnsembleResults.read(entry)
    if results is not None and sample_key in (None, stored.params["sample_key"]):
        result.obsp[f"{key}_in_sample"] = distances
        distances = out_of_bag_distances(distances, results, who.names)
        _write_held_out(result, results, key)
    result.obsm[f"X_{key}_distances"] = distances
    result.obsp[f"{key}_distances"] = distances
    result.uns[key] = {
        "params": {name: value for name, value in stored.params.items() if value is not None},
        "out_of_bag": f"{key}_in_sample" in result.obsp,
    }
    if len(who) > 2:  # fewer make no graph
        set_neighbors(result, distances, min(n_neighbors, len(who) - 1), f"X_{key}_distances")
    return result


def out_of_bag_distances(distances: np.ndarray, results: EnsembleResults, names: np.ndarray) -> np.ndarray:
    """Return the distances, with out-of-bag distances between training samples, in the same units."""
    places = pd.Index(results.samples).get_indexer(names)
    here = np.flatnonzero(places >= 0)
    found = distances.copy()
    if here.size > 1:
        block = results.out_of_bag[np.ix_(places[here], places[here])]
        unit = distances[np.ix_(here, here)].sum() / (block.sum() or 1.0)
        found[np.ix_(here, here)] = unit * block
    return found


def _write_held_out(result: ad.AnnData, results: EnsembleResults, key: str) -> None:
    """Columns of what was predicted for training samples while they were left out."""
    predicted = pd.Series(results.predicted, results.samples).reindex(result.obs_names)
    if results.predicted.dtype.kind not in "biuf":
        predicted = predicted.astype("category")
    result.obs[f"{key}_held_out"] = predicted
    if results.numbers is None:
        best = pd.Series(results.held_out.max(axis=1), results.samples)
        result.obs[f"{key}_held_out_probability"] = best.reindex(result.obs_names)


def average(
    adata: ad.AnnData,
    weight: float = 0.5,
    *,
    use_rep: str | None = None,
    n_pcs: int = 50,
    key: str = "groundmetric",
    key_added: str | None = None,
    random_state: int = 0,
) -> None:
    """Coordinates of cells between the learned metric (weight 0) and the Euclidean one (weight 1).

    The learned metric separates conditions, the Euclidean one cell types; in between, both are visible. The Euclidean
    distance d between these coordinates is d² = (1 - weight) d²_learned + weight d²_Euclidean, each in units of its
    root mean square over all pairs of cells, because the two have no common unit. `sc.pp.neighbors` takes them with
    ``use_rep="X_groundmetric_average"``.

    `GroundMetric.blend` averages the distances themselves, as the paper does; no coordinates have those.

    Parameters
    ----------
    adata : AnnData
        Cells after `tl.learn` or `tl.transfer`; the coordinates are added to its `obsm`.
    weight : float, default=0.5
        Weight of the Euclidean metric, from 0 to 1.
    use_rep : str or None, default=None
        Entry of `obsm` with the coordinates of the Euclidean metric. None: the `use_rep` of `tl.learn`, otherwise
        "X_pca" where there is one, otherwise principal components of the selected genes.
    n_pcs : int, default=50
        Number of these principal components, at most one less than there are genes or cells.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    key_added : str or None, default=None
        Entry of `obsm` for the coordinates; None: "X_groundmetric_average", with `key` in place of "groundmetric".
    random_state : int, default=0
        Seed of the principal component analysis.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> gm.tl.average(adata, n_pcs=10)
    >>> adata.obsm["X_groundmetric_average"].shape == (adata.n_obs, 2 + 10)
    True
    """
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"weight is {weight}: expected a number from 0 (learned) to 1 (Euclidean)")
    with Source(adata) as source:
        stored = read_entry(source.uns_entry(key), key, "adata")
        learned = np.asarray(source.representation(f"X_{key}"))
        use_rep = use_rep or stored.params.get("use_rep") or ("X_pca" if "X_pca" in adata.obsm else None)
        if use_rep is not None:
            euclidean = np.asarray(source.representation(use_rep), dtype=np.float64)
        else:
            euclidean = _principal_components(source, stored.features, stored.params.get("layer"), n_pcs, random_state)
    parts = np.sqrt(1.0 - weight) * _in_own_units(learned), np.sqrt(weight) * _in_own_units(euclidean)
    adata.obsm[key_added or f"X_{key}_average"] = np.hstack(parts)


def trajectory(
    samples: ad.AnnData,
    root: str,
    *,
    n_neighbors: int = 5,
    key: str = "groundmetric",
    key_added: str | None = None,
) -> None:
    """Pseudotime of samples: distance from a root along paths through similar samples, from 0 to 1.

    This is diffusion pseudotime (Haghverdi et al. 2016) on all distances between samples. With tens of samples a graph
    of nearest neighbours is often disconnected, and `sc.tl.dpt` then gives infinity; here every two samples are linked,
    the more weakly the farther they are apart.

    Parameters
    ----------
    samples : AnnData
        Result of `tl.samples`, to which the pseudotime is added.
    root : str
        Name of the sample at which pseudotime is 0; or a label: then that of its samples that is farthest, on average,
        from the samples of other labels.
    n_neighbors : int, default=5
        The width of each sample's kernel is its distance to this neighbour, or more where samples would be cut off.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    key_added : str or None, default=None
        Name of the results; None: "groundmetric_pseudotime", with `key` in place of "groundmetric".

    Notes
    -----
    Results, under the name `key_added`:

    - ``obs["groundmetric_pseudotime"]``: pseudotime of each sample, 0 at the root and 1 at the farthest
    - ``uns["groundmetric_pseudotime"]``: dict with the name of the root

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> samples = gm.tl.samples(adata)
    >>> gm.tl.trajectory(samples, "control")
    >>> samples.obs.sort_values("groundmetric_pseudotime")["condition"].tolist()[-1]
    'disease'
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


def _counts(entry: Any, who: Samples, as_learned: bool) -> np.ndarray:
    """Cells of each sample; where only the drawn ones are here, as many as there were in the file."""
    counts = pd.Series(who.sizes, who.names)
    if as_learned and "n_cells" in entry:
        known = pd.Series(np.asarray(entry["n_cells"]["n_cells"]), [str(n) for n in entry["n_cells"]["samples"]])
        counts.update(known)
    return counts.to_numpy()


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
    """Return the diffusion pseudotime (Haghverdi et al. 2016) from the root, scaled to at most 1.

    The distance of two samples is |Σ_t T^t(root, ·) - Σ_t T^t(x, ·)| for the transition matrix T of a random walk
    without its stationary part: the Euclidean distance of coordinates λ/(1 - λ) for eigenvalues λ of T.
    """
    transitions = _transitions(distances, n_neighbors)
    values, vectors = np.linalg.eigh(transitions)
    moving = np.argsort(values)[:-1]  # without the stationary part
    coordinates = vectors[:, moving] * (values[moving] / (1.0 - values[moving]))
    away = np.linalg.norm(coordinates - coordinates[root], axis=1)
    return away / away.max() if away.max() > 0 else away


def _transitions(distances: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Return the symmetric transition matrix of a Gaussian kernel whose width follows the local density."""
    longest = minimum_spanning_tree(distances).data.max(initial=0.0)
    # No edge of the minimum spanning tree is longer than three widths, so that all samples stay connected.
    width = np.maximum(np.sort(distances, axis=1)[:, n_neighbors], longest / 3.0)
    width = np.where(width > 0, width, 1.0)
    spread = width[:, None] ** 2 + width**2
    kernel = np.sqrt(2.0 * np.outer(width, width) / spread) * np.exp(-(distances**2) / spread)
    density = kernel.sum(axis=1)
    kernel /= np.outer(density, density)
    degree = np.sqrt(kernel.sum(axis=1))
    return kernel / np.outer(degree, degree)
