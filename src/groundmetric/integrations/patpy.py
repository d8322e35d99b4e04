"""patpy: samples compared by optimal transport, under a ground metric learned from labels or a given one.

Needs the extra `patpy`. `GroundMetricLearning` is one of patpy's supervised methods, `OptimalTransport` one of its
sample representations, so that its evaluations and plots take both. patpy scores a method on all of its samples. Of
those that a metric was learned from, everything that is scored is therefore out of bag: distances by members of the
ensemble that were not learned from both samples, predictions made while the sample was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.annotations import Values, draw, samples_of
from .._anndata.source import Source, read
from .._anndata.store import EnsembleResults, in_order
from .._internal.validation import need
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..tl import learn, samples, transfer
from ..tl.relevance import relevance_by_plans

need("patpy", "its methods", "patpy")

from patpy.tl import SampleRepresentationMethod  # noqa: E402
from patpy.tl.supervised import SupervisedSampleMethod  # noqa: E402

__all__ = ["GroundMetricLearning", "OptimalTransport"]

# What patpy's tasks are for `tl.learn`.
_TARGETS = {"classification": "classes", "regression": "ordered", "ranking": "ordered"}
# Samples of each class that a sample's cells are compared with at most.
_MAX_PARTNERS = 10
# Axes of a representation: a linear probe on as many as there are samples would fit anything.
_N_AXES = 10


class GroundMetricLearning(SupervisedSampleMethod):
    """A supervised method of patpy: an ensemble of ground metrics for each label, learned by `tl.learn`.

    Results are in `adata` too, under the key "groundmetric_<label>", for `gm.get`, `gm.tl` and `gm.pl`:
    ``gm.get.importance(adata, key="groundmetric_disease")`` is the table of genes.

    Parameters
    ----------
    sample_key : str
        Column of `obs` with the sample of each cell.
    label_keys : str or list of str
        Columns of `obs` with labels of the cell's sample. Samples without a label are predicted, not learned from.
    tasks : str or list of str
        "classification", "regression" or "ranking" for each label. Of the last two, labels are numbers or ordered
        categories.
    cell_group_key : str or None, default=None
        Column of `obs` with the type of each cell, for patpy's plots.
    layer : str or None, default="X"
        Values to learn from, normalised and on a log scale: "X" or None, or an entry of `obsm` or of `layers`.
    seed : int, default=42
        Seed of the draw of cells and of the ensemble.
    n_cells : int or None, default=1000
        Cells drawn from each sample; None: all.
    n_jobs : int or None, default=None
        Members at the same time, and threads of distances; None: one.
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
        self,
        sample_key: str,
        label_keys: list[str] | str,
        tasks: list[str] | str,
        cell_group_key: str | None = None,
        layer: str | None = "X",
        seed: int = 42,
        *,
        n_cells: int | None = 1000,
        n_jobs: int | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(sample_key, label_keys, _checked_tasks(tasks), cell_group_key, layer, seed)
        self.n_cells = n_cells
        self.n_jobs = n_jobs
        self.parameters = parameters
        self._forget()

    def prepare_anndata(self, adata: Any, train: bool = True) -> None:
        """Take the cells and, unless told otherwise, learn a metric from each label.

        Parameters
        ----------
        adata : AnnData
            Cells in memory; results are added to it.
        train : bool, default=True
            Whether to learn from the labels now; else `fine_tune` does.
        """
        if adata.isbacked:
            raise ValueError("adata is backed by a file, but results are added to it: load it with adata.to_memory()")
        super().prepare_anndata(adata)
        self._forget()
        if train:
            self.fine_tune(self.label_keys, self.tasks)

    def _forget(self) -> None:
        """Forget what was found in other cells."""
        self._learned: dict[str, EnsembleResults] = {}
        self._matrices: dict[tuple[str, bool], np.ndarray] = {}
        self._of_cells: dict[str, pd.Series] = {}
        self._fitted = False

    def fine_tune(self, labels: list[str] | str, tasks: list[str] | str, **parameters: Any) -> None:
        """Learn a metric from each of these labels, new ones or again; those of other labels stay.

        Parameters
        ----------
        labels : str or list of str
            Columns of `obs`.
        tasks : str or list of str
            "classification", "regression" or "ranking" for each label.
        **parameters : Any
            Arguments of `tl.learn` for these labels, which go before those of the method.
        """
        labels, tasks = self._prepare_fine_tune(labels, _checked_tasks(tasks))
        for label, task in zip(labels, tasks, strict=True):
            self.tasks[self.label_keys.index(label)] = task  # patpy keeps the task that a label had before
            self._learn(label, _TARGETS[task], parameters)
        self._fitted = True
        self.get_sample_representations()

    def _learn(self, label: str, target: str, parameters: dict[str, Any]) -> None:
        layer, use_rep = _place(self.adata, self.layer)
        given: dict[str, Any] = {
            "layer": layer, "use_rep": use_rep, "n_cells": self.n_cells, "n_jobs": self.n_jobs,
            "random_state": self.seed, "target": target, **self.parameters, **parameters,
        }  # fmt: skip
        if f"{label}_importance" in self.adata.obs:  # of what was learned before
            del self.adata.obs[f"{label}_importance"]
        learn(self.adata, self.sample_key, label, method="ensemble", key_added=_key(label), **given)
        results = EnsembleResults.read(self.adata.uns[_key(label)])
        assert results is not None
        self._learned[label] = results
        self._of_cells.pop(label, None)
        for out_of_bag in (True, False):
            self._matrices.pop((label, out_of_bag), None)

    def predict(self, label: str, adata: Any = None) -> pd.Series | pd.DataFrame:
        """Predict a label of every sample, of training samples as it was while they were left out.

        Parameters
        ----------
        label : str
            A label that was learned.
        adata : AnnData or None, default=None
            Cells of new samples, by `tl.transfer`, which adds its results to it. None: the samples of
            `prepare_anndata`; those without a label are predicted as new ones are.

        Returns
        -------
        DataFrame or Series
            By sample. Of classes a table with a column "prob_<class>" for each and "<label>_pred", the most probable;
            of numbers a Series. Ordered categories are numbers from 0 on.
        """
        results = self._results(label)
        if adata is not None:
            return self._as_patpy(label, self._predict_new(label, adata), adata.obs[self.sample_key].unique())
        found = pd.DataFrame(results.held_out, index=results.samples)
        new = ~self._names.isin(results.samples)
        if new.any():
            cells = self.adata.obs[self.sample_key].astype(str).isin(self._names[new]).to_numpy()
            found = pd.concat([found, self._predict_new(label, self.adata[cells].copy())])
        return self._as_patpy(label, found.loc[self._names], self.samples)

    def _predict_new(self, label: str, adata: Any) -> pd.DataFrame:
        """Probabilities, or numbers, of samples that were not learned from."""
        key = _key(label)
        drawn = {"n_cells": self.n_cells, "random_state": self.seed}
        new = transfer(adata, self.adata, key=key, n_jobs=self.n_jobs, **drawn)
        numbers = self._results(label).numbers is not None
        values = new.obs[f"{key}_number"] if numbers else new.obsm[f"{key}_probabilities"]
        return pd.DataFrame(values.to_numpy(), index=new.obs_names)

    def _as_patpy(self, label: str, found: pd.DataFrame, index: Any) -> pd.Series | pd.DataFrame:
        results = self._results(label)
        if results.numbers is not None:
            return pd.Series(found[0].to_numpy(), index=index, name=label)
        table = pd.DataFrame(found.to_numpy(), index=index, columns=[f"prob_{name}" for name in results.classes])
        # A sample of the name of a training sample is not predicted anew: its row is missing.
        known = found.notna().all(axis=1).to_numpy()
        best = found.fillna(0.0).to_numpy().argmax(axis=1)
        predicted = pd.Series(results.classes[best], index=index)
        return table.assign(**{f"{label}_pred": predicted if known.all() else predicted.where(known)})

    def calculate_distance_matrix(self, *, label: str | None = None, out_of_bag: bool = True) -> np.ndarray:
        """Distances between samples under the learned metric, out of bag.

        Parameters
        ----------
        label : str or None, default=None
            Label whose metric it is. None: the mean over all labels that were learned.
        out_of_bag : bool, default=True
            Whether two training samples are compared only by members that were not learned from both. Otherwise they
            are compared by the final metric, under which samples that were learned from look better apart than new ones
            would be: not for evaluation.

        Returns
        -------
        array of shape (n_samples, n_samples)
            In units of their mean; a copy, because patpy's `predict_knn` writes to it.
        """
        self._check_fitted()
        found = [self._distances(one, out_of_bag) for one in ([label] if label is not None else self._learned)]
        return np.mean(found, axis=0)

    def _distances(self, label: str, out_of_bag: bool) -> np.ndarray:
        results, key = self._results(label), _key(label)
        if (label, out_of_bag) not in self._matrices:
            places = pd.Index(results.samples).get_indexer(self._names)
            if out_of_bag and np.all(places >= 0):  # the ensemble has them
                found = results.out_of_bag[np.ix_(places, places)]
            else:
                compared = samples(self.adata, key=key, n_jobs=self.n_jobs)
                found = np.asarray(compared.obsp[f"{key}_distances" if out_of_bag else f"{key}_in_sample"])
            mean = found.sum() / (found.size - len(found))
            self._matrices[label, out_of_bag] = found / (mean or 1.0)
        return self._matrices[label, out_of_bag]

    def get_sample_representations(self) -> pd.DataFrame:
        """Principal coordinates of the samples: Euclidean coordinates nearest to the distances out of bag.

        Returns
        -------
        DataFrame
            By sample, with at most ten columns "dim_0", "dim_1", …
        """
        self.sample_representation = _coordinates(self.calculate_distance_matrix(), self.samples)
        return self.sample_representation

    def get_sample_importance(self, force: bool = False) -> pd.DataFrame:
        """How clearly each sample is of its label: how much farther samples of other labels are than of its own.

        The distances are out of bag, in units of their mean between labels. Of numbers, the two labels are the lower
        and the upper half. Below 0, a sample is nearer to the others.

        Parameters
        ----------
        force : bool, default=False
            Without effect, because it is always computed; patpy's other methods have it.

        Returns
        -------
        DataFrame
            By sample, with a column "<label>_importance" for each label, and "average_importance" of several. Missing
            for samples without a label.
        """
        self._check_fitted()
        return _table({label: self._farther(label) for label in self._learned}, self.samples)

    def _farther(self, label: str) -> np.ndarray:
        distances = self._distances(label, out_of_bag=True)
        classes = self._classes(label).reindex(self._names).to_numpy()
        known = pd.notna(classes) & pd.notna(classes)[:, None]
        unlike = (classes[:, None] != classes) & known
        like = (classes[:, None] == classes) & known & ~np.eye(len(classes), dtype=bool)
        with np.errstate(invalid="ignore"):  # without a label, or alone of its label: not known
            between, within = ((distances * pairs).sum(axis=1) / pairs.sum(axis=1) for pairs in (unlike, like))
        return (between - within) / distances[unlike].mean()

    def get_cell_importance(self, force: bool = False) -> pd.DataFrame:
        """How far each cell's mass travels to samples of other labels, less how far to samples of its own.

        It is that of `tl.cell_relevance`, by transport plans under the final metric: it describes the samples that were
        learned from, and is no test of the metric. Of numbers, the two labels are the lower and the upper half.

        Parameters
        ----------
        force : bool, default=False
            Whether to compute it again.

        Returns
        -------
        DataFrame
            By cell, with a column "<label>_importance" for each label, and "average_importance" of several. Missing
            for cells that were not drawn, and of samples without a label. The columns are in `obs` too.
        """
        self._check_fitted()
        for label in self._learned:
            if force or label not in self._of_cells:
                travel = relevance_by_plans(
                    self.adata, _key(label), _MAX_PARTNERS, self.seed, self.n_jobs, self._classes(label)
                )
                self._of_cells[label] = travel["relevance"]
            self.adata.obs[f"{label}_importance"] = self._of_cells[label]
        return _table({label: self._of_cells[label] for label in self._learned}, self.adata.obs_names)

    @property
    def _names(self) -> pd.Index:
        """Samples by the names that they have in results: text."""
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
        upper = results.numbers > np.median(results.numbers)
        upper = upper if upper.any() else results.numbers >= np.median(results.numbers)
        return pd.Series(np.where(upper, "upper", "lower"), results.samples)


