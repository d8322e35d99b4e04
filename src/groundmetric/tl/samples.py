"""tl.samples: an AnnData with a row per sample and a neighbour graph; tl.average and tl.trajectory.

The neighbour graph is computed here: scanpy accepts exact distances only through umap, whose import and compilation
take longer than the rest of `tl.samples`.
"""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.decomposition import PCA

from .._anndata.cohort import Samples, constant_columns, find_column, samples_of
from .._anndata.source import Source, list_names, pieces, read
from .._anndata.store import EnsembleResults, Stored, drawn_cells, read_entry, storable_parameters
from .._internal.types import CellsLike
from .._internal.validation import ParameterError, check_number
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..ensemble.geometry import MAX_EXACT, N_LANDMARKS, choose_landmarks, complete_distances

# Maximum number of cells by which samples are compared with landmarks.
_MAX_CELLS = 100


def samples(
    adata: CellsLike,
    *,
    sample_key: str | None = None,
    cell_type_key: str | None = None,
    n_neighbors: int = 15,
    n_landmarks: int | None = N_LANDMARKS,
    key: str = "groundmetric",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ad.AnnData:
    """Return an AnnData with a row per sample, and the distances between samples under the learned metric.

    It includes the graph of nearest neighbours, which `sc.tl.umap`, `sc.tl.leiden`, `sc.tl.diffmap` and `sc.tl.dpt`
    use. scanpy draws marks for thousands of cells: give the size of marks, e.g. ``sc.pl.umap(samples, size=200)``.

    Parameters
    ----------
    adata : AnnData or path
        Cells after `tl.learn` or `tl.transfer`, or the path of their file.
    sample_key : str or None, default=None
        Column of `obs` with the sample of each cell; None: that of `tl.learn`.
    cell_type_key : str or None, default=None
        Column of `obs` whose values are counted in each sample; None: "cell_type", if it exists.
    n_neighbors : int, default=15
        Neighbours of each sample in the graph, including itself as in scanpy; at most the number of samples less one.
    n_landmarks : int or None, default=128
        Number of landmark samples in cohorts of more than 256 samples: each sample is compared with the landmarks by at
        most 100 cells, and all other distances are interpolated. The time is then proportional to the number of
        samples. None: exact distances of all pairs, by all drawn cells.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    n_jobs : int or None, default=None
        Threads for the distances; None: one.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Returns
    -------
    AnnData
        A row per sample, with the entries below.

    Notes
    -----
    Entries of the result, with "groundmetric" for `key`:

    - ``X``: mean of each selected gene over the drawn cells (if `adata` has the values; not with `use_rep`)
    - ``obs``: columns of `adata.obs` that are constant within samples, and "n_cells", the number of cells of a sample,
      including cells that were not drawn
    - ``obsm["X_groundmetric_distances"]``: distances to all samples. Distances between training samples of an ensemble
      are out-of-bag, scaled to the mean of the distances under the final metric
    - ``obsm["cell_types"]``: number of cells of each type in `adata` (if it has cell types); after learning from a
      file, `adata` has the drawn cells only
    - ``obsp["groundmetric_distances"]``: the same distances, as a pairwise entry
    - ``obsp["groundmetric_in_sample"]`` (ensemble): distances under the final metric, which was trained on these
      labels; they separate labels better than distances between new samples do
    - ``obs["groundmetric_held_out"]``, ``obs["groundmetric_held_out_probability"]`` (ensemble): held-out label of a
      training sample, and its probability (not for ordered labels); missing for other samples
    - ``obsp["distances"]``, ``obsp["connectivities"]``, ``uns["neighbors"]``: graph of nearest samples (for at least 3
      samples)
    - ``uns["groundmetric"]["landmarks"]``: names of the landmarks, if distances are interpolated

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> samples = gm.tl.samples(adata)
    >>> samples.n_obs, samples.obsp["groundmetric_distances"].shape
    (8, (8, 8))
    """
    check_number("n_neighbors", n_neighbors, low=2, whole=True)
    with Source(adata) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "adata")
        as_learned = sample_key in (None, stored.params["sample_key"])
        units = samples_of(source.obs, sample_key or stored.params["sample_key"])
        cells = drawn_cells(source, units, key)
        landmarks, distances = _distances(cells, n_landmarks, n_jobs, verbose)
        obs = constant_columns(source.obs.drop(columns=f"{key}_sampled"), units)
        counts = pd.Series(units.sizes, units.names)
        if as_learned and "n_cells" in entry:  # of a file: with cells that were not drawn
            counts.update(pd.Series(np.asarray(entry["n_cells"]["n_cells"]), map(str, entry["n_cells"]["samples"])))
        obs["n_cells"] = counts.to_numpy()
        X, var = _gene_means(source, units, stored)
        types = count_cell_types(source.obs, units, cell_type_key)
    result = ad.AnnData(X, obs=obs, var=var)
    if types is not None:
        result.obsm["cell_types"] = types
    results = EnsembleResults.read(entry)
    if results is not None and as_learned:
        result.obsp[f"{key}_in_sample"] = distances
        distances = out_of_bag_distances(distances, results, units.names)
        predicted = pd.Series(results.predicted, results.samples).reindex(result.obs_names)
        is_number = results.predicted.dtype.kind in "biuf"
        result.obs[f"{key}_held_out"] = predicted if is_number else predicted.astype("category")
        if results.numbers is None:
            probability = pd.Series(results.held_out.max(axis=1), results.samples)
            result.obs[f"{key}_held_out_probability"] = probability.reindex(result.obs_names)
    result.obsm[f"X_{key}_distances"] = distances
    result.obsp[f"{key}_distances"] = distances
    result.uns[key] = {
        "params": storable_parameters(stored.params),
        "out_of_bag": f"{key}_in_sample" in result.obsp,
    }
    if landmarks.size < len(units):
        result.uns[key]["landmarks"] = units.names[landmarks].astype(object)
    if len(units) > 2:
        set_neighbors(result, distances, min(n_neighbors, len(units) - 1), f"X_{key}_distances")
    return result


