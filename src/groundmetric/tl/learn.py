"""tl.learn: learn a ground metric from cells, samples and labels."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

from .._anndata.cohort import Annotations, CohortWarning, Features, check_draw, cohort_problems, constant_columns, draw
from .._anndata.source import Source, moments, project, read, warn_of_counts
from .._anndata.store import Stored, ensemble_entry, learner_entry, pack_predictor
from .._internal.parallel import write_line
from .._internal.types import CellsLike, GenesLike
from .._internal.validation import ParameterError
from ..distributions import Distributions, SmallSampleWarning
from ..estimators import GroundMetricEnsemble, GroundMetricLearner, TransportClassifier, TransportRegressor
from ..learning import Distances, Mapped, Ordered, Survival
from ..learning.labels import read_labels, resolve_target

Learner = GroundMetricEnsemble | GroundMetricLearner
METHODS: dict[str, type[Learner]] = {"ensemble": GroundMetricEnsemble, "ggml": GroundMetricLearner}
# Options of `learn` that are not parameters of a learner, and the methods that have them.
LEARN_OPTIONS = {"order": ("ensemble", "ggml"), "resample": ("ggml",)}
# Advice for options of other packages.
HINTS = {
    "use_raw": "adata.raw is not read; give a layer (layer=…)",
    "seed": "did you mean 'random_state'?",
    "n_top_genes": "give the number of the most variable genes (genes=…)",
}


def make_learner(method: str, options: dict[str, Any]) -> Learner:
    """Return the learner of a method with these options; raise for options of another method.

    >>> make_learner("ggml", {"n_components": 2})
    GroundMetricLearner(n_components=2, random_state=0)
    """
    if method not in METHODS:
        raise ParameterError("method", method, f": expected one of {', '.join(map(repr, METHODS))}")
    names = {
        name: [*signature(kind).parameters, *(option for option, methods in LEARN_OPTIONS.items() if name in methods)]
        for name, kind in METHODS.items()
    }
    for name, value in options.items():
        if name in names[method]:
            continue
        owner = next((candidate for candidate in METHODS if name in names[candidate]), None)
        if owner is not None:
            problem = f", which is an option of method={owner!r}, not of {method!r}: leave it out"
            raise ParameterError(name, value, problem, {"method": owner})
        known = [*names[method], *(parameter for parameter in signature(learn).parameters if parameter != "options")]
        similar = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = HINTS.get(name, f"did you mean {similar[0]!r}?" if similar else "")
        hint = f": {hint}" if hint else ""
        raise TypeError(f"method={method!r} has no option {name!r}{hint} (options: {', '.join(sorted(names[method]))})")
    target = options.get("target", "classes")
    if isinstance(target, list | tuple) or isinstance(resolve_target(target), Distances | Survival):
        raise ParameterError(
            "target", target, ": labels in a column are 'classes' or 'ordered'; for target distances, survival times "
            "or several labels, use GroundMetricLearner on Distributions",
        )  # fmt: skip
    if not isinstance(target, str) and method == "ensemble":
        raise ParameterError("target", target, ": an ensemble expects 'classes' or 'ordered'", {"method": "ggml"})
    for name, default in (("cost", "euclidean"), ("form", None)):
        value = options.get(name, default)
        if (name == "cost" and value != default) or isinstance(value, Mapped):
            raise ParameterError(
                name, value, ", but tools for AnnData need Euclidean distances between projected cells and components "
                "that weight genes: use GroundMetricLearner on Distributions",
            )  # fmt: skip
    parameters = {name: value for name, value in options.items() if name not in LEARN_OPTIONS}
    return METHODS[method](**{"random_state": 0, **parameters})


def _train(
    learner: Learner, D: Distributions, annotations: Annotations, redraw: Callable[[int], Distributions] | None
) -> tuple[Learner, dict[str, Any]]:
    """Return the fitted learner, and entries of `uns` with the results and the predictor of an ensemble."""
    y = annotations.labels.loc[D.names]
    strata = None if annotations.strata is None else annotations.strata.loc[D.names].to_numpy()
    if isinstance(learner, GroundMetricLearner):
        return learner.fit(D, y if annotations.is_ordered else y.to_numpy(), strata=strata, fresh=redraw), {}
    labels, numbers = np.asarray(y.astype(str) if annotations.is_ordered else y), None
    if learner.target == "ordered":
        target: Any = read_labels(y, "ordered", D.name_index, D, by_row=False)[0].target
        numbers = target.values
    groups = None if annotations.groups is None else annotations.groups.loc[D.names].tolist()
    # The predictor fits the ensemble: held-out scores are those of the estimator that predicts new samples.
    predictor = (TransportClassifier if numbers is None else TransportRegressor)(learner)
    predictor.fit(D, labels if numbers is None else numbers, groups=groups, strata=strata)
    results = ensemble_entry(predictor.ensemble_, D.names, labels, numbers)
    return predictor.ensemble_, {"ensemble": results, "predictor": pack_predictor(predictor)}


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
    random_state: int = 0,
    key_added: str = "groundmetric",
    **options: Any,
) -> ad.AnnData:
    """Learn a ground metric under which samples with the same label are close to each other.

    ``method="ensemble"`` trains a `GroundMetricEnsemble`: members are trained on unions of cross-validation folds of
    the patients and weighted by held-out predictions. Reported predictions of training samples are held-out.
    ``method="ggml"`` trains a `GroundMetricLearner`, the published method, on all samples at once.

    Values should be normalised and on a log scale; raw counts give a warning.

    Parameters
    ----------
    adata : AnnData or path
        Cells, or the path of an .h5ad file or .zarr folder. If `adata` is a path, backed, lazy or made of Dask arrays,
        only the drawn cells and the selected genes are loaded.
    sample_key : str
        Column of `obs` with the sample (patient) of each cell.
    label_key : str
        Column of `obs` with the label of the cell's sample, constant within a sample. Samples without a label are not
        used for training, but their cells are projected. With ``target="ordered"``, numbers or ordered categories.
    method : {"ensemble", "ggml"}, default="ensemble"
        Learning method. An ensemble needs two samples (or groups) of each label.
    group_key : str or None, default=None
        Column of `obs` with the patient, if patients have several samples. Cross-validation folds and reports keep
        samples of a group together.
    batch_key : str or None, default=None
        Column of `obs` with the batch or site of the cell's sample, which the metric should not learn. The ensemble
        compares labels within batches. "ggml" asks that samples be closer to samples of their label in other batches
        than to samples of other labels in their batch.
    layer : str or None, default=None
        Layer to learn from; None: X.
    use_rep : str or None, default=None
        Entry of `obsm` to learn from (e.g. "X_pca"); None: genes.
    genes : str, int, sequence or None, default=None
        Genes to learn from. "variance": genes with a variance above the average in the training cells (the paper's
        rule); a number: that many of the most variable genes; "highly_variable" or another boolean column of `var`;
        "all"; a list of names; or a mask. None: the genes marked by `pp.select_genes`; otherwise "variance" for counts
        of genes or their logarithms (more than 100 features, no negative values, at least 5% zeros), and "all" for
        other features, because the variance of a marker or a measurement depends on its unit.
    n_cells : int or None, default=1000
        Number of cells drawn from each sample; smaller samples use all their cells. None: all cells.
    random_state : int, default=0
        Seed of the draw of cells and of the learner.
    key_added : str, default="groundmetric"
        Prefix of the names of all results in `adata`.
    **options : dict
        Parameters of the method: of `GroundMetricEnsemble` (n_members, kinds, max_points, …) or `GroundMetricLearner`
        (n_components, margin, strength, …). Both have target, max_epochs, n_jobs and verbose. Also:

        - order : text labels from low to high, e.g. ``["mild", "moderate", "severe"]``; implies ``target="ordered"``.
        - resample : whether to draw new cells in every epoch ("ggml" only), which uses more cells of a large file
          than fit into memory. Transport problems then have no warm start, which takes longer. Selected genes,
          scales and all results refer to the first draw.

    Returns
    -------
    AnnData
        `adata` itself with the results if it is in memory. For a path, or an AnnData that is backed or lazy, a new
        AnnData with the drawn cells and the selected genes; the file or `adata` is not changed.

    Warns
    -----
    CohortWarning
        If samples lack a label, a label is rare, samples have fewer than 10 cells, patients seem to have several
        samples without a `group_key`, or the batch or the number of cells per sample is associated with the label.

    Notes
    -----
    Results, with "groundmetric" for `key_added`:

    - ``obsm["X_groundmetric"]``: cells in the learned space, in which the metric is the Euclidean distance
    - ``varm["groundmetric_components"]``: components, 0 for genes that were not selected (not with `use_rep`)
    - ``var["groundmetric_importance"]``: importance of each gene, summing to 1 (not with `use_rep`); for an ensemble
      also ``"groundmetric_importance_low"`` and ``"groundmetric_importance_high"``, bounds that include the importance
      and 95% of the members
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn
    - ``uns["groundmetric"]``: parameters ("params"), labels, version, and the metric, which `get.metric` rebuilds; the
      gene selection ("features"); the association of the number of cells with the label ("cell_numbers", see
      `evaluation.size_association`); with "ggml" the history of its epochs; after learning from a file the number of
      cells of each sample in the file ("n_cells")
    - ``uns["groundmetric"]["predictor"]`` (ensemble): the fitted `TransportClassifier` (for ordered labels
      `TransportRegressor`) that `tl.transfer` uses
    - ``uns["groundmetric"]["ensemble"]`` (ensemble): results of the training samples, in the order of "samples":
      "held_out" (probability of each of "classes", or numbers), "predicted", and distances "out_of_bag"; "scores" of
      these predictions and the estimator that made them ("scored"); "weights" of the kinds of members in the metric.
      `tl.samples` arranges them by sample

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
    if not isinstance(key_added, str) or not key_added or "/" in key_added:
        raise ParameterError("key_added", key_added, ": expected a name without '/', which files read as a path")
    order, resample = options.get("order"), bool(options.get("resample"))
    if order is not None and options.setdefault("target", "ordered") == "classes":
        raise ParameterError("order", order, ", but target is 'classes': leave one of them out")
    learner = make_learner(method, {"random_state": random_state, **options})
    if resample and n_cells is None:
        raise ParameterError("n_cells", None, ", but resample draws a subset of the cells: give a number")
    with Source(adata) as source:
        annotations = Annotations.read(
            source.obs, sample_key, label_key, group_key=group_key, batch_key=batch_key, target=learner.target,
            order=order,
        )  # fmt: skip
        annotations.check(label_key, batch_key, method, learner.target)
        samples, labels = annotations.samples, annotations.labels
        features = Features.read(source, layer, use_rep, genes)
        is_ordered = isinstance(resolve_target(learner.target), Ordered)
        problems, association = cohort_problems(
            constant_columns(source.obs, samples).assign(n_cells=samples.sizes), label_key, sample_key, group_key,
            batch_key, numbers=annotations.numbers if is_ordered else None,
        )  # fmt: skip
        for problem in problems:
            if problem.serious:
                warnings.warn(str(problem), CohortWarning, stacklevel=2)
            elif learner.verbose:
                write_line(str(problem))
        cell_numbers = association.sentence(label_key, "sample", "cell")
        if learner.verbose and all(problem.title != "Number of cells" for problem in problems):
            write_line(cell_numbers)
        rows, of_labelled = draw(samples, n_cells, random_state), samples.contains(labels.index)
        is_training = of_labelled[rows]
        columns, selection = features.select(rows[is_training])
        names = list(features.names[columns])
        if learner.verbose:
            write_line(f"learning from {selection['text']}")
        points = read(features.matrix, rows, columns)
        training = points if is_training.all() else points[is_training]
        statistics = moments(training, np.arange(training.shape[0]))
        raw_counts = features.is_expression and statistics.looks_raw
        warn_of_counts(raw_counts, layer, stacklevel=3)
        D = Distributions(training, samples.names[samples.codes[rows[is_training]]], features=names)
        # The distributions have a copy of the points, sorted by sample; it is the only one during training.
        points, training = None if is_training.all() else points, None

        def redraw(epoch: int) -> Distributions:
            """Return the distributions of D with the cells of an epoch, sorted by sample as in D."""
            drawn = draw(samples, n_cells, random_state, epoch)
            drawn = drawn[of_labelled[drawn]]
            sample = samples.names[samples.codes[drawn]]
            by_sample = np.argsort(pd.Index(D.names).get_indexer(sample), kind="stable")
            return Distributions(read(features.matrix, drawn, columns)[by_sample], sample[by_sample], features=names)

        # A CohortWarning has named the samples.
        with warnings.catch_warnings(action="ignore", category=SmallSampleWarning):
            learner, results = _train(learner, D, annotations, redraw if resample else None)
        metric = learner.metric_
        if points is None:  # back to the order of the rows
            points = D.points if np.all(np.diff(D.order) > 0) else D.points[np.argsort(D.order)]
        if source.on_disk:
            obs, drawn = source.obs.iloc[rows].copy(), np.ones(rows.size, bool)
            if use_rep is None:
                result = ad.AnnData(points, obs=obs, var=source.var.iloc[columns].copy())
            else:
                result = ad.AnnData(obs=obs, var=source.var.copy(), obsm={use_rep: points})
            z, columns = metric.project(points), np.arange(result.n_vars)
            # Cells that were not drawn are not in the result.
            results["n_cells"] = {"samples": samples.names.astype(object), "n_cells": samples.sizes}
            if isinstance(adata, ad.AnnData):
                kind = "backed" if adata.isbacked else "lazy"
                text = f"adata is {kind} and is not changed: learn returns a new AnnData with the results, the drawn "
                warnings.warn(text + "cells and the selected genes", UserWarning, stacklevel=2)
        else:
            result, all_rows = source.adata, np.arange(samples.codes.size)
            z, drawn = project(features.matrix, all_rows, columns, metric.components), np.isin(all_rows, rows)
            bad = np.flatnonzero(~np.isfinite(z).all(axis=1))
            if bad.size:
                text = f"the selected genes hold NaN or infinity in {bad.size} of {len(z)} cells that were not learned "
                text += f"from, e.g. {str(source.obs.index[bad[0]])!r}: fill the values and learn again, or drop them"
                warnings.warn(text, UserWarning, stacklevel=2)
    result.obsm[f"X_{key_added}"] = z
    result.obs[f"{key_added}_sampled"] = drawn
    if use_rep is None:
        components = np.zeros((result.n_vars, metric.n_components))
        components[columns] = metric.components.T
        result.varm[f"{key_added}_components"] = components
        importances = {"importance": metric.importance()}
        if "ensemble" in results:
            importances |= {name: results["ensemble"][name] for name in ("importance_low", "importance_high")}
        for name, values in importances.items():
            column = np.zeros(result.n_vars)
            column[columns] = values
            result.var[f"{key_added}_{name}"] = column
    params = {
        "sample_key": sample_key, "label_key": label_key, "group_key": group_key, "batch_key": batch_key,
        "order": None if order is None else [str(name) for name in order], "layer": layer, "use_rep": use_rep,
        "genes": features.n_genes or selection["rule"], "n_cells": n_cells, "resample": resample or None,
        "random_state": random_state, "raw_counts": raw_counts, "share_negative": statistics.negative, "method": method,
    }  # fmt: skip
    result.uns[key_added] = {
        **Stored(key_added, metric, statistics.mean, params, labels).entry(), **learner_entry(learner),
        "features": selection, "cell_numbers": {"p": association.p, "text": cell_numbers}, **results,
    }  # fmt: skip
    return result
