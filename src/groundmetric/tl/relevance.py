"""tl.cell_relevance: relevance of cells for the classes, by transport plans or by held-out classification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from .._anndata.cohort import Annotations, Features, draw, find_column, samples_of
from .._anndata.source import Source, project
from .._anndata.store import drawn_cells, read_entry, stored_learner
from .._internal.validation import ParameterError
from ..estimators.neighbors import class_shares
from ..interpret.flows import partners, travel_of_cells
from ..learning.splits import folds
from .learn import fit

if TYPE_CHECKING:
    import anndata as ad


def held_out_accuracy(
    adata: Any,
    key: str,
    *,
    n_neighbors: int,
    n_folds: int,
    n_repeats: int,
    group_key: str | None,
    genes: Any,
    random_state: int,
    n_jobs: int | None,
) -> np.ndarray:
    """Return the share of repetitions in which each held-out cell is classified correctly; NaN without a label.

    All cells of a sample, and all samples of a group, are held out together.
    """
    with Source(adata) as source:
        entry = source.uns_entry(key)
        stored = read_entry(entry, key, "adata")
        params = stored.params
        annotations = Annotations.read(
            source.obs, params["sample_key"], params["label_key"], group_key=group_key,
            batch_key=params.get("batch_key"), target=entry["learner"].get("target"), order=params.get("order"),
        )  # fmt: skip
        samples, labels = annotations.samples, annotations.labels
        features = Features.read(source, params.get("layer"), params.get("use_rep"))
        if genes is None:
            features = features.with_genes(params["genes"], len(stored.features))
        else:
            features = features.with_genes(genes)
        redraw = partial(draw, samples, params.get("n_cells"), params["random_state"])
        rows = redraw()
        n_correct, n_tested = np.zeros(samples.codes.size), np.zeros(samples.codes.size)
        groups = None if group_key is None else annotations.patients.to_numpy()
        splits = folds(labels, groups=groups, n_splits=n_folds, n_repeats=n_repeats, random_state=random_state)
        for training, test in splits:
            training_labels = labels.iloc[training]
            training_rows = rows[samples.contains(training_labels.index, rows)]
            fitted, points = fit(
                features, training_rows, replace(annotations, labels=training_labels),
                stored_learner(entry, n_jobs=n_jobs), warn=False,
                redraw=redraw if params.get("resample") else None,
            )  # fmt: skip
            metric = fitted.learner.metric_
            search = NearestNeighbors(n_neighbors=min(n_neighbors, training_rows.size), n_jobs=n_jobs)
            search.fit(metric.project(points))
            test_rows = np.flatnonzero(samples.contains(labels.index[test]))
            z = project(features.matrix, test_rows, fitted.selected.columns, metric.components)
            distances, nearest = search.kneighbors(z)
            neighbour_labels = labels.loc[samples.names[samples.codes[training_rows]]].to_numpy()
            classes, codes = np.unique(neighbour_labels, return_inverse=True)
            shares = class_shares(distances, codes[nearest], classes.size, "distance")
            truth = labels.reindex(samples.names).to_numpy()[samples.codes[test_rows]]
            n_correct[test_rows] += classes[shares.argmax(axis=1)] == truth
            n_tested[test_rows] += 1
    return np.divide(n_correct, n_tested, out=np.full(n_tested.size, np.nan), where=n_tested > 0)


def cell_relevance(
    adata: ad.AnnData,
    *,
    method: str = "plans",
    cell_type_key: str | None = None,
    max_partners: int = 10,
    n_neighbors: int = 100,
    n_folds: int = 3,
    n_repeats: int = 4,
    threshold: float = 0.9,
    group_key: str | None = None,
    genes: str | Sequence[str] | None = None,
    key: str = "groundmetric",
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> None:
    """Compute the relevance of each cell for the difference between the classes.

    ``method="plans"`` uses optimal transport plans under the learned metric: relevance is the mean distance of the
    cell's mass to samples of other classes minus that to samples of its own class. The mean over the cells of a sample
    is the sample's distance to other classes minus that to its own class. It describes the training samples and does
    not test the metric. With `cell_type_key`, cells are matched to cells of their type as far as masses allow, as in
    reports and in `interpret.annotation_relevance` (which is also out-of-bag). Without it, part of the cost of changed
    cells appears in unchanged cells that are matched to them.

    ``method="held_out"`` is the paper's proxy: samples are held out repeatedly, genes are selected and a metric is
    learned from the training samples, and each held-out cell is classified by its nearest training cells. A cell that
    is classified correctly in at least a share `threshold` of the repetitions is "involved". A `use_rep` of `tl.learn`
    is not computed again; it was usually computed from all cells including held-out ones.

    Parameters
    ----------
    adata : AnnData
        Cells in memory, after `tl.learn`; the results are added to its `obs`.
    method : {"plans", "held_out"}, default="plans"
        Relevance by transport plans, or by classification of held-out cells.
    cell_type_key : str or None, default=None
        Plans: column of `obs` with the type of each cell; None: cells are matched to cells of any type.
    max_partners : int, default=10
        Plans: maximum number of random samples of each class that a sample is compared with.
    n_neighbors : int, default=100
        Held out: number of training cells that vote, with weights of one over the distance; 100 in the paper.
    n_folds : int, default=3
        Held out: number of cross-validation folds.
    n_repeats : int, default=4
        Held out: number of repetitions of the cross-validation.
    threshold : float, default=0.9
        Held out: minimum share of correct classifications of an involved cell.
    group_key : str or None, default=None
        Held out: column of `obs`, e.g. the donor; samples of a group are held out together.
    genes : str, sequence or None, default=None
        Held out: rule of the gene selection in each training set ("variance", "highly_variable" or "all"), or names of
        genes selected beforehand. None: the rule of `tl.learn`, which must be one of the three.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    random_state : int, default=0
        Seed of the draw of partners, or of the folds.
    n_jobs : int or None, default=None
        Threads; None: one.
    verbose : int, default=0
        Plans: 1 shows a progress bar on a terminal.

    Notes
    -----
    Results, with "groundmetric" for `key`:

    - ``obs["groundmetric_relevance"]`` (plans): in units of the mean distance between samples of different classes;
      missing for cells that were not drawn, and for samples without a label or alone in their class
    - ``obs["groundmetric_between"]``, ``obs["groundmetric_within"]`` (plans): mean distance of the cell's mass to
      samples of other classes and of its own class, in units of the metric
    - ``obs["groundmetric_accuracy"]`` (held out): share of correct classifications; missing without a label
    - ``obs["groundmetric_involved"]`` (held out): whether that is at least `threshold`

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> gm.tl.cell_relevance(adata)
    >>> relevance, active = adata.obs["groundmetric_relevance"], adata.obs["programme"]
    >>> bool(relevance[active].mean() > relevance[~active].mean())
    True
    """
    if method == "held_out":
        accuracy = held_out_accuracy(
            adata, key, n_neighbors=n_neighbors, n_folds=n_folds, n_repeats=n_repeats, group_key=group_key, genes=genes,
            random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip
        adata.obs[f"{key}_accuracy"] = accuracy
        adata.obs[f"{key}_involved"] = np.nan_to_num(accuracy) >= threshold
        return
    if method != "plans":
        raise ParameterError("method", method, ": expected 'plans' or 'held_out'")
    table = relevance_by_plans(
        adata, key, max_partners, random_state, n_jobs, cell_type_key=cell_type_key, verbose=verbose
    )
    for name, values in table.items():
        adata.obs[f"{key}_{name}"] = values


def relevance_by_plans(
    adata: Any,
    key: str,
    max_partners: int,
    seed: int,
    n_jobs: int | None,
    labels: pd.Series | None = None,
    *,
    cell_type_key: str | None = None,
    verbose: int = 0,
) -> pd.DataFrame:
    """Return relevance and travelled distances of each cell; `labels` replace those of the training samples."""
    with Source(adata) as source:
        stored = read_entry(source.uns_entry(key), key, "adata")
        samples = samples_of(source.obs, stored.params["sample_key"])
        labelled = [name for name in samples.names if name in stored.labels.index]
        cells = drawn_cells(source, samples, key, only=labelled)
        drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool) & samples.contains(labelled)
        types = None if cell_type_key is None else find_column(source.obs, cell_type_key, "cell_type_key")
    # Cells without a type have the code -1, as if they were of one type.
    type_codes = None if types is None else pd.factorize(types)[0][drawn][cells.order]
    labels = stored.labels if labels is None else labels
    codes = np.unique(labels.loc[cells.names].to_numpy(), return_inverse=True)[1]
    pairs = partners(codes, max_partners, np.random.default_rng(seed))
    travel = travel_of_cells(cells, codes, pairs, type_codes, n_jobs, verbose)
    between, within = travel.between, travel.within
    table = pd.DataFrame(index=adata.obs_names, columns=["relevance", "between", "within"], dtype=np.float64)
    rows = np.flatnonzero(drawn)[cells.order]
    table.iloc[rows] = np.column_stack([(between - within) / travel.unit, between, within])
    return table
