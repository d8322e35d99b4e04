"""tl.transfer: new samples under a metric that was learned elsewhere."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

from .._anndata.annotations import check_draw, constant_columns, draw, samples_of
from .._anndata.source import PANEL, Moments, Source, moments, project, read, warn_of_counts
from .._anndata.store import Stored, Trained, by_sample, in_order, trained_from
from .._internal.types import CellsLike
from .._internal.validation import ParameterError
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators import TransportClassifier, UnfamiliarWarning
from ..evaluation.scores import vote
from .samples import as_keys

if TYPE_CHECKING:
    from ..metrics.base import GroundMetric

# Training samples that vote where there is no predictor and no number is given.
N_NEIGHBORS = 5
# Cells that tell the scale of new values, at most.
_FEW_CELLS = 2000
# Factors between new values and those of training beyond which they are on another scale: of the typical feature, of
# all values together, and of a single feature of a panel. Between patients of six cohorts these are 0.5 to 1.6, 0.2 to
# 2.5 and 0.1 to 10; counts against their logarithms have 4, 24 and 300.
_TYPICAL, _OVERALL, _SINGLE = 5.0, 10.0, 300.0
# Means of the typical feature, in standard deviations: below the first, features were centred, above the second not.
_CENTRED, _NOT_CENTRED = 0.05, 0.25
# Shares of values below 0: standardised ones have more than the first, counts and logarithms less than the second.
_OFTEN, _SELDOM = 0.25, 0.05


def transfer(
    adata: ad.AnnData,
    trained: CellsLike | GroundMetric,
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

    Labels are predicted by what an ensemble was scored by, its `TransportClassifier` (of ordered labels, numbers by its
    `TransportRegressor`), which `trained` holds. After a single learner, the nearest training samples vote.

    Nothing is learned from `adata`: genes, scales and metric are those of the training samples. A sample that has the
    name of a training sample is compared, but its label is not predicted, because the metric was learned from it. For a
    sample that is farther from all training samples than 1.5 times the farthest among these, a warning says that what
    is predicted is a guess.

    Genes are matched by name; their order and additional genes make no difference. A missing gene is given its mean in
    training, in every cell; if more than a share of `max_missing` are missing, that is an error. With a bare metric the
    mean is not known: a missing gene is left out, which changes no distance between the new cells.

    Values on another scale than those of training are an error: raw counts for their logarithms, standardised values,
    or values that are several times as large. Differences between patients are not.

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
    n_neighbors : int or None, default=None
        Training samples that vote on a label, each with weight one over its distance; at most as many as there are.
        None: no votes where `trained` holds a predictor, otherwise 5.
    n_cells : int or None, default=1000
        Cells drawn from each sample for the distances; None: all. All cells are projected.
    random_state : int, default=0
        Seed of the draw.
    force : bool, default=False
        Whether to go on, with a warning, where values are on another scale than those of training.
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
    - ``obs["groundmetric_predicted"]``: predicted label; of ordered labels the number, or the category whose place is
      nearest to it
    - ``obs["groundmetric_probability"]``, ``obsm["groundmetric_probabilities"]``: probability of the predicted label,
      and of each label (not of ordered labels that a predictor predicts)
    - ``obs["groundmetric_number"]``: predicted number (of ordered labels that a predictor predicts)
    - ``obs["groundmetric_typicality"]`` (predictor): how usual it is, among training samples, to be as far from the
      nearest other one; see `TransportClassifier.typicality`
    - ``obs["groundmetric_far"]`` (predictor): whether a sample is so far from all training samples that what is
      predicted for it is a guess
    - ``obsm["X_groundmetric_distances"]``: distances to the training samples
    - ``uns["groundmetric"]``: names and labels of the training samples, in the order of the distances; and
      "predicted_by", what predicted the labels

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
    >>> old = gm.tl.learn(old, "sample", "condition", method="ggml", n_components=2, random_state=0)
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
            n_cells=n_cells, random_state=random_state, force=force, n_jobs=n_jobs, verbose=verbose,
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
    n_neighbors: int | None,
    n_cells: int | None,
    random_state: int,
    force: bool,
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
    values = NewValues.of(source, stored, layer, max_missing)
    _check_scale(values, stored, rows, layer, force)
    z = values.project(stored.metric.components)
    drawn = np.isin(np.arange(who.codes.size), rows)
    cells = by_sample(z, who, drawn)
    result = ad.AnnData(obs=constant_columns(source.obs, who).assign(n_cells=who.sizes))
    obs: dict[str, Any] = {f"{key}_sampled": drawn}
    if known.cells is not None:
        distances = pairwise_distances(cells, known.cells, n_jobs=n_jobs, verbose=verbose)
        seen = _seen(result, known.cells.names)
        if known.predictor is None or n_neighbors is not None:
            by = _vote(result, known, distances, N_NEIGHBORS if n_neighbors is None else n_neighbors, seen)
        else:
            D = Distributions(values.read(rows), who.names[who.codes[rows]], features=stored.features)
            by = _predict(result, known, in_order(D, who.names), seen)
        labels = stored.labels.loc[known.cells.names].to_numpy()
        result.obsm[f"X_{key}_distances"] = distances
        result.uns[key] = {"training_samples": np.array(known.cells.names, dtype=object), "training_labels": labels,
                           "predicted_by": by}  # fmt: skip
        obs[f"{key}_predicted"] = result.obs[f"{key}_predicted"].array[who.codes]
    return ProjectedSamples(
        z, obs, result, replace(stored, params={**stored.params, "sample_key": sample_key, "layer": layer})
    )


@dataclass(frozen=True)
class NewValues:
    """Values of new cells, with the features of the metric found by their names.

    Attributes
    ----------
    matrix : of all cells, in memory or in a file
    columns : array, ascending
        Columns that are features of the metric.
    here : array
        Which features of the metric these are.
    missing : array of bool of shape (n_features,)
        Features of the metric that the matrix lacks.
    means : array of shape (n_features,)
        Means in training, which stand in for them.
    is_expression : bool
        Whether columns are genes, not dimensions of a representation.
    """

    matrix: Any
    columns: np.ndarray
    here: np.ndarray
    missing: np.ndarray
    means: np.ndarray
    is_expression: bool

    @classmethod
    def of(cls, source: Source, stored: Stored, layer: str | None, max_missing: float) -> NewValues:
        use_rep, n_features = stored.params.get("use_rep"), len(stored.features)
        if use_rep is None:
            matrix = source.matrix(layer)
            places, missing = align(source.genes, stored, max_missing)
            here = np.flatnonzero(~missing)[np.argsort(places[~missing])]
            return cls(matrix, places[here], here, missing, stored.means, True)
        matrix = source.representation(use_rep)
        if matrix.shape[1] != n_features:
            raise ValueError(
                f"obsm[{use_rep!r}] has {matrix.shape[1]} dimensions, the metric was learned on {n_features}"
            )
        every = np.arange(n_features)
        return cls(matrix, every, every, np.zeros(n_features, bool), stored.means, False)

    def project(self, components: np.ndarray) -> np.ndarray:
        """All cells in the space of the components."""
        everyone = np.arange(self.matrix.shape[0])
        z = project(self.matrix, everyone, self.columns, components[:, self.here])
        return z + components[:, self.missing] @ self.means[self.missing]

    def read(self, rows: np.ndarray) -> Any:
        """Values of these cells, with the features in the order of the metric."""
        found = read(self.matrix, rows, self.columns)
        order = np.argsort(np.concatenate([self.here, np.flatnonzero(self.missing)]))
        if self.missing.any():
            filled = np.tile(self.means[self.missing].astype(found.dtype), (rows.size, 1))
            found = (
                sparse.hstack([found, filled], format="csr") if sparse.issparse(found) else np.hstack([found, filled])
            )
        return found if np.all(np.diff(order) == 1) else found[:, order]

    def moments(self, rows: np.ndarray) -> Moments:
        found = moments(self.matrix, rows, self.columns)
        return found if self.is_expression else replace(found, looks_raw=False)


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


def _check_scale(values: NewValues, stored: Stored, rows: np.ndarray, layer: str | None, force: bool) -> None:
    """Raise, or warn with `force`, where new values are on another scale than those of training."""
    some = rows[np.linspace(0, rows.size - 1, min(rows.size, _FEW_CELLS)).astype(int)]
    new, params = values.moments(some), stored.params
    if stored.metric.variances is None or "raw_counts" not in params:  # a bare metric
        warn_of_counts(new.looks_raw and not params.get("raw_counts", False), layer, stacklevel=5)
        return
    known = Moments(
        stored.means[values.here], stored.metric.variances[values.here], bool(params["raw_counts"]),
        float(params.get("share_negative", np.nan)), np.nan,
    )  # fmt: skip
    why = other_scale(new, known, [stored.features[f] for f in values.here])
    if why is None:
        return
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    where = where if values.is_expression else f"adata.obsm[{params['use_rep']!r}]"
    found = f"{where} is on another scale than the values of training: {why}"
    if not force:
        raise ParameterError("force", False, f", but {found}; prepare it as training was", {"force": True})
    warnings.warn(found, UserWarning, stacklevel=5)


def _seen(result: ad.AnnData, names: list[Any]) -> np.ndarray:
    """Which samples have the name of a training sample, with a warning."""
    seen = np.isin(result.obs_names, names)
    if seen.any():
        warnings.warn(
            f"{seen.sum()} samples have the name of a training sample (e.g. {result.obs_names[seen][0]!r}): no label "
            "is predicted for them; rename them if they are others",
            UserWarning,
            stacklevel=4,
        )
    return seen


def _vote(result: ad.AnnData, known: Trained, distances: np.ndarray, n_neighbors: int, seen: np.ndarray) -> str:
    """Labels by the votes of the nearest training samples; returns what predicted them."""
    assert known.cells is not None
    labels = known.stored.labels.loc[known.cells.names].to_numpy()
    classes = np.unique(labels)
    shares = vote(distances, labels, classes, n_neighbors=n_neighbors)
    _write_probabilities(result, known.stored.key, classes, shares, seen)
    return f"votes of the {min(n_neighbors, labels.size)} nearest training samples"


def _predict(result: ad.AnnData, known: Trained, D: Distributions, seen: np.ndarray) -> str:
    """Labels or numbers by the predictor of an ensemble; returns what predicted them."""
    predictor, key = known.predictor, known.stored.key
    assert predictor is not None
    found = predictor.predict_all(D)
    result.obs[f"{key}_typicality"] = np.where(seen, np.nan, found.typicality)
    far = found.far & ~seen
    result.obs[f"{key}_far"] = far
    if far.any():
        warnings.warn(
            f"{far.sum()} of {len(D)} samples (e.g. {result.obs_names[far][0]!r}) are farther from all training "
            "samples than 1.5 times the farthest among these: what is predicted for them is a guess; look at their "
            "scale and quality, or train on some like them",
            UnfamiliarWarning,
            stacklevel=4,
        )
    if isinstance(predictor, TransportClassifier):
        _write_probabilities(result, key, predictor.classes_, found.values, seen)
        return "TransportClassifier"
    numbers = np.where(seen, np.nan, found.values)
    result.obs[f"{key}_number"] = result.obs[f"{key}_predicted"] = numbers
    assert known.results is not None
    if known.results.labels.dtype.kind not in "biuf":
        nearest = pd.Series(known.results.nearest_categories(found.values)).where(~seen)
        categories = known.results.ordered_categories[0].tolist()
        result.obs[f"{key}_predicted"] = pd.Categorical(nearest, categories, ordered=True)
    return "TransportRegressor"


def _write_probabilities(result: ad.AnnData, key: str, found: np.ndarray, shares: np.ndarray, seen: np.ndarray) -> None:
    shares[seen] = np.nan
    best = np.where(seen, -1, np.nan_to_num(shares).argmax(axis=1))
    classes = found if found.dtype.kind in "iuf" else found.astype(str).astype(object)
    result.obs[f"{key}_predicted"] = pd.Categorical.from_codes(best, pd.Index(classes))
    result.obs[f"{key}_probability"] = np.where(seen, np.nan, np.nan_to_num(shares).max(axis=1))
    result.obsm[f"{key}_probabilities"] = pd.DataFrame(shares, result.obs_names, as_keys(found))


def other_scale(new: Moments, known: Moments, names: list[str]) -> str | None:
    """Why new values are on another scale than those of training, both of these features; None where they are not.

    It is for differences in preparation, not between patients: a sample that is merely unusual passes.
    """
    if new.looks_raw and not known.looks_raw:
        return "they are whole numbers, which look like raw counts, and those of training are not"
    if known.looks_raw and not new.looks_raw and new.zeros < 1.0:
        return "those of training are whole numbers, which look like raw counts, and these are not"
    if new.offset < _CENTRED and known.offset > _NOT_CENTRED:
        return (
            f"the mean of a typical feature is {new.offset:.2f} standard deviations, in training {known.offset:.2f}: "
            "they look standardised"
        )
    shares = f"{new.negative:.0%} of the values are below 0, in training {known.negative:.0%}"
    if new.negative > _OFTEN and known.negative < _SELDOM:
        return f"{shares}: they look standardised"
    if known.negative > _OFTEN and new.negative < _SELDOM and new.zeros < 1.0:
        return f"{shares}: those of training look standardised"
    return _other_size(new.root_mean_square, known.root_mean_square, names)


def _other_size(new: np.ndarray, known: np.ndarray, names: list[str]) -> str | None:
    both = np.flatnonzero((new > 0) & (known > 0))
    if not both.size:
        return None
    ratios = new[both] / known[both]
    factors = {
        "a typical feature is": (float(np.median(ratios)), _TYPICAL),
        "taken together, they are": (float(np.linalg.norm(new) / np.linalg.norm(known)), _OVERALL),
    }
    if new.size <= PANEL:
        worst = int(np.argmax(np.abs(np.log(ratios))))
        factors[f"feature {names[both[worst]]!r} is"] = (float(ratios[worst]), _SINGLE)
    for what, (factor, most) in factors.items():
        if not 1.0 / most < factor < most:
            return f"{what} {factor:,.2g} times as large as in training (root mean squares)"
    return None
