"""Fit, predict and score of a method on a split, the cache of results, and pooled scores of several splits."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.base import clone

from .. import __version__
from .._internal.cache import Cache
from .._internal.parallel import InterruptedWarning
from .._internal.validation import NameIndex, check_class_weight, check_number, number_groups
from ..distributions import Distributions, resolve_n_points, with_equal_points
from ..estimators.neighbors import check_weights, class_shares
from ..learning.splits import Split, as_splits, folds, rounds_of
from .scores import (
    cluster_distributions,
    cluster_points,
    encode,
    nearest_distributions,
    score_codes,
    score_counts,
    vote_points,
)

OK, OUT_OF_MEMORY, ERROR = "ok", "OOM", "error"
# Parameters that change the duration of a fit, but not its result.
_IRRELEVANT = {"n_jobs", "verbose", "checkpoint"}


@dataclass(frozen=True)
class Voting:
    """Votes of nearest training distributions and points, by which methods without `predict_proba` predict.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of distributions that vote, at most.
    weights : {"distance", "uniform"}, default="distance"
        Weight of a vote: one over the distance, or 1.
    class_weight : {None, "balanced"}, default=None
        "balanced" divides votes by the frequency of their class in the training set.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution, drawn at random (`Distributions.equalize`), by which distances between
        distributions are computed. Distances grow as distributions have fewer points, and with all points, classes that
        differ only in their numbers of points would be separated. "equal": `Distributions.common_size` of the cohort;
        None: all points, with this bias.
    n_point_neighbors : int, default=100
        Number of points that vote for a point, at most.
    max_points : int or None, default=None
        Number of points of a training or test set, drawn at random, that are scored; None: all (for clusters 4000).

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.evaluation.Voting(n_neighbors=3, weights="uniform").n_neighbors
    3
    """

    n_neighbors: int = 5
    weights: str = "distance"
    class_weight: str | None = None
    n_points: int | str | None = "equal"
    n_point_neighbors: int = 100
    max_points: int | None = None


@dataclass(frozen=True)
class Protocol(Voting):
    """How methods are scored: their votes, and whether points are scored and test sets are clustered."""

    points: bool = True
    clustering: bool = False

    @classmethod
    def of(cls, voting: Voting | None, **options: Any) -> Protocol:
        return cls(**asdict(voting or Voting()), **options)

    def check(self, D: Distributions) -> None:
        check_weights(self.weights)
        check_class_weight(self.class_weight)
        check_number("n_neighbors", self.n_neighbors, low=1, whole=True)
        check_number("n_point_neighbors", self.n_point_neighbors, low=1, whole=True)
        resolve_n_points(self.n_points, D)
        if self.max_points is not None:
            check_number("max_points", self.max_points, low=2, whole=True)

    def equal(self, part: Distributions, cohort: Distributions) -> Distributions:
        """Return a part of a cohort with equal numbers of points, by which distances are computed."""
        return with_equal_points(part, resolve_n_points(self.n_points, cohort), warn=False)

    def among(self, codes: np.ndarray) -> np.ndarray | None:
        """Return the classes whose frequencies balance the votes; None without balancing."""
        return None if self.class_weight is None else codes


@dataclass(frozen=True)
class Cohort:
    """Distributions, labels, classes and groups of a comparison."""

    D: Distributions
    labels: np.ndarray
    classes: np.ndarray
    groups: Any = None


@dataclass
class Result:
    """Scores and predictions of one method on one split, as plain data."""

    status: str = OK  # or "OOM" (out of memory), or "error: …"
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by level and name
    probabilities: list[list[float]] = field(default_factory=list)  # a row per test distribution, a column per class
    point_counts: list[list[int]] = field(default_factory=list)  # points of each distribution predicted as each class
    seconds: dict[str, float] = field(default_factory=dict)  # of the steps "fit", "predict", "points", "clustering"
    notes: list[str] = field(default_factory=list)  # warnings of the method

    to_dict = asdict

    @property
    def outcome(self) -> str:
        """The status without its message: "ok", "OOM" or "error"."""
        return self.status if self.status in (OK, OUT_OF_MEMORY) else ERROR


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
            result.scores["clusters"] = cluster_distributions(fitted, protocol.equal(tested, cohort.D), labels)
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


def split_scores(results: list[Result], score: str, level: str) -> np.ndarray:
    """Return the score of each split; NaN if it is not defined."""
    return np.array([result.scores.get(level, {}).get(score, np.nan) for result in results], dtype=np.float64)


def pooled(
    codes: np.ndarray,
    splits: list[Split],
    rounds: np.ndarray,
    results: list[Result],
    score: str,
    level: str,
    n_classes: int,
) -> float:
    """Return the score of pooled predictions, averaged over rounds, without distributions whose split failed.

    The pooled AUC compares probabilities of different fits, because an AUC of single splits is undefined for small test
    sets. It is biased downwards if leaving a distribution out removes a vote for its class.
    """
    tables = np.zeros((int(rounds.max()) + 1, codes.size, n_classes))
    predicted = np.zeros(tables.shape[:2])
    for (_, test), at, result in zip(splits, rounds, results, strict=True):
        rows = result.probabilities if level == "distributions" else result.point_counts
        if result.status == OK and rows:
            tables[at, test], predicted[at, test] = rows, 1.0
    scores: Any = score_codes if level == "distributions" else score_counts
    pairs = zip(tables, predicted, strict=True)
    return float(np.mean([scores(codes, table, weights).get(score, np.nan) for table, weights in pairs]))


def overall(codes: np.ndarray, splits: list[Split], results: list[Result], score: str, n_classes: int) -> float:
    """Return the score of pooled predictions if the test sets make up the cohort, else the mean over splits."""
    rounds = rounds_of(splits, codes.size)
    if rounds is not None:
        return pooled(codes, splits, rounds, results, score, "distributions", n_classes)
    values = split_scores(results, score, "distributions")
    return float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else np.nan


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
