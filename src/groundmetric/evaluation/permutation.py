"""Permutation test: the score of a method against its scores with labels exchanged."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._internal.executor import progress_bar
from .._internal.types import DistributionsLike, Estimator, LabelsLike, RandomState, SplitsOfLabels
from .._internal.validation import check_labels, check_number
from ..distributions import as_distributions
from ..estimators.ensemble import GroundMetricEnsemble
from ..estimators.predictor import TransportClassifier, TransportRegressor
from ..supervision.permutations import RestrictedPermutations, restricted_permutations
from ..supervision.splits import check_splits, group_list
from ._run import FixedSplits, Procedure, Protocol, SharedProcedure, recorded_warnings, splitting_by
from .scores import SCORES

# Threads up to which a test that can run in them does: more wait for each other, and processes take seconds to start.
_MOST_THREADS = 2
# Null values this close to the statistic are ties, which count against it.
_TIE = 1e-9


@dataclass(frozen=True)
class PermutationTest:
    """Permutation test: the score of a method, its scores with labels permuted, and the p-value.

    Parameters
    ----------
    statistic : float
        The score with the data's own labels.
    null : array of shape (n_permutations,)
        Scores with labels permuted; NaN where the method failed or the score is not defined, which counts as a hit.
    p : float
        (1 + hits) / (1 + permutations); a hit is a null score as high as the statistic or higher.
    score : str
        Name of the score.
    exchanged : str
        Units among which labels were permuted, in words, e.g. "groups within strata".
    arrangements : int
        Number of different arrangements of the labels. The smallest p-value of N permutations is 1 / (N + 1); where
        arrangements are fewer, the smallest to expect is about one over their number.
    seconds : float
        Mean time of one arrangement, fits and predictions on all splits.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=3, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> method = gm.baselines.Euclidean()
    >>> test = gm.evaluation.permutation_test(method, D, y, cv=3, n_permutations=9, random_state=0)
    >>> test.null.shape, test.exchanged, test.arrangements
    ((9,), 'distributions', 1680)
    """

    statistic: float
    null: np.ndarray
    p: float
    score: str
    exchanged: str
    arrangements: int
    seconds: float

    @property
    def failed(self) -> int:
        """Number of arrangements in which the method failed."""
        return int(np.isnan(self.null).sum())

    def __repr__(self) -> str:
        return (
            f"PermutationTest({self.score} {self.statistic:.3f}, p = {self.p:.4g} from {self.null.size} permutations "
            f"of {self.exchanged})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data that JSON can hold.

        Returns
        -------
        dict
            All parameters by name, and `failed`; scores that are NaN are None.
        """
        null = [None if np.isnan(value) else float(value) for value in self.null]
        fields = ("statistic", "p", "score", "exchanged", "arrangements", "seconds", "failed")
        return {**{name: getattr(self, name) for name in fields}, "null": null}


