"""tl.learn: from cells, samples and labels to a metric, in place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.annotations import (  # fmt: skip
    Chosen,
    Samples,
    Selection,
    check_draw,
    check_labels_of,
    check_parts_of,
    draw,
    groups_of,
    labels_of,
    per_sample,
    resolve,
    samples_of,
    with_category_order,
)
from .._anndata.scale import moments, warn_of_counts
from .._anndata.source import Source, listed, project, read
from .._anndata.store import EnsembleResults, Predictor, Stored, pack_predictor
from .._internal.parallel import write_line
from .._internal.types import CellsLike, GenesLike
from .._internal.validation import ParameterError
from ..distributions import Distributions
from ..estimators import GroundMetricEnsemble, GroundMetricLearner, TransportClassifier, TransportRegressor
from ..evaluation import SizeAssociation, size_association
from ..learning import Distances, Mapped, Ordered, Survival
from ..learning.labels import read_labels, resolve_target

LEARNERS = ("ensemble", "single")
Learner = GroundMetricEnsemble | GroundMetricLearner


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
    """A learner after `fit`, with what it learned from.

    Attributes
    ----------
    learner : GroundMetricEnsemble or GroundMetricLearner
        The learner.
    chosen : Chosen
        Columns of the features that it learned from.
    means : array of shape (n_selected,)
        Their means.
    scale : dict
        Whether the values look like raw counts ("raw_counts"), and the share of those below 0 ("share_negative").
    predictor, results : or None
        Of an ensemble: what predicts labels of new samples, and what is known of the training samples.
    """

    learner: Learner
    chosen: Chosen
    means: np.ndarray
    scale: dict[str, Any]
    predictor: Predictor | None
    results: EnsembleResults | None

    @property
    def columns(self) -> np.ndarray:
        return self.chosen.places


def fit(
    values: Values,
    selection: Selection,
    rows: np.ndarray,
    samples: Samples,
    labels: pd.Series,
    learner: Learner,
    *,
    strata: pd.Series | None = None,
    groups: pd.Series | None = None,
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
    groups : Series or None
        Patients by the name of the sample, whom an ensemble does not divide
    warn : bool
        Whether to warn of raw counts
    redraw : function or None
        From a number of epochs to the rows to learn from thereafter, of the same samples
    """
    known_samples = np.isin(samples.names, labels.index)
    training = known_samples[samples.codes[rows]]
    chosen = selection.choose(values.matrix, rows[training], values.names)
    columns = chosen.places
    if learner.verbose:
        write_line(f"learning from {chosen.text}")
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
    batches = None if strata is None else strata.loc[D.names].to_numpy()
    predictor = results = None
    if isinstance(learner, GroundMetricEnsemble):
        units = None if groups is None else groups.loc[D.names].tolist()
        predictor, results = _fit_ensemble(learner, D, known_labels, units, batches)
        learner = predictor.ensemble_
    else:
        learner.fit(
            D,
            known_labels if isinstance(known_labels.dtype, pd.CategoricalDtype) else known_labels.to_numpy(),
            strata=batches,
            fresh=None if redraw is None else fresh,
        )
    scale = {"raw_counts": raw, "share_negative": found.negative}
    return (
        Fitted(learner, chosen, found.mean, scale, predictor, results),
        _as_read(D) if points is None else points,
    )


def _fit_ensemble(
    learner: GroundMetricEnsemble,
    D: Distributions,
    labels: pd.Series,
    groups: list[Hashable] | None,
    strata: np.ndarray | None,
) -> tuple[Predictor, EnsembleResults]:
    """Fit a predictor on the ensemble, and so the ensemble: what is scored is what predicts new samples."""
    names, numbers = np.asarray(labels.astype(str) if isinstance(labels.dtype, pd.CategoricalDtype) else labels), None
    if learner.target == "ordered":
        target: Any = read_labels(labels, "ordered", D.name_index, D, by_row=False)[0].target
        numbers = target.values
    predictor = (TransportClassifier if numbers is None else TransportRegressor)(learner)
    predictor.fit(D, names if numbers is None else numbers, groups=groups, strata=strata)
    return predictor, EnsembleResults.of(predictor.ensemble_, D.names, names, numbers)


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


def make_learner(
    parameters: dict[str, Any], random_state: int, learner: str | None = None, needs: dict[str, Any] | None = None
) -> Learner:
    """The learner that was asked for, or that the parameters need; `needs` are arguments that only a single one has."""
    target = parameters.get("target", "classes")
    if isinstance(target, list | tuple) or isinstance(resolve_target(target), Distances | Survival):
        raise ValueError(
            f"target is {target!r}: labels in a column are 'classes' or 'ordered'; for target distances, "
            "survival times or several labels, use GroundMetricLearner on Distributions"
        )
    for name in ("cost", "form"):
        if (name == "cost" and parameters.get(name, "euclidean") != "euclidean") or isinstance(
            parameters.get(name), Mapped
        ):
            raise ValueError(
                f"{name} is {parameters[name]!r}, but tools on an AnnData take distances between embedded cells to be "
                "Euclidean and components to weight genes: use GroundMetricLearner on Distributions"
            )
    given = {"random_state": random_state, **parameters}
    if choose_learner(learner, parameters, needs or {}) == "single":
        return GroundMetricLearner(**given)
    known = GroundMetricEnsemble().get_params()
    return GroundMetricEnsemble(**{name: value for name, value in given.items() if name in known})


