"""One point of a search's grid: learn on one side of a split, judge on the other; how far to shrink.

Thousands of features leave a learner free to fit a few dozen distributions by chance. The leading components leave out
most of that freedom, and where the signal is among them, what is learned there holds better for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from .._internal.muted import muted
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..learning.penalties import has_vanished
from ..learning.splits import Split
from ..metrics.average import MOST_COMPONENTS, average_metric, of_unit_spread, reference_metric
from ..metrics.base import GroundMetric
from .learner import GroundMetricLearner

SPACES = ("features", "components")


def usable_spaces(spaces: tuple[str, ...], D: Distributions, learner: GroundMetricLearner) -> list[str]:
    """Search spaces that apply: components only with more than 50 features, a linear form and no array as `init`."""
    plain = learner.form == "linear" and isinstance(learner.init, str)
    wide = D.shape[1] > 2 * MOST_COMPONENTS
    return [space for space in spaces if space == "features" or (plain and wide)] or ["features"]


def components_of(D: Distributions) -> GroundMetric:
    """A projection to the leading principal components of the features as given."""
    return reference_metric(D, "given")


def fit_in(
    projection: GroundMetric | None, learner: GroundMetricLearner, D: Distributions, codes: np.ndarray
) -> GroundMetric:
    """The metric that is learned, among projected points where there is a projection; it is one of the features."""
    if projection is None:
        return learner.fit(D, codes).metric_
    inner = learner.fit(D.with_points(projection.project(D.points)), codes).metric_
    return GroundMetric(inner.components @ projection.components, D.features, cost=inner.cost)


# About so many neighbours have a say.
_NEIGHBOURS = 5
# Nobody is surer than this, so that a single distribution at a wrong place does not decide.
_FLOOR = 0.01
# By how much votes are made less sure: not at all, ..., so much that nothing is left of them.
_SOFTENINGS = (1.0, 1.4, 2.0, 3.0, 5.0, 10.0, np.inf)


def neighbourhood_probabilities(distances: np.ndarray, known: np.ndarray, n_classes: int) -> np.ndarray:
    """Probability of each class for each held-out distribution when neighbours vote by e^(-distance / τ).

    A vote counts the less, the more of the known ones share its class, so that a rare class can be found. τ is how much
    farther the fifth neighbour is than the first, on average, so about five neighbours have a say and the scale of the
    metric does not matter. Accuracy has only as many values as there are held-out distributions; this also tells a
    narrow miss from a wide one.

    Parameters
    ----------
    distances : array of shape (n_held_out, n_known)
        Distances from held-out to known distributions.
    known : array of int of shape (n_known,)
        Classes of the known distributions.
    n_classes : int
        Number of classes.

    Returns
    -------
    array of shape (n_held_out, n_classes)
        Probabilities, each row summing to 1.

    Examples
    --------
    >>> neighbourhood_probabilities(np.array([[0.1, 5.0], [5.0, 0.1]]), np.array([0, 1]), 2).argmax(axis=1).tolist()
    [0, 1]
    """
    ordered = np.sort(distances, axis=1)
    reach = ordered[:, min(_NEIGHBOURS, ordered.shape[1]) - 1] - ordered[:, 0]
    temperature = float(reach.mean())
    if temperature == 0.0:
        temperature = 1.0
    votes = np.exp(-(distances - ordered[:, :1]) / temperature)
    members = known[:, None] == np.arange(n_classes)
    shares = votes @ (members / np.maximum(members.sum(axis=0), 1))
    shares /= shares.sum(axis=1, keepdims=True)
    return _FLOOR / n_classes + (1.0 - _FLOOR) * shares


def softened_scores(probabilities: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Log-probability of each distribution's true class, with all votes made less sure by as much as is best for all.

    Which class has most votes does not depend on how sure they are. A metric that has been learned from few
    distributions is too sure of itself on others; without this, one that knows nothing would pass for better.

    >>> softened_scores(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])).round(3).tolist()  # right as often as not
    [-0.693, -0.693]
    """
    logs = np.log(probabilities)

    def at(softening: float) -> np.ndarray:
        soft = logs / softening
        return soft[np.arange(codes.size), codes] - np.logaddexp.reduce(soft, axis=1)

    return max(map(at, _SOFTENINGS), key=lambda scores: balanced_mean(scores, codes)[0])


def balanced_mean(scores: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """Mean over classes of the mean within each, and its standard error (infinite where a class has one member)."""
    members = [scores[codes == c] for c in np.unique(codes)]
    errors = [one.var(ddof=1) / one.size if one.size > 1 else np.inf for one in members]
    return float(np.mean([one.mean() for one in members])), float(np.sqrt(np.sum(errors)) / len(members))


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
    with muted(UserWarning):  # e.g. of a penalty that leaves nothing: the chosen setting is fitted again
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
    with muted(ConvergenceWarning, "(a|the) penalty"):  # of a metric that is left out
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
