"""tl.learn: from cells, samples and labels to a metric, in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.annotations import (  # fmt: skip
    Samples,
    Selection,
    check_draw,
    constant_columns,
    draw,
    find_column,
    labels_of,
    moments,
    resolve,
    samples_of,
    warn_of_counts,
)
from .._anndata.source import Source, listed, project, read
from .._anndata.store import Stored
from .._internal.validation import ParameterError
from ..distributions import Distributions
from ..estimators import GroundMetricLearner
from ..learning import Distances, Mapped, Ordered
from ..supervision.labels import resolve_target


@dataclass(frozen=True)
class Values:
    """What describes a cell: the genes of X or of a layer, or a representation.

    Attributes
    ----------
    matrix : of all cells, in memory or in a file
    names : of its columns
    layer : which one the genes are from
    is_expression : whether columns are genes
    """

    matrix: Any
    names: pd.Index
    layer: str | None
    is_expression: bool

    @classmethod
    def of(cls, source: Source, layer: str | None, use_rep: str | None) -> Values:
        if use_rep is None:
            return cls(source.matrix(layer), source.genes, layer, True)
        matrix = source.representation(use_rep)
        return cls(matrix, pd.Index([f"{use_rep}_{k}" for k in range(matrix.shape[1])]), None, False)


@dataclass(frozen=True)
class Fitted:
    """A learner after `fit`, with the columns that it learned from and their means."""

    learner: GroundMetricLearner
    columns: np.ndarray
    means: np.ndarray
    raw_counts: bool  # whether the values look like raw counts


def fit(
    values: Values,
    selection: Selection,
    rows: np.ndarray,
    samples: Samples,
    labels: pd.Series,
    learner: GroundMetricLearner,
    *,
    strata: pd.Series | None = None,
    warn: bool = True,
    redraw: Callable[[int], np.ndarray] | None = None,
) -> tuple[Fitted, Any]:
    """Learn from those of the rows whose samples have a label; also return what was read, for all rows.

    Parameters
    ----------
    rows : array
        Cells, ascending
    labels : Series
        By the name of the sample
    strata : Series or None
        Batches by the name of the sample
    warn : bool
        Whether to warn of raw counts
    redraw : function or None
        From a number of epochs to the rows to learn from thereafter, of the same samples
    """
    known_samples = np.isin(samples.names, labels.index)
    training = known_samples[samples.codes[rows]]
    columns = selection.places(values.matrix, rows[training], values.names)
    points = read(values.matrix, rows, columns)
    known = points if training.all() else points[training]
    found = moments(known, np.arange(known.shape[0]))
    raw = values.is_expression and found.looks_raw
    if warn:
        warn_of_counts(raw, values.layer, stacklevel=4)
    D = Distributions(known, samples.names[samples.codes[rows[training]]], features=list(values.names[columns]))
    # While learning there is one copy of the points: D has them by sample, which is undone afterwards.
    points, known = None if training.all() else points, None

    def fresh(epoch: int) -> Distributions:
        assert redraw is not None
        again = redraw(epoch)
        return _redrawn(D, values.matrix, again[known_samples[samples.codes[again]]], columns, samples)

    known_labels = labels.loc[D.names]
    learner.fit(
        D,
        known_labels if isinstance(known_labels.dtype, pd.CategoricalDtype) else known_labels.to_numpy(),
        strata=None if strata is None else strata.loc[D.names].to_numpy(),
        fresh=None if redraw is None else fresh,
    )
    return Fitted(learner, columns, found.mean, raw), _as_read(D) if points is None else points


def _as_read(D: Distributions) -> Any:
    """The points of D in the order in which they were given."""
    if np.all(np.diff(D.order) > 0):
        return D.points
    return D.points[np.argsort(D.order)]


def _redrawn(D: Distributions, matrix: Any, rows: np.ndarray, columns: np.ndarray, samples: Samples) -> Distributions:
    """The distributions of D with other cells, brought into their order here: each step after would copy them again."""
    names = samples.names[samples.codes[rows]]
    order = np.argsort(pd.Index(D.names).get_indexer(names), kind="stable")
    return Distributions(read(matrix, rows, columns)[order], names[order], features=D.features)


def per_sample(obs: pd.DataFrame, key: str, argument: str, samples: Samples) -> pd.Series:
    """A column that says the same of all cells of a sample, by the names of the samples."""
    column = find_column(obs, key, argument)
    if key not in constant_columns(obs[[key]], samples):
        raise ParameterError(argument, key, ", which differs within a sample: expected one value per sample")
    return pd.Series(column.iloc[samples.first].astype(object).to_numpy(), index=samples.names)


def with_category_order(labels: pd.Series, column: pd.Series, target: Any) -> pd.Series:
    """The labels with the order of the column's categories, where the target needs one."""
    if (
        not isinstance(resolve_target(target), Ordered)
        or labels.dtype.kind in "biuf"
        or not getattr(column.dtype, "ordered", False)
    ):
        return labels
    return labels.astype(pd.CategoricalDtype([str(name) for name in column.cat.categories], ordered=True))


