"""Genes, axes, cell types and cells: which of them differ between the labels.

Axes, cells and cell types are computed from one subsample of cells, which the map of cells shows: transport plans
between all cells would take most of the time of a report.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import spearmanr

from .._anndata.annotations import samples_of
from .._anndata.store import N_TOP
from ..distributions import Distributions
from ..ensemble.members import TransportView
from ..interpret import feature_significance, over_representation, read_gmt, stability
from ..interpret.axes import canonical_axes
from ..interpret.flows import Bag, partners
from ..interpret.relevance import relevance_in_bags
from ..metrics.base import GroundMetric
from ..tl.relevance import travel_of_cells
from .prediction import Cohort
from .run import BudgetError, Run, Steps, duration

MAX_GENES = 300  # rows of the table of genes
FEATURE_PERMUTATIONS = 1999  # one feature at a time is a sort, so that many permutations are cheap
REFITS = 20  # of a single metric, for the stability of its genes
PARTNERS = 5  # samples of every label that a sample is compared with
MAX_CELLS, MIN_CELLS = 3000, 100  # subsampled cells of all samples, and of each of many samples
MIN_SHARE, MAX_AXES = 0.05, 6  # an axis is shown from this share of the difference between labels on
DRAWS = 500  # of samples, for the intervals of cell types
AXIS_GENES, AXIS_TYPES = 12, 3  # listed genes and cell types of an axis
ENRICHED_GENES, MAX_SETS, LEVEL = 50, 8, 0.05  # strongest genes of an axis, tested gene sets, and their q-value
SET_GENES = 10  # listed genes of a set


# Genes


def gene_importance(run: Run) -> pd.DataFrame:
    """Return importance and direction of the most important features, a row each.

    The direction compares means of samples: the columns "highest" and "lowest" (labels) with the difference in standard
    deviations of the cells ("effect"); for ordered labels, Spearman's correlation with the label ("effect").
    """
    metric = run.stored.metric
    table = pd.DataFrame({"importance": metric.importance()}, index=run.stored.features)
    table = table.sort_values("importance", ascending=False, kind="stable").head(MAX_GENES)
    samples = run.samples
    if samples.X is None or not run.is_expression or metric.variances is None:
        return table
    labels = run.stored.labels.reindex(samples.obs_names)
    known = labels.notna().to_numpy()
    means = pd.DataFrame(np.asarray(samples.X)[known], columns=samples.var_names).reindex(columns=table.index)
    if run.is_ordered and run.results is not None:
        assert run.results.numbers is not None
        place = {name: k for k, name in enumerate(run.results.samples)}
        numbers = run.results.numbers[[place[str(name)] for name in samples.obs_names[known]]]
        varies = means.nunique() > 1
        return table.assign(
            effect=[spearmanr(means[g], numbers).statistic if varies[g] else np.nan for g in table.index]
        )
    by_label = means.groupby(labels[known].astype(str).to_numpy()).mean()
    spread = pd.Series(np.sqrt(metric.variances), run.stored.features)[table.index].replace(0.0, 1.0)
    measured = by_label.notna().all()
    filled = by_label.loc[:, measured]
    table["highest"], table["lowest"] = filled.idxmax(), filled.idxmin()
    table["effect"] = (filled.max() - filled.min()) / spread[measured]
    return table


def gene_cell_types(cohort: Cohort, type_key: str, genes: list[str], steps: Steps) -> dict[str, str]:
    """Return, by gene, the cell type in which the means of the labels are farthest apart.

    Means are first over the cells of a sample, then over samples: every sample counts the same.
    """

    def compute() -> dict[str, str]:
        with steps.step("comparing genes within cell types"):
            run, D = cohort.run, cohort.metric_features
            column = {name: f for f, name in enumerate(run.stored.features)}
            types, codes = _cell_types_of(run, type_key, _drawn_rows(run, list(D.names)))
            cell = codes + len(types) * np.repeat(np.arange(len(D)), D.sizes)  # type and sample of each cell
            counts = np.bincount(cell, minlength=len(types) * len(D))
            sums = sparse.csr_array((np.ones(cell.size), (cell, np.arange(cell.size))), (counts.size, cell.size))
            values = sums @ D.points[:, [column[gene] for gene in genes]]
            means = (values.toarray() if sparse.issparse(values) else values) / np.maximum(counts, 1)[:, None]
            means[counts == 0] = np.nan
            means = means.reshape(len(D), len(types), -1)
            labels = run.classes.loc[D.names].to_numpy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a type that is absent from all samples of a label
                by_label = np.stack([np.nanmean(means[labels == label], axis=0) for label in np.unique(labels)])
                span = np.nan_to_num(np.nanmax(by_label, axis=0) - np.nanmin(by_label, axis=0))
        return {gene: str(types[k]) for gene, k in zip(genes, span.argmax(axis=0), strict=True)}

    return cohort.run.cached("gene types", [type_key, genes], compute)


@dataclass(frozen=True)
class Stability:
    """Variation of importances over ensemble members or refits, and q-values; arrays are by feature of the metric."""

    low: np.ndarray
    high: np.ndarray
    selected: np.ndarray
    n_top: int
    repeats: str
    q: np.ndarray | None = None

    def significant(self) -> int | None:
        """Return the number of features with a q-value below `LEVEL`."""
        return None if self.q is None else int(np.sum(self.q < LEVEL))


def member_stability(run: Run) -> Stability:
    """Variation over the members of an ensemble, each trained on a part of the samples."""
    results = run.results
    assert results is not None
    n_top = min(N_TOP, len(run.stored.features))
    low, high = results.interval
    return Stability(low, high, results.selected, n_top, f"{results.n_members} ensemble members")


def q_values(cohort: Cohort, steps: Steps) -> np.ndarray:
    """Return the q-value of each feature: one-dimensional transport between labels against permuted labels."""

    def compute() -> list[float]:
        with steps.step(f"testing single features with {FEATURE_PERMUTATIONS} permutations"):
            y = cohort.run.classes.loc[[str(name) for name in cohort.read.D.names]].to_numpy()
            tested = feature_significance(
                cohort.metric_features, y, groups=cohort.read.groups, strata=cohort.strata,
                n_permutations=FEATURE_PERMUTATIONS, random_state=0,
            )  # fmt: skip
        return [float(value) for value in tested.discoveries.q]

    return np.array(cohort.run.cached("q", [cohort.group_key, FEATURE_PERMUTATIONS], compute), dtype=float)


def refit_stability(cohort: Cohort, steps: Steps) -> Stability:
    """Variation of a single metric over refits to bootstrap samples, as many as the budget allows."""
    run = cohort.run

    def compute() -> dict[str, Any]:
        each = max(float(run.findings.get("seconds") or 0.0), 0.1)  # as long as learning took
        number = steps.affordable(REFITS, each)
        if number < 2:
            raise BudgetError(f"{REFITS} refits take about {duration(REFITS * each)}, more than remained of the budget")
        with steps.step(f"refitting {number} times"):
            learner: Any = cohort.learner()
            learner.metric_ = run.stored.metric
            found = stability(
                learner, cohort.metric_features, cohort.read.y, groups=cohort.read.groups, n_refits=number,
                n_jobs=steps.n_jobs, verbose=steps.verbose,
            )  # fmt: skip
        low, high = found.interval
        return {"low": low.tolist(), "high": high.tolist(), "selected": found.selected.tolist(), "n_top": found.n_top,
                "repeats": f"{len(found.refits)} refits"}  # fmt: skip

    found = run.cached("stability", [cohort.group_key, REFITS, steps.budget], compute)
    arrays = {name: np.array(found[name], dtype=float) for name in ("low", "high", "selected")}
    return Stability(**{**found, **arrays})


# Cells


@dataclass(frozen=True)
class DrawnCells:
    """Subsampled cells.

    Attributes
    ----------
    rows : array
        Rows of `run.cells` in random order, so that no sample covers the others on a map.
    D : Distributions
        Cells of labelled samples in the learned space.
    places : array of shape (n_points,)
        Row of `run.cells` of each point of D.
    y : array of shape (n_distributions,)
        Classes of the samples of D.
    """

    rows: np.ndarray
    D: Distributions
    places: np.ndarray
    y: np.ndarray


def draw_cells(run: Run) -> DrawnCells:
    """Subsample the cells that were learned from, equally many of every sample."""
    who = samples_of(run.cells.obs, run.sample_key)
    learned = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(learned))
    each = max(MIN_CELLS, MAX_CELLS // max(len(who.names), 1))
    turn = pd.Series(shuffled).groupby(who.codes[shuffled]).cumcount().to_numpy()
    rows = shuffled[turn < each]
    known = np.sort(rows[np.isin(who.names, run.stored.labels.index)[who.codes[rows]]])
    D = Distributions(np.asarray(run.cells.obsm[f"X_{run.key}"])[known], who.names[who.codes[known]])
    return DrawnCells(rows, D, known[D.order], run.classes.loc[D.names].to_numpy())


def cell_types(run: Run, type_key: str) -> np.ndarray:
    """Return the type of each cell as text."""
    column = run.cells.obs[type_key]
    return column.astype(object).where(column.notna(), "unknown").astype(str).to_numpy()


def _cell_types_of(run: Run, type_key: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.unique(cell_types(run, type_key)[rows], return_inverse=True)


def _drawn_rows(run: Run, names: list[Any]) -> np.ndarray:
    """Return the rows of cells that were learned from, sample after sample, as `Distributions` orders them."""
    who = samples_of(run.cells.obs, run.sample_key)
    drawn, sample = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool), who.names[who.codes]
    return np.concatenate([np.flatnonzero(drawn & (sample == name)) for name in names])


@dataclass(frozen=True)
class Axes:
    """Axes of the learned space, in the order of their share of the transport between labels.

    Attributes
    ----------
    rotation : array of shape (n_axes, n_components)
        Rotation of the learned space onto the axes.
    share : array of shape (n_axes,)
        Share of the transport between labels.
    loadings : array of shape (n_axes, n_features)
        For standardised features; the largest is positive.
    labels, positions : list, array of shape (n_labels, n_axes)
        Mean of each label, in standard deviations.
    types, activity : list, array of shape (n_types, n_axes)
        Contribution of each cell type to how much farther other labels are along an axis; ["all"] without cell types.
    separating : list of bool
        Whether labels differ along the axis. The map of cells may need a second axis along which they do not.
    n_all : int
        Number of axes, including those that are not shown.
    """

    rotation: np.ndarray
    share: np.ndarray
    loadings: np.ndarray
    labels: list[str]
    positions: np.ndarray
    types: list[str]
    activity: np.ndarray
    separating: list[bool]
    n_all: int

    def ends(self, a: int) -> tuple[str, str] | None:
        """Return the labels at the low and the high end of an axis; None if labels do not differ along it."""
        if not self.separating[a]:
            return None
        return self.labels[int(self.positions[:, a].argmin())], self.labels[int(self.positions[:, a].argmax())]

    def genes(self, a: int, features: list[str]) -> list[tuple[str, float]]:
        """Return the features with the largest loadings."""
        top = np.argsort(-np.abs(self.loadings[a]), kind="stable")[:AXIS_GENES]
        return [(features[f], float(self.loadings[a, f])) for f in top]

    def active_types(self, a: int) -> list[tuple[str, float]]:
        """Return the cell types with the largest shares in how much farther other labels are along an axis."""
        activity = self.activity[:, a]
        if len(self.types) < 2 or not self.separating[a]:
            return []
        shares = activity / activity.sum()
        order = np.argsort(-activity, kind="stable")[:AXIS_TYPES]
        return [(self.types[t], float(shares[t])) for t in order if shares[t] > MIN_SHARE]


def find_axes(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> Axes:
    """Return the axes along which other labels are farther, and at least two for the map of cells."""

    def compute() -> dict[str, Any]:
        with steps.step("computing the axes of the learned space", required=True):
            types = None if type_key is None else cell_types(run, type_key)[cells.places]
            identity = GroundMetric(np.eye(cells.D.shape[1]))
            axes = canonical_axes(
                identity, cells.D, cells.y, annotation=types, max_partners=PARTNERS, n_jobs=steps.n_jobs
            )
        activity = axes.activity.sum(axis=0)
        total = float(np.maximum(activity, 0.0).sum())
        separating = (activity >= MIN_SHARE * total) & (total > 0)
        shown = shown_axes(separating)
        return {
            "rotation": axes.metric.components[shown].tolist(), "share": axes.share[shown].tolist(),
            "labels": [str(label) for label in axes.classes], "positions": axes.positions[:, shown].tolist(),
            "types": ["all"] if types is None else [str(value) for value in axes.values],
            "activity": axes.activity[:, shown].tolist(), "separating": separating[shown].tolist(),
            "n_all": int(axes.share.size),
        }  # fmt: skip

    found = run.cached("axes", [PARTNERS, MAX_CELLS, type_key], compute)
    metric = run.stored.metric
    found |= {name: np.array(found[name]) for name in ("rotation", "share", "positions", "activity")}
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = found["rotation"] @ metric.components * spread
    # The sign of an axis is arbitrary: its largest loading is made positive.
    sign = np.where(loadings[np.arange(len(loadings)), np.abs(loadings).argmax(axis=1)] < 0, -1.0, 1.0)
    found |= {"rotation": found["rotation"] * sign[:, None], "positions": found["positions"] * sign}
    return Axes(**found, loadings=loadings * sign[:, None])


def shown_axes(separating: np.ndarray) -> list[int]:
    """Return the axes along which labels differ, filled up to two with the first of the others.

    >>> shown_axes(np.array([True, False, True, False])), shown_axes(np.array([False, True, False]))
    ([0, 2], [0, 1])
    """
    chosen, others = np.flatnonzero(separating), np.flatnonzero(~separating)
    return sorted([*chosen.tolist(), *others[: max(0, 2 - chosen.size)].tolist()])[:MAX_AXES]


def gene_sets_of_axes(axes: Axes, features: list[str], gene_sets: str | os.PathLike[str]) -> list[list[list[Any]]]:
    """Return, for each axis, rows of (gene set, q-value, fold enrichment, genes) of its strongest genes."""
    sets, n = read_gmt(gene_sets), min(ENRICHED_GENES, max(1, len(features) // 5))
    found: list[list[list[Any]]] = []
    for loadings, separating in zip(axes.loadings, axes.separating, strict=True):
        if not separating:
            found.append([])
            continue
        top = [features[f] for f in np.argsort(-np.abs(loadings), kind="stable")[:n]]
        tested = over_representation(top, features, sets)
        found.append([
            [name.replace("_", " "), float(tested.q[s]), float(tested.effect[s]), listed(tested.overlap[s], SET_GENES)]
            for s, name in enumerate(tested.sets[:MAX_SETS]) if tested.q[s] < LEVEL
        ])  # fmt: skip
    return found


def listed(names: Any, n: int) -> str:
    """Return the first names, and the number of the others.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(map(str, names[:n]))
    return shown if len(names) <= n else f"{shown} and {len(names) - n} more"


