"""tl.transfer: project and predict new samples with a learned metric."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

from .._anndata.cohort import check_draw, constant_columns, draw, finite_variance, samples_of
from .._anndata.source import PANEL, Moments, Source, check_anndata, moments, project, read
from .._anndata.store import Predictor, Stored, Trained, in_order, trained_from
from .._internal.types import CellsLike
from .._internal.validation import ParameterError, check_number
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators import TransportClassifier, UnfamiliarWarning
from ..evaluation.scores import vote
from .samples import as_keys

# Default number of voting training samples without a predictor.
N_NEIGHBORS = 5
# Maximum number of new cells from which the scale of values is estimated.
_SCALE_CELLS = 2000
# Largest plausible ratios of root mean squares between new and training values: of the median feature, of all values
# together, and of a single feature of a panel. Between patients of six cohorts they are 0.5 to 1.6, 0.2 to 2.5 and 0.1
# to 10; between counts and their logarithms 4, 24 and 300.
_MEDIAN_RATIO, _OVERALL_RATIO, _FEATURE_RATIO = 5.0, 10.0, 300.0
# Median |mean| of features in standard deviations: below the first if features are centred, above the second if not.
_CENTRED, _NOT_CENTRED = 0.05, 0.25
# Shares of negative values: standardised values have more than the first, counts and logarithms less than the second.
_MANY_NEGATIVE, _FEW_NEGATIVE = 0.25, 0.05

# Coverage of the prediction sets and intervals of new samples.
COVERAGE = 0.9


def transfer(
    adata: ad.AnnData,
    trained: CellsLike,
    *,
    sample_key: str | None = None,
    layer: str | None = None,
    max_missing: float = 0.2,
    n_neighbors: int | None = None,
    n_cells: int | None = 1000,
    random_state: int = 0,
    force: bool = False,
    key: str = "groundmetric",
    n_jobs: int | None = None,
    verbose: int = 0,
) -> ad.AnnData:
    """Project new samples with a learned metric, and predict their labels.

    Nothing is learned from `adata`. The predictor of an ensemble (`TransportClassifier`, or `TransportRegressor` for
    ordered labels) is stored in `trained`; after a single learner, the nearest training samples vote. No label is
    predicted for a sample that has the name of a training sample.

    Genes are matched by name, in any order; additional genes are ignored. A missing gene is set to its mean in
    training. Values on another scale than in training are an error: raw counts instead of logarithms, standardised
    values, or values that are several times as large. Differences between patients are accepted. An UnfamiliarWarning
    is given for unreliable predictions: if samples are farther from all training samples than 1.5 times the largest
    nearest-neighbour distance among these.

    Parameters
    ----------
    adata : AnnData
        New cells, in memory or backed, preprocessed as in training; results are added to it.
    trained : AnnData or path
        The AnnData that `tl.learn` returned, its .h5ad file, or the folder of a `groundmetric learn` run.
    sample_key : str or None, default=None
        Column of `adata.obs` with the sample of each cell; None: that of `tl.learn`.
    layer : str or None, default=None
        Layer of `adata` with the values, or "X"; None: that of `tl.learn`.
    max_missing : float, default=0.2
        Largest accepted share of the metric's genes that are missing in `adata`, from 0 to 1.
    n_neighbors : int or None, default=None
        Number of training samples that vote on a label, with weights of one over the distance. None: the predictor of
        `trained`, or 5 without one.
    n_cells : int or None, default=1000
        Cells drawn from each sample for the distances; None: all. All cells are projected.
    random_state : int, default=0
        Seed of the draw.
    force : bool, default=False
        Whether values on another scale give a warning instead of an error.
    key, n_jobs, verbose : as in `tl.samples`
        The `key_added` of `tl.learn`, number of threads, and whether to show a progress bar.

    Returns
    -------
    AnnData
        A row per new sample, with these entries ("groundmetric" stands for `key`):

        - ``obs``: columns that are constant within samples, and "n_cells"
        - ``obs["groundmetric_predicted"]``: predicted label; for ordered labels the number or the nearest category
        - ``obs["groundmetric_probability"]``, ``obsm["groundmetric_probabilities"]``: probability of the predicted
          label, and of each label (not for ordered labels with a predictor)
        - ``obs["groundmetric_set"]``, ``obs["groundmetric_reason"]`` (classifier): labels that are compatible with the
          sample at a coverage of 90 %, separated by commas, and the reason if the set has all labels; see
          `TransportClassifier.predict_set`
        - ``obs["groundmetric_number"]``, ``obs["groundmetric_low"]``, ``obs["groundmetric_high"]`` (regressor):
          predicted number, and its interval with a coverage of 90 %
        - ``obs["groundmetric_typicality"]``, ``obs["groundmetric_far"]`` (predictor): share of the training samples
          whose nearest neighbour is at least as far, see `TransportClassifier.typicality`; whether a sample is too far
          from all training samples for a reliable prediction
        - ``obsm["X_groundmetric_distances"]``: distances to the training samples
        - ``uns["groundmetric"]``: names and labels of the training samples, in the order of the distances; and
          "predicted_by", the predictor

    Notes
    -----
    Results in `adata`:

    - ``obsm["X_groundmetric"]``: cells in the learned space
    - ``obs["groundmetric_sampled"]``: whether each cell was drawn for the distances
    - ``obs["groundmetric_predicted"]``: predicted label of the cell's sample
    - ``uns["groundmetric"]``: the metric, for `tl.samples` and `get.metric`

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(6, 50, 200, random_state=0)
    >>> is_new = adata.obs["sample"].isin(["S01", "S12"])
    >>> old, new = adata[~is_new].copy(), adata[is_new].copy()
    >>> old = gm.tl.learn(old, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> gm.tl.transfer(new, old).obs["groundmetric_predicted"].tolist()
    ['control', 'disease']
    """
    check_anndata(adata)
    with Source(adata) as source:
        projected = project_samples(
            source, trained_from(trained, key), sample_key=sample_key, layer=layer, max_missing=max_missing,
            n_neighbors=n_neighbors, n_cells=n_cells, random_state=random_state, force=force, n_jobs=n_jobs,
            verbose=verbose,
        )  # fmt: skip
    adata.obsm[f"X_{key}"] = projected.z
    for name, column in projected.obs.items():
        adata.obs[name] = column
    if adata is not trained:
        adata.uns[key] = projected.stored.entry()
    return projected.samples


@dataclass(frozen=True)
class ProjectedSamples:
    """New samples under a metric."""

    z: np.ndarray  # projected cells
    obs: dict[str, Any]  # new columns of `obs`
    samples: ad.AnnData  # a row per sample
    stored: Stored


def project_samples(
    source: Source, trained: Trained, *, sample_key: str | None, layer: str | None, max_missing: float,
    n_neighbors: int | None, n_cells: int | None, random_state: int, force: bool, n_jobs: int | None, verbose: int,
) -> ProjectedSamples:  # fmt: skip
    """Return the results of `transfer` without writing to the source."""
    check_draw(n_cells, random_state)
    check_number("max_missing", max_missing, low=0, high=1)
    if n_neighbors is not None:
        check_number("n_neighbors", n_neighbors, low=1, whole=True)
    stored, key = trained.stored, trained.stored.key
    sample_key = sample_key or stored.params["sample_key"]
    layer = layer or stored.params.get("layer")
    samples = samples_of(source.obs, sample_key)
    rows = draw(samples, n_cells, random_state)
    sample = samples.names[samples.codes[rows]]
    matrix, columns, positions = _match_features(source, stored, layer, max_missing)
    missing = np.setdiff1d(np.arange(len(stored.features)), positions)
    _check_scale(matrix, columns, positions, stored, rows, layer, force)
    components = stored.metric.components
    z = project(matrix, np.arange(samples.codes.size), columns, components[:, positions])
    z += components[:, missing] @ stored.means[missing]
    bad = np.flatnonzero(~np.isfinite(z).all(axis=1))
    if bad.size:
        problem = f"NaN or infinity in {bad.size} of {len(z)} cells, e.g. {str(source.obs.index[bad[0]])!r}"
        raise ValueError(f"the genes of the metric hold {problem}: fill the values, or drop the cells")
    cells = in_order(Distributions(z[rows], sample), samples.names)
    distances = pairwise_distances(cells, trained.cells, n_jobs=n_jobs, verbose=verbose)
    result = ad.AnnData(obs=constant_columns(source.obs, samples).assign(n_cells=samples.sizes))
    training = trained.cells.names
    is_training = pd.Index(samples.names).isin(training)
    if is_training.any():
        warnings.warn(
            f"samples with the name of a training sample: {is_training.sum()} (e.g. "
            f"{samples.names[is_training][0]!r}); their labels are not predicted: rename them if they are new",
            UserWarning,
            stacklevel=3,
        )
    labels = stored.labels.loc[training].to_numpy()
    if trained.predictor is None or n_neighbors is not None:
        n_neighbors = min(N_NEIGHBORS if n_neighbors is None else n_neighbors, labels.size)
        classes = np.unique(labels)
        shares = vote(distances, labels, classes, n_neighbors=n_neighbors)
        _write_probabilities(result, key, classes, shares, is_training)
        predicted_by = f"votes of the {n_neighbors} nearest training samples"
    else:
        values = read(matrix, rows, columns)
        if missing.size:
            means = np.tile(stored.means[missing].astype(values.dtype), (rows.size, 1))
            sparse_values = sparse.issparse(values)
            values = sparse.hstack([values, means], format="csr") if sparse_values else np.hstack([values, means])
        order = np.argsort(np.concatenate([positions, missing]))
        values = values if np.all(np.diff(order) == 1) else values[:, order]
        D = in_order(Distributions(values, sample, features=stored.features), samples.names)
        _predict(result, trained, trained.predictor, D, is_training)
        predicted_by = type(trained.predictor).__name__
    result.obsm[f"X_{key}_distances"] = distances
    result.uns[key] = {
        "training_samples": np.array(training, dtype=object), "training_labels": labels, "predicted_by": predicted_by,
    }  # fmt: skip
    obs = {f"{key}_sampled": np.isin(np.arange(samples.codes.size), rows)}
    obs[f"{key}_predicted"] = result.obs[f"{key}_predicted"].array[samples.codes]
    params = {**stored.params, "sample_key": sample_key, "layer": layer}
    return ProjectedSamples(z, obs, result, replace(stored, params=params))


def _match_features(
    source: Source, stored: Stored, layer: str | None, max_missing: float
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the matrix of all cells, its columns with features of the metric, and their positions in the metric."""
    use_rep, n_features = stored.params.get("use_rep"), len(stored.features)
    if use_rep is not None:
        matrix = source.representation(use_rep)
        if matrix.shape[1] != n_features:
            problem = f"has {matrix.shape[1]} dimensions, but the metric was learned from {n_features}"
            raise ValueError(f"obsm[{use_rep!r}] {problem}: compute it as for the training cells")
        return matrix, np.arange(n_features), np.arange(n_features)
    matrix, names, genes = source.matrix(layer), source.genes, pd.Index(stored.features)
    repeated = names[names.duplicated()].intersection(genes)
    if len(repeated):
        problem = f"genes of the metric more than once ({len(repeated)}, e.g. {repeated[0]!r})"
        raise ValueError(f"adata has {problem}: run adata.var_names_make_unique() first")
    is_first = ~names.duplicated()  # `get_indexer` does not accept repeated names, even of genes outside the metric
    columns = np.flatnonzero(is_first)[names[is_first].get_indexer(genes)]
    missing = ~genes.isin(names)
    if missing.mean() > max_missing:
        problem = (
            f", but adata lacks {missing.sum()} of the {missing.size} genes of the metric, e.g. {genes[missing][0]!r}; "
            f"adata has names like {names[0]!r}: use the same kind of names, or raise it"
        )
        raise ParameterError("max_missing", max_missing, problem)
    if missing.any():
        weight = stored.metric.importance()[missing].sum()
        warnings.warn(
            f"adata lacks {missing.sum()} of the {missing.size} genes of the metric ({weight:.1%} of the importance), "
            f"e.g. {genes[missing][0]!r}: missing genes are set to their mean in training",
            UserWarning,
            stacklevel=4,
        )
    positions = np.flatnonzero(~missing)[np.argsort(columns[~missing])]
    return matrix, columns[positions], positions


def _check_scale(
    matrix: Any, columns: np.ndarray, positions: np.ndarray, stored: Stored, rows: np.ndarray, layer: str | None,
    force: bool,
) -> None:  # fmt: skip
    """Raise, or warn with `force`, if new values are on another scale than those of training."""
    subset = rows[np.linspace(0, rows.size - 1, min(rows.size, _SCALE_CELLS)).astype(int)]
    new, params = moments(matrix, subset, columns), stored.params
    names = [stored.features[f] for f in positions]
    finite_variance(new, pd.Index(names))
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    if "use_rep" in params:
        new, where = replace(new, looks_raw=False), f"adata.obsm[{params['use_rep']!r}]"
    assert stored.metric.variances is not None
    training = Moments(
        stored.means[positions], stored.metric.variances[positions], bool(params.get("raw_counts", False)),
        float(params.get("share_negative", np.nan)), np.nan,
    )  # fmt: skip
    reason = other_scale(new, training, names)
    if reason is None:
        return
    message = f"{where} is on another scale than the values of training: {reason}"
    if not force:
        raise ParameterError("layer", layer, f": {message}; preprocess it as in training", {"force": True})
    warnings.warn(message, UserWarning, stacklevel=4)


def _predict(
    result: ad.AnnData, trained: Trained, predictor: Predictor, D: Distributions, is_training: np.ndarray
) -> None:
    """Write the labels or numbers that the predictor of an ensemble predicts, and warn about distant samples."""
    key = trained.stored.key
    prediction = predictor.predict_all(D)
    result.obs[f"{key}_typicality"] = np.where(is_training, np.nan, prediction.typicality)
    far = prediction.far & ~is_training
    result.obs[f"{key}_far"] = far
    if far.any():
        warnings.warn(
            f"{far.sum()} of {len(D)} samples (e.g. {result.obs_names[far][0]!r}) are farther from all training "
            "samples than 1.5 times the largest nearest-neighbour distance among these: their predictions are "
            "unreliable; check their scale and quality, or train on similar samples",
            UnfamiliarWarning,
            stacklevel=4,
        )
    if isinstance(predictor, TransportClassifier):
        _write_probabilities(result, key, predictor.classes_, prediction.values, is_training)
        assert predictor.calibration_ is not None
        sets = predictor.calibration_.sets(prediction.values, prediction.far, D.names, predictor.classes_, COVERAGE)
        texts = [", ".join(map(str, labels)) for labels in sets.sets]
        result.obs[f"{key}_set"] = np.where(is_training, "", texts)
        result.obs[f"{key}_reason"] = np.where(is_training, "", sets.reasons)
        return
    numbers = np.where(is_training, np.nan, prediction.values)
    result.obs[f"{key}_number"] = result.obs[f"{key}_predicted"] = numbers
    if predictor.calibration_ is not None:
        intervals = predictor.calibration_.intervals(numbers, prediction.far, D.names, COVERAGE)
        result.obs[f"{key}_low"], result.obs[f"{key}_high"] = intervals.low, intervals.high
    assert trained.results is not None
    if trained.results.labels.dtype.kind not in "biuf":
        nearest = pd.Series(trained.results.nearest_categories(prediction.values)).where(~is_training)
        categories = trained.results.ordered_categories[0].tolist()
        result.obs[f"{key}_predicted"] = pd.Categorical(nearest, categories, ordered=True)


def _write_probabilities(
    result: ad.AnnData, key: str, classes: np.ndarray, probabilities: np.ndarray, is_training: np.ndarray
) -> None:
    probabilities[is_training] = np.nan
    best = np.where(is_training, -1, np.nan_to_num(probabilities).argmax(axis=1))
    categories = classes if classes.dtype.kind in "iuf" else classes.astype(str).astype(object)
    result.obs[f"{key}_predicted"] = pd.Categorical.from_codes(best, pd.Index(categories))
    result.obs[f"{key}_probability"] = np.where(is_training, np.nan, np.nan_to_num(probabilities).max(axis=1))
    result.obsm[f"{key}_probabilities"] = pd.DataFrame(probabilities, result.obs_names, as_keys(classes))


def other_scale(new: Moments, training: Moments, names: list[str]) -> str | None:
    """Return why new values are on another scale than those of training; None if they are on the same scale.

    The thresholds detect differences in preprocessing; differences between patients pass.
    """
    if new.looks_raw and not training.looks_raw:
        return "they are whole numbers, which look like raw counts, and those of training are not"
    if training.looks_raw and not new.looks_raw and new.zeros < 1.0:
        return "those of training are whole numbers, which look like raw counts, and these are not"
    if new.offset < _CENTRED and training.offset > _NOT_CENTRED:
        means = f"{new.offset:.2f} standard deviations, in training {training.offset:.2f}"
        return f"the mean of the median feature is {means}: they look standardised"
    shares = f"{new.negative:.0%} of the values are below 0, in training {training.negative:.0%}"
    if new.negative > _MANY_NEGATIVE and training.negative < _FEW_NEGATIVE:
        return f"{shares}: they look standardised"
    if training.negative > _MANY_NEGATIVE and new.negative < _FEW_NEGATIVE and new.zeros < 1.0:
        return f"{shares}: those of training look standardised"
    new_size, training_size = new.root_mean_square, training.root_mean_square
    comparable = np.flatnonzero((new_size > 0) & (training_size > 0))
    if not comparable.size:
        return None
    ratios = new_size[comparable] / training_size[comparable]
    overall = float(np.linalg.norm(new_size) / np.linalg.norm(training_size))
    checks = [("the median feature is", float(np.median(ratios)), _MEDIAN_RATIO)]
    checks.append(("all values together are", overall, _OVERALL_RATIO))
    if new_size.size <= PANEL:
        worst = int(np.argmax(np.abs(np.log(ratios))))
        checks.append((f"feature {names[comparable[worst]]!r} is", float(ratios[worst]), _FEATURE_RATIO))
    for subject, ratio, limit in checks:
        if not 1.0 / limit < ratio < limit:
            return f"{subject} {ratio:,.2g} times as large as in training (root mean squares)"
    return None