def make_learner(parameters: dict[str, Any], random_state: int) -> GroundMetricLearner:
    known = GroundMetricLearner().get_params()
    for name in parameters:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}: besides those of learn {listed(name, known)}")
    target = parameters.get("target", "classes")
    if isinstance(target, list | tuple) or isinstance(resolve_target(target), Distances):
        raise ValueError(
            f"target is {target!r}: labels in a column are 'classes' or 'ordered'; for target distances "
            "or several labels, use GroundMetricLearner on Distributions"
        )
    for name in ("cost", "form"):
        if (name == "cost" and parameters.get(name, "euclidean") != "euclidean") or isinstance(
            parameters.get(name), Mapped
        ):
            raise ValueError(
                f"{name} is {parameters[name]!r}, but tools on an AnnData take distances between embedded cells to be "
                "Euclidean and components to weight genes: use GroundMetricLearner on Distributions"
            )
    return GroundMetricLearner(**{"random_state": random_state, **parameters})


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
    """Learn a metric between cells under which samples of one label are near to each other.

    Values should be normalised and on a log scale; raw counts give a warning.

    Parameters
    ----------
    adata : AnnData or path
        Cells; a path is that of an .h5ad file or a .zarr folder. Of a file, or of an AnnData that is backed, lazy or
        made of Dask arrays, only the drawn cells and the selected genes are held in memory.
    sample_key : str
        Column of `obs` with the sample (patient) of each cell.
    label_key : str
        Column of `obs` with the label of the cell's sample, the same for all cells of a sample. Samples without a label
        are left out of learning, but their cells are projected too. With ``target="ordered"``, numbers or ordered
        categories.
    batch_key : str or None, default=None
        Column of `obs` with the batch, site or donor of the cell's sample, which the metric should not learn: samples
        should be nearer to those of their label in other batches than to those of other labels in their own.
    layer : str or None, default=None
        Layer to learn from; None: X.
    use_rep : str or None, default=None
        Entry of `obsm` to learn from (e.g. "X_pca"); None: genes.
    genes : str, sequence or None, default=None
        Genes to learn from. "variance": those whose variance is above the average, in the cells that are learned from
        (the paper's rule); "highly_variable" or another column of `var` that marks them; "all"; a list of names; or a
        mask. None: those marked by `pp.select_genes`, otherwise "variance".
    n_cells : int or None, default=1000
        Cells drawn from each sample; samples with fewer give all of theirs. None: all cells.
    resample : bool, default=False
        Whether to draw other cells for every epoch, so that more of a large file is learned from than is held in memory
        at a time. Transport solves then have no warm start, which takes longer. Selected genes, scales and all results
        are those of the first draw.
    key_added : str, default="groundmetric"
        Prefix of the names of all results in `adata`.
    random_state : int, default=0
        Seed of the draw of cells and of the learner.
    copy : bool, default=False
        Whether to return a copy with the results and leave `adata` as it is.
    **parameters : dict
        Parameters of `GroundMetricLearner`: n_components, margin, strength, max_epochs, n_jobs, verbose and others.

    Returns
    -------
    AnnData or None
        None for an AnnData in memory, which gets the results, or its copy with ``copy=True``. For a file, or an AnnData
        that is backed or lazy: an AnnData in memory of the drawn cells and the selected genes, with the results.

    Notes
    -----
    Results, with "groundmetric" standing for `key_added`:

    - ``obsm["X_groundmetric"]``: cells in the learned space, where the metric is the Euclidean distance
    - ``varm["groundmetric_components"]``: components, 0 for genes that were not selected (not with `use_rep`)
    - ``var["groundmetric_importance"]``: share of each gene, summing to 1 (not with `use_rep`)
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn
    - ``uns["groundmetric"]``: parameters, labels, history, version, and the metric itself; `get.metric` rebuilds it

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.tl.learn(adata, "sample", "condition", n_components=2, random_state=0)
    >>> adata.obsm["X_groundmetric"].shape == (adata.n_obs, 2)
    True
    """
    check_draw(n_cells, random_state)
    learner = make_learner(parameters, random_state)
    if resample and n_cells is None:
        raise ParameterError(
            "n_cells", None, ": resample has no other cells to draw where all are drawn; give a number"
        )
    with Source(adata) as source:
        samples = samples_of(source.obs, sample_key)
        labels = labels_of(source.obs, label_key, samples, sample_key)
        _check_labels(labels, samples.names, label_key)
        labels = with_category_order(labels, source.obs[label_key], learner.target)
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
            "nothing is learned from them, but they are projected too",
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
        raise ParameterError("use_rep", use_rep, ": then there is no choice of layer or genes, leave them out")
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
