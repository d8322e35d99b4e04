"""One method on one split: fit, predict and score; and pooled scores of many splits."""

from __future__ import annotations

import contextlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from .._internal.validation import check_class_weight, check_number
from ..distributions import Distributions
from ..estimators._base import check_weights, class_shares
from ..supervision.splits import Split, rounds_of
from .scores import chosen_points, cluster_distributions, cluster_points, encode, score_codes, score_counts
from .votes import nearest_distributions, vote_points

OK, OUT_OF_TIME, OUT_OF_MEMORY = "ok", "OOT", "OOM"


@dataclass(frozen=True)
class Protocol:
    """How every method is judged; see `compare` for what each means."""

    k: int = 5
    k_points: int = 100
    weights: str = "distance"
    points: bool = True
    max_points: int | None = None
    clustering: str | None = None
    only: Mapping[str, Any] | None = None
    class_weight: str | None = None

    def check(self, D: Distributions) -> None:
        check_weights(self.weights)
        check_class_weight(self.class_weight)
        check_number("k", self.k, low=1, whole=True)
        check_number("k_points", self.k_points, low=1, whole=True)
        if self.max_points is not None:
            check_number("max_points", self.max_points, low=2, whole=True)
        if self.clustering not in (None, "test", "all"):
            raise ValueError(f"clustering is {self.clustering!r}: expected None, 'test' or 'all'")
        chosen_points(D, self.only)

    def among(self, codes: np.ndarray) -> np.ndarray | None:
        """The classes by whose numbers votes are divided, where they are to be balanced."""
        return None if self.class_weight is None else codes


@dataclass(frozen=True)
class Cohort:
    """What all methods and splits share."""

    D: Distributions
    labels: np.ndarray
    classes: np.ndarray
    groups: Any = None


