"""Result of a comparison: scores with intervals, paired differences, predictions; as Markdown, CSV and plain data."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._internal import tables
from .._internal.tables import plain, score_name
from .._internal.validation import check_class_weight, check_number, unit_codes
from ..distributions import Distributions, resolve_n_points
from ..estimators.neighbors import check_weights, class_shares
from ..learning.splits import Split, rounds_of
from .scores import SCORES, Difference, Estimate, Predictions, corrected_t, difference, encode, holm, interval, paired_t

OK, OUT_OF_MEMORY, ERROR = "ok", "OOM", "error"
LEVELS = ("distributions", "points")


@dataclass(frozen=True)
class Voting:
    """Options of the nearest-neighbour votes by which methods without `predict_proba` predict.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of distributions that vote, at most.
    weights : {"distance", "uniform"}, default="distance"
        Weight of a vote: one over the distance, or 1.
    class_weight : {None, "balanced"}, default=None
        "balanced" divides votes by the frequency of their class in the training set.
    n_points : "equal", int or None, default="equal"
        Number of points of each distribution, drawn at random (`Distributions.equalize`), by which distances are
        computed; "equal": `Distributions.common_size` of the cohort. None: all points, but distances grow as
        distributions have fewer points, and classes that differ only in their numbers of points would be separated.
    n_point_neighbors : int, default=100
        Number of points that vote for a point, at most.
    max_points : int or None, default=None
        Number of points of a training or test set, drawn at random, that are scored; None: all.

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
    """How methods are scored: their votes, and whether points are scored."""

    points: bool = True

    @classmethod
    def of(cls, voting: Voting | None, D: Distributions, **options: Any) -> Protocol:
        """Return a validated protocol for a cohort."""
        protocol = cls(**asdict(voting or Voting()), **options)
        check_weights(protocol.weights)
        check_class_weight(protocol.class_weight)
        check_number("n_neighbors", protocol.n_neighbors, low=1, whole=True)
        check_number("n_point_neighbors", protocol.n_point_neighbors, low=1, whole=True)
        resolve_n_points(protocol.n_points, D)
        if protocol.max_points is not None:
            check_number("max_points", protocol.max_points, low=2, whole=True)
        return protocol

    def among(self, codes: np.ndarray) -> np.ndarray | None:
        """Return the training classes whose frequencies balance the votes; None without balancing."""
        return None if self.class_weight is None else codes

    def votes(self, neighbors: tuple[np.ndarray, np.ndarray], codes: np.ndarray, n_classes: int) -> np.ndarray:
        """Return the votes of neighbours (their distances and indices) with the training labels `codes`."""
        nearest, indices = neighbors
        return class_shares(nearest, codes[indices], n_classes, self.weights, among=self.among(codes))


@dataclass
class Result:
    """Scores and predictions of one method on one split, as plain data."""

    status: str = OK  # or "OOM" (out of memory), or "error: …"
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by level and name
    probabilities: list[list[float]] = field(default_factory=list)  # a row per test distribution, a column per class
    point_counts: list[list[int]] = field(default_factory=list)  # points of each distribution predicted as each class
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)  # warnings of the method

    @property
    def outcome(self) -> str:
        """The status without its message: "ok", "OOM" or "error"."""
        return self.status.partition(":")[0]


def split_scores(results: list[Result], score: str, level: str) -> np.ndarray:
    """Return the score of each split; NaN if it is not defined (None in plain data)."""
    return np.array([result.scores.get(level, {}).get(score, np.nan) for result in results], dtype=np.float64)


