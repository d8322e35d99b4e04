"""tl.cell_relevance: which cells tell the classes apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cells.columns import samples_of
from ..cells.source import Source
from ..distributions import Distributions
from ..parallel import Threads
from ..point_distances import euclidean
from ..transport import solve
from .held_out import held_out_accuracy
from .stored import compared_cells, recall


def cell_relevance(
    adata: Any,
    *,
    method: str = "plans",
    max_partners: int = 10,
    n_neighbors: int = 100,
    n_folds: int = 3,
    n_repeats: int = 4,
    threshold: float = 0.9,
    group_key: str | None = None,
    genes: Any = None,
    key: str = "groundmetric",
    random_state: int = 0,
    n_jobs: int | None = None,
) -> None:
    """How much each cell takes part in telling the classes apart.

    ``method="plans"`` looks at the transport plans under the learned metric: how far a cell's mass travels to samples
    of other classes, less how far it travels to samples of its own. The mean over the cells of a sample is how much
    farther it is from other classes than from its own; so the relevances share out that difference among cells. They
    describe the samples that the metric was learned from, and are no test of it.

    ``method="held_out"`` is the paper's proxy: samples are held out again and again, a metric is learned from the
    others (genes selected, values scaled and the metric learned without the held-out ones), and each held-out cell is
    classified by the training cells nearest to it. A cell that is right in at least 90 % of its turns is "involved".
    (Where `learn` had a `use_rep`, that was made beforehand, usually with all cells: then this is not quite blind.)

    Parameters
    ----------
    adata : AnnData in memory, after `learn`
    method : {"plans", "held_out"}
    max_partners : plans: each sample is compared with at most so many of every class, drawn at random
    n_neighbors : held out: training cells that vote, each by one over its distance; 100 in the paper
    n_folds, n_repeats : held out: the samples are divided into so many parts, each held out in turn, so many times over
    threshold : held out: share of turns in which an involved cell is right
    group_key : held out: column of `obs`, e.g. the donor: samples with the same value are held out together
    genes : held out: the rule by which genes are selected in each training part, "variance", "highly_variable" or
        "all", or a list of names chosen beforehand. None: the rule of `learn`
    key : the `key_added` of `learn`
    n_jobs : threads

    Writes
    ------
    obs["groundmetric_relevance"] : plans: in units of the mean distance between classes; missing for cells that were
        not drawn, and for samples without a label or alone in their class
    obs["groundmetric_between"], obs["groundmetric_within"] : plans: the two means behind it, in the metric's units
    obs["groundmetric_accuracy"] : held out: share of turns in which the cell was right
    obs["groundmetric_involved"] : held out: whether that is at least the threshold
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
    found = _by_plans(adata, key, max_partners, random_state, n_jobs)
    for name, values in found.items():
        adata.obs[f"{key}_{name}"] = values


def _by_plans(adata: Any, key: str, max_partners: int, seed: int, n_jobs: int | None) -> pd.DataFrame:
    with Source(adata) as source:
        stored = recall(source.noted(key), key, "adata")
        who = samples_of(source.obs, stored.params["sample_key"])
        labelled = [name for name in who.names if name in stored.labels.index]
        cells = compared_cells(source, who, key, only=labelled)
        drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool) & np.isin(who.names, labelled)[who.codes]
    codes = np.unique(stored.labels.loc[cells.names].to_numpy(), return_inverse=True)[1]
    pairs = partners(codes, max_partners, np.random.default_rng(seed))
    travel = travel_of_cells(cells, codes, pairs, n_jobs)
    between, within = travel.between, travel.within
    found = pd.DataFrame(index=adata.obs_names, columns=["relevance", "between", "within"], dtype=np.float64)
    rows = np.flatnonzero(drawn)[cells.order]
    found.iloc[rows] = np.column_stack([(between - within) / travel.unit, between, within])
    return found


def partners(codes: np.ndarray, most: int, random: np.random.Generator) -> np.ndarray:
    """Ordered pairs (sample, partner): for each sample at most so many partners of every class, itself excluded."""
    pairs = []
    for sample in range(codes.size):
        for c in np.unique(codes):
            others = np.setdiff1d(np.flatnonzero(codes == c), sample)
            chosen = others if others.size <= most else np.sort(random.choice(others, most, replace=False))
            pairs += [(sample, other) for other in chosen]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


@dataclass
class Travel:
    """How far the mass of each cell travels on average, to samples of other classes and of its own."""

    between: np.ndarray
    within: np.ndarray
    unit: float  # mean distance between samples of different classes


def travel_of_cells(cells: Distributions, codes: np.ndarray, pairs: np.ndarray, n_jobs: int | None) -> Travel:
    """One plan per unordered pair; each side takes from it what it asked for."""
    asked = {(int(a), int(b)) for a, b in pairs}
    unordered = sorted({(min(pair), max(pair)) for pair in asked})

    def way(pair: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, float]:
        (x, a), (y, b) = (_block(cells, d) for d in pair)
        cost = euclidean(x, y)
        plan = solve(cost, a, b)
        effort = plan.mass * cost[plan.rows, plan.cols]
        return np.bincount(plan.rows, effort, a.size) / a, np.bincount(plan.cols, effort, b.size) / b, plan.value

    with Threads(n_jobs) as threads:
        ways = threads.map(way, unordered)
    sums = np.zeros((2, cells.points.shape[0]))  # to other classes, to the own
    counts = np.zeros((2, len(cells)))
    values = []
    for pair, (there, back, value) in zip(unordered, ways, strict=True):
        same = int(codes[pair[0]] == codes[pair[1]])
        values += [] if same else [value]
        for (sample, partner), effort in ((pair, there), (pair[::-1], back)):
            if (sample, partner) in asked:
                sums[same, cells.bounds[sample] : cells.bounds[sample + 1]] += effort
                counts[same, sample] += 1
    with np.errstate(invalid="ignore"):  # alone in its class: not known
        means = sums / np.repeat(counts, cells.sizes, axis=1)
    return Travel(means[0], means[1], float(np.mean(values)))


def _block(cells: Distributions, d: int) -> tuple[np.ndarray, np.ndarray]:
    part = slice(cells.bounds[d], cells.bounds[d + 1])
    return cells.points[part], cells.weights[part]