@dataclass
class Result:
    """What came out for one method and one split, as plain data.

    Attributes
    ----------
    status : "ok", "OOT" (out of time), "OOM" (out of memory) or "error: …"
    scores : level ("distributions", "points", "clusters", "point clusters") to score to value
    probabilities : a row per test distribution, a column per class
    point_counts : how many points of each test distribution were predicted as each class
    seconds : what was done to how long it took
    notes : what the method warned of
    """

    status: str = OK
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    probabilities: list[list[float]] = field(default_factory=list)
    point_counts: list[list[int]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    to_dict = asdict


def attempt(method: Any, cohort: Cohort, train: np.ndarray, test: np.ndarray, protocol: Protocol) -> Result:
    """`judge`, with failures and warnings as part of the result rather than raised."""
    result = Result()
    with heard() as messages:
        try:
            judge(method, cohort, train, test, protocol, result)
        except MemoryError:
            result.status = OUT_OF_MEMORY
        except Exception as error:
            result.status = f"error: {type(error).__name__}: {error}"
            result.notes.append("".join(traceback.format_exception(error)[-3:]))
    result.notes += messages
    return result


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """Warnings are collected, each once, instead of shown.

    A learner that is interrupted keeps what it has so far and says so in a warning. As a score that would mislead, so
    the interruption is passed on.
    """
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    messages += dict.fromkeys(str(warning.message) for warning in caught)
    if any(message.startswith("interrupted") for message in messages):
        raise KeyboardInterrupt


def judge(method: Any, cohort: Cohort, train: np.ndarray, test: np.ndarray, protocol: Protocol, result: Result) -> None:
    """Fill in the result. Nothing that is fitted sees the test part."""
    clock = _Clock(result.seconds)
    known, unknown = cohort.D[train], cohort.D[test]
    fitted = fit(method, known, cohort, train)
    clock.lap("fit")
    codes = encode(cohort.labels, cohort.classes)
    probabilities = predict(fitted, known, codes[train], unknown, cohort.classes, protocol)
    result.probabilities = probabilities.tolist()
    result.scores["distributions"] = _plain(score_codes(codes[test], probabilities))
    clock.lap("predict")
    if protocol.points and hasattr(fitted, "point_distances"):
        _judge_points(fitted, known, codes[train], unknown, codes[test], cohort.classes.size, protocol, result)
        clock.lap("points")
    if protocol.clustering is not None:
        chosen = test if protocol.clustering == "test" else np.arange(len(cohort.D))
        _judge_clusters(fitted, cohort.D[chosen], cohort.labels[chosen], protocol, result)
        clock.lap("clustering")


def fit(method: Any, known: Distributions, cohort: Cohort, train: np.ndarray) -> Any:
    """A fresh copy of the method, fitted; one that says `takes_groups` (a nested search) is given the outer groups."""
    if cohort.groups is not None and getattr(method, "takes_groups", False):
        return clone(method).fit(known, cohort.labels[train], groups=[cohort.groups[place] for place in train])
    return clone(method).fit(known, cohort.labels[train])


def predict(
    fitted: Any,
    known: Distributions,
    codes: np.ndarray,
    unknown: Distributions,
    classes: np.ndarray,
    protocol: Protocol,
) -> np.ndarray:
    """Probability of each class: the method's own where it is a classifier, else votes of the nearest distributions."""
    if not hasattr(fitted, "predict_proba"):
        nearest, places = nearest_distributions(fitted, known, unknown, protocol.k)
        return class_shares(nearest, codes[places], classes.size, protocol.weights, among=protocol.among(codes))
    own = np.asarray(fitted.predict_proba(unknown), dtype=np.float64)
    if not np.isfinite(own).all():
        raise ValueError("predict_proba gives NaN or infinity")
    probabilities = np.zeros((len(unknown), classes.size))
    probabilities[:, encode(fitted.classes_, classes)] = own
    return probabilities


def _judge_points(
    fitted: Any,
    known: Distributions,
    known_codes: np.ndarray,
    unknown: Distributions,
    unknown_codes: np.ndarray,
    n_classes: int,
    protocol: Protocol,
    result: Result,
) -> None:
    train, train_owner = _points(known, protocol.max_points)
    test, test_owner = _points(unknown, protocol.max_points)
    codes = known_codes[train_owner]
    shares = vote_points(
        fitted, train, codes, test, n_classes, protocol.k_points, protocol.weights, among=protocol.among(codes)
    )
    result.scores["points"] = _plain(score_codes(unknown_codes[test_owner], shares))
    counts = np.zeros((len(unknown), n_classes), np.int64)
    np.add.at(counts, (test_owner, shares.argmax(axis=1)), 1)
    result.point_counts = counts.tolist()


def _points(D: Distributions, most: int | None) -> tuple[Any, np.ndarray]:
    """Points that have mass and the distribution of each; of more than `most`, so many at random, always the same."""
    D = D.with_mass()
    owner = np.repeat(np.arange(len(D)), D.sizes)
    if most is None or owner.size <= most:
        return D.points, owner
    rows = np.sort(np.random.RandomState(0).choice(owner.size, most, replace=False))
    return D.points[rows], owner[rows]


def _judge_clusters(fitted: Any, D: Distributions, labels: np.ndarray, protocol: Protocol, result: Result) -> None:
    if hasattr(fitted, "distances"):
        result.scores["clusters"] = cluster_distributions(fitted, D, labels)
    if protocol.points and hasattr(fitted, "point_distances"):
        most = {} if protocol.max_points is None else {"max_points": protocol.max_points}
        result.scores["point clusters"] = cluster_points(fitted, D, labels, only=protocol.only, **most)


def _plain(scores: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in scores.items()}


class _Clock:
    """Writes the seconds of each lap into a dict."""

    def __init__(self, laps: dict[str, float]) -> None:
        self.laps = laps
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now


def split_scores(results: list[Result], score: str, level: str) -> np.ndarray:
    """A score per split; NaN where there is none."""
    return np.array([result.scores.get(level, {}).get(score, np.nan) for result in results], dtype=np.float64)


def pooled(
    codes: np.ndarray,
    splits: list[Split],
    rounds: np.ndarray,
    results: list[Result],
    score: str,
    level: str,
    n_classes: int,
) -> Callable[[np.ndarray], np.ndarray]:
    """The score of pooled predictions, averaged over rounds, as a function of how often each distribution counts.

    Distributions whose split failed do not count. The pooled AUC ranks probabilities of different fits against each
    other, which is the only way to have one where test parts are tiny; it is a little low where leaving a distribution
    out takes a vote from its own class.
    """
    tables = [np.zeros((codes.size, n_classes)) for _ in range(int(rounds.max()) + 1)]
    predicted = [np.zeros(codes.size, bool) for _ in tables]
    for (_, test), at, result in zip(splits, rounds, results, strict=True):
        rows = result.probabilities if level == "distributions" else result.point_counts
        if result.status == OK and rows:
            tables[at][test] = rows
            predicted[at][test] = True

    def statistic(weights: np.ndarray) -> np.ndarray:
        values = []
        for table, there in zip(tables, predicted, strict=True):
            scores = score_codes if level == "distributions" else score_counts
            values.append(scores(codes, table, weights * there).get(score, np.full(weights.shape[:-1], np.nan)))
        return np.mean(values, axis=0)

    return statistic


def overall(codes: np.ndarray, splits: list[Split], results: list[Result], score: str, n_classes: int) -> float:
    """A method's score on distributions: of pooled predictions where test parts make up the cohort, else the mean."""
    rounds = rounds_of(splits, codes.size)
    if rounds is not None:
        return float(pooled(codes, splits, rounds, results, score, "distributions", n_classes)(np.ones(codes.size)))
    found = split_scores(results, score, "distributions")
    return float(found[np.isfinite(found)].mean()) if np.isfinite(found).any() else np.nan