def _distances(
    cells: Distributions, n_landmarks: int | None, n_jobs: int | None, verbose: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the landmarks and all distances; in small cohorts all samples are landmarks."""
    if n_landmarks is None or len(cells) <= max(MAX_EXACT, n_landmarks):
        return np.arange(len(cells)), pairwise_distances(cells.equalize(), n_jobs=n_jobs, verbose=verbose)
    landmarks = choose_landmarks(cells.names, 0, n_landmarks)
    cells = cells.equalize(cells.common_size(_MAX_CELLS))
    columns = pairwise_distances(cells, cells[landmarks], n_jobs=n_jobs, verbose=verbose)
    return landmarks, complete_distances(columns, landmarks)


def out_of_bag_distances(distances: np.ndarray, results: EnsembleResults, names: np.ndarray) -> np.ndarray:
    """Return distances in which those between training samples are out-of-bag, with the same mean."""
    positions = pd.Index(results.samples).get_indexer(names)
    training = np.flatnonzero(positions >= 0)
    combined = distances.copy()
    if training.size > 1:
        block = results.out_of_bag[np.ix_(positions[training], positions[training])]
        unit = distances[np.ix_(training, training)].sum() / (block.sum() or 1.0)
        combined[np.ix_(training, training)] = unit * block
    return combined


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
    """Compute coordinates of cells between the learned metric (weight 0) and the Euclidean metric (weight 1).

    The learned metric separates conditions, the Euclidean metric cell types; coordinates in between show both. The
    Euclidean distance d between these coordinates is d² = (1 - weight) d²_learned + weight d²_Euclidean, each in units
    of its root mean square over all pairs of cells. Use them with
    ``sc.pp.neighbors(adata, use_rep="X_groundmetric_average")``.

    `GroundMetric.blend` averages the distances themselves, as the paper does, which is not possible with coordinates.

    Parameters
    ----------
    adata : AnnData
        Cells after `tl.learn` or `tl.transfer`; the coordinates are added to its `obsm`.
    weight : float, default=0.5
        Weight of the Euclidean metric, from 0 to 1.
    use_rep : str or None, default=None
        Entry of `obsm` with the coordinates of the Euclidean metric. None: the `use_rep` of `tl.learn`, else "X_pca"
        if it exists, else principal components of the selected genes.
    n_pcs : int, default=50
        Maximum number of principal components.
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
    check_number("weight", weight, low=0, high=1)
    with Source(adata) as source:
        stored = read_entry(source.uns_entry(key), key, "adata")
        learned = np.asarray(source.representation(f"X_{key}"))
        use_rep = use_rep or stored.params.get("use_rep") or ("X_pca" if "X_pca" in adata.obsm else None)
        if use_rep is not None:
            euclidean = np.asarray(source.representation(use_rep), dtype=np.float64)
        else:
            euclidean = _principal_components(source, stored.features, stored.params.get("layer"), n_pcs, random_state)
    blocks = np.sqrt(1.0 - weight) * _standardised(learned), np.sqrt(weight) * _standardised(euclidean)
    adata.obsm[key_added or f"X_{key}_average"] = np.hstack(blocks)


def trajectory(
    samples: ad.AnnData,
    root: str,
    *,
    n_neighbors: int = 5,
    key: str = "groundmetric",
    key_added: str | None = None,
) -> None:
    """Compute the pseudotime of samples: distance from a root along paths through similar samples, from 0 to 1.

    This is diffusion pseudotime (Haghverdi et al. 2016) on all distances between samples. With tens of samples, a graph
    of nearest neighbours is often disconnected, and `sc.tl.dpt` then returns infinity. Here all pairs of samples are
    connected, with weights that decrease with distance.

    Parameters
    ----------
    samples : AnnData
        Result of `tl.samples`, to which the pseudotime is added.
    root : str
        Name of the sample with pseudotime 0; or a label, whose sample with the largest mean distance to samples of
        other labels is the root.
    n_neighbors : int, default=5
        The width of each sample's kernel is its distance to this neighbour, or larger to keep all samples connected.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    key_added : str or None, default=None
        Name of the results; None: "groundmetric_pseudotime", with `key` in place of "groundmetric".

    Notes
    -----
    Results, under the name `key_added`:

    - ``obs["groundmetric_pseudotime"]``: pseudotime of each sample, 0 at the root and at most 1
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
        raise ValueError(f"there are {len(distances)} samples: a trajectory needs at least 3")
    check_number("n_neighbors", n_neighbors, low=1, whole=True)
    start = _find_root(samples, root, distances, samples.uns[key]["params"].get("label_key"))
    key_added = key_added or f"{key}_pseudotime"
    samples.obs[key_added] = pseudotime(distances, start, min(n_neighbors, len(distances) - 1))
    samples.uns[key_added] = {"root": str(samples.obs_names[start])}


def _gene_means(source: Source, units: Samples, stored: Stored) -> tuple[np.ndarray | None, pd.DataFrame | None]:
    """Return the mean of each selected gene over the drawn cells of every sample; None if values are missing."""
    positions = source.genes.get_indexer(stored.features) if source.genes.is_unique else np.array([-1])
    layer = stored.params.get("layer")
    if stored.params.get("use_rep") is not None or np.any(positions < 0) or not source.has_matrix(layer):
        return None, None
    rows = np.flatnonzero(source.obs[f"{stored.key}_sampled"])
    codes, columns, order = units.codes[rows], np.sort(positions), np.argsort(np.argsort(positions))
    averaging = sparse.csr_matrix((1.0 / np.bincount(codes)[codes], (codes, np.arange(rows.size))))
    X = np.zeros((len(units), columns.size))
    for piece in pieces(source.matrix(layer), rows, columns):
        means = averaging[:, piece.rows] @ piece.values
        X[:, piece.columns] += means.toarray() if sparse.issparse(means) else means
    return X[:, order], source.var.iloc[positions].copy()


def count_cell_types(obs: pd.DataFrame, units: Samples, cell_type_key: str | None) -> pd.DataFrame | None:
    """Return the number of cells of each type in each sample; None without cell types."""
    if cell_type_key is None:
        if "cell_type" not in obs.columns:
            return None
        cell_type_key = "cell_type"
    types = find_column(obs, cell_type_key, "cell_type_key")
    counts = pd.crosstab(units.codes, types.astype(object).to_numpy()).reindex(range(len(units)), fill_value=0)
    return pd.DataFrame(counts.to_numpy(), index=units.names.astype(str), columns=as_keys(counts.columns))


def as_keys(values: Any) -> list[str]:
    """Return names of columns that a file can hold: HDF5 reads a slash as a path."""
    return [str(value).replace("/", "|") for value in values]


def set_neighbors(adata: Any, distances: np.ndarray, n_neighbors: int, use_rep: str) -> None:
    """Write `uns["neighbors"]`, `obsp["distances"]` and `obsp["connectivities"]` as scanpy does.

    `n_neighbors` includes the sample itself. Connectivities are the fuzzy graph of UMAP: the weight of a neighbour is
    exp(-(d - d_nearest) / width), and the two directions of an edge are united by a + b - ab.
    """
    distances = distances + np.diag(np.full(len(distances), np.inf))
    columns = np.argsort(distances, axis=1, kind="stable")[:, : n_neighbors - 1]
    nearest = np.take_along_axis(distances, columns, axis=1)
    n, k = columns.shape

    def graph(values: np.ndarray) -> sparse.csr_matrix:
        return sparse.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * k + 1, k)), (n, n))

    smallest = np.where(nearest > 0, nearest, np.inf).min(axis=1)
    smallest = np.where(np.isfinite(smallest), smallest, 0.0)
    excess = np.maximum(nearest - smallest[:, None], 0.0)
    directed = graph(np.exp(-excess / _widths(excess, nearest, smallest)[:, None])).astype(np.float32)
    adata.obsp["distances"] = graph(nearest)
    adata.obsp["connectivities"] = (directed + directed.T - directed.multiply(directed.T)).tocsr()
    params = {"n_neighbors": n_neighbors, "method": "umap", "random_state": 0, "metric": "precomputed"}
    adata.uns["neighbors"] = {
        "connectivities_key": "connectivities", "distances_key": "distances", "params": {**params, "use_rep": use_rep},
    }  # fmt: skip


def _widths(excess: np.ndarray, nearest: np.ndarray, smallest: np.ndarray) -> np.ndarray:
    """Return the widths for which the weights of each row sum to log2 of the number of neighbours, by bisection."""
    n = nearest.shape[1] + 1  # umap counts the sample itself
    low, high = np.zeros(len(nearest)), np.full(len(nearest), excess.max() * 1e3 + 1.0)
    for _ in range(100):
        middle = (low + high) / 2.0
        too_wide = np.exp(-excess / middle[:, None]).sum(axis=1) > np.log2(n)
        low, high = np.where(too_wide, low, middle), np.where(too_wide, middle, high)
    # As in umap, at least a thousandth of the mean distance of the row (of all rows if all its neighbours coincide).
    floor = 1e-3 * np.where(smallest > 0, nearest.sum(axis=1) / n, nearest.sum() / (n * len(nearest)))
    return np.maximum(np.maximum((low + high) / 2.0, floor), np.finfo(float).tiny)


def _standardised(z: np.ndarray) -> np.ndarray:
    """Return centred coordinates whose pairwise distances have a root mean square of 1."""
    z = z - z.mean(axis=0)
    spread = np.sqrt(2.0 * np.mean(np.sum(z**2, axis=1)))
    return z / spread if spread > 0 else z


def _principal_components(source: Source, genes: list[str], layer: str | None, n_pcs: int, seed: int) -> np.ndarray:
    columns = source.genes.get_indexer(genes)
    if np.any(columns < 0):
        missing = genes[int(np.argmin(columns))]
        raise ValueError(f"adata lacks genes of the metric, e.g. {missing!r}: give an entry of obsm (use_rep=…)")
    points = read(source.matrix(layer), np.arange(source.obs.shape[0]), np.sort(columns))
    n_pcs = min(n_pcs, min(points.shape) - 1)
    if n_pcs < 1:
        return points.toarray() if hasattr(points, "toarray") else points
    return PCA(n_pcs, svd_solver="arpack", random_state=seed).fit_transform(points.astype(np.float64))


def _find_root(samples: Any, root: str, distances: np.ndarray, label_key: str | None) -> int:
    """Return the position of the sample that `root` names, or of the most extreme sample with that label."""
    names = [str(name) for name in samples.obs_names]
    if str(root) in names:
        return names.index(str(root))
    labels = [] if label_key is None else find_column(samples.obs, label_key, "label_key").astype(str).to_numpy()
    members = np.flatnonzero(np.asarray(labels) == str(root))
    if not members.size:
        candidates = list_names(root, [*names, *dict.fromkeys(labels)])
        raise ParameterError("root", root, f", which is neither a sample nor a label: {candidates}")
    opposite = np.setdiff1d(np.arange(len(names)), members)
    mean_distances = distances[np.ix_(members, opposite if opposite.size else members)].mean(axis=1)
    return int(members[mean_distances.argmax()])


def pseudotime(distances: np.ndarray, root: int, n_neighbors: int) -> np.ndarray:
    """Return the diffusion pseudotime (Haghverdi et al. 2016) from the root, scaled to at most 1.

    The distance of two samples is |Σ_t T^t(root, ·) - Σ_t T^t(x, ·)| for the transition matrix T of a random walk
    without its stationary part: the Euclidean distance of coordinates λ/(1 - λ) for eigenvalues λ of T. T is symmetric,
    from a Gaussian kernel whose width follows the local density.
    """
    longest = minimum_spanning_tree(distances).data.max(initial=0.0)
    # No edge of the minimum spanning tree is longer than three widths: all samples stay connected.
    width = np.maximum(np.sort(distances, axis=1)[:, n_neighbors], longest / 3.0)
    width = np.where(width > 0, width, 1.0)
    spread = width[:, None] ** 2 + width**2
    kernel = np.sqrt(2.0 * np.outer(width, width) / spread) * np.exp(-(distances**2) / spread)
    density = kernel.sum(axis=1)
    kernel /= np.outer(density, density)
    degree = np.sqrt(kernel.sum(axis=1))
    eigenvalues, vectors = np.linalg.eigh(kernel / np.outer(degree, degree))
    # The largest eigenvalue, 1, is the stationary part.
    coordinates = vectors[:, :-1] * (eigenvalues[:-1] / (1.0 - eigenvalues[:-1]))
    away = np.linalg.norm(coordinates - coordinates[root], axis=1)
    return away / away.max() if away.max() > 0 else away
