"""One point of a search's grid: learn on one side of a split, judge on the other."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators.learner import GroundMetricLearner
from ..learning.vanishing import has_vanished
from ..metric import GroundMetric
from .averaging import of_unit_spread
from .feasibility import Split
from .neighbourhoods import neighbourhood_scores
from .spaces import fit_in

# Pairs of held-out and training distributions that a setting is judged by at most.
_MOST_PAIRS = 10_000

Judged = tuple[np.ndarray, np.ndarray]  # scores and classes of held-out distributions


@dataclass
class Setting:
    """A point of the grid with what it has achieved so far."""

    space: str
    margin: float
    strength: float
    score: float = 0.0  # -inf where the metric has vanished
    epochs: int = 0
    metrics: list[GroundMetric] = field(default_factory=list)  # one per fold


def best_first(settings: list[Setting]) -> list[Setting]:
    """Those that learn something, by their score."""
    return sorted((s for s in settings if s.score > -np.inf), key=lambda setting: -setting.score)


def fit_and_score(
    learner: GroundMetricLearner,
    setting: Setting,
    epochs: int,
    D: Distributions,
    codes: np.ndarray,
    split: Split,
    projection: GroundMetric | None,
    seed: int,
) -> tuple[GroundMetric | None, Judged | None]:
    """The metric that a setting learns from the training side of a split, and how it does on the other, if at all."""
    train, test = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # e.g. a penalty that leaves nothing: what is kept is fitted again
        metric = learn(learner, setting, epochs, D[train], codes[train], projection, seed)
    return metric, None if metric is None else judge(metric, D, codes, train, test)


def learn(
    learner: GroundMetricLearner,
    setting: Setting,
    epochs: int,
    D: Distributions,
    codes: np.ndarray,
    projection: GroundMetric | None,
    seed: int,
) -> GroundMetric | None:
    """What a setting learns, in units of the spread of its points; None where it has vanished."""
    fresh = clone(learner).set_params(
        margin=setting.margin, strength=setting.strength, max_epochs=epochs, random_state=seed, verbose=0
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(a|the) penalty", ConvergenceWarning)  # of a metric that is left out
        metric = fit_in(projection, fresh, D, codes)
    return None if has_vanished(fresh.history_, setting.margin, setting.strength) else of_unit_spread(metric, D)


def judge(metric: GroundMetric, D: Distributions, codes: np.ndarray, train: np.ndarray, test: np.ndarray) -> Judged:
    """How well held-out distributions find their class among the training ones; of many, a sample is judged."""
    random = np.random.RandomState(0)  # the same sample for every setting, so that they can be compared
    most_tested = int(np.sqrt(_MOST_PAIRS / 2))
    if test.size * train.size > _MOST_PAIRS:
        test = test if test.size <= most_tested else np.sort(random.choice(test, most_tested, replace=False))
        most_known = _MOST_PAIRS // test.size
        train = train if train.size <= most_known else np.sort(random.choice(train, most_known, replace=False))
    distances = pairwise_distances(D[test], D[train], metric)
    return neighbourhood_scores(distances, codes[test], codes[train]), codes[test]


def joined(parts: list[Judged]) -> Judged:
    """Scores and classes of the held-out distributions of all folds."""
    return np.concatenate([scores for scores, _ in parts]), np.concatenate([codes for _, codes in parts])
