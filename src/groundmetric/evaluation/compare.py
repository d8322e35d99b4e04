"""compare: methods on the same splits, each fitted on the training part and scored on the test part."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .._internal.parallel import progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, SplitsLike
from .._internal.validation import check_labels
from ..distributions import Distributions, SmallSampleWarning, as_distributions, resolve_n_points
from ..learning.splits import Split, as_splits, check_splits, folds, group_list, shuffled
from ._run import ERROR, Cohort, Protocol, ResultCache, Task, attempt
from .results import Comparison


def compare(
    methods: Mapping[str, Estimator],
    D: DistributionsLike,
    y: LabelsLike,
    *,
    cv: SplitsLike = None,
    groups: LabelsLike | None = None,
    n_neighbors: int = 5,
    n_point_neighbors: int = 100,
    weights: str = "distance",
    class_weight: str | None = None,
    points: bool = True,
    max_points: int | None = None,
    n_points: int | str | None = "equal",
    clustering: str | None = None,
    only: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> Comparison:
    """Fit every method on the training part of every split, and score it on the test part.

    Everything that a method fits (gene choice, scaling, learning, tuning) sees the training part only. Methods that
    have `predict_proba` are asked for it; of others, the nearest training distributions vote. At point level, the
    nearest training points vote, each with the label of its distribution; points of no mass are left out.

    Parameters and splits are checked before the first fit. A method that fails on the first split and then on the
    second as well cannot run on these data, which is an error. A method that fails on other splits is reported as such,
    and the others go on.

    Parameters
    ----------
    methods : dict of str to estimator
        An estimator has ``fit(D, y)`` and ``distances(A, B)`` or ``predict_proba(D)``; with ``point_distances(x, y)``
        it is also scored at point level. One that has ``takes_groups = True`` is fitted with
        ``fit(D, y, groups=...)``, the outer groups of its training part. The first is the reference that others are
        compared with.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; these and `groups` go by name where they carry names.
    cv : int, list of (train, test), scikit-learn splitter or None, default=None
        An int is a number of folds: ``folds(y, groups=groups, n_splits=cv, random_state=0)``. None is
        ``shuffled(y, groups=groups, random_state=0)``.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): never on both sides of a split.
    n_neighbors : int, default=5
        Distributions that vote; all where there are fewer.
    n_point_neighbors : int, default=100
        Points that vote; all where there are fewer.
    weights : {"distance", "uniform"}, default="distance"
        Votes count by one over the distance, or equally.
    class_weight : {None, "balanced"}, default=None
        "balanced" divides votes by how often their class occurs in the training part.
    points : bool, default=True
        Whether points are scored too.
    max_points : int or None, default=None
        Of more points in a training or test part, so many are drawn for the scores of points; None: all, and 4000 for
        clusters of points.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution, drawn at random (`Distributions.equalize`), by which distances between
        distributions are compared: distances grow as distributions have fewer points, so that classes whose numbers of
        points differ would be told apart without any other difference. "equal": `Distributions.common_size` of the
        cohort; None: all points, with this bias. Methods that have `predict_proba` get all points.
    clustering : {None, "test", "all"}, default=None
        "test" clusters the test part of each split, "all" all distributions, the training part included (as the paper
        does); None: nothing is clustered.
    only : dict of str to value or None, default=None
        Annotation to value: the points that are clustered, e.g. ``{"mode": "centre"}``.
    n_jobs : int or None, default=None
        Fits (a method on a split) that run at the same time in worker processes, or on the cluster that joblib is
        configured for; None means one, in this process, -1 one per core.
    resume : path-like or None, default=None
        File of finished results; what is there already, for the same data, splits and parameters, is not run again.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

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
    >>> found = evaluation.compare(methods, D, y, cv=evaluation.folds(y, random_state=0), points=False)
    >>> bool(found.difference("learned", "Euclidean").low > 0)
    True
    """
    D = as_distributions(D)
    labels, groups = check_labels(y, D.name_index), group_list(groups, D.name_index)
    _check_methods(methods)
    splits = as_splits(_splitter(cv, labels, groups), labels, groups, D.name_index)
    check_splits(splits, labels, groups)
    protocol = Protocol(
        n_neighbors, n_point_neighbors, weights, points, max_points, clustering, only, class_weight, n_points
    )
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
    estimators = {name: _in_words(method) for name, method in methods.items()}
    return Comparison(
        D.names, labels.tolist(), cohort.classes.tolist(), splits, results, protocol, groups, notes, estimators
    )


def _in_words(method: Any) -> str:
    """The estimator with the parameters that are not as they are by default, on one line."""
    return " ".join(repr(method).split())


def _splitter(cv: Any, labels: np.ndarray, groups: list[Hashable] | None) -> Any:
    """What `as_splits` takes, from a number of folds or None as well."""
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
    """A note for each level at which a training part has fewer items than should vote."""
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
