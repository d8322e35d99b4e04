"""Choosing margin, strength, epochs and shrinkage on held-out distributions, then averaging what the best learn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .._internal.executor import progress_bar
from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import check_labels, check_number
from ..distributions import Distributions, as_distributions, resolve_n_points, with_equal_points
from ..learning.splits import Split, folds, group_list, number_groups, shuffled
from ..learning.training import resolve_form
from ..metrics.average import average_metric, reference_metric
from ..metrics.base import Cost, GroundMetric
from ._base import GroundMetricMethod
from .grid import (
    BLIND,
    SPACES,
    Setting,
    best_first,
    choose_shrinkage,
    chosen,
    components_of,
    distinct,
    follow,
    learn,
    nearest,
    usable_spaces,
)
from .learner import GroundMetricLearner

# The paper's grid from 0.1 to 1000, but for where it ends in our units: from a margin of 10 mean distances on every
# triplet is active, and larger ones change nothing; larger strengths leave nothing of most metrics, and data of weak
# signal need smaller ones.
_MARGINS = (0.1, 1.0, 10.0)
_STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
# Share of the epochs that each round of the search may use, and share of the grid that enters it. Until the last, a
# few points of each distribution tell what is hopeless.
_ROUNDS = ((0.1, 1.0), (0.3, 1 / 3), (1.0, 1 / 8))
_FEW_POINTS = 100
# Settings that are followed to the end at least, and metrics that are averaged.
_FEWEST = 3
# What is decided about a setting.
_CHOSEN = ("space", "margin", "strength", "epochs")


class GroundMetricLearnerCV(GroundMetricMethod, BaseEstimator):
    """A ground metric whose margin, strength, epochs and shrinkage are chosen on held-out distributions.

    Every point of the grid learns from all folds but one and is judged on that one. Hopeless points are abandoned
    early: all learn from 100 points per distribution for a tenth of the epochs, the best third for three tenths, the
    best eighth (three at least) from all points to the end; one whose penalty outweighs the labels, so that it ends at
    a metric of 0, is abandoned at once. The score is smooth: the log-probability of the true class when neighbours vote
    by e^(-distance / τ), where τ adapts to the scale of the metric and each class counts the same. Votes that are more
    confident than correct are softened first, which does not change the class with most votes: a metric learned from
    few distributions is overconfident on others.

    With few distributions the best of many settings is best by luck. So the search begins with the learner's own
    setting (the point of the grid nearest to it, in the better one of `spaces`), follows it to the end, and leaves it
    only for settings that are better by more than two standard errors on held-out distributions, each with the number
    of epochs that served it best. The best three of these, or the learner's own in three runs, learn from all
    distributions, and their metrics are averaged, which is steadier than any one.

    What is learned is shrunk half way (the middle of `shrinkages`) towards a metric that does not know the labels, that
    of standardised features: between too few distributions to be sure, both know something. Another shrinkage, or one
    towards the features as given, is taken where held-out distributions are clearly better off in the same sense. 0
    means that the labels say all, 1 that they do not help.

    Parameters
    ----------
    learner : GroundMetricLearner or None, default=None
        Learner whose other parameters are used; its cost must be Euclidean and its form not Mapped, so that metrics
        can be averaged. None: the default parameters, but each class counts the same in the loss
        (``class_weight="balanced"``), as it does in the score.
    margins : sequence of float, default=(0.1, 1.0, 10.0)
        Margins of the grid, above 0.
    strengths : sequence of float, default=(0.001, 0.01, 0.1, 1.0, 10.0)
        Strengths of the penalty of the grid.
    shrinkages : sequence of float, default=(0.0, 0.25, 0.5, 0.75, 1.0)
        Weights of the metric that does not know the labels, from 0 (learned metric only) to 1 (labels ignored).
    spaces : sequence of {"features", "components"}, default=("features", "components")
        Spaces to learn in: all features, or their 25 leading principal components. Components are tried only where
        there are more than 50 features, and the learner has ``form="linear"`` and no array as `init`.
    validation : int or float, default=3
        Number of folds (fewer where a class has fewer distributions or groups), or the share that is held out once.
    n_jobs : int or None, default=None
        Number of processes; None means one, -1 one per core.
    random_state : int, RandomState or None, default=None
        Seed of the folds, the subsamples and the learners.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Attributes
    ----------
    metric_ : GroundMetric
        Average of the metrics of the chosen settings and the metric that they are shrunk towards.
    learner_ : GroundMetricLearner
        Learner whose parameters were used; not fitted itself.
    best_params_ : dict
        Space, margin, strength and epochs of the best setting (None where every metric vanished), shrinkage, and
        reference: the metric that is shrunk towards, "standardised", "given" or None.
    scores_ : list of dict
        Space, margin, strength, epochs, shrinkage, reference and score of every setting and shrinkage that was tried.
    classes_ : array of shape (n_classes,)
        Classes in sorted order.
    n_features_in_ : int
        Number of features of the points.

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
        margins: Sequence[float] = _MARGINS,
        strengths: Sequence[float] = _STRENGTHS,
        shrinkages: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        spaces: Sequence[str] = SPACES,
        validation: float = 3,
        n_jobs: int | None = None,
        random_state: RandomState = None,
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

    def fit(self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None) -> GroundMetricLearnerCV:
        """Search margin, strength, epochs and shrinkage, then average the metrics of the best settings.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided between folds; matched by name
            where they carry names.

        Returns
        -------
        GroundMetricLearnerCV
            The estimator itself.
        """
        D = as_distributions(X).with_mass()
        labels, groups = check_labels(y, D.name_index), group_list(groups, D.name_index)
        self._check_grid()
        self.learner_ = GroundMetricLearner(class_weight="balanced") if self.learner is None else clone(self.learner)
        _check_learner(self.learner_)
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
                f"{BLIND} features, and knows nothing of them; try smaller `strengths`",
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

    def _check_grid(self) -> None:
        for name in ("margins", "strengths", "shrinkages"):
            values = getattr(self, name)
            if len(values) == 0:
                raise ValueError(f"{name} is empty: at least one value is needed")
            for value in values:
                check_number(name, value, low=0.0, above=name == "margins")
        unknown = [space for space in self.spaces if space not in SPACES]
        if unknown or not len(self.spaces):
            raise ValueError(f"spaces are {list(self.spaces)}: expected some of {list(SPACES)}")
        if max(self.shrinkages) > 1.0:
            raise ValueError(f"shrinkages are {list(self.shrinkages)}: expected shares from 0 to 1")

    def _splits(self, labels: np.ndarray, groups: Any, seed: int) -> list[Split]:
        if isinstance(self.validation, float) and self.validation < 1.0:
            return shuffled(labels, groups=groups, n_splits=1, test_size=self.validation, random_state=seed)
        check_number("validation", self.validation, low=2, whole=True)
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
        own = {
            nearest([s for s in settings if s.space == space], learner.margin, learner.strength).name
            for space in spaces
        }
        settings.sort(key=lambda setting: setting.name not in own)  # first, so that they stay where others do the same
        self.scores_: list[dict[str, Any]] = []
        tried: list[Setting] = []
        with (
            Parallel(n_jobs=self.n_jobs, max_nbytes=None) as parallel,
            progress_bar(sum(sizes) * len(splits), "search", "fit", show=bool(self.verbose)) as bar,
        ):
            for (share, _), size in zip(rounds, sizes, strict=True):
                settings = [s for place, s in enumerate(settings) if place < size or s.name in own]
                bar.total += (len(settings) - size) * len(splits)
                epochs = max(1, round(share * learner.max_epochs))
                cohort = D if share == 1.0 else D.subsample(_FEW_POINTS, random_state=seed)
                followed = follow(parallel, learner, settings, epochs, cohort, codes, splits, components, seed)
                bar.update(len(settings) * len(splits))
                for setting in followed:
                    self._note(setting, epochs, 0.0, None, setting.score)
                tried += followed
                settings = best_first(distinct(followed))
                if not settings:  # so long, none lasts: what they were in the rounds before is what there is
                    break
        latest = {s.name: s for s in tried if s.name in own and s.judged is not None}
        begin = next(iter(best_first(list(latest.values()))), None)
        return chosen(distinct(tried), begin, _FEWEST)

    def _refit(self, D: Distributions, codes: np.ndarray, settings: list[Setting], seed: int) -> list[GroundMetric]:
        """What the settings learn from all distributions, in three runs at least; where a metric vanishes there, those
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
            kept
            for (setting, _), metric in zip(runs, learned, strict=True)
            for kept in (setting.metrics if metric is None else [metric])
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


def _check_learner(learner: Any) -> None:
    """A search fits it many times, and averages its metrics: the matrices M of Mahalanobis distances have a mean."""
    if not isinstance(learner, GroundMetricLearner) or "n_components" not in learner.get_params(deep=False):
        raise TypeError(
            f"learner is a {type(learner).__name__}: expected a GroundMetricLearner, or None for the default"
        )
    if Cost.named(learner.cost) is not Cost.EUCLIDEAN:
        raise ValueError(
            f"the cost of the learner is {learner.cost!r}: the metrics of a search are averaged, which needs "
            "cost='euclidean'; with another cost, fit GroundMetricLearner itself"
        )
    if resolve_form(learner.form).transformer is not None:
        raise ValueError(
            f"the form of the learner is {learner.form!r}: the metrics of a search are averaged, which needs 'linear' "
            "or 'diagonal'; transform the points first (`Distributions.with_points`), or fit GroundMetricLearner itself"
        )
    if learner.checkpoint is not None:
        raise ValueError(
            f"the checkpoint of the learner is {learner.checkpoint!r}: the many fits of a search cannot share a file; "
            "leave it out"
        )
