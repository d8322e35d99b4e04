"""Comparison of methods: fit, predict and score on each split, a cache of results, and out-of-fold distances.

A `Procedure` fits and scores a method for given labels; a permutation test calls it many times.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.base import clone

from .. import __version__
from .._internal.cache import Cache
from .._internal.parallel import InterruptedWarning, progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, SplitsLike
from .._internal.validation import (
    NameIndex,
    check_classes,
    check_labels,
    group_list,
    label_array,
    number_groups,
)
from ..distributions import Distributions, SmallSampleWarning, as_distributions, resolve_n_points
from ..estimators.neighbors import class_shares
from ..learning.splits import Split, as_splits, check_splits, folds, rounds_of, shuffled
from .results import ERROR, OK, OUT_OF_MEMORY, Comparison, Protocol, Result, Voting, overall
from .scores import (
    check_distances,
    cluster_points,
    cluster_scores,
    encode,
    nearest_distributions,
    score_codes,
    vote_points,
)

# Parameters that change the duration of a fit, but not its result.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}


@dataclass(frozen=True)
class Cohort:
    """Distributions, labels, classes and groups of a comparison."""

    D: Distributions
    labels: np.ndarray
    classes: np.ndarray
    groups: Any = None


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
    result = Result()
    with recorded_warnings() as messages:
        try:
            fit_and_score(task.method, cohort, task.train, task.test, protocol, result)
        except MemoryError:
            result.status = OUT_OF_MEMORY
        except Exception as error:
            result.status = f"error: {type(error).__name__}: {error}"
            result.notes.append("".join(traceback.format_exception(error)[-3:]))
    result.notes += messages
    return result


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Collect warnings, each text once, instead of showing them.

    An interrupted learner warns and keeps an incomplete result, which must not be scored: the interruption is raised
    again.
    """
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += dict.fromkeys(str(warning.message) for warning in caught)
    if any(issubclass(warning.category, InterruptedWarning) for warning in caught):
        raise KeyboardInterrupt


def fit_and_score(
    method: Any, cohort: Cohort, train: np.ndarray, test: np.ndarray, protocol: Protocol, result: Result
) -> None:
    """Fit the method to the training set, and fill in the scores of the test set."""
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        result.seconds[name], last = now - last, now

    training, tested = cohort.D[train], cohort.D[test]
    fitted = fit(method, training, cohort, train)
    lap("fit")
    codes = encode(cohort.labels, cohort.classes)
    probabilities = predict(fitted, training, codes[train], tested, cohort, protocol)
    result.probabilities = probabilities.tolist()
    result.scores["distributions"] = score_codes(codes[test], probabilities)
    lap("predict")
    points = protocol.points and hasattr(fitted, "point_distances")
    if points:
        _score_points(fitted, training, codes[train], tested, codes[test], cohort.classes.size, protocol, result)
        lap("points")
    if protocol.clustering:
        labels = cohort.labels[test]
        if hasattr(fitted, "distances"):
            result.scores["clusters"] = cluster_scores(fitted.distances(protocol.equal(tested, cohort.D)), labels)
        if points:
            most = protocol.max_points or 4000
            result.scores["point clusters"] = cluster_points(fitted, tested, labels, max_points=most)
        lap("clustering")


def fit(method: Any, training: Distributions, cohort: Cohort, train: np.ndarray) -> Any:
    """Return a fitted copy of the method; groups are passed to methods with `takes_groups` (inner cross-validation)."""
    if cohort.groups is not None and getattr(method, "takes_groups", False):
        return clone(method).fit(training, cohort.labels[train], groups=[cohort.groups[d] for d in train])
    return clone(method).fit(training, cohort.labels[train])


