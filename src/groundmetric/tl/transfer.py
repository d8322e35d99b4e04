"""tl.transfer: new samples under a metric that was learned elsewhere."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.annotations import check_draw, constant_columns, draw, looks_raw, samples_of, warn_of_counts
from .._anndata.source import Source, pieces, project
from .._anndata.store import Stored, Trained, by_sample, trained_from
from .._internal.validation import ParameterError
from ..distances import pairwise_distances
from ..evaluation.scores import vote
from .samples import as_keys


def transfer(
    adata: ad.AnnData,
    trained: Any,
    *,
    sample_key: str | None = None,
    layer: str | None = None,
    max_missing: float = 0.2,
    n_neighbors: int = 5,
    n_cells: int | None = 1000,
    random_state: int = 0,
    key: str = "groundmetric",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ad.AnnData:
    """Project new samples with a learned metric, and predict their labels by the nearest training samples.

    Nothing is learned from `adata`: genes, scales and metric are those of the training samples. A sample that has the
    name of a training sample is compared, but its label is not predicted, because the metric was learned from it.

    Genes are matched by name; their order and additional genes make no difference. A missing gene is given its mean in
    training, in every cell; if more than a share of `max_missing` are missing, that is an error. With a bare metric the
    mean is not known: a missing gene is left out, which changes no distance between the new cells.

    Whatever has learned the metric, the nearest training samples vote. An ensemble was scored by kernel models on the
    distances of its members, which need the values of the training cells: `TransportClassifier` has these.

    Parameters
    ----------
    adata : AnnData
        New cells, in memory or backed, prepared as the training data were; results are added to it.
    trained : AnnData, path or GroundMetric
        The AnnData that `tl.learn` was run on, its .h5ad file, or the folder of a run of the command line; or a
        GroundMetric or its file, which have no samples to compare with.
    sample_key : str or None, default=None
        Column of `adata.obs` with the sample of each cell; None: that of `tl.learn`. A bare metric needs it.
    layer : str or None, default=None
        Layer of `adata` with the values, or "X"; None: that of `tl.learn`.
    max_missing : float, default=0.2
        Share of the metric's genes that may be missing in `adata`, from 0 to 1.
    n_neighbors : int, default=5
        Training samples that vote on a label, each with weight one over its distance; at most as many as there are.
    n_cells : int or None, default=1000
        Cells drawn from each sample for the distances; None: all. All cells are projected.
    random_state : int, default=0
        Seed of the draw.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    n_jobs : int or None, default=None
        Threads for the distances; None: one.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Returns
    -------
    AnnData
        A row per new sample, with the entries below.

    Notes
    -----
    Entries of the result, with "groundmetric" standing for `key`; with a bare metric, only the first:

    - ``obs``: columns that are the same for all cells of a sample, and "n_cells"
    - ``obs["groundmetric_predicted"]``, ``obs["groundmetric_probability"]``: predicted label and its probability
    - ``obsm["groundmetric_probabilities"]``: probability of each label
    - ``obsm["X_groundmetric_distances"]``: distances to the training samples
    - ``uns["groundmetric"]``: names and labels of the training samples, in the order of the distances

    Results in `adata`:

    - ``obsm["X_groundmetric"]``: cells in the learned space
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn for the distances
    - ``obs["groundmetric_predicted"]``: predicted label of the cell's sample (not with a bare metric)
    - ``uns["groundmetric"]``: the metric, so that `tl.samples` and `get.metric` take `adata`

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(6, 50, 200, random_state=0)
    >>> is_new = adata.obs["sample"].isin(["S01", "S12"])
    >>> old, new = adata[~is_new].copy(), adata[is_new].copy()
    >>> gm.tl.learn(old, "sample", "condition", n_components=2, random_state=0)
    >>> gm.tl.transfer(new, old).obs["groundmetric_predicted"].tolist()
    ['control', 'disease']
    """
    if not isinstance(adata, ad.AnnData):
        raise TypeError(
            f"adata is a {type(adata).__name__}: expected an AnnData; of a large file anndata.read_h5ad(path, "
            "backed='r'), of which only the genes of the metric are read"
        )
    known = trained_from(trained, key)
    with Source(adata) as source:
        projected = project_samples(
            source, known, sample_key=sample_key, layer=layer, max_missing=max_missing, n_neighbors=n_neighbors,
            n_cells=n_cells, random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip
    adata.obsm[f"X_{key}"] = projected.z
    for name, column in projected.obs.items():
        adata.obs[name] = column
    if adata is not trained:
        adata.uns[key] = projected.stored.entry()  # so that `samples` and `metric` take it
    return projected.samples


@dataclass(frozen=True)
class ProjectedSamples:
    """New samples under a metric: their cells in its space, what is new in `obs`, and a row per sample."""

    z: np.ndarray
    obs: dict[str, Any]
    samples: ad.AnnData
    stored: Stored


def project_samples(
    source: Source,
    known: Trained,
    *,
    sample_key: str | None,
    layer: str | None,
    max_missing: float,
    n_neighbors: int,
    n_cells: int | None,
    random_state: int,
    n_jobs: int | None,
    verbose: int,
) -> ProjectedSamples:
    """What `transfer` finds, for cells from anywhere."""
    check_draw(n_cells, random_state)
    if not 0.0 <= max_missing <= 1.0:
        raise ParameterError("max_missing", max_missing, ": expected a share from 0 to 1")
    stored, key = known.stored, known.stored.key
    sample_key = sample_key or stored.params.get("sample_key")
    layer = layer or stored.params.get("layer")
    if sample_key is None:
        raise ParameterError("sample_key", None, ", and a bare metric does not know the column of samples: name it")
    who = samples_of(source.obs, sample_key)
    rows = draw(who, n_cells, random_state)
    z = _project(source, stored, layer, max_missing)
    drawn = np.isin(np.arange(who.codes.size), rows)
    cells = by_sample(z, who, drawn)
    result = ad.AnnData(obs=constant_columns(source.obs, who).assign(n_cells=who.sizes))
    obs: dict[str, Any] = {f"{key}_sampled": drawn}
    if known.cells is not None:
        distances = pairwise_distances(cells, known.cells, n_jobs=n_jobs, verbose=verbose)
        _predict(result, known, distances, n_neighbors)
        obs[f"{key}_predicted"] = result.obs[f"{key}_predicted"].array[who.codes]
    return ProjectedSamples(
        z, obs, result, replace(stored, params={**stored.params, "sample_key": sample_key, "layer": layer})
    )


def _project(source: Source, stored: Stored, layer: str | None, max_missing: float) -> np.ndarray:
    """All cells in the learned space."""
    everyone = np.arange(source.obs.shape[0])
    use_rep = stored.params.get("use_rep")
    components = stored.metric.components
    if use_rep is not None:
        matrix = source.representation(use_rep)
        if matrix.shape[1] != components.shape[1]:
            raise ValueError(
                f"obsm[{use_rep!r}] has {matrix.shape[1]} dimensions, the metric was learned on {components.shape[1]}"
            )
        return project(matrix, everyone, None, components)
    matrix = source.matrix(layer)
    _check_scale(matrix, stored, layer)
    places, missing = align(source.genes, stored, max_missing)
    here = np.flatnonzero(~missing)[np.argsort(places[~missing])]  # genes of the metric, in the order of the matrix
    return project(matrix, everyone, places[here], components[:, here]) + components[:, missing] @ stored.means[missing]


def align(names: pd.Index, stored: Stored, max_missing: float) -> tuple[np.ndarray, np.ndarray]:
    """Where each gene of the metric stands among these names, and which of them are missing."""
    wanted = pd.Index(stored.features)
    repeated = names[names.duplicated()].intersection(wanted)
    if len(repeated):
        raise ValueError(
            f"adata has {len(repeated)} genes of the metric more than once, e.g. {repeated[0]!r}: run "
            "adata.var_names_make_unique() first"
        )
    first = ~names.duplicated()  # names that repeat are not in the metric, but `get_indexer` refuses them
    places = np.flatnonzero(first)[names[first].get_indexer(wanted)]
    missing = ~wanted.isin(names)
    share = missing.mean()
    if share > max_missing:
        raise ParameterError(
            "max_missing",
            max_missing,
            f", but {missing.sum()} of {missing.size} genes of the metric are missing, e.g. {wanted[missing][0]!r}; "
            f"adata has names like {names[0]!r}: use the same kind of names, or raise it",
        )
    if missing.any():
        weight = stored.metric.importance()[missing].sum()
        warnings.warn(
            f"{missing.sum()} of {missing.size} genes of the metric are missing ({weight:.1%} of the importance), e.g. "
            f"{wanted[missing][0]!r}: they count as their mean in training",
            UserWarning,
            stacklevel=5,
        )
    return places, missing


def _check_scale(matrix: Any, stored: Stored, layer: str | None) -> None:
    """Warn where the new values look like raw counts, unless those of training did."""
    few = next(pieces(matrix, np.arange(min(1000, matrix.shape[0]))), None)
    raw = few is not None and bool(np.any(few.values.sum(axis=0) != 0)) and looks_raw(few.values)
    warn_of_counts(raw and not stored.params.get("raw_counts", False), layer, stacklevel=5)


def _predict(result: ad.AnnData, known: Trained, distances: np.ndarray, n_neighbors: int) -> None:
    """Labels by the votes of the nearest training samples."""
    stored, key = known.stored, known.stored.key
    assert known.cells is not None
    names = known.cells.names
    labels = stored.labels.loc[names].to_numpy()
    found = np.unique(labels)
    shares = vote(distances, labels, found, n_neighbors=n_neighbors)
    seen = np.isin(result.obs_names, names)
    if seen.any():
        warnings.warn(
            f"{seen.sum()} samples have the name of a training sample (e.g. {result.obs_names[seen][0]!r}): no label "
            "is predicted for them; rename them if they are others",
            UserWarning,
            stacklevel=3,
        )
    shares[seen] = np.nan
    best = np.where(seen, -1, np.nan_to_num(shares).argmax(axis=1))
    classes = found if found.dtype.kind in "iuf" else found.astype(str).astype(object)
    result.obs[f"{key}_predicted"] = pd.Categorical.from_codes(best, pd.Index(classes))
    result.obs[f"{key}_probability"] = np.where(seen, np.nan, np.nan_to_num(shares).max(axis=1))
    result.obsm[f"{key}_probabilities"] = pd.DataFrame(shares, result.obs_names, as_keys(found))
    result.obsm[f"X_{key}_distances"] = distances
    result.uns[key] = {"training_samples": np.array(names, dtype=object), "training_labels": labels}
