"""Comparison of methods: fit, predict and score on each split, a cache of results, and out-of-fold distances."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.base import clone

from .. import __version__
from .._internal.cache import Cache
from .._internal.parallel import InterruptedWarning, progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, SplitsLike
from .._internal.validation import check_classes, check_labels, group_list, label_array
from ..distributions import Distributions, SmallSampleWarning, as_distributions, resolve_n_points, with_equal_points
from ..learning.splits import Split, as_splits, check_splits, folds, rounds_of, shuffled
from .results import ERROR, OK, OUT_OF_MEMORY, Comparison, Protocol, Result, Voting
from .scores import check_distances, encode, nearest_distributions, score_codes, vote_points

# Parameters that change the duration of a fit, but not its result.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}


@dataclass(frozen=True)
class Cohort:
    """Distributions, labels, classes and groups of a comparison."""

    D: Distributions
    labels: np.ndarray
    classes: np.ndarray
    groups: Any = None

    @cached_property
    def codes(self) -> np.ndarray:
        """Labels as indices into the classes."""
        return encode(self.labels, self.classes)


@dataclass(frozen=True)
class Task:
    """A method on a split."""

    name: str
    split: int
    method: Any
    train: np.ndarray
    test: np.ndarray


def attempt(cohort: Cohort, protocol: Protocol, task: Task) -> Result:
    """Fit and score a method on a split; failures and warnings become part of the result."""
    result, started = Result(), time.perf_counter()
    with recorded_warnings() as messages:
        try:
            fit_and_score(cohort, protocol, task, result)
        except MemoryError:
            result.status = OUT_OF_MEMORY
        except Exception as error:
            result.status = f"{ERROR}: {type(error).__name__}: {error}"
            result.notes.append("".join(traceback.format_exception(error)[-3:]))
    result.notes += messages
    result.seconds = time.perf_counter() - started
    return result


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Collect warnings, each text once, instead of showing them."""
    # An interrupted learner warns and keeps an incomplete result, which must not be scored: the interruption is raised
    # again.
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += dict.fromkeys(str(warning.message) for warning in caught)
    if any(issubclass(warning.category, InterruptedWarning) for warning in caught):
        raise KeyboardInterrupt


def fit_and_score(cohort: Cohort, protocol: Protocol, task: Task, result: Result) -> None:
    """Fit to the labels of the training set, predict, and score by the labels of the test set."""
    train, test, codes, n_classes = task.train, task.test, cohort.codes, cohort.classes.size
    fitted = fit(task.method, cohort, train)
    probabilities = predict(fitted, cohort, protocol, train, test)
    result.probabilities = probabilities.tolist()
    result.scores["distributions"] = score_codes(codes[test], probabilities)
    if protocol.points and hasattr(fitted, "point_distances"):
        points_of_training, train_owner = _points(cohort.D[train], protocol.max_points)
        points_of_test, test_owner = _points(cohort.D[test], protocol.max_points)
        voters = codes[train][train_owner]
        shares = vote_points(
            fitted, points_of_training, voters, points_of_test, n_classes, protocol.n_point_neighbors,
            protocol.weights, among=protocol.among(voters),
        )  # fmt: skip
        result.scores["points"] = score_codes(codes[test][test_owner], shares)
        counts = np.zeros((test.size, n_classes), np.int64)
        np.add.at(counts, (test_owner, shares.argmax(axis=1)), 1)
        result.point_counts = counts.tolist()


def fit(method: Any, cohort: Cohort, train: np.ndarray) -> Any:
    """Return a copy of the method, fitted to the training set; with groups if it has inner cross-validation."""
    keywords = {}
    if cohort.groups is not None and getattr(method, "takes_groups", False):
        keywords["groups"] = [cohort.groups[d] for d in train]
    return clone(method).fit(cohort.D[train], cohort.labels[train], **keywords)