class OptimalTransport(SampleRepresentationMethod):
    """A sample representation of patpy: exact optimal transport between the cells of two samples; labels play no part.

    Parameters
    ----------
    sample_key : str
        Column of `obs` with the sample of each cell.
    cell_group_key : str or None, default=None
        Column of `obs` with the type of each cell, for patpy's plots.
    layer : str or None, default="X_pca"
        Coordinates of the cells: "X" or None, or an entry of `obsm` or of `layers`.
    seed : int, default=67
        Seed of the draw of cells.
    metric : GroundMetric or str, default="euclidean"
        Distance between cells. The features of a GroundMetric are found by their names, if it has names.
    n_cells : int or None, default=1000
        Cells drawn from each sample; None: all.
    n_jobs : int or None, default=None
        Threads; None: one.
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
        self,
        sample_key: str,
        cell_group_key: str | None = None,
        layer: str | None = "X_pca",
        seed: int = 67,
        *,
        metric: GroundMetric | str = "euclidean",
        n_cells: int | None = 1000,
        n_jobs: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(sample_key, cell_group_key, layer, seed)
        self.metric = metric
        self.n_cells = n_cells
        self.n_jobs = n_jobs
        self.options = options
        self._found: np.ndarray | None = None

    def prepare_anndata(self, adata: Any) -> None:
        """Take the cells.

        Parameters
        ----------
        adata : AnnData
            Cells; the distances are added to it.
        """
        super().prepare_anndata(adata)
        self._found, self._fitted = None, False

    def calculate_distance_matrix(self, force: bool = False) -> np.ndarray:
        """Wasserstein distances between samples.

        Distances of another object in `uns` are not taken for those of this one, which may have other parameters.

        Parameters
        ----------
        force : bool, default=False
            Whether to compute them again.

        Returns
        -------
        array of shape (n_samples, n_samples)
            A copy of what is in `uns`, because patpy's `predict_knn` writes to it.
        """
        self._check_adata_loaded()
        if force or self._found is None:
            self._found = pairwise_distances(self._cells(), metric=self.metric, n_jobs=self.n_jobs, **self.options)
            self.adata.uns[self.DISTANCES_UNS_KEY] = self._found.copy()
            self.sample_representation = _coordinates(self._found, self.samples)
            self._fitted = True
        return self._found.copy()

    def _cells(self) -> Distributions:
        """Drawn cells of the samples, in their order, with the features of the metric."""
        layer, use_rep = _place(self.adata, self.layer)
        who = samples_of(self.adata.obs, self.sample_key)
        rows = draw(who, self.n_cells, self.seed)
        features = getattr(self.metric, "features", None)
        with Source(self.adata) as source:
            values = Values.of(source, layer, use_rep)
            columns = np.arange(values.matrix.shape[1]) if features is None else _find(features, values.names)
            points = read(values.matrix, rows, np.sort(columns))[:, np.argsort(np.argsort(columns))]
        return in_order(Distributions(points, who.names[who.codes[rows]], features=features), who.names)


def _find(features: list[str], names: pd.Index) -> np.ndarray:
    """Columns of the metric's features, by name."""
    places = pd.Series(np.arange(len(names)), names).groupby(level=0).first().reindex(features)
    if places.isna().any():
        lacking = places.index[places.isna()][0]
        raise ValueError(
            f"metric has the feature {lacking!r}, but adata has names like {names[0]!r}: use the same names"
        )
    return places.to_numpy(dtype=np.intp)


