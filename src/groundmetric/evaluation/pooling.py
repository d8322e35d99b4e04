"""From the results of single splits to a method's score: the mean over shuffled splits, or the score of what the splits
of a round predict together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .feasibility import Split
from .running import OK, Result
from .scores import score_codes, score_counts
from .splits import rounds_of


def split_scores(results: list[Result], score: str, level: str) -> np.ndarray:
    """A score per split; NaN where there is none."""
    return np.array([result.scores.get(level, {}).get(score, np.nan) for result in results], dtype=np.float64)


def pooled(
    codes: np.ndarray,
    splits: list[Split],
    rounds: np.ndarray,
    results: list[Result],
    score: str,
    level: str,
    n_classes: int,
) -> Callable[[np.ndarray], np.ndarray]:
    """The score of pooled predictions, averaged over rounds, as a function of how often each distribution counts.

    Distributions whose split failed do not count. The pooled AUC ranks probabilities of different fits against each
    other, which is the only way to have one where test parts are tiny; it is a little low where leaving a distribution
    out takes a vote from its own class.
    """
    tables = [np.zeros((codes.size, n_classes)) for _ in range(int(rounds.max()) + 1)]
    predicted = [np.zeros(codes.size, bool) for _ in tables]
    for (_, test), at, result in zip(splits, rounds, results, strict=True):
        rows = result.probabilities if level == "distributions" else result.point_counts
        if result.status == OK and rows:
            tables[at][test] = rows
            predicted[at][test] = True

    def statistic(weights: np.ndarray) -> np.ndarray:
        values = []
        for table, there in zip(tables, predicted, strict=True):
            scores = score_codes if level == "distributions" else score_counts
            values.append(scores(codes, table, weights * there).get(score, np.full(weights.shape[:-1], np.nan)))
        return np.mean(values, axis=0)

    return statistic


def overall(codes: np.ndarray, splits: list[Split], results: list[Result], score: str, n_classes: int) -> float:
    """A method's score on distributions: of pooled predictions where test parts make up the cohort, else the mean."""
    rounds = rounds_of(splits, codes.size)
    if rounds is not None:
        return float(pooled(codes, splits, rounds, results, score, "distributions", n_classes)(np.ones(codes.size)))
    found = split_scores(results, score, "distributions")
    return float(found[np.isfinite(found)].mean()) if np.isfinite(found).any() else np.nan
