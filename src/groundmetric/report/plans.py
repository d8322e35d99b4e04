"""Axes of the learned space, cells and cell types: what the transport plans between samples say of them.

All of it is computed from one draw of cells, which the map of cells shows: plans between all cells would take the most
time of a report, and say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._anndata.annotations import samples_of
from ..distributions import Distributions
from ..ensemble.views import TransportView
from ..interpret.axes import canonical_axes
from ..interpret.flows import Bag, partners
from ..interpret.relevance import relevance_in_bags
from ..metrics.base import GroundMetric
from ..tl.relevance import travel_of_cells
from .content import Axis, CellMap, Column, Field, Table, column_of, columns_of
from .run import Run, Steps, cached, with_order

PARTNERS = 5  # samples of every class that a sample is compared with
MOST_CELLS, FEWEST_CELLS = 3000, 100  # of all samples together, and of each where there are many samples
LEAST, MOST_AXES = 0.05, 6  # share of what sets labels apart from which an axis is shown, and how many are
DRAWS = 500  # of samples, for the intervals of cell types
PER_AXIS = 12  # genes, and a quarter as many cell types
RELEVANCE = "how much farther its cells are from those of the type in other labels; 1 is the mean distance of labels"


@dataclass(frozen=True)
class DrawnCells:
    """The cells of all samples that plans and the map of cells are about.

    Attributes
    ----------
    rows : array
        Rows of `run.cells`, in random order, so that on a map no sample is drawn over the others.
    D : Distributions
        Those of samples with a label, in the learned space.
    places : array of shape (n_points,)
        Row of `run.cells` of each point of D.
    y : array of shape (n_distributions,)
        Labels of the samples of D, or thirds of them where they are numbers.
    """

    rows: np.ndarray
    D: Distributions
    places: np.ndarray
    y: np.ndarray


def draw_cells(run: Run) -> DrawnCells:
    """As many cells of every sample, of those that were learned from."""
    who = samples_of(run.cells.obs, run.sample_key)
    learned = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    random = np.random.default_rng(0)
    shuffled = random.permutation(np.flatnonzero(learned))
    each = max(FEWEST_CELLS, MOST_CELLS // max(len(who.names), 1))
    turn = pd.Series(shuffled).groupby(who.codes[shuffled]).cumcount().to_numpy()
    rows = shuffled[turn < each]
    known = np.sort(rows[np.isin(who.names, run.stored.labels.index)[who.codes[rows]]])
    D = Distributions(np.asarray(run.cells.obsm[f"X_{run.key}"])[known], who.names[who.codes[known]])
    return DrawnCells(rows, D, known[D.order], run.classes.loc[D.names].to_numpy())


def kinds_of(run: Run, type_key: str) -> np.ndarray:
    """The type of each cell as text."""
    column = run.cells.obs[type_key]
    return column.astype(object).where(column.notna(), "unknown").astype(str).to_numpy()


def drawn_kinds(run: Run, type_key: str, names: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cell types; the number of the type, and the sample, of each cell that was learned from.

    In the order of distributions: by sample, then as in `obs`.
    """
    who = samples_of(run.cells.obs, run.sample_key)
    drawn, own = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool), who.names[who.codes]
    rows = np.concatenate([np.flatnonzero(drawn & (own == name)) for name in names])
    types, codes = np.unique(kinds_of(run, type_key)[rows], return_inverse=True)
    return types, codes, own[rows]


@dataclass(frozen=True)
class Directions:
    """The axes of the learned space, those first that carry most of the transport between labels.

    Attributes
    ----------
    rotation : (n_axes, n_components) to turn the learned space onto them
    share : (n_axes,) of the transport between labels
    loadings : (n_axes, n_features) for standardised features
    labels, positions : (n_labels, n_axes) mean of each label, in standard deviations
    types, activity : (n_types, n_axes) share of each cell type in how much farther other labels are along an axis;
        without cell types, one that is called "all"
    telling : (n_axes,) whether labels differ along them; the map of cells may need one along which they do not
    n_all : number of axes, those that are not shown included
    """

    rotation: np.ndarray
    share: np.ndarray
    loadings: np.ndarray
    labels: list[str]
    positions: np.ndarray
    types: list[str]
    activity: np.ndarray
    telling: list[bool]
    n_all: int