def permutation_test(
    method: Estimator,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    cv: SplitsOfLabels = None,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    n_permutations: int = 199,
    score: str | None = None,
    n_neighbors: int = 5,
    weights: str = "distance",
    class_weight: str | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
    verbose: int = 0,
) -> PermutationTest:
    """Test whether a method predicts labels better than it could if labels had nothing to do with the data.

    Labels are exchanged, and everything is done again: splitting, fitting, predicting. The data's own labels go through
    exactly the same, so that under the null hypothesis their score ranks anywhere among the others with equal chance,
    and p-values are uniform (conservative where scores tie).

    What is exchanged, within strata where given: labels of distributions. Where every outer group has one label (a
    patient with several samples): labels of whole groups. Where groups hold several (a donor, treated or not): labels
    of distributions within their group, and where groups differ in what they hold, also all labels of one group with
    those of another of the same size.

    What saves time: of the learned distances only the nearest neighbours are computed, and most pairs are ruled out by
    bounds; an arrangement that comes up twice is done once; arrangements run side by side and share the points; a
    method that says ``uses_labels = False`` is fitted once per split where all arrangements have the same splits. A fit
    itself shares nothing with another: what does not depend on labels (the features' moments) is less than a hundredth
    of it.

    Parameters
    ----------
    method : estimator
        As in `compare`. A `GroundMetricEnsemble`, or a `TransportClassifier` or `TransportRegressor` on one, is not
        split and fitted again: its distributions are held out by its own members, and permutations share all that does
        not depend on labels.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels, of a `TransportRegressor` numbers; these, groups and strata go by name where they carry names.
    cv : int, callable, scikit-learn splitter, list of (train, test) or None, default=None
        Number of folds, a function of labels to a list of (train, test), or a splitter: made anew for every
        arrangement; for a method with ``uses_labels = False``, a number of folds gives the same unstratified ones for
        all. Or a list of (train, test), the same for all: it must not depend on `y` (that of `leave_one_out` does not),
        else the stratification gives the data's own labels an advantage. None: 5 folds, or as many as the smallest
        class allows, and at least 2.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution: never on both sides of a split.
    strata : array-like of shape (n_distributions,) or None, default=None
        Labels are exchanged only within these (centre, batch, sex).
    n_permutations : int, default=199
        Number of exchanges of the labels.
    score : {"accuracy", "balanced_accuracy", "macro_f1", "roc_auc", "log_probability", "log_likelihood"} or None, \
default=None
        What is tested. None: balanced accuracy; of an ensemble, "log_probability", the mean log-probability of the
        true class out of bag, or of numbers "log_likelihood", which are the only ones it has.
    n_neighbors : int, default=5
        Distributions that vote, as in `compare`.
    weights : {"distance", "uniform"}, default="distance"
        Weight of a vote, as in `compare`.
    class_weight : {None, "balanced"}, default=None
        As in `compare`.
    n_jobs : int or None, default=None
        Arrangements at the same time, by joblib (its backend, a cluster for example, can be chosen as usual): in
        processes, but two of an ensemble in threads, which need not be started.
    random_state : int, RandomState or None, default=None
        Seed of the exchanges and of the folds.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Returns
    -------
    PermutationTest
        The score, its null distribution and the p-value.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=3, offsets=(1.5, 7.5, 13.5, 19.5), random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=3, random_state=0)
    >>> gm.evaluation.permutation_test(learner, D, y, cv=2, n_permutations=19, random_state=0).p
    0.05
    """
    check_number("n_permutations", n_permutations, low=1, whole=True)
    test = prepare_test(
        method, D, y, cv=cv, groups=groups, strata=strata, score=score, n_neighbors=n_neighbors, weights=weights,
        class_weight=class_weight, random_state=random_state,
    )  # fmt: skip
    return test.run(n_permutations, n_jobs=n_jobs, verbose=verbose)


def prepare_test(
    method: Any,
    D: Any,
    y: Any,
    *,
    cv: Any = None,
    groups: Any = None,
    strata: Any = None,
    score: str | None = None,
    n_neighbors: int = 5,
    weights: str = "distance",
    class_weight: str | None = None,
    random_state: Any = None,
) -> PreparedTest:
    """All of a `permutation_test` that is done once, however many permutations there are."""
    D = as_distributions(D)
    groups, strata = group_list(groups, D.roll), group_list(strata, D.roll, "strata")
    random = check_random_state(random_state)
    procedure: Callable[[np.ndarray], float]
    if (ensemble := _ensemble_of(method)) is not None:
        score = _check_ensemble_options(ensemble, cv, score)
        ensemble.set_params(random_state=random.randint(2**31)).fit(D, y, groups=groups, strata=strata)
        codes, procedure = ensemble._codes, partial(_held_out_score, ensemble)
        exchange = restricted_permutations(codes, groups, strata, names=D.roll.names)
    else:
        labels = check_labels(y, D.roll)
        score = "balanced_accuracy" if score is None else score
        if score not in SCORES:
            raise ValueError(f"score is {score!r}: expected one of {list(SCORES)}")
        protocol = Protocol(n_neighbors=n_neighbors, weights=weights, points=False, class_weight=class_weight)
        protocol.check(D)
        classes, codes = np.unique(labels, return_inverse=True)
        exchange = restricted_permutations(codes, groups, strata, names=D.roll.names)
        shareable = not getattr(method, "uses_labels", True)
        splitting = splitting_by(cv, classes, codes, groups, random.randint(2**31), shareable, D.roll)
        if not shareable or not isinstance(cv, int | np.integer | None):  # neighbours vote without examples of a class
            check_splits(splitting(codes), labels, groups)
        repeated = Procedure(method, D, classes, groups, splitting, protocol, score)
        shared = shareable and isinstance(splitting, FixedSplits)
        procedure = SharedProcedure.of(repeated) if shared else repeated
    _warn_of_few(exchange)
    return PreparedTest(procedure, codes, exchange, score, random, threads=ensemble is not None)


