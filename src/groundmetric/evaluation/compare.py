"""Comparison of methods on the same splits, and distances under metrics that were fitted without a distribution."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .._internal.parallel import progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, SplitsLike
from .._internal.validation import NameIndex, check_classes, check_labels, group_list, label_array
from ..distributions import Distributions, SmallSampleWarning, as_distributions, resolve_n_points
from ..learning.splits import Split, as_splits, check_splits, folds, rounds_of, shuffled
from ._run import ERROR, Cohort, Protocol, ResultCache, Task, Voting, attempt, fit
from .results import Comparison
from .scores import check_distances


def compare(
    methods: Mapping[str, Estimator],
    D: DistributionsLike,
    y: LabelsLike,
    *,
    cv: SplitsLike = None,
    groups: LabelsLike | None = None,
    voting: Voting | None = None,
    points: bool = True,
    clustering: bool = False,
    n_jobs: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> Comparison:
    """Fit every method to the training set of every split, and score it on the test set.

    All steps of a method (gene selection, scaling, learning, tuning) are fitted to the training set only. Methods with
    `predict_proba` predict by it; for others, the nearest training distributions vote. At the level of points, the
    nearest training points vote with the label of their distribution; points of zero mass are excluded.

    Parameters and splits are checked before the first fit. A method that fails on the first two splits is an error; a
    failure on other splits is part of the result.

    Parameters
    ----------
    methods : dict of str to estimator
        An estimator has ``fit(D, y)`` and ``distances(A, B)`` or ``predict_proba(D)``; with ``point_distances(x, y)``
        it is also scored at point level. One that has ``takes_groups = True`` is fitted with
        ``fit(D, y, groups=...)``, the outer groups of its training set. The first method is the reference in paired
        comparisons.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; `y` and `groups` are matched by name if they carry names.
    cv : int, list of (train, test), scikit-learn splitter or None, default=None
        An int is a number of folds: ``folds(y, groups=groups, n_splits=cv, random_state=0)``. None is
        ``shuffled(y, groups=groups, random_state=0)``.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): never on both sides of a split.
    voting : Voting or None, default=None
        Votes of nearest neighbours, for methods without `predict_proba` and for points; None: ``Voting()``.
    points : bool, default=True
        Whether points are scored, too.
    clustering : bool, default=False
        Whether the test set of each split is clustered.
    n_jobs : int or None, default=None
        Fits (a method on a split) that run at the same time in worker processes, or on the cluster that joblib is
        configured for; None means one, in this process, -1 one per core.
    resume : path-like or None, default=None
        Cache file: results for the same data, splits and parameters are read from it.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Returns
    -------
    Comparison
        Scores with intervals, paired differences and predictions of every method.

    Examples
    --------
    >>> import groundmetric as gm
    >>> from groundmetric import evaluation
    >>> from groundmetric.baselines import Euclidean
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> methods = {"learned": gm.GroundMetricLearner(max_epochs=10, random_state=0), "Euclidean": Euclidean()}
    >>> comparison = evaluation.compare(methods, D, y, cv=evaluation.folds(y, random_state=0), points=False)
    >>> bool(comparison.difference("learned", "Euclidean").low > 0)
    True
    """
    D = as_distributions(D)
    labels, groups = check_labels(y, D.name_index), group_list(groups, D.name_index)
    _check_methods(methods)
    splits = as_splits(_splitter(cv, labels, groups), labels, groups, D.name_index)
    check_splits(splits, labels, groups)
    protocol = Protocol.of(voting, points=points, clustering=clustering)
    protocol.check(D)
    cohort = Cohort(D, labels, np.unique(labels), groups)
    notes = _too_few_voters(cohort, splits, protocol)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    small = _small_samples(D, protocol)
    if small is not None:
        warnings.warn(small, stacklevel=2)
        notes.append(str(small))

    cache = ResultCache(resume, cohort, protocol, methods)
    tasks = [Task(name, at, methods[name], *split) for at, split in enumerate(splits) for name in methods]
    done = {(task.name, task.split): result for task in tasks if (result := cache.get(task)) is not None}
    with progress_bar(len(tasks), "comparing", "fit", show=bool(verbose)) as bar:

        def run(chosen: list[Task]) -> None:
            missing = [task for task in chosen if (task.name, task.split) not in done]
            for number, result in run_tasks(partial(attempt, cohort, protocol), missing, n_jobs):
                task = missing[number]
                done[task.name, task.split] = result
                cache.put(task, result)
                bar.set_postfix(last=f"{task.name}, split {task.split}", refresh=False)
                bar.update()

        bar.update(len(done))
        run([task for task in tasks if task.split == 0])
        failed = {name for name in methods if done[name, 0].outcome == ERROR}
        second = min(1, len(splits) - 1)
        run([task for task in tasks if task.split == second and task.name in failed])
        wrong = [name for name in methods if name in failed and done[name, second].outcome == ERROR]
        if wrong:
            reasons = "; ".join(f"{name!r}: {done[name, second].status}" for name in wrong)
            raise ValueError(f"these methods cannot run on these data; correct them or leave them out: {reasons}")
        run(tasks)
    results = {name: [done[name, at] for at in range(len(splits))] for name in methods}
    estimators = {name: " ".join(repr(method).split()) for name, method in methods.items()}
    return Comparison(
        D.names, labels.tolist(), cohort.classes.tolist(), splits, results, protocol, groups, notes, estimators
    )


def _splitter(cv: Any, labels: np.ndarray, groups: list[Hashable] | None) -> Any:
    """Return the input of `as_splits` for a number of folds, None or other splits."""
    if cv is None:
        return shuffled(labels, groups=groups, random_state=0)
    if isinstance(cv, int | np.integer):
        return folds(labels, groups=groups, n_splits=int(cv), random_state=0)
    return cv


def _check_methods(methods: Mapping[str, Any]) -> None:
    if not isinstance(methods, Mapping) or not methods:
        raise ValueError(f"methods is {methods!r}: expected a dict of names to estimators, with at least one")
    for name, method in methods.items():
        if not hasattr(method, "fit") or not hasattr(method, "get_params"):
            raise ValueError(
                f"method {name!r} is {method!r}: expected a scikit-learn estimator, with fit and get_params"
            )
        if not hasattr(method, "distances") and not hasattr(method, "predict_proba"):
            raise ValueError(f"method {name!r} ({type(method).__name__}) has neither `distances` nor `predict_proba`")


def _too_few_voters(cohort: Cohort, splits: list[Split], protocol: Protocol) -> list[str]:
    """Return a note for each level at which a training set has fewer items than the number of neighbours."""
    notes = []
    least = min(train.size for train, _ in splits)
    if least < protocol.n_neighbors:
        notes.append(
            f"n_neighbors is {protocol.n_neighbors}, but a training part has only {least} distributions: all of them "
            "vote"
        )
    least = min(int(cohort.D.sizes[train].sum()) for train, _ in splits)
    if protocol.points and least < protocol.n_point_neighbors:
        notes.append(
            f"n_point_neighbors is {protocol.n_point_neighbors}, but a training part has only {least} points: all of "
            "them vote"
        )
    return notes


def _small_samples(D: Distributions, protocol: Protocol) -> SmallSampleWarning | None:
    """Return a warning that names the distributions with fewer points than distances are compared by."""
    n, D = resolve_n_points(protocol.n_points, D), D.with_mass()
    small = [] if n is None else [D.names[d] for d in np.flatnonzero(np.floor(D.effective_sizes + 1e-6) < n)]
    return SmallSampleWarning(small, n) if n is not None and small else None


def out_of_fold_distances(
    method: Estimator, D: DistributionsLike, y: LabelsLike, *, cv: SplitsLike = 5, groups: LabelsLike | None = None
) -> np.ndarray:
    """Return the distances of each distribution to all others under a method that was fitted without it.

    Row i is computed with a metric that was trained on other folds than that of distribution i. Metrics of different
    folds have different units, so rows are divided by the mean distance of their fold; the matrix is not symmetric.

    Parameters
    ----------
    method : estimator
        With ``fit(D, y)`` and ``distances(A, B)``. One that has ``takes_groups = True`` is fitted with groups.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; `y` and `groups` are aligned by name if they have names.
    cv : int, list of (train, test) or scikit-learn splitter, default=5
        Number of folds, or splits that test each distribution once. Numbers as labels need splits.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): never on both sides of a split.

    Returns
    -------
    array of shape (n_distributions, n_distributions)
        Distances, 0 on the diagonal.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.GroundMetricLearner(max_epochs=5, random_state=0)
    >>> gm.evaluation.out_of_fold_distances(learner, D, y, cv=3).shape
    (30, 30)
    """
    D = as_distributions(D)
    labels, groups = label_array(y, D.name_index), group_list(groups, D.name_index)
    if not hasattr(method, "fit") or not hasattr(method, "distances"):
        raise ValueError(f"method is {method!r}: expected an estimator with fit and distances")
    splits = _splits_of_all(cv, labels, groups, D.name_index)
    cohort = Cohort(D, labels, np.empty(0), groups)
    distances = np.empty((len(D), len(D)))
    for train, test in splits:
        fitted = fit(method, D[train], cohort, train)
        rows = check_distances(fitted.distances(D[test], D), len(D))
        distances[test] = rows / (rows[:, train].mean() or 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _splits_of_all(cv: Any, labels: np.ndarray, groups: list[Hashable] | None, name_index: NameIndex) -> list[Split]:
    """Return splits that test each distribution once."""
    if isinstance(cv, int | np.integer):
        check_classes(labels)
        cv = folds(labels, groups=groups, n_splits=int(cv), random_state=0)
    splits = as_splits(cv, labels, groups, name_index)
    check_splits(splits, labels, groups)
    rounds = rounds_of(splits, labels.size)
    if rounds is None or rounds.max() > 0:
        tested = np.bincount(np.concatenate([test for _, test in splits]), minlength=labels.size)
        wrong = int(np.flatnonzero(tested != 1)[0])
        raise ValueError(
            f"cv tests distribution {wrong} {tested[wrong]} times: each must be tested once; give a number of "
            "folds, or `evaluation.folds`, `leave_one_out` or `leave_one_group_out`"
        )
    return splits