def choose_learner(learner: str | None, parameters: dict[str, Any], needs: dict[str, Any]) -> str:
    """An ensemble, unless a single learner is asked for or something is given that only a single learner has.

    >>> choose_learner(None, {"max_epochs": 5}, {}), choose_learner(None, {"n_components": 2}, {})
    ('ensemble', 'single')
    """
    if learner is not None and learner not in LEARNERS:
        raise ParameterError("learner", learner, f": expected one of {', '.join(map(repr, LEARNERS))}")
    many, one = GroundMetricEnsemble().get_params(), GroundMetricLearner().get_params()
    for name in parameters:
        if name not in many and name not in one:
            raise TypeError(f"unexpected keyword {name!r}: besides those of learn {listed(name, [*one, *many])}")
    given = {name: value for name, value in parameters.items() if value is not None}
    single = {name: value for name, value in {**needs, **given}.items() if value is not None and name not in many}
    if not isinstance(given.get("target", ""), str):
        single["target"] = given["target"]
    ensemble = {name: value for name, value in given.items() if name not in one}
    chosen = learner or ("single" if single else "ensemble")
    if chosen == "ensemble" and single:
        name, value = next(iter(single.items()))
        raise ParameterError(name, value, ", which needs a single learner: leave it out", {"learner": "single"})
    if chosen == "single" and ensemble:
        name, value = next(iter(ensemble.items()))
        why = "learner='single'" if learner else next(iter(single))
        raise ParameterError(name, value, f", which only an ensemble has, but {why} is given: leave one of them out")
    return chosen


def learn(
    adata: CellsLike,
    sample_key: str,
    label_key: str,
    *,
    learner: str | None = None,
    group_key: str | None = None,
    batch_key: str | None = None,
    layer: str | None = None,
    use_rep: str | None = None,
    genes: GenesLike | None = None,
    order: Sequence[Hashable] | None = None,
    n_cells: int | None = 1000,
    resample: bool = False,
    key_added: str = "groundmetric",
    random_state: int = 0,
    copy: bool = False,
    **parameters: Any,
) -> ad.AnnData | None:
    """Learn a metric between cells under which samples of one label are near to each other.

    An ensemble learns it (`GroundMetricEnsemble`): members are trained on unions of cross-validation folds of the
    patients and weighted by held-out predictions. Predictions that are reported for training samples are held-out. A
    single learner (`GroundMetricLearner`, the published method) learns from all samples at once.

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
    learner : {"ensemble", "single"} or None, default=None
        What learns. None: an ensemble, or a single learner where something is given that only that one has: a
        parameter such as n_components, margin, penalty, strength or checkpoint, a target that is an object, or
        `resample`. An ensemble needs two samples (or groups) of each label.
    group_key : str or None, default=None
        Column of `obs` with the patient or donor of the cell's sample, where they have several samples: never divided
        between what a member of the ensemble learns from and what it is judged on, nor by a report.
    batch_key : str or None, default=None
        Column of `obs` with the batch, site or donor of the cell's sample, which the metric should not learn. An
        ensemble compares labels within batches. A single learner asks that samples be nearer to those of their label in
        other batches than to those of other labels in their own.
    layer : str or None, default=None
        Layer to learn from; None: X.
    use_rep : str or None, default=None
        Entry of `obsm` to learn from (e.g. "X_pca"); None: genes.
    genes : str, int, sequence or None, default=None
        Genes to learn from. "variance": those whose variance is above the average, in the cells that are learned from
        (the paper's rule); a number: so many of the most variable there; "highly_variable" or another column of `var`
        that marks them; "all"; a list of names; or a mask. None: those marked by `pp.select_genes`; otherwise
        "variance" where values are counts of genes or their logarithms (more than 100 features, none below 0, at least
        5% zeros), and "all" of anything else, because the variance of a marker or a measurement depends on its unit.
        ``uns["groundmetric"]["features"]`` says which.
    order : sequence or None, default=None
        Labels from low to high, where they are text: ``["mild", "moderate", "severe"]``. It means
        ``target="ordered"``.
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
        Parameters of `GroundMetricEnsemble` (n_members, kinds, max_points, …) or of `GroundMetricLearner`
        (n_components, margin, strength, …); target, max_epochs, n_jobs and verbose are those of both.

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
    - ``var["groundmetric_importance_low"]``, ``var["groundmetric_importance_high"]`` (ensemble; not with `use_rep`):
      95% of the members lie between, and so does the importance
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn
    - ``uns["groundmetric"]``: parameters (with "learner"), labels, version, and the metric itself; `get.metric`
      rebuilds it. Of a single learner also the history of its epochs
    - ``uns["groundmetric"]["features"]``: the rule by which genes were selected, how many, of how many, and in words
    - ``uns["groundmetric"]["cell_numbers"]``: whether the number of cells per sample is associated with the label, in
      words ("text") and as a p-value ("p"); see `evaluation.size_association`
    - ``uns["groundmetric"]["n_cells"]`` (of a file): number of cells of each sample, those that were not drawn included
    - ``uns["groundmetric"]["predictor"]`` (ensemble): the fitted `TransportClassifier` (of ordered labels
      `TransportRegressor`) that `tl.transfer` predicts with, which is what "scores" are of
    - ``uns["groundmetric"]["ensemble"]`` (ensemble): for the training samples, in the order of "samples", "held_out"
      (probability of each of "classes", or numbers), "predicted", and distances "out_of_bag"; "scores" of these
      predictions, and by what they were made ("scored"); "weights" of the kinds of members in the metric; `tl.samples`
      shows them by sample

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> gm.tl.learn(adata, "sample", "condition", random_state=0)
    >>> adata.uns["groundmetric"]["ensemble"]["scores"]["balanced_accuracy"] > 0.5
    True

    A single learner, of two components:

    >>> gm.tl.learn(adata, "sample", "condition", n_components=2, random_state=0)
    >>> adata.obsm["X_groundmetric"].shape == (adata.n_obs, 2)
    True
    """
    check_draw(n_cells, random_state)
    if order is not None and parameters.setdefault("target", "ordered") == "classes":
        raise ParameterError("order", list(order), ", but target is 'classes': leave one of them out")
    learns = make_learner(parameters, random_state, learner, {"resample": resample or None})
    if resample and n_cells is None:
        raise ParameterError(
            "n_cells", None, ": resample has no other cells to draw where all are drawn; give a number"
        )
    with Source(adata) as source:
        samples = samples_of(source.obs, sample_key)
        labels = labels_of(source.obs, label_key, samples, sample_key)
        check_labels_of(labels, samples.names, label_key, learns.target)
        labels = with_category_order(labels, source.obs[label_key], learns.target, order)
        strata = None if batch_key is None else per_sample(source.obs, batch_key, "batch_key", samples)
        groups = None if group_key is None else groups_of(source.obs, group_key, samples, sample_key)
        if isinstance(learns, GroundMetricEnsemble):
            check_parts_of(labels, groups, label_key, learns.target)
        values, selection = Values.of(source, layer, use_rep), _selection(source, layer, use_rep, genes)
        association = _size_association(samples, labels, groups, learns.target)
        if learns.verbose:
            write_line(association.sentence(label_key, "sample", "cell"))
        rows = draw(samples, n_cells, random_state)
        redraw = partial(draw, samples, n_cells, random_state) if resample else None
        fitted, points = fit(
            values, selection, rows, samples, labels, learns, strata=strata, groups=groups, redraw=redraw
        )
        learns = fitted.learner
        if source.on_disk:
            target = _read_part(source, rows, points, fitted, use_rep)
            z, drawn = learns.metric_.project(points), np.ones(rows.size, bool)
        else:
            target, everyone = source.adata.copy() if copy else source.adata, np.arange(samples.codes.size)
            z, drawn = project(values.matrix, everyone, fitted.columns, learns.components_), np.isin(everyone, rows)
    params = {
        "sample_key": sample_key, "label_key": label_key, "group_key": group_key, "batch_key": batch_key,
        "order": None if order is None else [str(name) for name in order],
        "layer": layer, "use_rep": use_rep, "genes": fitted.chosen.rule, "n_cells": n_cells,
        "resample": resample or None, "random_state": random_state, **fitted.scale,
        "learner": "single" if fitted.results is None else "ensemble",
    }  # fmt: skip
    _write(target, key_added, z, drawn, fitted, use_rep is None)
    stored = Stored(key_added, learns.metric_, fitted.means, params, labels)
    sizes = {"p": association.p, "text": association.sentence(label_key, "sample", "cell")}
    entry = stored.entry(learns, fitted.results) | {"features": fitted.chosen.entry(), "cell_numbers": sizes}
    if fitted.predictor is not None:
        entry["predictor"] = pack_predictor(fitted.predictor)
    if source.on_disk:  # the cells that were not drawn are not in the target
        entry["n_cells"] = {"samples": samples.names.astype(object), "n_cells": samples.sizes}
    target.uns[key_added] = entry
    return target if target is not adata else None


def _size_association(samples: Samples, labels: pd.Series, groups: pd.Series | None, target: Any) -> SizeAssociation:
    """Test the numbers of cells per sample, of all samples that have a label, against the label."""
    sizes = pd.Series(samples.sizes, index=samples.names).loc[labels.index]
    units = None if groups is None else groups.loc[labels.index]
    if target != "ordered" and not isinstance(target, Ordered):
        return size_association(sizes, labels.astype(str), units)
    numbers = labels.cat.codes if isinstance(labels.dtype, pd.CategoricalDtype) else labels
    return size_association(sizes, numbers, units, target="ordered")


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
    if fitted.results is not None:
        for end, values in zip(("low", "high"), fitted.results.interval, strict=True):
            column = np.zeros(target.n_vars)
            column[places] = values
            target.var[f"{key}_importance_{end}"] = column