def predict(
    fitted: Any,
    training: Distributions,
    codes: np.ndarray,
    tested: Distributions,
    cohort: Cohort,
    protocol: Protocol,
) -> np.ndarray:
    """Return probabilities of the classes by `predict_proba`, or by votes of the nearest training distributions.

    Votes use equal numbers of points, because distances grow as distributions have fewer points.
    """
    classes = cohort.classes
    if not hasattr(fitted, "predict_proba"):
        training, tested = protocol.equal(training, cohort.D), protocol.equal(tested, cohort.D)
        nearest, indices = nearest_distributions(fitted, training, tested, protocol.n_neighbors)
        return class_shares(nearest, codes[indices], classes.size, protocol.weights, among=protocol.among(codes))
    columns = np.asarray(fitted.predict_proba(tested), dtype=np.float64)
    if not np.isfinite(columns).all():
        raise ValueError("predict_proba gives NaN or infinity")
    probabilities = np.zeros((len(tested), classes.size))
    probabilities[:, encode(fitted.classes_, classes)] = columns
    return probabilities


def _score_points(
    fitted: Any,
    training: Distributions,
    training_codes: np.ndarray,
    tested: Distributions,
    tested_codes: np.ndarray,
    n_classes: int,
    protocol: Protocol,
    result: Result,
) -> None:
    train, train_owner = _points(training, protocol.max_points)
    test, test_owner = _points(tested, protocol.max_points)
    codes = training_codes[train_owner]
    shares = vote_points(
        fitted, train, codes, test, n_classes, protocol.n_point_neighbors, protocol.weights, among=protocol.among(codes)
    )
    result.scores["points"] = score_codes(tested_codes[test_owner], shares)
    counts = np.zeros((len(tested), n_classes), np.int64)
    np.add.at(counts, (test_owner, shares.argmax(axis=1)), 1)
    result.point_counts = counts.tolist()


def _points(D: Distributions, most: int | None) -> tuple[Any, np.ndarray]:
    """Return the points with mass and the distribution of each; of more than `most` points, a fixed subsample."""
    D = D.with_mass()
    owner = np.repeat(np.arange(len(D)), D.sizes)
    if most is None or owner.size <= most:
        return D.points, owner
    rows = np.sort(np.random.RandomState(0).choice(owner.size, most, replace=False))
    return D.points[rows], owner[rows]