def predict(fitted: Any, cohort: Cohort, protocol: Protocol, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return probabilities of the classes by `predict_proba`, or by votes of the nearest training distributions."""
    if not hasattr(fitted, "predict_proba"):
        neighbors = nearest_training(fitted, cohort, protocol, train, test)
        return protocol.votes(neighbors, cohort.codes[train], cohort.classes.size)
    columns = np.asarray(fitted.predict_proba(cohort.D[test]), dtype=np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("predict_proba gives NaN or infinity")
    probabilities = np.zeros((test.size, cohort.classes.size))
    probabilities[:, encode(fitted.classes_, cohort.classes)] = columns
    return probabilities


def nearest_training(
    fitted: Any, cohort: Cohort, protocol: Protocol, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices of the training distributions nearest to each test distribution."""
    # All have equal numbers of points, because distances grow as distributions have fewer points.
    n = resolve_n_points(protocol.n_points, cohort.D)
    training, tested = (with_equal_points(cohort.D[rows], n, warn=False) for rows in (train, test))
    return nearest_distributions(fitted, training, tested, protocol.n_neighbors)


def _points(D: Distributions, most: int | None) -> tuple[Any, np.ndarray]:
    """Return the points with mass and the distribution of each; of more than `most` points, a fixed subsample."""
    D = D.with_mass()
    owner = np.repeat(np.arange(len(D)), D.sizes)
    if most is None or owner.size <= most:
        return D.points, owner
    rows = np.sort(np.random.RandomState(0).choice(owner.size, most, replace=False))
    return D.points[rows], owner[rows]


class ResultCache:
    """Results of methods on splits, in a file.

    The key of a result depends on data, labels, groups, protocol, split, and the method with its parameters.
    """

    def __init__(
        self, path: str | os.PathLike[str], cohort: Cohort, protocol: Protocol, methods: Mapping[str, Any]
    ) -> None:
        self._cache, self._data = Cache(path, "resume"), fingerprint(cohort, protocol)
        for name, method in methods.items():
            try:
                joblib.hash(_describe(method))
            except Exception as error:
                raise ValueError(
                    f"method {name!r} cannot be recognised in another run, because its parameters cannot be pickled "
                    f"({error}): leave out `resume`, or give it named functions instead of lambdas"
                ) from None

    def get(self, task: Task) -> Result | None:
        """Return a cached result; None if it is missing or a failure, which may not occur again."""
        entry = self._cache.get_json(task_key(task, self._data))
        result = None if entry is None else Result(**entry["result"])
        return result if result is not None and result.status == OK else None

    def put(self, task: Task, result: Result) -> None:
        self._cache.put_json(task_key(task, self._data), {"result": asdict(result)})


def fingerprint(cohort: Cohort, protocol: Protocol) -> str:
    """Return a hash of the data, names, labels, groups and protocol."""
    D, points = cohort.D, cohort.D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    names = [str(name) for name in D.names]  # equal numbers of points are drawn by name
    return joblib.hash([__version__, parts, names, D.features, groups, asdict(protocol)])


def task_key(task: Task, data: str) -> str:
    """Return the key of a task on the data with this fingerprint."""
    return joblib.hash([_describe(task.method), np.asarray(task.train), np.asarray(task.test), data])


def _describe(method: Any) -> Any:
    """Return a method as plain data: its class and parameters, including nested methods."""
    if hasattr(method, "get_params") and not isinstance(method, type):
        parameters = {k: v for k, v in method.get_params(deep=False).items() if k not in _IRRELEVANT}
        return [f"{type(method).__module__}.{type(method).__qualname__}", _describe(parameters)]
    if isinstance(method, Mapping):
        return {str(name): _describe(value) for name, value in method.items()}
    if isinstance(method, list | tuple):
        return [_describe(value) for value in method]
    return method


def compare(
    methods: Mapping[str, Estimator],
    D: DistributionsLike,
    y: LabelsLike,
    *,
    cv: SplitsLike = None,
    groups: LabelsLike | None = None,
    voting: Voting | None = None,
    points: bool = True,
    n_jobs: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> Comparison:
    """Fit every method to the training set of every split, and score it on the test set.

    Methods with `predict_proba` predict by it; for others, the nearest training distributions vote. At the level of
    points, the nearest training points vote with the label of their distribution; points of zero mass are excluded. A
    method that fails on the first two splits is an error; a failure on other splits is part of the result.

    Parameters
    ----------
    methods : dict of str to estimator
        An estimator has ``fit(D, y)`` and ``distances(A, B)`` or ``predict_proba(D)``; with ``point_distances(x, y)``
        it is also scored at point level. One that has ``takes_groups = True`` is fitted with
        ``fit(D, y, groups=...)``. The first method is the reference in paired comparisons.
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
    n_jobs : int or None, default=None
        Fits at the same time, in worker processes or on joblib's cluster; None means one, in this process.
    resume : path-like or None, default=None
        Cache file: results for the same data, splits and parameters are read from it.
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> methods = {"learned": gm.GroundMetricLearner(max_epochs=10, random_state=0), "OT": gm.baselines.Euclidean()}
    >>> comparison = gm.evaluation.compare(methods, D, y, cv=5, points=False)
    >>> bool(comparison.difference("learned", "OT").low > 0)
    True
    """
    D = as_distributions(D)
    labels, groups = check_labels(y, D.name_index), group_list(groups, D.name_index)
    if not isinstance(methods, Mapping) or not methods:
        raise ValueError(f"methods is {methods!r}: expected a dict of names to estimators, with at least one")
    for name, method in methods.items():
        if not hasattr(method, "fit") or not hasattr(method, "get_params"):
            raise ValueError(
                f"method {name!r} is {method!r}: expected a scikit-learn estimator, with fit and get_params"
            )
        if not hasattr(method, "distances") and not hasattr(method, "predict_proba"):
            raise ValueError(f"method {name!r} ({type(method).__name__}) has neither `distances` nor `predict_proba`")
    if cv is None:
        cv = shuffled(labels, groups=groups, random_state=0)
    splits = _as_checked_splits(cv, labels, groups, D)
    protocol = Protocol.of(voting, D, points=points)
    cohort = Cohort(D, labels, np.unique(labels), groups)
    notes = []
    for warning in _warnings(cohort, splits, protocol):
        warnings.warn(warning, stacklevel=2)
        notes.append(str(warning))

    cache = None if resume is None else ResultCache(resume, cohort, protocol, methods)
    tasks = [Task(name, at, methods[name], *split) for at, split in enumerate(splits) for name in methods]
    cached = {} if cache is None else {(task.name, task.split): cache.get(task) for task in tasks}
    done = {key: result for key, result in cached.items() if result is not None}
    with progress_bar(len(tasks), "comparing", "fit", show=bool(verbose)) as bar:

        def run(chosen: list[Task]) -> None:
            missing = [task for task in chosen if (task.name, task.split) not in done]
            for number, result in run_tasks(partial(attempt, cohort, protocol), missing, n_jobs):
                task = missing[number]
                done[task.name, task.split] = result
                if cache is not None:
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


def _as_checked_splits(cv: Any, labels: np.ndarray, groups: list[Hashable] | None, D: Distributions) -> list[Split]:
    """Return validated splits from a number of folds, a list or a splitter."""
    if isinstance(cv, int | np.integer):
        check_classes(labels)
        cv = folds(labels, groups=groups, n_splits=int(cv), random_state=0)
    splits = as_splits(cv, labels, groups, D.name_index)
    check_splits(splits, labels, groups)
    return splits


def _warnings(cohort: Cohort, splits: list[Split], protocol: Protocol) -> Iterator[UserWarning]:
    """Yield a warning of too few voters at each level, and of distributions with fewer points than are compared."""
    for name, items, most, sizes in (
        ("n_neighbors", "distributions", protocol.n_neighbors, np.ones(len(cohort.D), int)),
        ("n_point_neighbors", "points", protocol.n_point_neighbors if protocol.points else 0, cohort.D.sizes),
    ):
        least = min(int(sizes[train].sum()) for train, _ in splits)
        if least < most:
            yield UserWarning(f"{name} is {most}, but a training part has only {least} {items}: all of them vote")
    n, D = resolve_n_points(protocol.n_points, cohort.D), cohort.D.with_mass()
    small = [] if n is None else [D.names[d] for d in np.flatnonzero(np.floor(D.effective_sizes + 1e-6) < n)]
    if n is not None and small:
        yield SmallSampleWarning(small, n)


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
    splits = _as_checked_splits(cv, labels, groups, D)
    rounds = rounds_of(splits, labels.size)
    if rounds is None or rounds.max() > 0:
        tested = np.bincount(np.concatenate([test for _, test in splits]), minlength=labels.size)
        wrong = int(np.flatnonzero(tested != 1)[0])
        raise ValueError(
            f"cv tests distribution {wrong} {tested[wrong]} times: each must be tested once; give a number of "
            "folds, or `evaluation.folds`, `leave_one_out` or `leave_one_group_out`"
        )
    cohort = Cohort(D, labels, np.empty(0), groups)
    distances = np.empty((len(D), len(D)))
    for train, test in splits:
        fitted = fit(method, cohort, train)
        rows = check_distances(fitted.distances(D[test], D), len(D))
        distances[test] = rows / (rows[:, train].mean() or 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances
