"""tl.learn: from cells, samples and labels to a metric, in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.annotations import Annotations, Chosen, CohortWarning, Selection, Values, check_draw, draw
from .._anndata.source import Source, listed, moments, project, read, warn_of_counts
from .._anndata.store import EnsembleResults, Predictor, Stored, learner_entry, pack_predictor
from .._internal.parallel import write_line
from .._internal.types import CellsLike, GenesLike
from .._internal.validation import ParameterError
from ..distributions import Distributions
from ..estimators import GroundMetricEnsemble, GroundMetricLearner, TransportClassifier, TransportRegressor
from ..evaluation import SizeAssociation, size_association
from ..learning import Distances, Mapped, Ordered, Survival
from ..learning.labels import read_labels, resolve_target

Learner = GroundMetricEnsemble | GroundMetricLearner
METHODS: dict[str, type[Learner]] = {"ensemble": GroundMetricEnsemble, "ggml": GroundMetricLearner}
# Options of `learn` itself: the order of labels, and for one method a draw of other cells for every epoch.
OWN_OPTIONS = {"order": ("ensemble", "ggml"), "resample": ("ggml",)}
# Cells of each sample that comparisons need at least: distances between fewer are mostly noise.
_FEW_CELLS = 10


@dataclass(frozen=True)
class Fitted:
    """A learner after `fit`, with the features it learned from.

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
        Of an ensemble: what predicts labels of new samples, and held-out results of the training samples.
    """

    learner: Learner
    chosen: Chosen
    means: np.ndarray
    scale: dict[str, Any]
    predictor: Predictor | None = None
    results: EnsembleResults | None = None


def fit(
    values: Values,
    selection: Selection,
    rows: np.ndarray,
    annotations: Annotations,
    learner: Learner,
    *,
    warn: bool = True,
    redraw: Callable[[int], np.ndarray] | None = None,
) -> tuple[Fitted, Any]:
    """Learn from those of the rows whose samples have a label; also return the values of all rows.

    Parameters
    ----------
    values : Values
        Values of all cells.
    selection : Selection
        Features to learn from.
    rows : array
        Cells, ascending
    annotations : Annotations
        Samples, labels, groups and strata.
    learner : GroundMetricEnsemble or GroundMetricLearner
        The learner.
    warn : bool
        Whether to warn of raw counts and of samples with few cells.
    redraw : function or None
        From a number of epochs to the rows to learn from thereafter, of the same samples.
    """
    samples, labels = annotations.samples, annotations.labels
    training = samples.cells_of(labels.index, rows)
    chosen = selection.choose(values.matrix, rows[training], values.names)
    columns = chosen.places
    if learner.verbose:
        write_line(f"learning from {chosen.text}")
    points = read(values.matrix, rows, columns)
    known = points if training.all() else points[training]
    found = moments(known, np.arange(known.shape[0]))
    raw = values.is_expression and found.looks_raw
    D = Distributions(known, samples.names[samples.codes[rows[training]]], features=list(values.names[columns]))
    if warn:
        warn_of_counts(raw, values.layer, stacklevel=4)
        if (size := D.common_size()) < _FEW_CELLS:
            name, smallest = D.names[int(D.sizes.argmin())], int(D.sizes.min())
            message = f"sample {name!r} has {smallest} cells, so that all samples are compared by {size} cells each"
            warnings.warn(f"{message}: drop samples with few cells", CohortWarning, stacklevel=3)
    # While learning there is one copy of the points: D has them by sample, which is undone afterwards.
    points, known = None if training.all() else points, None
    scale = {"raw_counts": raw, "share_negative": found.negative}
    fitted = Fitted(learner, chosen, found.mean, scale)
    strata = None if annotations.strata is None else annotations.strata.loc[D.names].to_numpy()
    if isinstance(learner, GroundMetricEnsemble):
        fitted = _fit_ensemble(fitted, D, annotations, strata)
    else:

        def fresh(epoch: int) -> Distributions:
            """The distributions of D with other cells, in its order: each later step would copy them again."""
            assert redraw is not None
            again = redraw(epoch)
            again = again[samples.cells_of(labels.index, again)]
            names = samples.names[samples.codes[again]]
            order = np.argsort(pd.Index(D.names).get_indexer(names), kind="stable")
            return Distributions(read(values.matrix, again, columns)[order], names[order], features=D.features)

        y = labels.loc[D.names]
        learner.fit(D, y if annotations.is_ordered else y.to_numpy(), strata=strata, fresh=redraw and fresh)
    if points is None:
        # In the order in which they were read.
        points = D.points if np.all(np.diff(D.order) > 0) else D.points[np.argsort(D.order)]
    return fitted, points


def _fit_ensemble(fitted: Fitted, D: Distributions, annotations: Annotations, strata: np.ndarray | None) -> Fitted:
    """Fit a predictor, and with it the ensemble: the predictor of new samples is the one that is scored."""
    labels, ensemble = annotations.labels.loc[D.names], fitted.learner
    names, numbers = np.asarray(labels.astype(str) if annotations.is_ordered else labels), None
    if ensemble.target == "ordered":
        target: Any = read_labels(labels, "ordered", D.name_index, D, by_row=False)[0].target
        numbers = target.values
    predictor = (TransportClassifier if numbers is None else TransportRegressor)(ensemble)
    groups = None if annotations.groups is None else annotations.groups.loc[D.names].tolist()
    predictor.fit(D, names if numbers is None else numbers, groups=groups, strata=strata)
    results = EnsembleResults.of(predictor.ensemble_, D.names, names, numbers)
    return Fitted(predictor.ensemble_, fitted.chosen, fitted.means, fitted.scale, predictor, results)


def make_learner(method: str, options: dict[str, Any], random_state: int) -> Learner:
    """Return the learner of a method with these options, which must be its own.

    >>> make_learner("ggml", {"n_components": 2}, 0)
    GroundMetricLearner(n_components=2, random_state=0)
    """
    if method not in METHODS:
        raise ParameterError("method", method, f": expected one of {', '.join(map(repr, METHODS))}")
    names = {name: list(signature(kind).parameters) for name, kind in METHODS.items()}
    for name, methods in OWN_OPTIONS.items():
        for owner in methods:
            names[owner].append(name)
    for name, value in options.items():
        if name in names[method]:
            continue
        owners = [other for other in METHODS if name in names[other]]
        if not owners:
            known = dict.fromkeys([*names[method], *(option for other in names.values() for option in other)])
            raise TypeError(f"unexpected option {name!r} of method={method!r}: {listed(name, known)}")
        raise ParameterError(
            name, value, f", which is an option of method={owners[0]!r}, not of {method!r}: leave it out",
            {"method": owners[0]},
        )  # fmt: skip
    target = options.get("target", "classes")
    if isinstance(target, list | tuple) or isinstance(resolve_target(target), Distances | Survival):
        raise ParameterError(
            "target", target, ": labels in a column are 'classes' or 'ordered'; for target distances, survival times "
            "or several labels, use GroundMetricLearner on Distributions",
        )  # fmt: skip
    if not isinstance(target, str) and method == "ensemble":
        raise ParameterError("target", target, ", but an ensemble takes a name: give 'ordered'", {"method": "ggml"})
    for name, usual in (("cost", "euclidean"), ("form", None)):
        value = options.get(name, usual)
        if (name == "cost" and value != usual) or isinstance(value, Mapped):
            raise ParameterError(
                name, value, ", but tools on an AnnData take distances between embedded cells to be Euclidean and "
                "components to weight genes: use GroundMetricLearner on Distributions",
            )  # fmt: skip
    given = {name: value for name, value in options.items() if name not in OWN_OPTIONS}
    return METHODS[method](**{"random_state": random_state, **given})


def learn(
    adata: CellsLike,
    sample_key: str,
    label_key: str,
    *,
    method: str = "ensemble",
    group_key: str | None = None,
    batch_key: str | None = None,
    layer: str | None = None,
    use_rep: str | None = None,
    genes: GenesLike | None = None,
    n_cells: int | None = 1000,
    key_added: str = "groundmetric",
    random_state: int = 0,
    copy: bool = False,
    **options: Any,
) -> ad.AnnData:
    """Learn a metric between cells under which samples of one label are near to each other.

    ``method="ensemble"`` trains a `GroundMetricEnsemble`: members are trained on unions of cross-validation folds of
    the patients and weighted by held-out predictions. Predictions that are reported for training samples are held-out.
    ``method="ggml"`` trains a `GroundMetricLearner`, the published method, on all samples at once.

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
    method : {"ensemble", "ggml"}, default="ensemble"
        How the metric is learned. An ensemble needs two samples (or groups) of each label.
    group_key : str or None, default=None
        Column of `obs` with the patient or donor of the cell's sample, where they have several samples: never divided
        by a cross-validation fold of the ensemble, nor by a report.
    batch_key : str or None, default=None
        Column of `obs` with the batch, site or donor of the cell's sample, which the metric should not learn. An
        ensemble compares labels within batches. "ggml" asks that samples be nearer to those of their label in other
        batches than to those of other labels in their own.
    layer : str or None, default=None
        Layer to learn from; None: X.
    use_rep : str or None, default=None
        Entry of `obsm` to learn from (e.g. "X_pca"); None: genes.
    genes : str, int, sequence or None, default=None
        Genes to learn from. "variance": those whose variance is above the average, in the cells that are learned from
        (the paper's rule); a number: that many of the most variable there; "highly_variable" or another column of `var`
        that marks them; "all"; a list of names; or a mask. None: those marked by `pp.select_genes`; otherwise
        "variance" where values are counts of genes or their logarithms (more than 100 features, none below 0, at least
        5% zeros), and "all" of anything else, because the variance of a marker or a measurement depends on its unit.
        ``uns["groundmetric"]["features"]`` says which.
    n_cells : int or None, default=1000
        Cells drawn from each sample; samples with fewer give all of theirs. None: all cells.
    key_added : str, default="groundmetric"
        Prefix of the names of all results in `adata`.
    random_state : int, default=0
        Seed of the draw of cells and of the learner.
    copy : bool, default=False
        Whether to write the results to a copy and leave `adata` as it is.
    **options : dict
        Parameters of the method: of `GroundMetricEnsemble` (n_members, kinds, max_points, …) or `GroundMetricLearner`
        (n_components, margin, strength, …); target, max_epochs, n_jobs and verbose are those of both. Also:

        - order : labels from low to high, where they are text: ``["mild", "moderate", "severe"]``. It means
          ``target="ordered"``.
        - resample : whether to draw other cells for every epoch ("ggml" only), so that more of a large file is learned
          from than is held in memory at a time. Transport solves then have no warm start, which takes longer. Selected
          genes, scales and all results are those of the first draw.

    Returns
    -------
    AnnData
        The AnnData with the results: `adata` itself if it is in memory (its copy with ``copy=True``). For a path, or an
        AnnData that is backed or lazy, a new AnnData in memory of the drawn cells and the selected genes; the file or
        `adata` stays as it is, and a warning says so for a backed or lazy `adata`.

    Warns
    -----
    CohortWarning
        If a label is rare, samples have few cells, patients seem to have several samples without a `group_key`, or
        the batch or the number of cells per sample is associated with the label.

    Notes
    -----
    Results, with "groundmetric" standing for `key_added`:

    - ``obsm["X_groundmetric"]``: cells in the learned space, where the metric is the Euclidean distance
    - ``varm["groundmetric_components"]``: components, 0 for genes that were not selected (not with `use_rep`)
    - ``var["groundmetric_importance"]``: share of each gene, summing to 1 (not with `use_rep`)
    - ``var["groundmetric_importance_low"]``, ``var["groundmetric_importance_high"]`` (ensemble; not with `use_rep`):
      95% of the members lie between, and so does the importance
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn
    - ``uns["groundmetric"]``: parameters (with "method"), labels, version, and the metric itself; `get.metric`
      rebuilds it. With "ggml" also the history of its epochs
    - ``uns["groundmetric"]["features"]``: the rule by which genes were selected, how many, of how many, and in words
    - ``uns["groundmetric"]["cell_numbers"]``: whether the number of cells per sample is associated with the label, in
      words ("text") and as a p-value ("p"); see `evaluation.size_association`
    - ``uns["groundmetric"]["n_cells"]`` (of a file): number of cells of each sample, those that were not drawn included
    - ``uns["groundmetric"]["predictor"]`` (ensemble): the fitted `TransportClassifier` (of ordered labels
      `TransportRegressor`) that `tl.transfer` predicts with, whose scores "scores" are
    - ``uns["groundmetric"]["ensemble"]`` (ensemble): for the training samples, in the order of "samples", "held_out"
      (probability of each of "classes", or numbers), "predicted", and distances "out_of_bag"; "scores" of these
      predictions, and by what they were made ("scored"); "weights" of the kinds of members in the metric; `tl.samples`
      shows them by sample

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", random_state=0)
    >>> adata.uns["groundmetric"]["ensemble"]["scores"]["balanced_accuracy"] > 0.5
    True

    The published method, with two components:

    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> adata.obsm["X_groundmetric"].shape == (adata.n_obs, 2)
    True
    """
    check_draw(n_cells, random_state)
    order, resample = options.get("order"), bool(options.get("resample"))
    if order is not None and options.setdefault("target", "ordered") == "classes":
        raise ParameterError("order", list(order), ", but target is 'classes': leave one of them out")
    learner = make_learner(method, options, random_state)
    if resample and n_cells is None:
        raise ParameterError(
            "n_cells", None, ": resample has no other cells to draw where all are drawn; give a number"
        )
    keys = {"sample_key": sample_key, "group_key": group_key, "batch_key": batch_key}
    with Source(adata) as source:
        annotations = Annotations.read(
            source.obs, sample_key, label_key, group_key=group_key, batch_key=batch_key, target=learner.target,
            order=order,
        )  # fmt: skip
        annotations.check(label_key, method, learner.target)
        annotations.warn(source.obs, label_key, keys, learner.target)
        samples, labels = annotations.samples, annotations.labels
        values = Values.of(source, layer, use_rep, genes)
        association = _size_association(annotations, learner.target)
        cell_numbers = association.sentence(label_key, "sample", "cell")
        if association.p <= 0.05:
            warnings.warn(cell_numbers, CohortWarning, stacklevel=2)
        elif learner.verbose:
            write_line(cell_numbers)
        rows = draw(samples, n_cells, random_state)
        fitted, points = fit(
            values, values.selection(genes, source), rows, annotations, learner,
            redraw=partial(draw, samples, n_cells, random_state) if resample else None,
        )  # fmt: skip
        metric, columns = fitted.learner.metric_, fitted.chosen.places
        if source.on_disk:
            obs, drawn = source.obs.iloc[rows].copy(), np.ones(rows.size, bool)
            if use_rep is None:
                target = ad.AnnData(points, obs=obs, var=source.var.iloc[columns].copy())
            else:
                target = ad.AnnData(obs=obs, var=source.var.copy(), obsm={use_rep: points})
            z, columns = metric.project(points), np.arange(target.n_vars)
            if isinstance(adata, ad.AnnData):
                kind = "backed" if adata.isbacked else "lazy"
                warnings.warn(
                    f"adata is {kind} and stays as it is: the results are in the AnnData that learn returns, with the "
                    "drawn cells and the selected genes",
                    UserWarning,
                    stacklevel=2,
                )
        else:
            target, everyone = source.adata.copy() if copy else source.adata, np.arange(samples.codes.size)
            z, drawn = project(values.matrix, everyone, columns, metric.components), np.isin(everyone, rows)
    params = {
        "sample_key": sample_key, "label_key": label_key, "group_key": group_key, "batch_key": batch_key,
        "order": None if order is None else [str(name) for name in order], "layer": layer, "use_rep": use_rep,
        "genes": fitted.chosen.rule, "n_cells": n_cells, "resample": resample or None, "random_state": random_state,
        **fitted.scale, "method": method,
    }  # fmt: skip
    target.obsm[f"X_{key_added}"] = z
    target.obs[f"{key_added}_sampled"] = drawn
    if use_rep is None:
        _write_genes(target, key_added, columns, fitted)
    entry = Stored(key_added, metric, fitted.means, params, labels).entry() | learner_entry(fitted.learner)
    entry |= {"features": fitted.chosen.entry(), "cell_numbers": {"p": association.p, "text": cell_numbers}}
    if fitted.predictor is not None and fitted.results is not None:
        entry |= {"ensemble": fitted.results.entry(), "predictor": pack_predictor(fitted.predictor)}
    if source.on_disk:  # the cells that were not drawn are not in the target
        entry["n_cells"] = {"samples": samples.names.astype(object), "n_cells": samples.sizes}
    target.uns[key_added] = entry
    return target


def _size_association(annotations: Annotations, target: Any) -> SizeAssociation:
    """Test the numbers of cells per sample, of all samples that have a label, against the label."""
    labels, samples = annotations.labels, annotations.samples
    sizes = pd.Series(samples.sizes, index=samples.names).loc[labels.index]
    groups = None if annotations.groups is None else annotations.owners
    if isinstance(resolve_target(target), Ordered):
        return size_association(sizes, annotations.numbers, groups, target="ordered")
    return size_association(sizes, labels.astype(str), groups)


def _write_genes(target: ad.AnnData, key: str, columns: np.ndarray, fitted: Fitted) -> None:
    """Write components and importances of the selected genes, and 0 for the others."""
    metric = fitted.learner.metric_
    components = np.zeros((target.n_vars, metric.n_components))
    components[columns] = metric.components.T
    target.varm[f"{key}_components"] = components
    importances = {"importance": metric.importance()}
    if fitted.results is not None:
        importances |= dict(zip(("importance_low", "importance_high"), fitted.results.interval, strict=True))
    for name, values in importances.items():
        column = np.zeros(target.n_vars)
        column[columns] = values
        target.var[f"{key}_{name}"] = column