def cell_relevance(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> np.ndarray:
    """Return how much farther each cell's mass travels to other labels than to its own; NaN if it was not drawn."""
    column = f"{run.key}_relevance"
    if column in run.cells.obs:
        return run.cells.obs[column].to_numpy(dtype=np.float64)

    def compute() -> list[float]:
        with steps.step("computing the relevance of cells", required=True):
            codes = np.unique(cells.y, return_inverse=True)[1]
            pairs = partners(codes, PARTNERS, np.random.default_rng(0))
            types = None if type_key is None else _cell_types_of(run, type_key, cells.places)[1]
            travel = travel_of_cells(cells.D, codes, pairs, types, steps.n_jobs)
        return [round(float(value), 6) for value in (travel.between - travel.within) / travel.unit]

    relevance = np.full(run.cells.n_obs, np.nan)
    relevance[cells.places] = run.cached("relevance", [PARTNERS, MAX_CELLS, type_key], compute)
    return relevance


def cell_positions(run: Run, cells: DrawnCells, axes: Axes) -> np.ndarray:
    """Return the drawn cells along the first two axes."""
    z = np.asarray(run.cells.obsm[f"X_{run.key}"])
    positions = (z[cells.rows] - z.mean(axis=0)) @ axes.rotation[:2].T
    if positions.shape[1] < 2:  # a single component: the second coordinate is random
        noise = np.random.default_rng(0).uniform(-1, 1, len(positions))
        positions = np.column_stack([positions[:, 0], noise * positions.std()])
    return positions


# Cell types


def type_relevance(run: Run, cells: DrawnCells, type_key: str, steps: Steps) -> dict[str, Any]:
    """Return the share of each cell type in the difference between labels, with intervals, and its composition.

    Shares of an ensemble are out-of-bag. "certain" is False if other labels may not be farther.
    """

    def compute() -> dict[str, Any]:
        with steps.step("computing the shares of cell types", required=True):
            types, names, bags = type_bags(run, cells, type_key)
            groups = run.samples.obs[run.group_key].loc[names].to_numpy() if run.group_key in run.samples.obs else None
            found = relevance_in_bags(
                bags, np.unique(run.classes.loc[names].to_numpy(), return_inverse=True)[1], types,
                out_of_bag=len(bags) > 1, groups=groups, n_draws=DRAWS, confidence=0.95, max_partners=PARTNERS,
                random=np.random.RandomState(0), n_jobs=steps.n_jobs,
            )  # fmt: skip
        low, high = found.interval
        return {
            "types": types, "share": found.share.tolist(), "low": low.tolist(), "high": high.tolist(),
            "relevance": found.relevance.tolist(), "out_of_bag": found.out_of_bag,
            "certain": bool(found.total_interval[0] > 0),
        }  # fmt: skip

    return run.cached("types", [type_key, PARTNERS, MAX_CELLS], compute)


def type_composition(run: Run, type_key: str) -> pd.DataFrame:
    """Return the mean share of each cell type in the samples of each label, a row per label."""
    counts = pd.crosstab(run.cells.obs[run.sample_key].astype(str), cell_types(run, type_key))
    shares = counts.div(counts.sum(axis=1), axis=0)
    return shares.groupby(run.classes.reindex(shares.index).to_numpy()).mean()


def type_bags(run: Run, cells: DrawnCells, type_key: str) -> tuple[list[str], list[str], list[Bag]]:
    """Return cell types, samples, and the ensemble members with the cells that they compare.

    A single metric, and an ensemble without members, have one bag: the metric with the drawn cells.
    """
    views = [] if run.predictor is None else [view for _, view in run.predictor.views]
    members = [(view, member) for view in views if isinstance(view, TransportView) for member in view.members]
    if not members:
        types, codes = _cell_types_of(run, type_key, cells.places)
        untrained = np.zeros(len(cells.D), dtype=bool)
        bag = Bag(cells.D, codes, GroundMetric(np.eye(cells.D.shape[1])), untrained)
        return types.tolist(), [str(name) for name in cells.D.names], [bag]
    assert run.predictor is not None
    names = run.predictor.names
    who = samples_of(run.cells.obs, run.sample_key)
    drawn = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    rows = np.flatnonzero(drawn & np.isin(who.names[who.codes].astype(str), names))
    types, codes = _cell_types_of(run, type_key, rows)
    bags = []
    for view, member in members:
        D = view.description.columns(member.columns)
        if D.order.max() >= codes.size:
            raise ValueError("the predictor of the run belongs to other cells: learn again")
        bags.append(Bag(D, codes[D.order], GroundMetric(np.diag(member.weights)), member.trained_on))
    return types.tolist(), names, bags
