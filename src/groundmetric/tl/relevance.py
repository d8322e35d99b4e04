"""tl.cell_relevance: which cells tell the classes apart, by transport plans or by held-out classification."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from .._anndata.annotations import Annotations, Values, draw, find_column, reselect, samples_of
from .._anndata.source import Source, project
from .._anndata.store import drawn_cells, read_entry
from ..distributions import Distributions
from ..estimators._base import class_shares
from ..interpret.flows import Shipments, for_each_pair, partners
from ..learning.splits import folds
from ..learning.training import read_parameters
from ..metrics.base import GroundMetric
from .learn import Learner, fit, make_learner

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
    """Share of its turns in which each cell is classified correctly; missing for samples without a label.

    A sample is either learned from or held out, with all its cells; so is a group of samples.
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
        values = Values.of(source, params.get("layer"), params.get("use_rep"))
        selection = reselect(genes, params["genes"], len(stored.features), pd.DataFrame(index=values.names))
        redraw = partial(draw, samples, params.get("n_cells"), params["random_state"])
        rows = redraw()
        correct, turns = np.zeros(samples.codes.size), np.zeros(samples.codes.size)
        groups = None if group_key is None else annotations.owners.to_numpy()
        splits = folds(labels, groups=groups, n_splits=n_folds, n_repeats=n_repeats, random_state=random_state)
        for training, testing in splits:
            part = replace(annotations, labels=labels.iloc[training])
            seen = rows[samples.cells_of(part.labels.index, rows)]
            learner = same_learner(entry, params["random_state"], n_jobs)
            fitted, points = fit(
                values, selection, seen, part, learner, warn=False, redraw=redraw if params.get("resample") else None
            )
            metric = fitted.learner.metric_
            search = NearestNeighbors(n_neighbors=min(n_neighbors, seen.size), n_jobs=n_jobs)
            search.fit(metric.project(points))
            tested = np.flatnonzero(samples.cells_of(labels.index[testing]))
            z = project(values.matrix, tested, fitted.chosen.places, metric.components)
            distances, nearest = search.kneighbors(z)
            classes, codes = np.unique(labels.loc[samples.names[samples.codes[seen]]].to_numpy(), return_inverse=True)
            shares = class_shares(distances, codes[nearest], classes.size, "distance")
            truth = labels.reindex(samples.names).to_numpy()[samples.codes[tested]]
            correct[tested] += classes[shares.argmax(axis=1)] == truth
            turns[tested] += 1
    return np.divide(correct, turns, out=np.full(turns.size, np.nan), where=turns > 0)


