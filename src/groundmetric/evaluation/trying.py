"""One point of a search's grid: learn on one side of a split, judge on the other."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..distances import pairwise_distances
from ..distributions import Distributions
from ..estimators.learner import GroundMetricLearner
from ..learning.vanishing import has_vanished
from ..metric import GroundMetric
from .averaging import of_unit_spread
from .feasibility import Split
from .neighbourhoods import balanced_mean, neighbourhood_probabilities, softened_scores
from .spaces import fit_in

# Pairs of held-out and training distributions that a setting is judged by at most.
_MOST_PAIRS = 10_000
# Standard errors by which something must do better on held-out distributions than what the search begins with: of many
# things that are tried, some do better by luck.
_CLEARLY = 2.0
# What a strength of 0 counts as where ratios are taken.
_TINY = 1e-9

Voted = tuple[np.ndarray, np.ndarray]  # probabilities of the classes, and the true ones, of held-out distributions
Judged = tuple[np.ndarray, np.ndarray]  # scores and classes of held-out distributions


@dataclass
class Setting:
    """A point of the grid with what it has achieved so far."""

    space: str
    margin: float
    strength: float
    epochs: int = 0
    judged: Judged | None = None  # None where the metric has vanished
    metrics: list[GroundMetric] = field(default_factory=list)  # one per fold

    @property
    def name(self) -> tuple[str, float, float]:
        return self.space, self.margin, self.strength

    @property
    def score(self) -> float:
        return -np.inf if self.judged is None else balanced_mean(*self.judged)[0]


def best_first(settings: list[Setting]) -> list[Setting]:
    """Those that learn something, by their score."""
    return sorted((s for s in settings if s.judged is not None), key=lambda setting: -setting.score)


def distinct(settings: list[Setting]) -> list[Setting]:
    """The first of those that did exactly the same: beyond some margin every triplet is active, and larger ones change
    nothing."""
    firsts: dict[bytes, Setting] = {}
    for setting in settings:
        firsts.setdefault(b"" if setting.judged is None else setting.judged[0].tobytes(), setting)
    return list(firsts.values())


def nearest(settings: list[Setting], margin: float, strength: float) -> Setting:
    """The setting whose margin and strength are nearest to these, by ratio."""

    def ratio(one: float, other: float) -> float:
        return abs(np.log(max(one, _TINY) / max(other, _TINY)))

    return min(settings, key=lambda s: ratio(s.margin, margin) + ratio(s.strength, strength))


def clear_gain(judged: Judged, begin: Judged) -> float:
    """By how much held-out distributions are better off than at the begin; 0 where that may be luck."""
    gain, error = balanced_mean(judged[0] - begin[0], begin[1])
    return gain if gain > _CLEARLY * error else 0.0


def chosen(tried: list[Setting], begin: Setting | None, most: int) -> list[Setting]:
    """The best of those that are clearly better than the begin, each with the epochs that served it best; the begin
    alone where none is. Where the begin has learned nothing, the best."""
    better: dict[tuple[str, float, float], Setting] = {}
    for setting in best_first(tried):
        assert setting.judged is not None
        if begin is None or (begin.judged is not None and clear_gain(setting.judged, begin.judged) > 0.0):
            better.setdefault(setting.name, setting)
    return list(better.values())[:most] or ([] if begin is None else [begin])


def follow(
    parallel: Parallel,
    learner: GroundMetricLearner,
    settings: list[Setting],
    epochs: int,
    D: Distributions,
    codes: np.ndarray,
    splits: list[Split],
    components: list[GroundMetric | None],
    seed: int,
) -> list[Setting]:
    """The settings after so many epochs, judged on the held-out sides of all splits."""
    fits = parallel(
        delayed(fit_and_vote)(
            learner, setting, epochs, D, codes, split, None if setting.space == "features" else projection, seed
        )
        for setting in settings
        for split, projection in zip(splits, components, strict=True)
    )
    followed = []
    for place, setting in enumerate(settings):
        parts = fits[place * len(splits) : (place + 1) * len(splits)]
        voted = [votes for _, votes in parts if votes is not None]
        judged = judge(voted) if len(voted) == len(parts) else None
        metrics = [metric for metric, _ in parts if metric is not None]
        followed.append(replace(setting, epochs=epochs, judged=judged, metrics=metrics))
    return followed


def fit_and_vote(
    learner: GroundMetricLearner,
    setting: Setting,
    epochs: int,
    D: Distributions,
    codes: np.ndarray,
    split: Split,
    projection: GroundMetric | None,
    seed: int,
) -> tuple[GroundMetric | None, Voted | None]:
    """The metric that a setting learns from the training side of a split, and the votes on the other, if any."""
    train, test = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # e.g. a penalty that leaves nothing: what is kept is fitted again
        metric = learn(learner, setting, epochs, D[train], codes[train], projection, seed)
    return metric, None if metric is None else vote(metric, D, codes, train, test)


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


def vote(metric: GroundMetric, D: Distributions, codes: np.ndarray, train: np.ndarray, test: np.ndarray) -> Voted:
    """What training distributions say of the classes of held-out ones; of many, a sample is asked."""
    random = np.random.RandomState(0)  # the same sample for every setting, so that they can be compared
    most_tested = int(np.sqrt(_MOST_PAIRS / 2))
    if test.size * train.size > _MOST_PAIRS:
        test = test if test.size <= most_tested else np.sort(random.choice(test, most_tested, replace=False))
        most_known = _MOST_PAIRS // test.size
        train = train if train.size <= most_known else np.sort(random.choice(train, most_known, replace=False))
    distances = pairwise_distances(D[test], D[train], metric)
    return neighbourhood_probabilities(distances, codes[train], int(codes.max()) + 1), codes[test]


def judge(parts: list[Voted]) -> Judged:
    """Scores and classes of the held-out distributions of all folds."""
    codes = np.concatenate([codes for _, codes in parts])
    return softened_scores(np.concatenate([probabilities for probabilities, _ in parts]), codes), codes