def _checked_tasks(tasks: Sequence[str] | str) -> list[str]:
    found = [tasks] if isinstance(tasks, str) else list(tasks)
    unknown = [task for task in found if task not in _TARGETS]
    if unknown:
        raise ValueError(f"tasks holds {unknown[0]!r}: expected some of {list(_TARGETS)}")
    return found


def _key(label: str) -> str:
    return f"groundmetric_{label}"


def _place(adata: Any, layer: str | None) -> tuple[str | None, str | None]:
    """What patpy calls a layer, as `layer` and `use_rep` of `tl.learn`."""
    if layer in (None, "X"):
        return None, None
    if layer in adata.obsm:
        return None, layer
    if layer in adata.layers:
        return layer, None
    raise ValueError(
        f"layer is {layer!r}, but obsm has {list(adata.obsm)} and layers {list(adata.layers)}: name one of them, or 'X'"
    )


def _table(importance: dict[str, Any], index: Any) -> pd.DataFrame:
    """Importance for each label, and on average of several, as patpy names them."""
    table = pd.DataFrame({f"{label}_importance": values for label, values in importance.items()}, index=index)
    if table.shape[1] > 1:
        table.insert(0, "average_importance", table.mean(axis=1))
    return table


def _coordinates(distances: np.ndarray, names: Any) -> pd.DataFrame:
    """Principal coordinates (classical scaling): eigenvectors of the centred squared distances, the largest first."""
    squares = np.square(distances)
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values, vectors = np.linalg.eigh(centred)
    order = np.argsort(-values)[:_N_AXES]
    order = order[values[order] > 1e-12 * max(values.max(), 0.0)]
    found = vectors[:, order] * np.sqrt(values[order])
    return pd.DataFrame(found, index=names, columns=[f"dim_{k}" for k in range(order.size)])
