"""patpy: samples compared by optimal transport, under a ground metric learned from labels or a given one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.cohort import Features, draw, samples_of
from .._anndata.source import Source, read
from .._anndata.store import EnsembleResults, in_order
from .._internal.validation import need
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..interpret.axes import classical_scaling
from ..metrics.base import GroundMetric
from ..tl import learn, samples, transfer
from ..tl.relevance import halves, relevance_by_plans

need("patpy", "its methods", "patpy")

from patpy.tl import SampleRepresentationMethod  # noqa: E402
from patpy.tl.supervised import SupervisedSampleMethod  # noqa: E402

__all__ = ["GroundMetricLearning", "OptimalTransport"]

# Target of `tl.learn` for each task of patpy.
_TARGETS = {"classification": "classes", "regression": "ordered", "ranking": "ordered"}
# Largest number of samples of each class with which a sample's cells are compared.
_MAX_PARTNERS = 10
# Dimensions of a representation: a linear probe on as many dimensions as samples would fit any labels.
_N_AXES = 10
_key = "groundmetric_{}".format  # `key_added` of the results of a label


class GroundMetricLearning(SupervisedSampleMethod):
    """A supervised method of patpy: an ensemble of ground metrics for each label, learned by `tl.learn`.

    Results are also in `adata`, under the key "groundmetric_<label>", for `gm.get`, `gm.tl` and `gm.pl`.

    Parameters
    ----------
    sample_key : str
        Column of `obs` with the sample of each cell.
    label_keys : str or list of str
        Columns of `obs` with labels of the cell's sample. Samples without a label are predicted.
    tasks : str or list of str
        "classification", "regression" or "ranking" for each label; for the last two, numbers or ordered categories.
    cell_group_key : str or None, default=None
        Column of `obs` with the type of each cell, for patpy's plots.
    layer : str or None, default="X"
        Values to learn from, normalised and on a log scale: "X" or None, or an entry of `obsm` or of `layers`.
    seed : int, default=42
        Seed of the draw of cells and of the ensemble.
    n_cells : int or None, default=1000
        Cells drawn from each sample; None: all.
    n_jobs : int or None, default=None
        Parallel members, and threads of distances; None: one.
    **parameters : Any
        Further arguments of `tl.learn`: group_key (the patient, where they have several samples), batch_key, genes,
        n_members and others.

    Examples
    --------
    >>> import groundmetric as gm
    >>> from groundmetric.integrations.patpy import GroundMetricLearning
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> method = GroundMetricLearning("sample", "condition", "classification", n_members=4)
    >>> method.prepare_anndata(adata)
    >>> method.predict("condition").columns.tolist()
    ['prob_control', 'prob_disease', 'condition_pred']
    >>> method.calculate_distance_matrix().shape
    (8, 8)
    """

    def __init__(
        self, sample_key: str, label_keys: list[str] | str, tasks: list[str] | str, cell_group_key: str | None = None,
        layer: str | None = "X", seed: int = 42, *, n_cells: int | None = 1000, n_jobs: int | None = None,
        **parameters: Any,
    ) -> None:  # fmt: skip
        super().__init__(sample_key, label_keys, _checked_tasks(tasks), cell_group_key, layer, seed)
        self.n_cells = n_cells
        self.n_jobs = n_jobs
        self.parameters = parameters
        self._learned: dict[str, EnsembleResults] = {}

    def prepare_anndata(self, adata: Any, train: bool = True) -> None:
        """Set the cells of `adata`, in memory, and learn a metric from each label; results are added to `adata`.

        Without `train`, `fine_tune` learns the metrics.
        """
        if adata.isbacked:
            raise ValueError("adata is backed by a file, but results are added to it: load it with adata.to_memory()")
        super().prepare_anndata(adata)
        self._learned, self._fitted = {}, False
        if train:
            self.fine_tune(self.label_keys, self.tasks)

    def fine_tune(self, labels: list[str] | str, tasks: list[str] | str, **parameters: Any) -> None:
        """Learn a metric from each label; metrics of other labels are kept.

        The columns `labels` and their `tasks` are as in the class; `parameters` override those of the method.
        """
        labels, tasks = self._prepare_fine_tune(labels, _checked_tasks(tasks))
        layer, use_rep = _place(self.adata, self.layer)
        for label, task in zip(labels, tasks, strict=True):
            self.tasks[self.label_keys.index(label)] = task  # patpy keeps the previous task of a label
            self.adata.obs.drop(columns=f"{label}_importance", errors="ignore", inplace=True)  # of an earlier metric
            options: dict[str, Any] = {
                "layer": layer, "use_rep": use_rep, "n_cells": self.n_cells, "n_jobs": self.n_jobs,
                "random_state": self.seed, "target": _TARGETS[task], **self.parameters, **parameters,
            }  # fmt: skip
            learn(self.adata, self.sample_key, label, method="ensemble", key_added=_key(label), **options)
            self._learned[label] = EnsembleResults(self.adata.uns[_key(label)]["ensemble"])
        self._fitted = True
        self.get_sample_representations()

    def predict(self, label: str, adata: Any = None) -> pd.Series | pd.DataFrame:
        """Return predictions of a `label` for every sample; predictions of training samples are held out.

        With `adata`, the samples are new ones, which `tl.transfer` predicts and adds results to; None: the samples of
        `prepare_anndata`. The result for classes is a table with columns "prob_<class>" and "<label>_pred", the most
        probable class; for numbers it is a Series. Ordered categories are numbers from 0 on.
        """
        results = self._results(label)
        if adata is not None:
            predicted, index = self._predict_new(label, adata), adata.obs[self.sample_key].unique()
        else:
            predicted, index = pd.DataFrame(results.held_out, index=results.samples), self.samples
            new = ~self._names.isin(results.samples)
            if new.any():
                cells = self.adata.obs[self.sample_key].astype(str).isin(self._names[new]).to_numpy()
                predicted = pd.concat([predicted, self._predict_new(label, self.adata[cells].copy())])
            predicted = predicted.loc[self._names]
        if results.numbers is not None:
            return pd.Series(predicted[0].to_numpy(), index=index, name=label)
        table = pd.DataFrame(predicted.to_numpy(), index=index, columns=[f"prob_{name}" for name in results.classes])
        # The row of a sample that has the name of a training sample is missing: it is not predicted anew.
        complete = predicted.notna().all(axis=1).to_numpy()
        classes = pd.Series(results.classes[predicted.fillna(0.0).to_numpy().argmax(axis=1)], index=index)
        return table.assign(**{f"{label}_pred": classes if complete.all() else classes.where(complete)})

    def _predict_new(self, label: str, adata: Any) -> pd.DataFrame:
        """Return probabilities, or numbers, of new samples."""
        key = _key(label)
        drawn = {"n_cells": self.n_cells, "random_state": self.seed}
        new = transfer(adata, self.adata, key=key, n_jobs=self.n_jobs, **drawn)
        numbers = self._results(label).numbers is not None
        values = new.obs[f"{key}_number"] if numbers else new.obsm[f"{key}_probabilities"]
        return pd.DataFrame(values.to_numpy(), index=new.obs_names)

    def calculate_distance_matrix(self, *, label: str | None = None, out_of_bag: bool = True) -> np.ndarray:
        """Return distances between samples under the metric of `label` (None: the mean over all labels).

        They are in units of their mean. With `out_of_bag`, training samples are compared by members that were trained
        on neither. The final metric separates training samples better than new samples.
        """
        self._check_fitted()
        labels = self._learned if label is None else [label]
        return np.mean([self._distances(name, out_of_bag) for name in labels], axis=0)

    def _distances(self, label: str, out_of_bag: bool) -> np.ndarray:
        results, key = self._results(label), _key(label)
        rows = pd.Index(results.samples).get_indexer(self._names)
        if out_of_bag and np.all(rows >= 0):  # all are training samples
            distances = results.out_of_bag[np.ix_(rows, rows)]
        else:
            compared = samples(self.adata, key=key, n_jobs=self.n_jobs)
            distances = np.asarray(compared.obsp[f"{key}_distances" if out_of_bag else f"{key}_in_sample"])
        return distances / (distances.sum() / (distances.size - len(distances)) or 1.0)

    def get_sample_representations(self) -> pd.DataFrame:
        """Return coordinates of the out-of-bag distances by classical multidimensional scaling.

        The table has a row per sample, and at most ten columns "dim_0", "dim_1", …
        """
        self.sample_representation = _coordinates(self.calculate_distance_matrix(), self.samples)
        return self.sample_representation

    def get_sample_importance(self, force: bool = False) -> pd.DataFrame:
        """Return the mean distance of each sample to other labels minus that to its own.

        Distances are out-of-bag, in units of their mean between labels; numbers are divided into two halves. The table
        has columns "<label>_importance", and "average_importance" of several labels; values of samples without a label
        are missing. `force` has no effect.
        """
        self._check_fitted()
        columns = {}
        for label in self._learned:
            distances = self._distances(label, out_of_bag=True)
            classes = self._classes(label).reindex(self._names).to_numpy()
            labelled = pd.notna(classes) & pd.notna(classes)[:, None]
            unlike = (classes[:, None] != classes) & labelled
            like = (classes[:, None] == classes) & labelled & ~np.eye(len(classes), dtype=bool)
            with np.errstate(invalid="ignore"):  # NaN without a label, or alone in its label
                between, within = ((distances * pairs).sum(axis=1) / pairs.sum(axis=1) for pairs in (unlike, like))
            columns[label] = (between - within) / distances[unlike].mean()
        return _table(columns, self.samples)

    def get_cell_importance(self, force: bool = False) -> pd.DataFrame:
        """Return the mean distance of each cell's mass to samples of other labels minus that to its own label.

        See `tl.cell_relevance`; numbers are divided into two halves. The table has columns "<label>_importance" (also
        in `obs`, from which they are read again without `force`), and "average_importance" of several labels; values of
        cells that were not drawn, and of samples without a label, are missing.
        """
        self._check_fitted()
        for label in self._learned:
            if force or f"{label}_importance" not in self.adata.obs:
                travel = relevance_by_plans(
                    self.adata, _key(label), _MAX_PARTNERS, self.seed, self.n_jobs, self._classes(label)
                )
                self.adata.obs[f"{label}_importance"] = travel["relevance"]
        columns = {label: self.adata.obs[f"{label}_importance"] for label in self._learned}
        return _table(columns, self.adata.obs_names)

    @property
    def _names(self) -> pd.Index:
        """Names of the samples as text, as results have them."""
        return pd.Index([str(name) for name in self.samples])

    def _results(self, label: str) -> EnsembleResults:
        self._check_fitted()
        if label not in self._learned:
            raise ValueError(f"label is {label!r}, but {list(self._learned)} were learned: call fine_tune for it first")
        return self._learned[label]

    def _classes(self, label: str) -> pd.Series:
        """Class of each training sample; of numbers, whether it is in the upper half."""
        results = self._results(label)
        if results.numbers is None:
            return pd.Series(results.labels, results.samples)
        return halves(pd.Series(results.numbers, results.samples))


class OptimalTransport(SampleRepresentationMethod):
    """A sample representation of patpy: exact optimal transport between the cells of samples, without labels.

    Parameters
    ----------
    sample_key, cell_group_key : as in `GroundMetricLearning`
        Columns of `obs` with the sample and the type of each cell.
    layer : str or None, default="X_pca"
        Coordinates of the cells: "X" or None, or an entry of `obsm` or of `layers`.
    seed : int, default=67
        Seed of the draw of cells.
    metric : GroundMetric or str, default="euclidean"
        Distance between cells. The features of a GroundMetric are found by their names, if it has names.
    n_cells, n_jobs : as in `GroundMetricLearning`
        Cells drawn from each sample, and number of threads.
    **options : Any
        Further arguments of `groundmetric.pairwise_distances`, e.g. ``solver="coarse"``.

    Examples
    --------
    >>> import groundmetric as gm
    >>> from groundmetric.integrations.patpy import OptimalTransport
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> method = OptimalTransport("sample", layer="X")
    >>> method.prepare_anndata(adata)
    >>> method.calculate_distance_matrix().shape
    (8, 8)
    """

    DISTANCES_UNS_KEY = "X_optimal_transport_distances"

    def __init__(
        self, sample_key: str, cell_group_key: str | None = None, layer: str | None = "X_pca", seed: int = 67, *,
        metric: GroundMetric | str = "euclidean", n_cells: int | None = 1000, n_jobs: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(sample_key, cell_group_key, layer, seed)
        self.metric = metric
        self.n_cells = n_cells
        self.n_jobs = n_jobs
        self.options = options
        self._distances: np.ndarray | None = None

    def prepare_anndata(self, adata: Any) -> None:
        """Set the cells of `adata`, to which the distances are added."""
        super().prepare_anndata(adata)
        self._distances, self._fitted = None, False

    def calculate_distance_matrix(self, force: bool = False) -> np.ndarray:
        """Return Wasserstein distances between samples; `force` computes them again.

        The result is a copy of the distances in `uns`, because patpy's `predict_knn` writes to it.
        """
        self._check_adata_loaded()
        # Distances in `uns` may come from an object with other parameters.
        if self._distances is not None and not force:
            return self._distances.copy()
        layer, use_rep = _place(self.adata, self.layer)
        cell_samples = samples_of(self.adata.obs, self.sample_key)
        rows = draw(cell_samples, self.n_cells, self.seed)
        features = getattr(self.metric, "features", None)
        with Source(self.adata) as source:
            values = Features.read(source, layer, use_rep)
            columns = np.arange(values.matrix.shape[1])
            if features is not None:
                columns = pd.Index(values.names).get_indexer(features)
                if np.any(columns < 0):
                    lacking = features[int(np.flatnonzero(columns < 0)[0])]
                    raise ValueError(f"metric has the feature {lacking!r}, but adata has {values.names[0]!r}, …")
            points = read(values.matrix, rows, np.sort(columns))[:, np.argsort(np.argsort(columns))]
        D = Distributions(points, cell_samples.names[cell_samples.codes[rows]], features=features)
        D = in_order(D, cell_samples.names)
        self._distances = pairwise_distances(D, metric=self.metric, n_jobs=self.n_jobs, **self.options)
        self.adata.uns[self.DISTANCES_UNS_KEY] = self._distances.copy()
        self.sample_representation = _coordinates(self._distances, self.samples)
        self._fitted = True
        return self._distances.copy()


def _checked_tasks(tasks: Sequence[str] | str) -> list[str]:
    checked = [tasks] if isinstance(tasks, str) else list(tasks)
    if unknown := [task for task in checked if task not in _TARGETS]:
        raise ValueError(f"tasks holds {unknown[0]!r}: expected some of {list(_TARGETS)}")
    return checked


def _place(adata: Any, layer: str | None) -> tuple[str | None, str | None]:
    """Return patpy's layer as `layer` and `use_rep` of `tl.learn`."""
    if layer in (None, "X"):
        return None, None
    if layer in adata.obsm:
        return None, layer
    if layer in adata.layers:
        return layer, None
    raise ValueError(f"layer is {layer!r}: expected one of {['X', *adata.obsm, *adata.layers]}")


def _table(importance: dict[str, Any], index: Any) -> pd.DataFrame:
    """Importance for each label, and on average of several, as patpy names them."""
    table = pd.DataFrame({f"{label}_importance": values for label, values in importance.items()}, index=index)
    if table.shape[1] > 1:
        table.insert(0, "average_importance", table.mean(axis=1))
    return table


def _coordinates(distances: np.ndarray, names: Any) -> pd.DataFrame:
    positions = classical_scaling(distances, _N_AXES)
    sizes = np.square(positions).sum(axis=0)
    positions = positions[:, sizes > 1e-12 * max(float(sizes.sum()), 1e-300)]
    return pd.DataFrame(positions, index=names, columns=[f"dim_{k}" for k in range(positions.shape[1])])
