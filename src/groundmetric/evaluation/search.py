"""Choosing margin, strength and shrinkage on held-out distributions, then averaging what the folds have learned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from tqdm import tqdm

from ..distances import pairwise_distances
from ..distributions import Distributions, as_distributions
from ..estimators.checks import check_labels, check_number
from ..estimators.learner import GroundMetricLearner
from ..estimators.method import GroundMetricMethod
from ..metric import GroundMetric
from .averaging import average_metric, of_unit_spread, reference_metric
from .feasibility import Split
from .neighbourhoods import balanced_mean, neighbourhood_scores
from .splits import folds, shuffled

_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
# Share of the epochs that each round of the search may use, and share of the grid that enters it. Until the last, a
# few points of each distribution tell what is hopeless.
_ROUNDS = ((0.1, 1.0), (0.3, 1 / 3), (1.0, 1 / 8))
_FEW_POINTS = 100
# Pairs of held-out and training distributions that a setting is judged by at most.
_MOST_PAIRS = 10_000
# Settings that are followed to the end at least.
_FEWEST = 3

Judged = tuple[np.ndarray, np.ndarray]  # scores and classes of held-out distributions


@dataclass
class Setting:
    """A point of the grid with what it has achieved so far."""

    margin: float
    strength: float
    score: float = -np.inf
    metrics: list[GroundMetric] = field(default_factory=list)  # one per fold


class GroundMetricLearnerCV(GroundMetricMethod, BaseEstimator):
    """A ground metric whose margin, strength and shrinkage are chosen on held-out distributions.

    Every point of the grid learns from all folds but one and is judged on that one. Hopeless points are abandoned
    early: all learn from 100 points per distribution for a tenth of the epochs, the best third for three tenths, the
    best eighth from all points to the end. The score
    is smooth: the log-probability of the true class when neighbours vote by e^(-distance), each class counting the
    same. With few distributions the best of many settings is best by luck; so the metrics of the settings that reached
    the end, from all folds, are averaged, which is steadier than any one of them.

    The average may be shrunk towards a metric that does not know the labels (principal components of the features as
    given or standardised), where held-out distributions are better off by more than one standard error. A shrinkage of
    1 means that the labels do not help.

    Parameters
    ----------
    learner : GroundMetricLearner or None
        Whose other parameters are used.
    margins, strengths : sequences of float; the paper's grid by default
    shrinkages : sequence of float from 0 (learned) to 1 (labels ignored)
    validation : int or float
        Number of folds (fewer where a class has fewer distributions), or the share that is held out once.
    n_jobs : int or None, processes
    random_state : int, RandomState or None
    verbose : int

    Attributes
    ----------
    metric_ : GroundMetric
    best_params_ : dict of margin and strength (those of the best setting), shrinkage and reference
    scores_ : list of dicts, one for every setting and shrinkage that was tried
    classes_ : array of labels

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> search = gm.GroundMetricLearnerCV(
    ...     gm.GroundMetricLearner(max_epochs=10), margins=[1.0], strengths=[0.1, 1.0], validation=2, random_state=0
    ... ).fit(D, y)
    >>> search.best_params_["margin"]
    1.0
    """

    takes_groups = True  # the evaluation hands outer groups (patients) over, so that folds do not divide them

    def __init__(
        self,
        learner: GroundMetricLearner | None = None,
        *,
        margins: Sequence[float] = _GRID,
        strengths: Sequence[float] = _GRID,
        shrinkages: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        validation: float = 3,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.learner = learner
        self.margins = margins
        self.strengths = strengths
        self.shrinkages = shrinkages
        self.validation = validation
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Any = None) -> GroundMetricLearnerCV:
        """Search, then average.

        Parameters
        ----------
        X : Distributions
        y : labels, one per distribution
        groups : outer group of each distribution (the patient of a sample), optional: never divided between folds
        """
        D = as_distributions(X).with_mass()
        labels = check_labels(y, len(D))
        self._check_grid()
        random = check_random_state(self.random_state)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(random.randint(2**31))
        splits = self._splits(labels, groups, seed)
        settings = self._search(D, codes, splits, seed)
        shrinkage, reference = self._shrink(D, codes, splits, settings)
        metrics = [metric for setting in settings for metric in setting.metrics]
        weights = [(1.0 - shrinkage) / len(metrics)] * len(metrics)
        if reference is not None:
            metrics, weights = [*metrics, reference_metric(D, reference)], [*weights, shrinkage]
        self.metric_ = average_metric(metrics, weights, D)
        best = settings[0]
        self.best_params_ = {
            "margin": best.margin,
            "strength": best.strength,
            "shrinkage": shrinkage,
            "reference": reference,
        }
        self.n_features_in_ = D.shape[1]
        return self

    def _check_grid(self) -> None:
        for name in ("margins", "strengths", "shrinkages"):
            values = getattr(self, name)
            if len(values) == 0:
                raise ValueError(f"{name} is empty: at least one value is needed")
            for value in values:
                check_number(name, value, low=0.0, above=name == "margins")
        if max(self.shrinkages) > 1.0:
            raise ValueError(f"shrinkages are {list(self.shrinkages)}: expected shares from 0 to 1")

    def _splits(self, labels: np.ndarray, groups: Any, seed: int) -> list[Split]:
        if isinstance(self.validation, float) and self.validation < 1.0:
            return shuffled(labels, groups=groups, n_splits=1, test_size=self.validation, random_state=seed)
        check_number("validation", self.validation, low=2, whole=True)
        units = np.arange(labels.size) if groups is None else np.unique(list(map(str, groups)), return_inverse=True)[1]
        fewest = min(np.unique(units[labels == c]).size for c in self.classes_)
        if fewest < 2:
            raise ValueError(
                "a class has all its distributions in one group (or only one distribution): nothing can be held out "
                "to choose parameters by; use GroundMetricLearner with given parameters"
            )
        return folds(labels, groups=groups, n_splits=min(int(self.validation), fewest), random_state=seed)

    def _search(self, D: Distributions, codes: np.ndarray, splits: list[Split], seed: int) -> list[Setting]:
        """The settings that were followed to the end, best first."""
        learner = GroundMetricLearner() if self.learner is None else self.learner
        settings = [
            Setting(float(margin), float(strength)) for margin, strength in product(self.margins, self.strengths)
        ]
        rounds = _ROUNDS if len(settings) > _FEWEST else _ROUNDS[-1:]
        sizes = [max(min(_FEWEST, len(settings)), round(share * len(settings))) for _, share in rounds]
        self.scores_: list[dict] = []
        with (
            Parallel(n_jobs=self.n_jobs, max_nbytes=None) as parallel,
            tqdm(
                total=sum(sizes) * len(splits),
                desc="search",
                unit="fit",
                disable=None if self.verbose else True,
                leave=False,
            ) as bar,
        ):
            for (share, _), size in zip(rounds, sizes, strict=True):
                settings = sorted(settings, key=lambda setting: -setting.score)[:size]
                epochs = max(1, round(share * learner.max_epochs))
                tasks = [(setting, split) for setting in settings for split in splits]
                cohort = D if share == 1.0 else D.subsample(_FEW_POINTS, random_state=seed)
                fits = parallel(
                    delayed(_fit_and_score)(learner, setting, epochs, cohort, codes, split, seed)
                    for setting, split in tasks
                )
                bar.update(len(tasks))
                for place, setting in enumerate(settings):
                    parts = fits[place * len(splits) : (place + 1) * len(splits)]
                    setting.metrics = [metric for metric, _ in parts]
                    setting.score = balanced_mean(*_joined([judged for _, judged in parts]))[0]
                    self._note(setting, epochs, 0.0, None, setting.score)
        return sorted(settings, key=lambda setting: -setting.score)

    def _shrink(
        self, D: Distributions, codes: np.ndarray, splits: list[Split], settings: list[Setting]
    ) -> tuple[float, str | None]:
        """The weight of a metric that does not know the labels, and which one: none unless that is clearly better."""
        learned = [
            average_metric([setting.metrics[fold] for setting in settings], [1.0] * len(settings), D[train])
            for fold, (train, _) in enumerate(splits)
        ]
        learned = [of_unit_spread(metric, D[train]) for metric, (train, _) in zip(learned, splits, strict=True)]

        def judge(weight: float, references: list[GroundMetric]) -> tuple[np.ndarray, np.ndarray]:
            parts = []
            for metric, reference, (train, test) in zip(learned, references, splits, strict=True):
                blend = average_metric([metric, reference], [1.0 - weight, weight], D[train])
                parts.append(_judge(blend, D, codes, train, test))
            return _joined(parts)

        plain, judged = judge(0.0, learned)
        weights = sorted(set(map(float, self.shrinkages)))
        best: tuple[float, float, str | None] = (0.0, 0.0, None) if 0.0 in weights else (-np.inf, 0.0, None)
        for name in ("given", "standardised"):
            references = [reference_metric(D[train], name) for train, _ in splits]
            for weight in (weight for weight in weights if weight > 0.0):
                scores, _ = judge(weight, references)
                gain, error = balanced_mean(scores - plain, judged)
                self._note(settings[0], None, weight, name, balanced_mean(scores, judged)[0])
                if gain > best[0] and (gain > error or 0.0 not in weights):
                    best = gain, weight, name
        return best[1], best[2]

    def _note(
        self, setting: Setting, epochs: int | None, shrinkage: float, reference: str | None, score: float
    ) -> None:
        row = {"margin": setting.margin, "strength": setting.strength, "epochs": epochs}
        self.scores_.append(row | {"shrinkage": shrinkage, "reference": reference, "score": score})


def _fit_and_score(
    learner: GroundMetricLearner,
    setting: Setting,
    epochs: int,
    D: Distributions,
    codes: np.ndarray,
    split: Split,
    seed: int,
) -> tuple[GroundMetric, Judged]:
    """The metric that a setting learns from the training side of a split, and how it does on the other."""
    train, test = split
    fresh = clone(learner).set_params(
        margin=setting.margin, strength=setting.strength, max_epochs=epochs, random_state=seed, verbose=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # e.g. a class of one distribution: said by the final fit
        metric = fresh.fit(D[train], codes[train]).metric_
    metric = of_unit_spread(metric, D[train])
    return metric, _judge(metric, D, codes, train, test)


def _judge(metric: GroundMetric, D: Distributions, codes: np.ndarray, train: np.ndarray, test: np.ndarray) -> Judged:
    """How well held-out distributions find their class among the training ones; of many, a sample is judged."""
    random = np.random.RandomState(0)  # the same sample for every setting, so that they can be compared
    most_tested = int(np.sqrt(_MOST_PAIRS / 2))
    if test.size * train.size > _MOST_PAIRS:
        test = test if test.size <= most_tested else np.sort(random.choice(test, most_tested, replace=False))
        most_known = _MOST_PAIRS // test.size
        train = train if train.size <= most_known else np.sort(random.choice(train, most_known, replace=False))
    distances = pairwise_distances(D[test], D[train], metric)
    return neighbourhood_scores(distances, codes[test], codes[train]), codes[test]


def _joined(parts: list[Judged]) -> Judged:
    """Scores and classes of the held-out distributions of all folds."""
    return np.concatenate([scores for scores, _ in parts]), np.concatenate([codes for _, codes in parts])
