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
from ..interpret import annotation_relevance
from ..interpret.axes import canonical_axes
from ..interpret.flows import partners
from ..metrics.base import GroundMetric
from ..tl.relevance import travel_of_cells
from .run import Run, Steps, cached

PARTNERS = 5  # samples of every class that a sample is compared with
MOST_CELLS, FEWEST_CELLS = 3000, 100  # of all samples together, and of each where there are many samples
LEAST, MOST_AXES = 0.05, 6  # share of what sets labels apart from which an axis is shown, and how many are
DRAWS = 500  # of samples, for the intervals of cell types


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


def drawn_kinds(run: Run, type_key: str, names: list) -> np.ndarray:
    """The type of each cell that was learned from, in the order of distributions: by sample, then as in `obs`."""
    who = samples_of(run.cells.obs, run.sample_key)
    drawn, kinds = run.cells.obs[f"{run.key}_sampled"].to_numpy(dtype=bool), kinds_of(run, type_key)
    own = who.names[who.codes]
    return np.concatenate([kinds[drawn & (own == name)] for name in names])


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


def relevance(run: Run, cells: DrawnCells, steps: Steps) -> np.ndarray:
    """How much each cell takes part in telling the labels apart; missing where it was not drawn."""
    column = f"{run.key}_relevance"
    if column in run.cells.obs:
        return run.cells.obs[column].to_numpy(dtype=np.float64)

    def compute() -> list[float]:
        steps.begin("asking which cells tell the labels apart", needed=True)
        codes = np.unique(cells.y, return_inverse=True)[1]
        pairs = partners(codes, PARTNERS, np.random.default_rng(0))
        travel = travel_of_cells(cells.D, codes, pairs, steps.n_jobs)
        return [round(float(value), 6) for value in (travel.between - travel.within) / travel.unit]

    found = np.full(run.cells.n_obs, np.nan)
    found[cells.places] = np.array(cached(run, "relevance", [PARTNERS, MOST_CELLS], compute), dtype=np.float64)
    return found


def _patients(run: Run, names: list) -> np.ndarray | None:
    """The patient of each sample, who is drawn whole."""
    obs = run.samples.obs
    return obs[run.group_key].loc[names].to_numpy() if run.group_key in obs else None


def type_relevance(run: Run, cells: DrawnCells, type_key: str, steps: Steps) -> dict[str, list]:
    """By cell type, the share that its cells have in how much farther other labels are, with its interval."""

    def compute() -> dict[str, list]:
        steps.begin("asking which cell types carry the difference", needed=True)
        own = GroundMetric(np.eye(cells.D.shape[1]))
        kinds = kinds_of(run, type_key)[cells.places]
        found = annotation_relevance(
            own, cells.D, cells.y, kinds, groups=_patients(run, cells.D.names), max_partners=PARTNERS,
            n_jobs=steps.n_jobs, n_draws=DRAWS,
        )  # fmt: skip
        low, high = found.interval
        return {
            "values": [str(value) for value in found.values], "share": found.share.tolist(), "low": low.tolist(),
            "high": high.tolist(), "relevance": found.relevance.tolist(),
        }  # fmt: skip

    return cached(run, "types", [type_key, PARTNERS, MOST_CELLS], compute)