class PreparedTest:
    """A permutation test that can be run again with more permutations: those that are done are not done again.

    `threads`: the procedure spends most of its time without Python's lock.
    """

    def __init__(
        self,
        procedure: Callable[[np.ndarray], float],
        codes: np.ndarray,
        exchange: RestrictedPermutations,
        score: str,
        random: np.random.RandomState,
        threads: bool = False,
    ) -> None:
        self._procedure, self._codes, self._exchange, self._score = procedure, codes, exchange, score
        self._random, self._threads = random, threads
        self._drawn: list[np.ndarray] = []
        self._answers: dict[bytes, tuple[float, float]] = {}  # score and seconds, by arrangement

    def run(self, n_permutations: int, *, n_jobs: int | None = None, verbose: int = 0) -> PermutationTest:
        """The score of the data's own labels among those of permuted ones."""
        own = self._codes.tobytes()
        if own not in self._answers:  # first and here, so that an error is seen at once
            with recorded_warnings():
                self._answers[own] = _timed(self._procedure, self._codes)
        statistic = self._answers[own][0]
        if np.isnan(statistic):
            raise ValueError(
                f"{self._score} is not defined on any of these splits: take another score, or larger test parts"
            )
        while len(self._drawn) < n_permutations:
            self._drawn.append(self._exchange.draw(self._random))
        drawn = self._drawn[:n_permutations]
        self._answer(drawn, n_jobs, verbose)
        null = np.array([self._answers[labels.tobytes()][0] for labels in drawn])
        hits = int(np.sum(~(null < statistic - _TIE)))  # ties and failures count as hits
        return PermutationTest(
            statistic=statistic,
            null=null,
            p=(1 + hits) / (1 + n_permutations),
            score=self._score,
            exchanged=self._exchange.among,
            arrangements=self._exchange.arrangements,
            seconds=float(np.nanmean([seconds for _, seconds in self._answers.values()])),
        )

    def _answer(self, drawn: list[np.ndarray], n_jobs: int | None, verbose: int) -> None:
        """Compute the scores of arrangements that are not known yet; one that comes up twice is done once."""
        missing = {labels.tobytes(): labels for labels in drawn if labels.tobytes() not in self._answers}
        in_threads = self._threads and 1 < joblib.effective_n_jobs(n_jobs) <= _MOST_THREADS
        attempted = joblib.delayed(partial(_attempted, self._procedure, os.getpid() if in_threads else None))
        with (
            recorded_warnings() if in_threads else contextlib.nullcontext(),
            progress_bar(len(missing), "permuting", "arrangement", show=bool(verbose)) as bar,
        ):
            jobs = joblib.Parallel(n_jobs=n_jobs, return_as="generator", prefer="threads" if in_threads else None)
            for arrangement, answer in zip(missing, jobs(map(attempted, missing.values())), strict=True):
                self._answers[arrangement] = answer
                bar.update()


def _ensemble_of(method: Any) -> GroundMetricEnsemble | None:
    """A small copy of an ensemble, or of that of a predictor; None of other methods.

    It is fitted for its geometry; all statistics, that of the data's own labels too, are those of `relabelled` copies.
    """
    if isinstance(method, TransportClassifier | TransportRegressor):
        target = "ordered" if isinstance(method, TransportRegressor) else "classes"
        method = clone(method.ensemble or GroundMetricEnsemble()).set_params(target=target)
    if not isinstance(method, GroundMetricEnsemble):
        return None
    return clone(method).set_params(kinds=("univariate",), n_members=2)


def _check_ensemble_options(ensemble: GroundMetricEnsemble, cv: Any, score: str | None) -> str:
    only = "log_likelihood" if ensemble.target == "ordered" else "log_probability"
    if cv is not None:
        raise ValueError(f"cv is {cv!r}, but an ensemble holds distributions out by its members: leave it out")
    if score not in (None, only):
        raise ValueError(f"score is {score!r}: of an ensemble, {only!r} is tested; leave it out")
    return only


def _held_out_score(ensemble: GroundMetricEnsemble, codes: np.ndarray) -> float:
    return ensemble.relabelled(codes).score_


def _warn_of_few(exchange: RestrictedPermutations) -> None:
    if exchange.arrangements < 20:
        warnings.warn(
            f"there are only {exchange.arrangements} arrangements of labels among {exchange.among}: however many "
            f"permutations are drawn, the smallest p-value to expect is about {1 / exchange.arrangements:.2g}, and a "
            "smaller one is luck of the draw; give "
            "more distributions or groups, or coarser strata",
            UserWarning,
            stacklevel=4,
        )


def _timed(procedure: Callable[[np.ndarray], float], codes: np.ndarray) -> tuple[float, float]:
    start = time.perf_counter()
    value = procedure(codes)
    return value, time.perf_counter() - start


def _attempted(
    procedure: Callable[[np.ndarray], float], recorder: int | None, codes: np.ndarray
) -> tuple[float, float]:
    """NaN where the method cannot cope with these labels.

    Warnings are recorded here, unless the process `recorder` does so around its threads, which cannot do it each.
    """
    try:
        with contextlib.nullcontext() if os.getpid() == recorder else recorded_warnings():
            return _timed(procedure, codes)
    except MemoryError:
        raise
    except Exception:
        return np.nan, np.nan
