"""tl.samples: an AnnData with a row per sample and a neighbour graph; tl.trajectory."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from .._anndata.cohort import CELL_TYPE, constant_columns, find_column, samples_of
from .._anndata.source import Source, check_anndata, list_names, pieces
from .._anndata.store import EnsembleResults, drawn_cells, read_entry, storable_parameters
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
    use. Give `sc.pl.umap` the size of marks, e.g. ``size=200``: its default is made for thousands of cells.

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
        most 100 cells, and all other distances are interpolated. None: exact distances of all pairs.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    n_jobs : int or None, default=None
        Threads for the distances; None: one.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Returns
    -------
    AnnData
        A row per sample, with these entries ("groundmetric" stands for `key`):

        - ``X``: mean of each selected gene over the drawn cells (if `adata` has the values; not with `use_rep`)
        - ``obs``: columns of `adata.obs` that are constant within samples, and "n_cells", the number of cells of a
          sample, including cells that were not drawn
        - ``obsp["groundmetric_distances"]``, ``obsm["X_groundmetric_distances"]``: distances between samples. Distances
          between training samples of an ensemble are out-of-bag, scaled to the mean of the distances under the final
          metric
        - ``obsm["cell_types"]``: number of cells of each type in `adata` (if it has cell types); after learning from a
          file, `adata` has the drawn cells only
        - ``obsp["groundmetric_in_sample"]`` (ensemble): distances under the final metric, which was trained on these
          labels; they separate labels better than distances between new samples do
        - ``obs["groundmetric_held_out"]``, ``obs["groundmetric_held_out_probability"]`` (ensemble): held-out label of a
          training sample, and its probability (not for ordered labels); missing for other samples
        - ``obsp["distances"]``, ``obsp["connectivities"]``, ``uns["neighbors"]``: graph of nearest samples (for at
          least 3 samples)
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
    if n_landmarks is not None:
        check_number("n_landmarks", n_landmarks, low=1, whole=True)
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
        X = var = None
        # X of cells that were read from a file holds the values of the layer.
        layer = None if "n_cells" in entry else stored.params.get("layer")
        positions = source.genes.get_indexer(stored.features) if source.genes.is_unique else np.array([-1])
        if stored.params.get("use_rep") is None and np.all(positions >= 0) and source.has_matrix(layer):
            # Means of the selected genes over the drawn cells.
            rows = np.flatnonzero(source.obs[f"{key}_sampled"])
            codes, selected, order = units.codes[rows], np.sort(positions), np.argsort(np.argsort(positions))
            averaging = sparse.csr_matrix((1.0 / np.bincount(codes)[codes], (codes, np.arange(rows.size))))
            X, var = np.zeros((len(units), selected.size)), source.var.iloc[positions].copy()
            for piece in pieces(source.matrix(layer), rows, selected):
                means = averaging[:, piece.rows] @ piece.values
                X[:, piece.columns] += means.toarray() if sparse.issparse(means) else means
            X = X[:, order]
        result = ad.AnnData(X, obs=obs, var=var)
        if cell_type_key is not None or CELL_TYPE in source.obs.columns:
            types = find_column(source.obs, cell_type_key or CELL_TYPE, "cell_type_key").astype(object).to_numpy()
            numbers = pd.crosstab(units.codes, types).reindex(range(len(units)), fill_value=0)
            columns = as_keys(numbers.columns)
            result.obsm["cell_types"] = pd.DataFrame(numbers.to_numpy(), result.obs_names, columns)
    results = EnsembleResults.read(entry)
    if results is not None and as_learned:
        result.obsp[f"{key}_in_sample"] = distances
        positions = pd.Index(results.samples).get_indexer(units.names)
        training = np.flatnonzero(positions >= 0)
        if training.size > 1:
            block = results.out_of_bag[np.ix_(positions[training], positions[training])]
            unit = distances[np.ix_(training, training)].sum() / (block.sum() or 1.0)
            distances = distances.copy()
            distances[np.ix_(training, training)] = unit * block
        predicted = pd.Series(results.predicted, results.samples).reindex(result.obs_names)
        is_number = results.predicted.dtype.kind in "biuf"
        result.obs[f"{key}_held_out"] = predicted if is_number else predicted.astype("category")
        if results.numbers is None:
            probability = pd.Series(results.held_out.max(axis=1), results.samples)
            result.obs[f"{key}_held_out_probability"] = probability.reindex(result.obs_names)
    result.obsm[f"X_{key}_distances"] = distances
    result.obsp[f"{key}_distances"] = distances
    result.uns[key] = {"params": storable_parameters(stored.params), "out_of_bag": f"{key}_in_sample" in result.obsp}
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


def trajectory(
    samples: ad.AnnData, root: str, *, n_neighbors: int = 5, key: str = "groundmetric", key_added: str | None = None
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
        Column of `obs` for the pseudotime, and entry of `uns` for the name of the root. None:
        "groundmetric_pseudotime", with `key` in place of "groundmetric".

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
    check_anndata(samples)
    if f"{key}_distances" not in samples.obsp:
        raise ValueError(f"obsp has no {key + '_distances'!r}: pass the AnnData that tl.samples returns")
    distances = np.asarray(samples.obsp[f"{key}_distances"])
    if len(distances) < 3:
        raise ValueError(f"there are {len(distances)} samples: a trajectory needs at least 3")
    check_number("n_neighbors", n_neighbors, low=1, whole=True)
    names, label_key = [str(name) for name in samples.obs_names], samples.uns[key]["params"].get("label_key")
    if str(root) in names:
        start = names.index(str(root))
    else:  # the most extreme sample with this label
        labels = [] if label_key is None else find_column(samples.obs, label_key, "label_key").astype(str).to_numpy()
        members = np.flatnonzero(np.asarray(labels) == str(root))
        if not members.size:
            candidates = list_names(root, [*names, *dict.fromkeys(labels)])
            raise ParameterError("root", root, f", which is neither a sample nor a label: {candidates}")
        opposite = np.setdiff1d(np.arange(len(names)), members)
        mean_distances = distances[np.ix_(members, opposite if opposite.size else members)].mean(axis=1)
        start = int(members[mean_distances.argmax()])
    key_added = key_added or f"{key}_pseudotime"
    samples.obs[key_added] = pseudotime(distances, start, min(n_neighbors, len(distances) - 1))
    samples.uns[key_added] = {"root": names[start]}


def as_keys(values: Any) -> list[str]:
    """Return names of columns that a file can hold: HDF5 reads a slash as a path."""
    return [str(value).replace("/", "|") for value in values]


def set_neighbors(adata: Any, distances: np.ndarray, n_neighbors: int, use_rep: str) -> None:
    """Write `uns["neighbors"]`, `obsp["distances"]` and `obsp["connectivities"]` as scanpy does.

    scanpy itself accepts exact distances only through umap, whose import takes longer than the rest of `tl.samples`.
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
    # Bisection for the widths with which the weights of each row sum to log2 of the number of neighbours.
    low, high = np.zeros(n), np.full(n, excess.max() * 1e3 + 1.0)
    for _ in range(100):
        middle = (low + high) / 2.0
        too_wide = np.exp(-excess / middle[:, None]).sum(axis=1) > np.log2(n_neighbors)
        low, high = np.where(too_wide, low, middle), np.where(too_wide, middle, high)
    # As in umap, at least a thousandth of the mean distance of the row (of all rows if all its neighbours coincide).
    floor = 1e-3 * np.where(smallest > 0, nearest.sum(axis=1) / n_neighbors, nearest.sum() / (n_neighbors * n))
    widths = np.maximum(np.maximum((low + high) / 2.0, floor), np.finfo(float).tiny)
    directed = graph(np.exp(-excess / widths[:, None])).astype(np.float32)
    adata.obsp["distances"] = graph(nearest)
    adata.obsp["connectivities"] = (directed + directed.T - directed.multiply(directed.T)).tocsr()
    params = {"n_neighbors": n_neighbors, "method": "umap", "random_state": 0, "metric": "precomputed"}
    adata.uns["neighbors"] = {
        "connectivities_key": "connectivities", "distances_key": "distances", "params": {**params, "use_rep": use_rep},
    }  # fmt: skip


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