class ResultCache:
    """Results of methods on splits, in a file; without a path, nothing is cached.

    The key of a result depends on data, labels, groups, protocol, split, and the method with its parameters.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        cohort: Cohort,
        protocol: Protocol,
        methods: Mapping[str, Any],
    ) -> None:
        self._cache = None if path is None else Cache(path, "resume")
        if self._cache is not None:
            for name, method in methods.items():
                _check_describable(name, method)
            self._data = fingerprint(cohort, protocol)

    def get(self, task: Task) -> Result | None:
        """Return a cached result; None if it is missing or a failure, which may not occur again."""
        entry = None if self._cache is None else self._cache.get_json(task_key(task, self._data))
        if entry is None:
            return None
        try:
            result = Result(**entry["result"])
        except (KeyError, TypeError):  # of a state of the code between two versions
            return None
        return result if result.status == OK else None

    def put(self, task: Task, result: Result) -> None:
        if self._cache is not None:
            self._cache.put_json(task_key(task, self._data), {"result": result.to_dict()})


def fingerprint(cohort: Cohort, protocol: Protocol) -> str:
    """Return a hash of the data, names, labels, groups and protocol."""
    D = cohort.D
    points = D.points
    arrays = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    parts = [np.asarray(array) for array in (*arrays, D.bounds, D.weights, cohort.labels)]
    groups = None if cohort.groups is None else list(cohort.groups)
    names = [str(name) for name in D.names]  # equal numbers of points are drawn by name
    return joblib.hash([__version__, parts, names, D.features, groups, asdict(protocol)])


def task_key(task: Task, data: str) -> str:
    """Return the key of a task on the data with this fingerprint."""
    return joblib.hash([describe(task.method), np.asarray(task.train), np.asarray(task.test), data])


def describe(method: Any) -> Any:
    """Return a method as plain data: its class and parameters, including nested methods."""
    if hasattr(method, "get_params") and not isinstance(method, type):
        parameters = method.get_params(deep=False)
        return [
            f"{type(method).__module__}.{type(method).__qualname__}",
            {name: describe(value) for name, value in sorted(parameters.items()) if name not in _IRRELEVANT},
        ]
    if isinstance(method, Mapping):
        return {str(name): describe(value) for name, value in method.items()}
    if isinstance(method, list | tuple):
        return [describe(value) for value in method]
    return method


def _check_describable(name: str, method: Any) -> None:
    """Raise if the key of a method cannot be computed."""
    try:
        joblib.hash(describe(method))
    except Exception as error:
        raise ValueError(
            f"method {name!r} cannot be recognised in another run, because its parameters cannot be pickled "
            f"({error}): leave out `resume`, or give it named functions instead of lambdas"
        ) from None


@dataclass(frozen=True)
class Procedure:
    """Function from labels (as codes) to a score: split, fit, predict. A permutation test calls it many times."""

    method: Any
    D: Distributions
    classes: np.ndarray
    groups: list[Hashable] | None
    splitting: Callable[[np.ndarray], list[Split]]
    protocol: Protocol
    score: str

    def __call__(self, codes: np.ndarray) -> float:
        splits = self.splitting(codes)
        results = []
        for at, (train, test) in enumerate(splits):
            probabilities = self.probabilities(codes, at, train, test)
            scores = {"distributions": score_codes(codes[test], probabilities)}
            results.append(Result(scores=scores, probabilities=probabilities.tolist()))
        return overall(codes, splits, results, self.score, self.classes.size)

    def probabilities(self, codes: np.ndarray, at: int, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """Return the probabilities of the test set of split number `at`."""
        training, cohort = self.D[train], Cohort(self.D, self.classes[codes], self.classes, self.groups)
        fitted = fit(self.method, training, cohort, train)
        return predict(fitted, training, codes[train], self.D[test], cohort, self.protocol)


@dataclass(frozen=True)
class SharedProcedure(Procedure):
    """Procedure of a method that ignores labels: neighbours are searched once, and their votes counted every time."""

    neighbors: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, procedure: Procedure) -> SharedProcedure:
        codes = np.zeros(len(procedure.D), np.intp)
        cohort = Cohort(procedure.D, procedure.classes[codes], procedure.classes, procedure.groups)
        neighbors = []
        for train, test in procedure.splitting(codes):
            fitted = fit(procedure.method, procedure.D[train], cohort, train)
            equal, n_neighbors = procedure.protocol.equal, procedure.protocol.n_neighbors
            training, tested = (equal(procedure.D[part], procedure.D) for part in (train, test))
            neighbors.append(nearest_distributions(fitted, training, tested, n_neighbors))
        return cls(**vars(procedure), neighbors=neighbors)

    def probabilities(self, codes: np.ndarray, at: int, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        nearest, indices = self.neighbors[at]
        training = codes[train]
        return class_shares(
            nearest, training[indices], self.classes.size, self.protocol.weights, among=self.protocol.among(training)
        )


@dataclass(frozen=True)
class FixedSplits:
    """Splits that do not depend on labels."""

    splits: list[Split]

    def __call__(self, codes: np.ndarray) -> list[Split]:
        return self.splits


def splitting_by(
    cv: Any, classes: np.ndarray, codes: np.ndarray, groups: Any, seed: int, shareable: bool, name_index: NameIndex
) -> Callable[[np.ndarray], list[Split]]:
    """Return a function of labels to splits; for a method that ignores labels, folds ignore them too and are shared."""
    members = number_groups(groups, codes.size)
    if cv is None or isinstance(cv, int | np.integer):
        units = np.arange(codes.size) if members is None else members
        least = min(np.unique(units[codes == c]).size for c in range(classes.size))
        n_splits = max(2, min(5, least)) if cv is None else int(cv)
        if shareable:
            from sklearn.model_selection import GroupKFold, KFold  # few need them, and they load slowly

            kind = KFold if members is None else GroupKFold
            return FixedSplits(list(kind(n_splits, shuffle=True, random_state=seed).split(codes, groups=members)))
        return lambda codes: folds(classes[codes], groups=groups, n_splits=n_splits, random_state=seed)
    if hasattr(cv, "split") or callable(cv):
        return lambda codes: as_splits(cv, classes[codes], groups, name_index)
    return FixedSplits(as_splits(cv, classes[codes], groups, name_index))


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
