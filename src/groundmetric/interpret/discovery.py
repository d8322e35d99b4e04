"""From importances with the data's labels, and with labels exchanged, to p- and q-values.

Everything rests on one fact: where labels say nothing, the data's own arrangement of labels is one among equals, so
that all rows (own and exchanged) of the table of importances could as well stand in any other order. Whatever is
computed from the table in the same way for every row has ranks that are uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Discoveries:
    """How sure it is that a feature matters.

    Attributes
    ----------
    p : (n_features,) share of arrangements in which the feature is as important, by itself, not adjusted
    q : (n_features,) estimated share of false ones among the features that stand out as much, and never below `overall`
    family_p : (n_features,) share of arrangements in which *any* feature stands out as much: the chance of one false
        feature or more (Westfall & Young 1993)
    overall : p-value of the hypothesis that labels say nothing about any feature
    smallest : no p or q can be lower with so many permutations
    """

    p: np.ndarray
    q: np.ndarray
    family_p: np.ndarray
    overall: float
    smallest: float


def discoveries(observed: Any, null: Any) -> Discoveries:
    """p- and q-values of features from few permutations.

    A feature stands out by how many times more important it is than on average over all arrangements: some features
    (of high variance, say) get weight with any labels, and importance alone would not tell. The q-value is, for those
    that stand out by as much or more, the mean number of such features over all arrangements, by their number with
    the data's labels (Tusher, Tibshirani & Chu 2001). It takes all features together, so that it needs no thousands of
    permutations; the features may have different and dependent nulls, because only numbers of them are averaged.

    That ratio is an estimate, which may be small by luck. So it counts only as far as the labels say something at all:
    its smallest value is ranked among the smallest values that the other arrangements get when treated the same, and
    no q is below that rank (`overall`). If labels say nothing, a q below 0.05 comes up with probability 0.05 at most.

    Parameters
    ----------
    observed : (n_features,) importances with the data's labels
    null : (n_permutations, n_features) importances with labels exchanged, found in exactly the same way
    """
    observed, null = np.asarray(observed, dtype=np.float64), np.atleast_2d(np.asarray(null, dtype=np.float64))
    table = np.vstack([observed, null])  # (arrangements, n_features)
    mean = table.mean(axis=0)
    excess = np.divide(table, mean, out=np.ones_like(table), where=mean > 0)
    pool = np.sort(excess, axis=None)
    tails = [_tail_ratios(row, pool, len(table)) for row in excess]
    smallest = np.array([ratios.min() for ratios in tails])
    overall = float(np.mean(smallest <= smallest[0]))
    return Discoveries(
        p=np.mean(table >= observed, axis=0),
        q=np.maximum(np.minimum(tails[0], 1.0), overall),
        family_p=np.mean(excess.max(axis=1)[:, None] >= excess[0], axis=0),
        overall=overall,
        smallest=1.0 / len(table),
    )


def _tail_ratios(row: np.ndarray, pool: np.ndarray, n_rows: int) -> np.ndarray:
    """For each value, the mean number of values as high in a row of the pool, by their number in this row.

    A lower threshold may have a smaller ratio; the value is then called together with those down to there.
    """
    order = np.argsort(-row, kind="stable")
    expected = (pool.size - np.searchsorted(pool, row[order], side="left")) / n_rows
    here = row.size - np.searchsorted(np.sort(row), row[order], side="left")
    ratios = np.empty(row.size)
    ratios[order] = np.minimum.accumulate((expected / here)[::-1])[::-1]
    return ratios