@dataclass(repr=False)
class Comparison:
    """Comparison of methods on the same splits: scores, differences and predictions, as `compare` returns them.

    Where test parts make up the cohort (folds, leave one out), scores are those of pooled predictions, otherwise means
    over splits. The 95% intervals cover the score on new patients (outer groups or, without groups, distributions) of
    the method trained on cohorts of the size of the training parts. See `groundmetric.evaluation.scores`.

    Parameters
    ----------
    names, labels, classes : list
        Names and labels of the distributions, and the labels in the order of the columns of probabilities.
    splits : list of (train, test)
        Indices of the training and of the test distributions of each split.
    results : dict of str to list of Result
        Name of a method to its results, one per split; `Result.status` says whether it failed, and how.
    protocol : Protocol
        How methods were scored: the voting, and whether points were scored.
    groups : list or None, default=None
        Outer groups of the distributions.
    notes : list of str, default=[]
        Cautions about the scores.
    estimators : dict of str to str, default={}
        Name of a method to the estimator that was scored under it, with its parameters.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> comparison = gm.evaluation.compare({"Euclidean": gm.baselines.Euclidean()}, D, y, cv=3, points=False)
    >>> comparison
    Comparison(Euclidean; 3 splits of 30 distributions)
    """

    names: list[Hashable]
    labels: list[Any]
    classes: list[Any]
    splits: list[Split]
    results: dict[str, list[Result]]
    protocol: Protocol
    groups: list[Hashable] | None = None
    notes: list[str] = field(default_factory=list)
    estimators: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.methods)}; {len(self.splits)} splits of {len(self.labels)} distributions)"

    @property
    def methods(self) -> list[str]:
        """Names of the methods, the reference first."""
        return list(self.results)

    @property
    def levels(self) -> list[str]:
        """Levels at which a method was scored: "distributions" and "points"."""
        scored = {level for results in self.results.values() for result in results for level in result.scores}
        return [level for level in LEVELS if level in scored]

    @functools.cached_property
    def rounds(self) -> np.ndarray | None:
        """Round of each split if the test sets make up the cohort; None for shuffled splits."""
        return rounds_of(self.splits, len(self.labels))

    def status(self, method: str) -> str:
        """Return "ok" or the failures of a `method`, and in how many of the splits where not in all."""
        return _counted([result.status for result in self.results[method]])

    def scores(self, score: str = "balanced_accuracy", level: str = "distributions") -> dict[str, np.ndarray]:
        """Return the scores of every method on every split, NaN where it failed or the score is not defined.

        In all methods, `score` is "accuracy", "balanced_accuracy", "macro_f1", "roc_auc" or "log_probability", and
        `level` is "distributions" or "points".
        """
        self._check(score, level)
        return {method: split_scores(results, score, level) for method, results in self.results.items()}

    def estimate(self, method: str, score: str = "balanced_accuracy", level: str = "distributions") -> Estimate:
        """Return the score of a `method` with its standard deviation over splits and its confidence interval.

        `score` and `level` are as in `scores`. Intervals are NaN for the ROC AUC and the log-probability of points
        where predictions are pooled.
        """
        self._check(score, level, method)
        plain = corrected_t(split_scores(self.results[method], score, level), self._test_share)
        if not self._is_counted(score, level):
            return plain if self.rounds is None else Estimate(plain.value, plain.sd, np.nan, np.nan, "")
        predictions = self._predictions(method, level)
        value = plain.value if self.rounds is None else predictions.pooled(score)
        if not np.isfinite(value) or not predictions.several_units:
            return Estimate(value, plain.sd, np.nan, np.nan, "")
        return Estimate(value, plain.sd, *interval(predictions, score, value), "Wilson")

    def difference(
        self, one: str, other: str, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> Difference:
        """Return the score of method `one` less that of `other`, on the splits where both ran.

        `score` and `level` are as in `scores`. The p-value belongs to the hypothesis that both methods have the same
        score on new patients.
        """
        self._check(score, level, one, other)
        first, second = (split_scores(self.results[method], score, level) for method in (one, other))
        plain = paired_t(first, second, self._test_share)
        if not self._is_counted(score, level):
            return plain if self.rounds is None else Difference(plain.value, np.nan, np.nan, np.nan, "")
        ran = [a.status == b.status == OK for a, b in zip(self.results[one], self.results[other], strict=True)]
        parts = self._predictions(one, level, ran), self._predictions(other, level, ran)
        if self.rounds is None:
            defined = np.isfinite(first - second)
            values = (first[defined].mean(), second[defined].mean()) if defined.any() else (np.nan, np.nan)
        else:
            values = parts[0].pooled(score), parts[1].pooled(score)
        value = float(values[0] - values[1])
        if not np.isfinite(value) or not parts[0].several_units:
            return Difference(value, np.nan, np.nan, np.nan, "")
        return Difference(value, *difference(parts[0], parts[1], score, values), "Wilson")

    def against(
        self, reference: str | None = None, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> dict[str, tuple[Difference, float]]:
        """Return the differences between a reference and every other method, and their p-values adjusted by Holm.

        `reference` is the name of a method (None: the first), `score` and `level` are as in `scores`. A difference is
        the reference's score less that of the other method, whose name is the key.
        """
        reference = self.methods[0] if reference is None else reference
        names = [method for method in self.methods if method != reference]
        differences = [self.difference(reference, name, score, level) for name in names]
        adjusted = holm([difference.p for difference in differences])
        return {name: (value, float(p)) for name, value, p in zip(names, differences, adjusted, strict=True)}

    def verdict(
        self, reference: str | None = None, others: Sequence[str] | None = None, score: str = "balanced_accuracy"
    ) -> str:
        """Return a sentence that compares the `reference` (None: the first method) with the best of `others`.

        "Better" needs a confidence interval of the difference over patients that excludes 0; "worse" is corrected for
        the number of methods (Holm), because the best of several methods is worse on new patients than on these.
        `others` are names of methods (None: all but the reference), `score` is as in `scores`.
        """
        reference = self.methods[0] if reference is None else reference
        others = [method for method in self.methods if method != reference] if others is None else list(others)
        values = {method: self.estimate(method, score).value for method in others}
        best = max(others, key=lambda method: -np.inf if np.isnan(values[method]) else values[method])
        difference, p = self.against(reference, score)[best]
        text = f"best baseline {best} ({score_name(score)} {tables.number(values[best])})"
        return f"{text}: {lead_in_words(reference, difference.value, difference.low, difference.high, p)}"

    def predictions(self, method: str) -> dict[str, np.ndarray]:
        """Return mean probabilities of each distribution over the splits that tested it, and the most probable class.

        The arrays of a `method` are "probabilities" (n_distributions, n_classes), "predicted" and "tested", the number
        of splits that tested the distribution; if 0, probabilities are NaN and the predicted class is None.
        """
        self._check("accuracy", "distributions", method)
        predictions = self._predictions(method, "distributions")
        assert predictions.probabilities is not None
        tested = predictions.counts.sum(axis=(0, 2)).astype(int)
        mean = np.full(predictions.counts.shape[1:], np.nan)
        mean[tested > 0] = predictions.probabilities.sum(axis=0)[tested > 0] / tested[tested > 0, None]
        predicted = np.full(tested.size, None, dtype=object)
        predicted[tested > 0] = [self.classes[c] for c in mean[tested > 0].argmax(axis=1)]
        return {"probabilities": mean, "predicted": predicted, "tested": tested}

    def seconds(self, method: str) -> float:
        """Return the mean seconds per split on which the `method` did not fail; NaN where it failed on all."""
        times = [result.seconds for result in self.results[method] if result.status == OK]
        return float(np.mean(times)) if times else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Return all parameters by name as plain data for JSON, which `from_dict` reads."""
        return plain(asdict(self))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Comparison:
        """Return the comparison whose `to_dict` is `content`."""
        splits = [(np.array(train), np.array(test)) for train, test in content["splits"]]
        results = {name: [Result(**row) for row in rows] for name, rows in content["results"].items()}
        protocol = Protocol(**content["protocol"])
        return cls(**{**content, "splits": splits, "results": results, "protocol": protocol})

    def to_markdown(self) -> str:
        """Return tables (Markdown) of all scores, and of the balanced accuracy of the first method against others."""
        parts = []
        for level in self.levels or ["distributions"]:  # a table of failures, where all failed
            rows: list[list[str]] = []
            for method, results in self.results.items():
                cells = [_format_estimate(self.estimate(method, name, level)) for name in SCORES]
                outcomes = [result.outcome for result in results]
                if OK not in outcomes:
                    cells = [_counted(outcomes), *[""] * (len(SCORES) - 1)]
                rows.append([method, *cells, tables.number(self.seconds(method), 1)])
            head = ["method", *map(score_name, SCORES), "seconds per split"]
            parts.append(f"## {level.capitalize()}\n\n{tables.markdown(head, rows)}")
            if len(self.methods) > 1:
                rows = [
                    [method, *_format_difference(lead), tables.p_value(lead.p), tables.p_value(adjusted)]
                    for method, (lead, adjusted) in self.against(level=level).items()
                ]
                title = f"### {self.methods[0]} against each, balanced accuracy of {level}"
                head = ["method", "difference", "95% interval", "p", "p (Holm)"]
                parts.append(f"{title}\n\n{tables.markdown(head, rows)}")
        return "\n\n".join([*parts, "\n".join(f"- {note}" for note in self._remarks())]) + "\n"

    def to_csv(self, path: str | Path) -> None:
        """Write a row per method and split, a column per score, to the file `path`.

        An older table of this kind is replaced; any other file that exists is an error.
        """
        columns = [(level, score) for level in self.levels for score in SCORES]
        head = ["method", "split", "status", "n_train", "n_test", "seconds", *(f"{a}: {b}" for a, b in columns)]
        rows = []
        for method, results in self.results.items():
            values = [split_scores(results, score, level) for level, score in columns]
            for split, (result, (train, test)) in enumerate(zip(results, self.splits, strict=True)):
                about = [method, split, result.status, train.size, test.size, f"{result.seconds:.3f}"]
                rows.append([*about, *(float(column[split]) for column in values)])
        tables.write_csv(path, head, rows)

    def _remarks(self) -> Iterable[str]:
        """Yield how to read the tables, the notes, the estimators, failures and warnings of methods."""
        votes = "weighted by one over the distance" if self.protocol.weights == "distance" else "with equal votes"
        units = "distributions" if self.groups is None else "outer groups"
        yield (
            f"k-NN {votes}, k = {self.protocol.n_neighbors} among distributions, {self.protocol.n_point_neighbors} "
            "among points"
        )
        if self.rounds is None:
            yield f"mean ± SD over {len(self.splits)} shuffled splits [95% interval]"
        else:
            yield f"score of the pooled predictions of {len(self.splits)} splits ± SD over splits [95% interval]"
        yield (
            f"intervals cover the score on new {units} from the same population, of the method trained on cohorts of "
            f"the size of the training parts (Wilson's interval for the effective number of {units}, widened because "
            "the training parts are samples too)"
        )
        yield from (f"{method} is {estimator}" for method, estimator in self.estimators.items())
        yield from self.notes
        for method, results in self.results.items():
            if self.status(method) != OK:
                yield f"{method}: {self.status(method)}"
            warned = dict.fromkeys(note for result in results if result.status == OK for note in result.notes)
            if warned:
                yield f"{method} warned: {'; '.join(warned)}"

    def _check(self, score: str, level: str, *methods: str) -> None:
        if level not in LEVELS:
            raise ValueError(f"level is {level!r}: expected one of {list(LEVELS)}")
        if score not in SCORES:
            raise ValueError(f"score is {score!r}: expected one of {list(SCORES)}")
        for method in methods:
            if method not in self.results:
                raise ValueError(f"no method is called {method!r}: there are {self.methods}")

    def _is_counted(self, score: str, level: str) -> bool:
        """Return whether the score can be computed from stored predictions: of points, only numbers per class are."""
        return level == "distributions" or score not in ("roc_auc", "log_probability")

    @property
    def _test_share(self) -> float:
        return float(np.mean([test.size / train.size for train, test in self.splits]))

    def _predictions(self, method: str, level: str, ran: list[bool] | None = None) -> Predictions:
        """Return the held-out predictions in the selected splits, by round (shuffled splits: by split)."""
        tables = [
            (result.probabilities if level == "distributions" else result.point_counts)
            if result.status == OK and (ran is None or ran[split])
            else []
            for split, result in enumerate(self.results[method])
        ]
        rounds = np.arange(len(self.splits)) if self.rounds is None else self.rounds
        codes, units = encode(self.labels, self.classes), unit_codes(self.groups, len(self.labels))
        n_classes = len(self.classes)
        return Predictions.of(codes, units, self.splits, rounds, tables, n_classes=n_classes, points=level == "points")


def _counted(outcomes: list[str]) -> str:
    """Return the outcome of all splits; if they differ, each failure with its number of splits."""
    counts = Counter(outcome for outcome in outcomes if outcome != OK)
    if not counts:
        return OK
    if list(counts.values()) == [len(outcomes)]:
        return outcomes[0]
    return "; ".join(f"{outcome} in {count} of {len(outcomes)} splits" for outcome, count in counts.items())


def lead_in_words(name: str, value: float, low: float, high: float, p: float | None) -> str:
    """Return whether a method is better than the best of several others, with its lead; `p` is adjusted (Holm)."""
    if not np.isfinite(low):
        return "no interval of the difference"
    worse = high < 0 and p is not None and p < 0.05
    verdict = f"{name} is better" if low > 0 else f"{name} is worse" if worse else "no significant difference"
    return f"{verdict} (difference {value:+.2f}, 95% interval {low:+.2f} to {high:+.2f})"


def _format_estimate(estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return "–"
    text = tables.number(estimate.value)
    if np.isfinite(estimate.sd):
        text += f" ± {estimate.sd:.2f}"
    if np.isfinite(estimate.low):
        text += f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return text


def _format_difference(difference: Difference) -> tuple[str, str]:
    if np.isnan(difference.value):
        return "–", "–"
    interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]" if np.isfinite(difference.low) else "–"
    return f"{difference.value:+.2f}", interval
