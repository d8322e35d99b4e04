"""Nested search of margin, strength, epochs and shrinkage: "GGML" in the tables of docs/results.md.

Settings are scored on held-out distributions of the training set, in rounds of successive halving; the metrics of the
best settings are averaged and shrunk towards a Euclidean metric. With thousands of features and tens of distributions,
learning among the leading principal components overfits less: both spaces are searched. Users are better served
by scikit-learn's GridSearchCV.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd

from groundmetric._internal.parallel import progress_bar
from groundmetric._internal.validation import check_labels, group_list, number_groups
from groundmetric.distances import GroundMetricMethod, pairwise_distances
from groundmetric.distributions import Distributions, as_distributions, resolve_n_points, with_equal_points
from groundmetric.estimators import GroundMetricLearner
from groundmetric.learning.penalties import has_vanished
from groundmetric.learning.splits import Split, folds, shuffled
from groundmetric.metrics.base import Cost, GroundMetric

# Components that an average keeps at most: with so few, costs are filled inside the solver.
MOST_COMPONENTS = 25
# Points that spreads and principal components are estimated from at most.
_MOST_POINTS = 4000


def of_unit_spread(metric: GroundMetric, D: Distributions) -> GroundMetric:
    """Scale the metric to a total variance of 1 of the projected points, which allows averages of metrics."""
    if metric.cost is not Cost.EUCLIDEAN:
        raise ValueError(f"metrics of {metric.cost.name.lower()} cost have no average: learn one metric instead")
    z = metric.project(some_points(D))
    spread = float(np.sqrt(z.var(axis=0).sum()))
    if spread == 0.0:
        return metric
    return GroundMetric(metric.components / spread, metric.features, variances=metric.variances)


def average_metric(metrics: Sequence[GroundMetric], weights: Sequence[float], D: Distributions) -> GroundMetric:
    """The Mahalanobis distance of the weighted sum of the matrices M, of few components.

    The components side by side are rotated to the principal axes of the projected points, which changes no distance,
    and those that carry less than 10⁻³ of the variance in all are left out.
    """
    used = [(metric, weight) for metric, weight in zip(metrics, weights, strict=True) if weight > 0.0]
    stacked = np.vstack([np.sqrt(weight) * metric.components for metric, weight in used])
    z = GroundMetric(stacked).project(some_points(D))
    variances, axes = np.linalg.eigh(np.cov(z, rowvar=False, ddof=0).reshape(len(stacked), len(stacked)))
    variances, axes = variances[::-1], axes[:, ::-1]
    total = np.cumsum(variances)
    stored = min(MOST_COMPONENTS, int(np.searchsorted(total, (1.0 - 1e-3) * total[-1])) + 1, len(stacked))
    return GroundMetric(axes[:, :stored].T @ stacked, D.features, variances=D.moments(weighted=False)[1])


def some_points(D: Distributions):  # type: ignore[no-untyped-def]
    if D.points.shape[0] <= _MOST_POINTS:
        return D.points
    return D.points[np.linspace(0, D.points.shape[0] - 1, _MOST_POINTS).astype(int)]


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
    """Return the learned metric of the features, also if it was learned on projected points."""
    if projection is None:
        return learner.fit(D, codes).metric_
    inner = learner.fit(D.with_points(projection.project(D.points)), codes).metric_
    return GroundMetric(inner.components @ projection.components, D.features, cost=inner.cost)


# Approximate number of neighbours with a weight.
_NEIGHBOURS = 5
# Lower limit of probabilities: a single outlier does not decide.
_FLOOR = 0.01
# Mixing weights of votes with uniform votes: from 0 to 1.
_SOFTENINGS = (1.0, 1.4, 2.0, 3.0, 5.0, 10.0, np.inf)


def neighbourhood_probabilities(distances: np.ndarray, labelled: np.ndarray, n_classes: int) -> np.ndarray:
    """Probability of each class for each held-out distribution when neighbours vote by e^(-distance / τ).

    Votes are divided by the frequency of their class: a rare class can be predicted. τ is how much
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
    members = labelled[:, None] == np.arange(n_classes)
    shares = votes @ (members / np.maximum(members.sum(axis=0), 1))
    shares /= shares.sum(axis=1, keepdims=True)
    return _FLOOR / n_classes + (1.0 - _FLOOR) * shares