def directions(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> Directions:
    """The axes that are shown: those along which other labels are farther, and at least two for the map of cells."""

    def compute() -> dict[str, Any]:
        steps.begin("reading the axes of the learned space", needed=True)
        own = GroundMetric(np.eye(cells.D.shape[1]))
        kinds = None if type_key is None else kinds_of(run, type_key)[cells.places]
        axes = canonical_axes(own, cells.D, cells.y, annotation=kinds, max_partners=PARTNERS, n_jobs=steps.n_jobs)
        telling = _tells(axes.activity.sum(axis=0))
        shown = _shown_axes(telling)
        return {
            "rotation": axes.metric.components[shown].tolist(), "share": axes.share[shown].tolist(),
            "labels": [str(label) for label in axes.classes], "positions": axes.positions[:, shown].tolist(),
            "types": [str(value) for value in axes.values] if kinds is not None else ["all"],
            "activity": axes.activity[:, shown].tolist(), "n_all": int(axes.share.size),
            "telling": telling[shown].tolist(),
        }  # fmt: skip

    found = cached(run, "axes", [PARTNERS, MOST_CELLS, type_key], compute)
    metric = run.stored.metric
    rotation, positions = np.array(found["rotation"]), np.array(found["positions"])
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = rotation @ metric.components * spread
    # The strongest gene of an axis points up: a direction has no sign of its own.
    strongest = np.abs(loadings).argmax(axis=1)
    sign = np.where(loadings[np.arange(len(loadings)), strongest] < 0, -1.0, 1.0)
    return Directions(
        rotation * sign[:, None], np.array(found["share"]), loadings * sign[:, None], found["labels"], positions * sign,
        found["types"], np.array(found["activity"]), found["telling"], found["n_all"],
    )  # fmt: skip


def _tells(activity: np.ndarray) -> np.ndarray:
    """Along which axes other labels are farther, by a share of all that sets labels apart."""
    total = float(np.maximum(activity, 0.0).sum())
    return (activity >= LEAST * total) & (total > 0)


def _shown_axes(telling: np.ndarray) -> list[int]:
    """Axes along which labels differ, and the first of the others where there are fewer than two.

    >>> _shown_axes(np.array([True, False, True, False])), _shown_axes(np.array([False, True, False]))
    ([0, 2], [0, 1])
    """
    chosen, others = np.flatnonzero(telling), np.flatnonzero(~telling)
    return sorted([*chosen.tolist(), *others[: max(0, 2 - chosen.size)].tolist()])[:MOST_AXES]


def axis_list(run: Run, axes: Directions, processes: list[Table | None]) -> list[Axis]:
    """Each axis with its strongest genes, and with the cell types that other labels are farther in along it."""
    found = []
    for a, loadings in enumerate(axes.loadings):
        top = np.argsort(-np.abs(loadings), kind="stable")[:PER_AXIS]
        genes = [(run.stored.features[g], float(loadings[g])) for g in top]
        low, high = axes.labels[int(axes.positions[:, a].argmin())], axes.labels[int(axes.positions[:, a].argmax())]
        ends = (low, high) if axes.telling[a] else None
        found.append(Axis(f"Axis {a + 1}", float(axes.share[a]), ends, genes, processes[a], _movers(axes, a)))
    return found


def _movers(axes: Directions, a: int) -> list[tuple[str, float]]:
    """Cell types by their share in how much farther other labels are along an axis; none where they are not."""
    activity = axes.activity[:, a]
    total = float(activity.sum())
    if len(axes.types) < 2 or not axes.telling[a]:
        return []
    order = np.argsort(-activity, kind="stable")[: PER_AXIS // 4]
    return [(axes.types[t], float(activity[t]) / total) for t in order if activity[t] > LEAST * total]


def relevance(run: Run, cells: DrawnCells, type_key: str | None, steps: Steps) -> np.ndarray:
    """How much each cell takes part in telling the labels apart; missing where it was not drawn."""
    column = f"{run.key}_relevance"
    if column in run.cells.obs:
        return run.cells.obs[column].to_numpy(dtype=np.float64)

    def compute() -> list[float]:
        steps.begin("asking which cells tell the labels apart", needed=True)
        codes = np.unique(cells.y, return_inverse=True)[1]
        pairs = partners(codes, PARTNERS, np.random.default_rng(0))
        kinds = None if type_key is None else np.unique(kinds_of(run, type_key)[cells.places], return_inverse=True)[1]
        travel = travel_of_cells(cells.D, codes, pairs, kinds, steps.n_jobs)
        return [round(float(value), 6) for value in (travel.between - travel.within) / travel.unit]

    found = np.full(run.cells.n_obs, np.nan)
    found[cells.places] = np.array(
        cached(run, "relevance", [PARTNERS, MOST_CELLS, type_key], compute), dtype=np.float64
    )
    return found


def cell_map(
    run: Run, drawn: DrawnCells, axes: Directions, type_key: str | None, found: np.ndarray
) -> tuple[CellMap, list[str]]:
    """The drawn cells of all samples along the first two axes, and the columns that cannot be coloured by."""
    obs, rows = run.cells.obs, drawn.rows
    z = np.asarray(run.cells.obsm[f"X_{run.key}"])
    turned = (z[rows] - z.mean(axis=0)) @ axes.rotation[:2].T
    if turned.shape[1] < 2:  # one component: spread over the height, for the eye only
        turned = np.column_stack([turned[:, 0], np.random.default_rng(0).uniform(-1, 1, len(turned)) * turned.std()])
    hidden = [name for name in obs.columns if str(name).startswith(f"{run.key}_")]
    shown = with_order(run, obs).drop(columns=[*hidden, run.sample_key]).iloc[rows]
    columns, unused = columns_of(shown, [run.label_key, *([type_key] if type_key else [])])
    sample = column_of(run.sample_key, obs[run.sample_key].astype(str).iloc[rows], None)
    assert sample is not None
    columns += [Column("relevance", found[rows]), sample]
    return CellMap(turned, columns, axes.share[:2].tolist(), run.cells.n_obs), unused


def _patients(run: Run, names: list[Any]) -> np.ndarray | None:
    """The patient of each sample, who is drawn whole."""
    obs = run.samples.obs
    return obs[run.group_key].loc[names].to_numpy() if run.group_key in obs else None


def type_relevance(run: Run, cells: DrawnCells, type_key: str, steps: Steps) -> dict[str, Any]:
    """By cell type, the share that its cells have in how much farther other labels are, with its interval.

    Of an ensemble it is out of bag. Shares are missing where it is not sure that other labels are farther.
    """

    def compute() -> dict[str, Any]:
        steps.begin("asking which cell types carry the difference", needed=True)
        kinds, names, bags = _bags(run, cells, type_key)
        found = relevance_in_bags(
            bags, np.unique(run.classes.loc[names].to_numpy(), return_inverse=True)[1], kinds,
            out_of_bag=len(bags) > 1, groups=_patients(run, names), n_draws=DRAWS, confidence=0.95,
            max_partners=PARTNERS, random=np.random.RandomState(0), n_jobs=steps.n_jobs,
        )  # fmt: skip
        low, high = found.interval
        return {
            "values": kinds, "share": found.share.tolist(), "low": low.tolist(), "high": high.tolist(),
            "relevance": found.relevance.tolist(), "out_of_bag": found.out_of_bag,
            "sure": bool(found.total_interval[0] > 0),
        }  # fmt: skip

    return cached(run, "types", [type_key, PARTNERS, MOST_CELLS], compute)


def _bags(run: Run, cells: DrawnCells, type_key: str) -> tuple[list[str], list[str], list[Bag]]:
    """Return cell types, names of the samples, and the members of an ensemble with the cells that they compare.

    A single learner, and a cohort too small for members, have one bag: their metric and the drawn cells.
    """
    views = [] if run.predictor is None else [view for _, view in run.predictor.views]
    members = [(view, member) for view in views if isinstance(view, TransportView) for member in view.members]
    if not members:
        types, kinds = np.unique(kinds_of(run, type_key)[cells.places], return_inverse=True)
        metric = GroundMetric(np.eye(cells.D.shape[1]))
        bag = Bag(cells.D, kinds, metric, np.zeros(len(cells.D), dtype=bool))
        return types.tolist(), [str(name) for name in cells.D.names], [bag]
    assert run.predictor is not None
    names = run.predictor.names
    who = samples_of(run.cells.obs, run.sample_key)
    drawn = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    rows = np.flatnonzero(drawn & np.isin(who.names[who.codes].astype(str), names))
    types, kinds = np.unique(kinds_of(run, type_key)[rows], return_inverse=True)
    bags = []
    for view, member in members:
        D = view.description.columns(member.columns)
        if D.order.max() >= kinds.size:
            raise ValueError("the run's predictor belongs to other cells: learn again")
        metric = GroundMetric(np.diag(member.weights))
        bags.append(Bag(D, kinds[D.order], metric, member.trained_on))
    return types.tolist(), names, bags


def type_table(run: Run, type_key: str, found: dict[str, Any]) -> Table:
    """A row per cell type, those first that carry most of the difference; then its share of the cells by label.

    Shares are missing where other labels are not surely farther: there is nothing to share out.
    """
    counts = pd.crosstab(run.cells.obs[run.sample_key].astype(str), kinds_of(run, type_key))
    shares = counts.div(counts.sum(axis=1), axis=0)
    labels = run.classes.reindex(shares.index)
    by_label = shares.groupby(labels.to_numpy()).mean()
    how = "out of bag" if found["out_of_bag"] else "of samples that were learned from"
    fields = [Field("Cell type"), Field("Share of difference", ".1%", bar=True, note=how), Field("Low", ".1%"),
              Field("High", ".1%"), Field("Relevance", "+.3f", note=RELEVANCE)]  # fmt: skip
    fields += [Field(f"Cells in {label}", ".1%") for label in by_label.index]
    rows = []
    for k, name in enumerate(found["values"]):
        share = [found[part][k] if found["sure"] else None for part in ("share", "low", "high")]
        rows.append([name, *share, found["relevance"][k], *(float(value) for value in by_label[name])])
    best = np.array([found["relevance"][k] if row[1] is None else row[1] for k, row in enumerate(rows)], dtype=float)
    rows = [rows[k] for k in np.argsort(-np.nan_to_num(best, nan=-np.inf), kind="stable")]
    caption = f"Cell types (column {type_key!r}), with 95% intervals over samples, {how}"
    return Table("types", caption, fields, rows, note=_note_on_types(found["out_of_bag"], found["sure"]))


def _note_on_types(out_of_bag: bool, sure: bool) -> str:
    bag = (
        "Each pair of samples is compared by ensemble members that were trained on neither, so that a type without a "
        "difference has a share around 0 and, as a rule, an interval that contains 0."
        if out_of_bag
        else "The metric was learned from these samples, so that types without a difference may get a part of it."
    )
    shared = (
        "shared out among the types; intervals are over samples. Shares sum to 100%, and may be negative."
        if sure
        else "by type. There are no shares, because it is not sure that they are farther."
    )
    return (
        f"How much farther cells are from cells of their type in other labels than in their own, {shared} {bag} The "
        "last columns are the mean shares of cells: where they differ, labels differ in composition."
    )
