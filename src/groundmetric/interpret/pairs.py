"""Pairs of features: which ones the metric looks at together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..metric import GroundMetric
from .frames import frame
from .inputs import feature_names, spreads

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class FeaturePairs:
    """The strongest pairs, strongest first.

    Attributes
    ----------
    first, second : names
    weight : (n_pairs,) twice the off-diagonal entry of M for standardised features, in units of its trace, as the
        importance is. Positive: differences in both add up. Negative: they cancel, and their contrast counts.
    alignment : (n_pairs,) from -1 to 1: how much the metric treats the two as one feature (±1) or apart (0)
    """

    first: list[str]
    second: list[str]
    weight: np.ndarray
    alignment: np.ndarray

    def table(self) -> DataFrame:
        """A row per pair."""
        names = {"first": self.first, "second": self.second}
        return frame(names | {"weight": self.weight, "alignment": self.alignment})


def feature_pairs(metric: Any, n: int = 20) -> FeaturePairs:
    """The n pairs of features with the largest off-diagonal entries of M, in units of the data's spread.

    M is never formed: an entry is at most the product of two columns' lengths (Cauchy-Schwarz), so only features that
    can have an entry among the largest are multiplied.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
    n : number of pairs

    >>> import groundmetric as gm
    >>> pairs = feature_pairs(gm.GroundMetric([[3.0, -2.0, 0.1]], ["a", "b", "c"]), 1)
    >>> pairs.first, pairs.second, bool(pairs.weight[0] < 0)
    (['a'], ['b'], True)
    """
    metric = getattr(metric, "metric_", metric)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"metric is {type(metric).__name__}: expected a GroundMetric or a fitted learner")
    columns = metric.components * spreads(metric)
    lengths = np.linalg.norm(columns, axis=0)
    order = np.argsort(-lengths, kind="stable")
    size = min(max(64, n), order.size)
    while True:
        chosen = order[:size]
        entries = columns[:, chosen].T @ columns[:, chosen]
        rows, cols = np.triu_indices(size, 1)
        values = entries[rows, cols]
        best = np.argsort(-np.abs(values), kind="stable")[:n]
        # No pair with a shorter column than these can beat the last one found.
        if size == order.size or (best.size == n and abs(values[best[-1]]) >= lengths[order[0]] * lengths[order[size]]):
            break
        size = min(2 * size, order.size)
    names, total = feature_names(metric), float(np.sum(lengths**2)) or 1.0
    one, two = chosen[rows[best]], chosen[cols[best]]
    both = lengths[one] * lengths[two]
    return FeaturePairs(
        first=[names[f] for f in one],
        second=[names[f] for f in two],
        weight=2.0 * values[best] / total,
        alignment=values[best] / np.where(both > 0, both, 1.0),
    )