def softened_scores(probabilities: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the log-probability of each true class, with the mixing weight of votes that is best for all.

    The class with most votes does not depend on the mixing weight. A metric that has been learned from few
    distributions is overconfident on new ones; without mixing, an uninformative metric would have a higher score.

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
    errors = [first.var(ddof=1) / first.size if first.size > 1 else np.inf for first in members]
    return float(np.mean([first.mean() for first in members])), float(np.sqrt(np.sum(errors)) / len(members))


# Pairs of held-out and training distributions that a setting is judged by at most.
_MOST_PAIRS = 10_000
# Standard errors by which a setting must exceed the initial setting on held-out distributions: of many
# things that are tried, some do better by luck.
_CLEARLY = 2.0
# Replacement of a strength of 0 in ratios.
_TINY = 1e-9

Voted = tuple[np.ndarray, np.ndarray]  # probabilities of the classes, and the true ones, of held-out distributions
Judged = tuple[np.ndarray, np.ndarray]  # scores and classes of held-out distributions


@dataclass
class Setting:
    """A point of the grid with its scores."""

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
    """Return the first of the settings with equal held-out scores: once all triplets are active, a larger margin
    changes nothing."""
    firsts: dict[bytes, Setting] = {}
    for setting in settings:
        firsts.setdefault(b"" if setting.judged is None else setting.judged[0].tobytes(), setting)
    return list(firsts.values())


def nearest(settings: list[Setting], margin: float, strength: float) -> Setting:
    """The setting whose margin and strength are nearest to these, by ratio."""

    def ratio(first: float, second: float) -> float:
        return abs(np.log(max(first, _TINY) / max(second, _TINY)))

    return min(settings, key=lambda s: ratio(s.margin, margin) + ratio(s.strength, strength))


def clear_gain(judged: Judged, begin: Judged) -> float:
    """By how much held-out distributions are better off than at the begin; 0 where that may be luck."""
    gain, error = balanced_mean(judged[0] - begin[0], begin[1])
    return gain if gain > _CLEARLY * error else 0.0


def chosen(tried: list[Setting], begin: Setting | None, most: int) -> list[Setting]:
    """Return the best settings that are clearly better than `begin`, each with its best number of epochs.

    Return `begin` alone if no setting is clearly better, and the best settings if `begin` is None (learned nothing).
    """
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
    """Evaluate the settings after a number of epochs on the held-out sides of all splits."""
    fits = parallel(
        delayed(fit_and_vote)(
            learner, setting, epochs, D, codes, split, None if setting.space == "features" else projection, seed
        )
        for setting in settings
        for split, projection in zip(splits, components, strict=True)
    )
    followed = []
    for position, setting in enumerate(settings):
        parts = fits[position * len(splits) : (position + 1) * len(splits)]
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
        warnings.simplefilter("ignore", UserWarning)  # e.g. a single distribution in a class of the training side
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
    """Return the metric of a setting in units of the spread of its points; None if it is 0."""
    fresh = clone(learner).set_params(
        margin=setting.margin, strength=setting.strength, max_epochs=epochs, random_state=seed, verbose=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # metrics that vanish are left out below
        metric = fit_in(projection, fresh, D, codes)
    return None if has_vanished(fresh.history_, setting.margin, setting.strength) else of_unit_spread(metric, D)


def vote(metric: GroundMetric, D: Distributions, codes: np.ndarray, train: np.ndarray, test: np.ndarray) -> Voted:
    """Return the votes of training distributions, or of a sample of them, on the classes of held-out ones."""
    random = np.random.RandomState(0)  # the same sample for every setting
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
    """Return the weight of an unsupervised metric, this metric, and the scores of all combinations.

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
        local = weight, name if weight > 0.0 else None
        tried.append((*local, balanced_mean(*judged)[0]))
        if clear_gain(judged, first) > gain:
            best, gain = local, clear_gain(judged, first)
    return *best, tried


def reference_metric(D: Distributions, scaling: str) -> GroundMetric:
    """The Euclidean metric between points, as given or standardised, by its leading principal components."""
    points = some_points(D)
    points = (points.toarray() if sparse.issparse(points) else points).astype(np.float64)
    _, variances = D.moments(weighted=False)
    scale = np.where(variances > 0, np.sqrt(variances), 1.0) if scaling == "standardised" else np.ones(D.shape[1])
    centred = (points - points.mean(axis=0)) / scale
    count = min(MOST_COMPONENTS, *centred.shape)
    if count == D.shape[1]:
        axes = np.eye(count)
    else:
        _, _, axes = randomized_svd(centred, count, random_state=0)
    return of_unit_spread(GroundMetric(axes / scale, D.features), D)


# The paper's grid from 0.1 to 1000, with another end in our units: from a margin of 10 mean distances on every
# triplet is active, and larger ones change nothing; larger strengths leave nothing of most metrics, and data of weak
# signal need smaller ones.
_MARGINS = (0.1, 1.0, 10.0)
_STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
# Share of the epochs that each round of the search may use, and share of the grid that enters it. Until the last, a
# few points of each distribution identify bad settings.
_ROUNDS = ((0.1, 1.0), (0.3, 1 / 3), (1.0, 1 / 8))
_FEW_POINTS = 100
# Settings that are followed to the end at least, and metrics that are averaged.
_FEWEST = 3
# Decisions about a setting.
_CHOSEN = ("space", "margin", "strength", "epochs")


class NestedSearch(GroundMetricMethod, BaseEstimator):
    """A ground metric whose margin, strength, epochs and shrinkage are chosen on held-out distributions.

    Every point of the grid learns from all folds but one and is judged on that one. Hopeless points are abandoned
    early: all learn from 100 points per distribution for a tenth of the epochs, the best third for three tenths, the
    best eighth (three at least) from all points to the end; a setting whose penalty outweighs the labels, which gives a
    metric of 0, is abandoned at once. The score is smooth: the log-probability of the true class when neighbours vote
    by e^(-distance / τ), where τ adapts to the scale of the metric and classes have equal weight. Votes that are more
    confident than correct are softened first, which does not change the class with most votes: a metric learned from
    few distributions is overconfident on others.

    With few distributions the best of many settings is best by luck. So the search begins with the learner's own
    setting (the point of the grid nearest to it, in the better one of `spaces`), follows it to the end, and leaves it
    only for settings that are better by more than two standard errors on held-out distributions, each with the number
    of epochs that served it best. The best three settings, or the learner's own in three runs, learn from all
    distributions, and their metrics are averaged, which is steadier than any one.

    The learned metric is shrunk half way (the middle of `shrinkages`) towards an unsupervised metric, that of
    standardised features: with few distributions, both metrics carry information. Another shrinkage, or one
    towards the features as given, is taken where held-out distributions are clearly better off in the same sense. 0
    means that the labels say all, 1 that they do not help.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> search = NestedSearch(
    ...     gm.GroundMetricLearner(max_epochs=10), margins=[1.0], strengths=[0.1, 1.0], validation=2, random_state=0
    ... ).fit(D, y)
    >>> search.best_params_["margin"]
    1.0
    """

    takes_groups = True  # the evaluation passes groups (patients), which folds do not divide

    def __init__(
        self,
        learner: GroundMetricLearner | None = None,
        *,
        margins: Sequence[float] = _MARGINS,
        strengths: Sequence[float] = _STRENGTHS,
        shrinkages: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        spaces: Sequence[str] = SPACES,
        validation: float = 3,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.learner = learner
        self.margins = margins
        self.strengths = strengths
        self.shrinkages = shrinkages
        self.spaces = spaces
        self.validation = validation
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Any = None) -> NestedSearch:
        """Search, then average the metrics of the best settings; `groups` (patients) are not divided by folds."""
        D = as_distributions(X).with_mass()
        labels, groups = check_labels(y, D.name_index), group_list(groups, D.name_index)
        self.learner_ = GroundMetricLearner(class_weight="balanced") if self.learner is None else clone(self.learner)
        random = check_random_state(self.random_state)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(random.randint(2**31))
        D = with_equal_points(D, resolve_n_points(self.learner_.n_points, D), random_state=seed, stacklevel=3)
        splits = self._splits(labels, groups, seed)
        settings = self._search(D, codes, splits, seed)
        metrics = self._refit(D, codes, settings, seed)
        if not metrics:
            warnings.warn(
                f"every strength from {min(self.strengths):g} on outweighs the labels: the metric is that of "
                f"{BLIND} features, and ignores all of them; try smaller `strengths`",
                ConvergenceWarning,
                stacklevel=2,
            )
        shrinkage, reference = self._shrink(D, codes, splits, settings) if metrics else (1.0, BLIND)
        weights = [(1.0 - shrinkage) / max(len(metrics), 1)] * len(metrics)
        if reference is not None:
            metrics, weights = [*metrics, reference_metric(D, reference)], [*weights, shrinkage]
        self.metric_ = average_metric(metrics, weights, D)
        self.best_params_ = {
            **{name: getattr(settings[0], name) if settings else None for name in _CHOSEN},
            "shrinkage": shrinkage,
            "reference": reference,
        }
        self.n_features_in_ = D.shape[1]
        return self

    def _splits(self, labels: np.ndarray, groups: Any, seed: int) -> list[Split]:
        if isinstance(self.validation, float) and self.validation < 1.0:
            return shuffled(labels, groups=groups, n_splits=1, test_size=self.validation, random_state=seed)
        members = number_groups(groups, labels.size)
        units = np.arange(labels.size) if members is None else members
        fewest = min(np.unique(units[labels == c]).size for c in self.classes_)
        if fewest < 2:
            raise ValueError(
                "a class has all its distributions in one group (or only one distribution): nothing can be held out "
                "to choose parameters by; use GroundMetricLearner with given parameters"
            )
        return folds(labels, groups=groups, n_splits=min(int(self.validation), fewest), random_state=seed)

    def _search(self, D: Distributions, codes: np.ndarray, splits: list[Split], seed: int) -> list[Setting]:
        """The settings to learn with; none where every one ended at a metric of 0."""
        learner = self.learner_
        spaces = usable_spaces(tuple(self.spaces), D, learner)
        settings = [
            Setting(space, float(margin), float(strength))
            for space, margin, strength in product(spaces, self.margins, self.strengths)
        ]
        components = [components_of(D[train]) if "components" in spaces else None for train, _ in splits]
        grid = len(self.margins) * len(self.strengths)
        rounds = _ROUNDS if len(settings) > _FEWEST else _ROUNDS[-1:]
        sizes = [len(settings), *(max(min(_FEWEST, grid), round(share * grid)) for _, share in rounds[1:])]
        members = {
            nearest([s for s in settings if s.space == space], learner.margin, learner.strength).name
            for space in spaces
        }
        settings.sort(key=lambda setting: setting.name not in members)  # first: they win ties
        self.scores_: list[dict[str, Any]] = []
        tried: list[Setting] = []
        with (
            Parallel(n_jobs=self.n_jobs, max_nbytes=None) as parallel,
            progress_bar(sum(sizes) * len(splits), "search", "fit", show=bool(self.verbose)) as bar,
        ):
            for (share, _), size in zip(rounds, sizes, strict=True):
                settings = [s for position, s in enumerate(settings) if position < size or s.name in members]
                bar.total += (len(settings) - size) * len(splits)
                epochs = max(1, round(share * learner.max_epochs))
                cohort = D if share == 1.0 else D.subsample(_FEW_POINTS, random_state=seed)
                followed = follow(parallel, learner, settings, epochs, cohort, codes, splits, components, seed)
                bar.update(len(settings) * len(splits))
                for setting in followed:
                    self._note(setting, epochs, 0.0, None, setting.score)
                tried += followed
                settings = best_first(distinct(followed))
                if not settings:  # no setting learned for this long: use the earlier rounds
                    break
        latest = {s.name: s for s in tried if s.name in members and s.judged is not None}
        begin = next(iter(best_first(list(latest.values()))), None)
        return chosen(distinct(tried), begin, _FEWEST)

    def _refit(self, D: Distributions, codes: np.ndarray, settings: list[Setting], seed: int) -> list[GroundMetric]:
        """Learn from all distributions with the settings, in at least three runs; where a metric vanishes there, those
        of the folds."""
        learner = self.learner_
        components = components_of(D) if any(setting.space == "components" for setting in settings) else None
        runs = [(setting, seed + run) for run in range(-(-_FEWEST // max(len(settings), 1))) for setting in settings]
        learned = Parallel(n_jobs=self.n_jobs, max_nbytes=None)(
            delayed(learn)(
                learner,
                setting,
                setting.epochs,
                D,
                codes,
                None if setting.space == "features" else components,
                run_seed,
            )
            for setting, run_seed in runs
        )
        return [
            stored
            for (setting, _), metric in zip(runs, learned, strict=True)
            for stored in (setting.metrics if metric is None else [metric])
        ]

    def _shrink(
        self, D: Distributions, codes: np.ndarray, splits: list[Split], settings: list[Setting]
    ) -> tuple[float, str | None]:
        """The weight of a metric that does not know the labels, and which one."""
        learned = [
            average_metric([setting.metrics[fold] for setting in settings], [1.0] * len(settings), D[train])
            for fold, (train, _) in enumerate(splits)
        ]
        weight, reference, tried = choose_shrinkage(learned, D, codes, splits, self.shrinkages)
        for tried_weight, tried_reference, score in tried:
            self._note(settings[0], None, tried_weight, tried_reference, score)
        return weight, reference

    def _note(
        self, setting: Setting, epochs: int | None, shrinkage: float, reference: str | None, score: float
    ) -> None:
        row = {"space": setting.space, "margin": setting.margin, "strength": setting.strength, "epochs": epochs}
        self.scores_.append(row | {"shrinkage": shrinkage, "reference": reference, "score": score})
