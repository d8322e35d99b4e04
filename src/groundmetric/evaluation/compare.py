"""Does one method help on these data, against everything else one would try, and how sure is that?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._internal.progress import progress_bar
from .._internal.validation import check_labels
from ..distributions import as_distributions
from ..supervision.splits import as_splits, check_splits, group_list, shuffled
from ._cache import ResultCache, check_describable, fingerprint, key_of
from ._run import OK, OUT_OF_MEMORY, OUT_OF_TIME, Cohort, Protocol, Result
from ._workers import Task, Workers, check_limits
from .results import Comparison

# A rehearsal takes so many training distributions of each class, and so many points of each.
_FEW, _FEW_POINTS = 3, 30


def compare(
    methods: Mapping[str, Any],
    D: Any,
    y: Any,
    *,
    splits: Any = None,
    groups: Any = None,
    k: int = 5,
    k_points: int = 100,
    weights: str = "distance",
    class_weight: str | None = None,
    points: bool = True,
    max_points: int | None = None,
    clustering: str | None = None,
    only: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    resume: str | os.PathLike | None = None,
    verbose: int = 0,
) -> Comparison:
    """Fit every method on the training part of every split, and score it on the test part.

    Everything that a method fits (gene choice, scaling, learning, tuning) sees the training part only. Methods that
    have `predict_proba` are asked for it; of others, the k nearest training distributions vote. At point level, the
    k_points nearest training points vote, each with the label of its distribution; points of no mass are left out.

    Bad input is said before the long work: parameters and splits are checked, and every method is rehearsed on a few
    points. One that fails there and then on the first split as well cannot run on these data, and is an error. A
    method that fails later, or runs out of time or memory, is reported as such, and the others go on.

    Parameters
    ----------
    methods : dict of name to estimator with ``fit(D, y)`` and ``distances(A, B)`` or ``predict_proba(D)``; with
        ``point_distances(x, y)`` also at point level. One that has ``takes_groups = True`` is fitted with
        ``fit(D, y, groups=...)``, the outer groups of its training part. The first is the reference that others are
        compared with.
    D : Distributions
    y : labels, one per distribution; these and groups go by name where they carry names
    splits : list of (train, test), or a splitter of scikit-learn; None: ``shuffled(y, groups=groups, random_state=0)``
    groups : outer group of each distribution (the patient of a sample): never on both sides of a split
    k, k_points : neighbours that vote among distributions and among points; all where there are fewer
    weights : {"distance", "uniform"}
    class_weight : {None, "balanced"}; "balanced" divides votes by how often their class occurs in the training part
    points : whether to score points too
    max_points : of more points in a training or test part, so many are drawn for the scores of points
    clustering : None, "test" (cluster the test part of each split) or "all" (as the paper: everybody, those that were
        learned from included)
    only : annotation to value: points that are clustered, e.g. ``{"mode": "centre"}``
    n_jobs : methods and splits at the same time, in processes of their own; None means one, -1 one per core
    time_limit : seconds that a method may take on a split; beyond: "OOT"
    memory_limit : megabytes that a method may allocate on a split; beyond: "OOM". Linux only.
    resume : file where finished results are kept; what is there already, for the same data, splits and parameters,
        is not done again
    verbose : 1 shows a progress bar where there is a terminal

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import groundmetric as gm
    >>> from groundmetric import evaluation
    >>> from groundmetric.baselines import Euclidean
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> methods = {"learned": gm.GroundMetricLearner(max_epochs=10, random_state=0), "Euclidean": Euclidean()}
    >>> found = evaluation.compare(methods, D, y, splits=evaluation.folds(y, random_state=0), points=False)
    >>> bool(found.difference("learned", "Euclidean").low > 0)
    True
    """
    D = as_distributions(D)
    labels, groups = check_labels(y, D.roll), group_list(groups, D.roll)
    _check_methods(methods)
    if splits is None:
        splits = shuffled(labels, groups=groups, random_state=0)
    splits = as_splits(splits, labels, groups, D.roll)
    check_splits(splits, labels, groups)
    protocol = Protocol(k, k_points, weights, points, max_points, clustering, only, class_weight)
    protocol.check(D)
    check_limits(time_limit, memory_limit)
    cohort = Cohort(D, labels, np.unique(labels), groups)
    notes = _capped(cohort, splits, protocol)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)

    earlier = _Earlier(resume, cohort, protocol, methods, time_limit, memory_limit)
    tasks = [Task(name, at, methods[name], *split) for at, split in enumerate(splits) for name in methods]
    done = {(task.name, task.split): result for task in tasks if (result := earlier.get(task)) is not None}
    limits: dict[str, Any] = {"n_jobs": n_jobs, "time_limit": time_limit, "memory_limit": memory_limit}
    with (
        Workers(cohort, protocol, **limits) as workers,
        progress_bar(len(tasks), "comparing", "fit", show=bool(verbose)) as bar,
    ):

        def finish(task: Task, result: Result) -> None:
            done[task.name, task.split] = result
            earlier.put(task, result)
            bar.set_postfix(last=f"{task.name}, split {task.split}", refresh=False)
            bar.update()

        bar.update(len(done))
        for task, result in _confirm(_rehearse(tasks, done, workers, labels), tasks, workers):
            finish(task, result)
        for task, result in workers.run([task for task in tasks if (task.name, task.split) not in done]):
            finish(task, result)
    results = {name: [done[name, at] for at in range(len(splits))] for name in methods}
    return Comparison(D.names, labels.tolist(), cohort.classes.tolist(), splits, results, protocol, groups, notes)


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


def _capped(cohort: Cohort, splits: list, protocol: Protocol) -> list[str]:
    """Where there are fewer training items than should vote."""
    notes = []
    least = min(train.size for train, _ in splits)
    if least < protocol.k:
        notes.append(f"k is {protocol.k}, but a training part has only {least} distributions: all of them vote")
    least = min(int(cohort.D.sizes[train].sum()) for train, _ in splits)
    if protocol.points and least < protocol.k_points:
        notes.append(f"k_points is {protocol.k_points}, but a training part has only {least} points: all of them vote")
    return notes


def _rehearse(tasks: list[Task], done: Mapping, workers: Workers, labels: np.ndarray) -> list[str]:
    """Methods that fail on a few points of a few distributions; those with a result from before need no rehearsal."""
    finished = {name for name, _ in done}
    rehearsals = []
    for task in tasks:
        if task.split == 0 and task.name not in finished:
            own = (task.train[labels[task.train] == label][:_FEW] for label in np.unique(labels[task.train]))
            rehearsals.append(Task(task.name, 0, task.method, np.concatenate(list(own)), task.test[:2], _FEW_POINTS))
    return [task.name for task, result in workers.run(rehearsals) if _failed(result)]


def _confirm(doubtful: list[str], tasks: list[Task], workers: Workers) -> list[tuple[Task, Result]]:
    """Try doubtful methods on the first split: a few points may have been too few. Raise for those that fail again."""
    firsts = [task for task in tasks if task.split == 0 and task.name in doubtful]
    answers = list(workers.run(firsts))
    wrong = [f"{task.name!r}: {result.status}" for task, result in answers if _failed(result)]
    if wrong:
        raise ValueError(f"these methods cannot run on these data; mend them or leave them out: {'; '.join(wrong)}")
    return answers


def _failed(result: Result) -> bool:
    return result.status not in (OK, OUT_OF_TIME, OUT_OF_MEMORY)


class _Earlier:
    """Results of earlier runs, where a file is given that keeps them."""

    def __init__(
        self,
        path: str | os.PathLike | None,
        cohort: Cohort,
        protocol: Protocol,
        methods: Mapping[str, Any],
        *limits: float | None,
    ) -> None:
        self._cache = None if path is None else ResultCache(path, *limits)
        if self._cache is not None:
            for name, method in methods.items():
                check_describable(name, method)
            self._data = fingerprint(cohort, protocol)

    def get(self, task: Task) -> Result | None:
        return None if self._cache is None else self._cache.get(self._key(task))

    def put(self, task: Task, result: Result) -> None:
        if self._cache is not None:
            self._cache.put(self._key(task), result)

    def _key(self, task: Task) -> str:
        return key_of(task.method, task.train, task.test, self._data)
