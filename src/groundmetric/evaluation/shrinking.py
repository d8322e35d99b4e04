"""How far a learned metric is shrunk towards one that does not know the labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..distributions import Distributions
from ..metric import GroundMetric
from .averaging import average_metric, of_unit_spread, reference_metric
from .feasibility import Split
from .neighbourhoods import balanced_mean
from .trying import Judged, clear_gain, judge, vote

# The metric without labels that shrinkage begins with, and the one that it may turn to.
BLIND, OTHER = "standardised", "given"


def choose_shrinkage(
    learned: Sequence[GroundMetric],
    D: Distributions,
    codes: np.ndarray,
    splits: Sequence[Split],
    weights: Sequence[float],
) -> tuple[float, str | None, list[tuple[float, str | None, float]]]:
    """The weight of a metric that does not know the labels, which one, and the scores of all that were tried.

    It is the middle weight unless held-out distributions are clearly better off with another. `learned` is the metric
    of each split's training side.
    """
    learned = [of_unit_spread(metric, D[train]) for metric, (train, _) in zip(learned, splits, strict=True)]
    references = {name: [reference_metric(D[train], name) for train, _ in splits] for name in (BLIND, OTHER)}

    def judged_at(weight: float, name: str) -> Judged:
        parts = []
        for metric, reference, (train, test) in zip(learned, references[name], splits, strict=True):
            blend = average_metric([metric, reference], [1.0 - weight, weight], D[train])
            parts.append(vote(blend, D, codes, train, test))
        return judge(parts)

    weights = sorted(set(map(float, weights)))
    begin = weights[(len(weights) - 1) // 2]
    first = judged_at(begin, BLIND)
    best, gain = (begin, BLIND if begin > 0.0 else None), 0.0
    tried = []
    for name, weight in product(references, weights):
        if weight == 0.0 and name != BLIND:
            continue  # the learned metric alone: once is enough
        judged = first if (name, weight) == (BLIND, begin) else judged_at(weight, name)
        here = weight, name if weight > 0.0 else None
        tried.append((*here, balanced_mean(*judged)[0]))
        if clear_gain(judged, first) > gain:
            best, gain = here, clear_gain(judged, first)
    return *best, tried