def same_learner(entry: Mapping[str, Any], seed: int, n_jobs: int | None) -> Learner:
    """The learner that was used before, not yet fitted."""
    known = {name: value.item() if isinstance(value, np.generic) else value for name, value in entry["learner"].items()}
    known = read_parameters(known)
    if not isinstance(known.get("random_state"), numbers.Integral):
        known["random_state"] = seed
    method = "ensemble" if "ensemble" in entry else "ggml"
    if method == "ensemble":
        known["kinds"] = tuple(map(str, known["kinds"]))
    return make_learner(method, {**known, "n_jobs": n_jobs, "verbose": 0}, seed)


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
) -> None:
    """Relevance of each cell: how much it takes part in telling the classes apart.

    ``method="plans"`` takes the optimal transport plans under the learned metric: how far a cell's mass travels to
    samples of other classes, less how far it travels to samples of its own. The mean over the cells of a sample is how
    much farther the sample is from other classes than from its own, so the relevances divide that difference among the
    cells. They describe the samples that the metric was learned from, and are no test of it. With `cell_type_key`,
    cells are compared with cells of their type, as far as masses allow: so does a report, and so do its shares of cell
    types (`interpret.annotation_relevance`), which are out of bag besides. Without, cells that have changed push their
    costs onto others, which must be their partners.

    ``method="held_out"`` is the paper's proxy: samples are held out again and again, genes are selected and a metric is
    learned from the others, and each held-out cell is classified by the training cells nearest to it. A cell that is
    classified right in at least `threshold` of its turns is "involved". Where `tl.learn` had a `use_rep`, that was
    computed beforehand, usually from all cells: then held-out samples have had an influence on it.

    Parameters
    ----------
    adata : AnnData
        Cells in memory, after `tl.learn`; the results are added to its `obs`.
    method : {"plans", "held_out"}, default="plans"
        Relevance by transport plans, or by classification of held-out cells.
    cell_type_key : str or None, default=None
        Plans: column of `obs` with the type of each cell, with which it stays; None: a cell may travel to any other.
    max_partners : int, default=10
        Plans: samples of every class that a sample is compared with at most, drawn at random.
    n_neighbors : int, default=100
        Held out: training cells that vote, each with weight one over its distance; 100 in the paper.
    n_folds : int, default=3
        Held out: number of parts that the samples are divided into, each of which is held out once.
    n_repeats : int, default=4
        Held out: number of such divisions.
    threshold : float, default=0.9
        Held out: share of its turns in which an involved cell is classified right.
    group_key : str or None, default=None
        Held out: column of `obs`, e.g. the donor; samples with the same value are held out together.
    genes : str, sequence or None, default=None
        Held out: rule by which genes are selected in each training part ("variance", "highly_variable" or "all"), or a
        list of names chosen beforehand. None: the rule of `tl.learn`, which must have been one of these three.
    key : str, default="groundmetric"
        The `key_added` of `tl.learn`.
    random_state : int, default=0
        Seed of the draw of partners, or of the division into folds.
    n_jobs : int or None, default=None
        Threads; None: one.

    Notes
    -----
    Results, with "groundmetric" standing for `key`:

    - ``obs["groundmetric_relevance"]`` (plans): in units of the mean distance between samples of different classes;
      missing for cells that were not drawn, and for samples without a label or alone in their class
    - ``obs["groundmetric_between"]``, ``obs["groundmetric_within"]`` (plans): mean distance that the cell's mass
      travels to samples of other classes and of its own, in units of the metric
    - ``obs["groundmetric_accuracy"]`` (held out): share of turns in which the cell was classified right; missing for
      samples without a label
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
        share = held_out_accuracy(
            adata, key, n_neighbors=n_neighbors, n_folds=n_folds, n_repeats=n_repeats, group_key=group_key, genes=genes,
            random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip
        adata.obs[f"{key}_accuracy"] = share
        adata.obs[f"{key}_involved"] = np.nan_to_num(share) >= threshold
        return
    if method != "plans":
        raise ValueError(f"method is {method!r}: expected 'plans' or 'held_out'")
    found = relevance_by_plans(adata, key, max_partners, random_state, n_jobs, cell_type_key=cell_type_key)
    for name, values in found.items():
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
) -> pd.DataFrame:
    """Relevance of each cell, and how far it travels; `labels` stand in for those that were learned, same samples."""
    with Source(adata) as source:
        stored = read_entry(source.uns_entry(key), key, "adata")
        who = samples_of(source.obs, stored.params["sample_key"])
        labelled = [name for name in who.names if name in stored.labels.index]
        cells = drawn_cells(source, who, key, only=labelled)
        drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool) & who.cells_of(labelled)
        types = None if cell_type_key is None else find_column(source.obs, cell_type_key, "cell_type_key")
    kinds = None if types is None else pd.factorize(types)[0][drawn][cells.order]  # those without a type are alike
    labels = stored.labels if labels is None else labels
    codes = np.unique(labels.loc[cells.names].to_numpy(), return_inverse=True)[1]
    pairs = partners(codes, max_partners, np.random.default_rng(seed))
    travel = travel_of_cells(cells, codes, pairs, kinds, n_jobs)
    between, within = travel.between, travel.within
    found = pd.DataFrame(index=adata.obs_names, columns=["relevance", "between", "within"], dtype=np.float64)
    rows = np.flatnonzero(drawn)[cells.order]
    found.iloc[rows] = np.column_stack([(between - within) / travel.unit, between, within])
    return found


@dataclass
class Travel:
    """How far the mass of each cell travels on average, to samples of other classes and of its own."""

    between: np.ndarray
    within: np.ndarray
    unit: float  # mean distance between samples of different classes


def travel_of_cells(
    cells: Distributions, codes: np.ndarray, pairs: np.ndarray, kinds: np.ndarray | None, n_jobs: int | None
) -> Travel:
    """One plan per unordered pair; both samples take their part from it. Kinds are the types of cells, or None."""
    ordered = {(int(a), int(b)) for a, b in pairs}
    unordered = sorted({(min(pair), max(pair)) for pair in ordered})

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray, float]:
        return _per_mass(cells, plan.rows, plan.cost), _per_mass(cells, plan.cols, plan.cost), float(plan.cost.sum())

    space = GroundMetric(np.eye(cells.points.shape[1]))
    solved = for_each_pair(cells, np.array(unordered), space, digest, n_jobs, kinds)
    sums = np.zeros((2, cells.points.shape[0]))  # to other classes, to the own
    counts = np.zeros((2, len(cells)))
    values = []
    for pair, (there, back, value) in zip(unordered, solved, strict=True):
        same = int(codes[pair[0]] == codes[pair[1]])
        values += [] if same else [value]
        for (sample, partner), effort in ((pair, there), (pair[::-1], back)):
            if (sample, partner) in ordered:
                sums[same, cells.bounds[sample] : cells.bounds[sample + 1]] += effort
                counts[same, sample] += 1
    with np.errstate(invalid="ignore"):  # alone in its class: not known
        means = sums / np.repeat(counts, cells.sizes, axis=1)
    return Travel(means[0], means[1], float(np.mean(values)))


def _per_mass(cells: Distributions, ends: np.ndarray, effort: np.ndarray) -> np.ndarray:
    """How far a unit of mass of each cell of a sample travels; `ends` are the sample's cells in a plan."""
    d = int(np.searchsorted(cells.bounds, ends[0], side="right")) - 1
    part = slice(cells.bounds[d], cells.bounds[d + 1])
    return np.bincount(ends - part.start, effort, part.stop - part.start) / cells.weights[part]
