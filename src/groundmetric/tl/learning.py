"""tl.learn: from cells, samples and labels to a metric, in place."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from ..cells.columns import check_draw, draw, labels_of, samples_of
from ..cells.genes import Selection, resolve
from ..cells.matrix import project
from ..cells.source import Source
from .fitting import Fitted, Values, fit, in_order, make_learner, per_sample
from .stored import Stored


def learn(
    adata: Any,
    sample_key: str,
    label_key: str,
    *,
    batch_key: str | None = None,
    layer: str | None = None,
    use_rep: str | None = None,
    genes: str | Sequence | None = None,
    n_cells: int | None = 1000,
    resample: bool = False,
    key_added: str = "groundmetric",
    random_state: int = 0,
    copy: bool = False,
    **parameters: Any,
) -> ad.AnnData | None:
    """Learn under which distance between cells the samples of one label are near to each other.

    Values should be normalised and on a log scale; raw counts give a warning.

    Parameters
    ----------
    adata : AnnData, or path of an .h5ad file (or a .zarr folder)
        Of a file, or an AnnData in backed mode, lazy or of Dask arrays, only the drawn cells and the selected genes are
        kept in memory.
    sample_key : column of `obs` that says which sample (patient) each cell is from
    label_key : column of `obs` with the label of the cell's sample, the same for all cells of a sample. Samples without
        a label are left out of learning, but their cells are placed in the learned space. With ``target="ordered"``,
        numbers or ordered categories.
    batch_key : column of `obs` with the batch, site or donor of the cell's sample, which the metric should not learn:
        samples should be nearer to those of their label in other batches than to those of other labels in their own
    layer : use this layer rather than X
    use_rep : learn on this entry of `obsm` (e.g. "X_pca") rather than on genes
    genes : which genes to learn from
        "variance": those whose variance is above the average, in the cells that are learned from (the paper's rule);
        "highly_variable" or another column of `var` that marks them; "all"; a list of names; or a mask. None: those
        marked by `pp.select_genes`, otherwise "variance".
    n_cells : cells that are drawn per sample at most (None: all). Samples with fewer keep theirs.
    resample : draw other cells for every epoch, so that more of a large file is learned from than is held at a time. No
        solve can then begin where the last one ended, which takes longer. Genes, scales and all that is returned are
        of the first draw.
    key_added : prefix of all that is written
    random_state : seed of the draw and of the learner
    copy : return a copy with the results, and leave `adata` as it is
    **parameters : of `GroundMetricLearner`: n_components, margin, strength, max_epochs, n_jobs, verbose, …

    Returns
    -------
    None for an AnnData in memory, which is written to. For a file, backed or lazy mode: an AnnData in memory of the
    drawn cells and the selected genes, with the results.

    Writes
    ------
    obsm["X_groundmetric"] : all cells in the learned space, where the metric is the Euclidean distance
    varm["groundmetric_components"] : the components, 0 for genes that were not selected (not with `use_rep`)
    var["groundmetric_importance"] : share of each gene, summing to 1 (not with `use_rep`)
    obs["groundmetric_sampled"] : which cells were drawn
    uns["groundmetric"] : parameters, labels, history, version, and the metric itself; `tl.metric` rebuilds it
    """
    check_draw(n_cells, random_state)
    learner = make_learner(parameters, random_state)
    if resample and n_cells is None:
        raise ValueError("resample is True, but n_cells is None: there are no other cells to draw; give a number")
    with Source(adata) as source:
        samples = samples_of(source.obs, sample_key)
        labels = labels_of(source.obs, label_key, samples, sample_key)
        _check_labels(labels, samples.names, label_key)
        labels = in_order(labels, source.obs[label_key], learner.target)
        strata = None if batch_key is None else per_sample(source.obs, batch_key, "batch_key", samples)
        values, selection = Values.of(source, layer, use_rep), _selection(source, layer, use_rep, genes)
        rows = draw(samples, n_cells, random_state)
        redraw = partial(draw, samples, n_cells, random_state) if resample else None
        fitted, points = fit(values, selection, rows, samples, labels, learner, strata=strata, redraw=redraw)
        if source.on_disk:
            target = _read_part(source, rows, points, fitted, use_rep)
            z, drawn = learner.metric_.project(points), np.ones(rows.size, bool)
        else:
            target, everyone = source.adata.copy() if copy else source.adata, np.arange(samples.codes.size)
            z, drawn = project(values.matrix, everyone, fitted.columns, learner.components_), np.isin(everyone, rows)
    params = {
        "sample_key": sample_key, "label_key": label_key, "batch_key": batch_key, "layer": layer, "use_rep": use_rep,
        "genes": selection.rule,
        "n_cells": n_cells, "resample": resample or None, "random_state": random_state, "raw_counts": fitted.raw_counts,
    }  # fmt: skip
    _write(target, key_added, z, drawn, fitted, use_rep is None)
    target.uns[key_added] = Stored(key_added, learner.metric_, fitted.means, params, labels).entry(learner)
    return target if target is not adata else None


def _check_labels(labels: pd.Series, names: np.ndarray, label_key: str) -> None:
    if labels.empty:
        raise ValueError(f"obs[{label_key!r}] is missing for all cells: at least two labels are needed")
    missing = names[~np.isin(names, labels.index)]
    if missing.size:
        warnings.warn(
            f"{missing.size} of {names.size} samples have no label in obs[{label_key!r}] (e.g. {missing[0]!r}): "
            "nothing is learned from them, but they are placed in the learned space",
            UserWarning,
            stacklevel=3,
        )
    classes = labels.unique()
    if classes.size < 2:
        raise ValueError(f"all samples have the label {classes[0]!r} in obs[{label_key!r}]: at least two are needed")


def _selection(source: Source, layer: str | None, use_rep: str | None, genes: Any) -> Selection:
    if use_rep is None:
        return resolve(genes, source)
    if layer is not None or genes is not None:
        raise ValueError(f"use_rep is {use_rep!r}: then there is no choice of layer or genes, leave them out")
    return Selection("all", np.ones(source.representation(use_rep).shape[1], bool))


def _read_part(source: Source, rows: np.ndarray, points: Any, fitted: Fitted, use_rep: str | None) -> ad.AnnData:
    """An AnnData of what was read from a file."""
    obs = source.obs.iloc[rows].copy()
    if use_rep is not None:
        return ad.AnnData(obs=obs, var=source.var.copy(), obsm={use_rep: points})
    return ad.AnnData(points, obs=obs, var=source.var.iloc[fitted.columns].copy())


def _write(target: Any, key: str, z: np.ndarray, drawn: np.ndarray, fitted: Fitted, genes: bool) -> None:
    target.obsm[f"X_{key}"] = z
    target.obs[f"{key}_sampled"] = drawn
    if not genes:
        return
    metric = fitted.learner.metric_
    places = fitted.columns if target.n_vars != fitted.columns.size else np.arange(target.n_vars)
    components, importance = np.zeros((target.n_vars, metric.n_components)), np.zeros(target.n_vars)
    components[places], importance[places] = metric.components.T, metric.importance()
    target.varm[f"{key}_components"] = components
    target.var[f"{key}_importance"] = importance
