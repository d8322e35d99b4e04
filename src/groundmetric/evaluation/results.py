"""Result of a comparison: scores with intervals, paired differences, predictions; as Markdown, CSV and plain data."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._internal import tables
from .._internal.tables import without_nan
from ..supervision.splits import Split, number_groups, rounds_of
from . import statistics
from ._run import OK, Protocol, Result, pooled, split_scores
from .scores import CLUSTERING, SCORES, encode
from .statistics import (
    Difference,
    Estimate,
    bootstrap,
    clipped,
    corrected_t,
    format_difference,
    format_estimate,
    n_units,
    paired_bootstrap,
    paired_t,
    sure_as,
    wilson,
)

LEVELS = {"distributions": SCORES, "points": SCORES, "clusters": CLUSTERING, "point clusters": CLUSTERING}
_TITLES = {
    "distributions": "Distributions", "points": "Points",
    "clusters": "Clusters of distributions", "point clusters": "Clusters of points",
}  # fmt: skip
_NAMES = {"macro_f1": "macro F1", "roc_auc": "ROC AUC", "adjusted_rand": "adjusted Rand", "n_clusters": "clusters"}


@dataclass(repr=False)
class Comparison:
    """Comparison of methods on the same splits: scores, differences and predictions, as `compare` returns them.

    Where test parts make up the cohort (folds, leave one out), scores are those of pooled predictions with a bootstrap
    interval over distributions, or over outer groups where there are some; otherwise means over splits with the
    corrected resampled t interval. Where nothing varies (all predictions right), the interval is Wilson's, for as many
    units as there are distributions or outer groups. See `groundmetric.evaluation.statistics`.

    Parameters
    ----------
    names : list
        Names of the distributions.
    labels : list
        Labels of the distributions.
    classes : list
        Labels in the order of the columns of probabilities.
    splits : list of (train, test)
        Indices of the training and of the test distributions of each split.
    results : dict of str to list of Result
        Name of a method to its results, one per split; `Result.status` says whether it failed, and how.
    protocol : Protocol
        How methods were scored: the parameters of `compare`.
    groups : list or None, default=None
        Outer groups of the distributions.
    notes : list of str, default=[]
        Cautions about the scores, e.g. that fewer neighbours voted than were asked for.
    estimators : dict of str to str, default={}
        Name of a method to the estimator that was scored under it, with its parameters.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> found = gm.evaluation.compare({"Euclidean": gm.baselines.Euclidean()}, D, y, cv=3, points=False)
    >>> found
    Comparison(Euclidean; 3 splits of 30 distributions)
    >>> found.status("Euclidean"), found.levels
    ('ok', ['distributions'])
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
        """Those that any method was scored at: "distributions", "points", "clusters", "point clusters"."""
        found = {level for results in self.results.values() for result in results for level in result.scores}
        return [level for level in LEVELS if level in found]

    @functools.cached_property
    def rounds(self) -> np.ndarray | None:
        """The round of each split, where test parts make up the whole cohort; None for shuffled splits."""
        return rounds_of(self.splits, len(self.labels))

    def status(self, method: str) -> str:
        """Outcome of a method.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        str
            "ok", or the failures, and in how many of the splits where not in all.
        """
        return _counted([result.status for result in self.results[method]])

    def scores(self, score: str = "balanced_accuracy", level: str = "distributions") -> dict[str, np.ndarray]:
        """Scores of every method on every split.

        Parameters
        ----------
        score : str, default="balanced_accuracy"
            "accuracy", "balanced_accuracy", "macro_f1" or "roc_auc"; of clusters, a key of `cluster_scores`.
        level : {"distributions", "points", "clusters", "point clusters"}, default="distributions"
            What is scored.

        Returns
        -------
        dict of str to array of shape (n_splits,)
            Name of a method to its scores; NaN where it failed or the score is not defined.
        """
        self._check(score, level)
        return {method: split_scores(results, score, level) for method, results in self.results.items()}

    def estimate(self, method: str, score: str = "balanced_accuracy", level: str = "distributions") -> Estimate:
        """Score of a method with its standard deviation over splits and its confidence interval.

        Parameters
        ----------
        method : str
            Name of the method.
        score, level : str
            As in `scores`.

        Returns
        -------
        Estimate
            The score. There is no interval for clusters (unless they are of the test parts of shuffled splits), for the
            number of clusters, and for the ROC AUC of points where predictions are pooled.
        """
        self._check(score, level, method)
        scores = split_scores(self.results[method], score, level)
        plain = corrected_t(scores, self._test_share)
        if not self._has_interval(level) or score == "n_clusters":
            return Estimate(plain.value, plain.sd, np.nan, np.nan, "")
        if self.rounds is None:
            return self._with_width(clipped(plain, 0.0, 1.0), score, method) if score in SCORES else plain
        estimate = bootstrap(self._pooled(method, score, level), self._draws, sd=plain.sd)
        if np.isfinite(estimate.value):
            return self._with_width(estimate, score, method)
        return Estimate(plain.value, plain.sd, np.nan, np.nan, "")  # the AUC of points is not pooled

    def difference(
        self, one: str, other: str, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> Difference:
        """Difference of two methods' scores, on the splits where both ran.

        Parameters
        ----------
        one, other : str
            Names of the methods.
        score, level : str
            As in `scores`.

        Returns
        -------
        Difference
            Score of `one` less that of `other`, with its interval and p-value. The latter is never below that of a sign
            test in which all distributions (or outer groups) agree.
        """
        self._check(score, level, one, other)
        first, second = (split_scores(self.results[method], score, level) for method in (one, other))
        plain = paired_t(first, second, self._test_share)
        if not self._has_interval(level):
            return Difference(plain.value, np.nan, np.nan, np.nan, "")
        n = self._n_units(score, one, other)
        if self.rounds is None:
            return sure_as(clipped(plain, -1.0, 1.0), n) if score in SCORES else plain
        ran = [a.status == b.status == OK for a, b in zip(self.results[one], self.results[other], strict=True)]
        found = paired_bootstrap(
            self._pooled(one, score, level, ran), self._pooled(other, score, level, ran), self._draws
        )
        return sure_as(found, n) if np.isfinite(found.value) else Difference(plain.value, np.nan, np.nan, np.nan, "")

    def against(
        self, reference: str | None = None, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> dict[str, tuple[Difference, float]]:
        """Differences between a reference and every other method.

        Parameters
        ----------
        reference : str or None, default=None
            Name of a method; None: the first.
        score, level : str
            As in `scores`.

        Returns
        -------
        dict of str to (Difference, float)
            Name of another method to the reference's score less its own, and the p-value adjusted by Holm.
        """
        reference = self.methods[0] if reference is None else reference
        others = [method for method in self.methods if method != reference]
        found = [self.difference(reference, other, score, level) for other in others]
        adjusted = statistics.holm([difference.p for difference in found])
        return {other: (difference, float(p)) for other, difference, p in zip(others, found, adjusted, strict=True)}

    def predictions(self, method: str) -> dict[str, np.ndarray]:
        """Mean probabilities of each distribution over the splits that tested it, and the most probable class.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        dict of str to array
            "probabilities" (n_distributions, n_classes), "predicted" and "tested", the number of these splits; where
            that is 0, probabilities are NaN and `predicted` is None.
        """
        self._check("accuracy", "distributions", method)
        total, tested = np.zeros((len(self.labels), len(self.classes))), np.zeros(len(self.labels), int)
        for (_, test), result in zip(self.splits, self.results[method], strict=True):
            if result.status == OK:
                total[test] += result.probabilities
                tested[test] += 1
        seen = tested > 0
        mean = np.where(seen[:, None], total / np.maximum(tested, 1)[:, None], np.nan)
        predicted = np.full(len(self.labels), None, dtype=object)
        predicted[seen] = [self.classes[c] for c in mean[seen].argmax(axis=1)]
        return {"probabilities": mean, "predicted": predicted, "tested": tested}

    def seconds(self, method: str) -> float:
        """Mean time per split.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        float
            Seconds, over splits where the method did not fail; NaN where it failed on all.
        """
        times = [sum(result.seconds.values()) for result in self.results[method] if result.status == OK]
        return float(np.mean(times)) if times else np.nan

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data that JSON can hold.

        Returns
        -------
        dict
            All parameters by name; `from_dict` reads it.
        """
        return {
            "names": [_plain(name) for name in self.names],
            "labels": [_plain(label) for label in self.labels],
            "classes": [_plain(label) for label in self.classes],
            "groups": None if self.groups is None else [_plain(group) for group in self.groups],
            "splits": [[train.tolist(), test.tolist()] for train, test in self.splits],
            "results": {name: [without_nan(r.to_dict()) for r in rows] for name, rows in self.results.items()},
            "protocol": asdict(self.protocol),
            "notes": list(self.notes),
            "estimators": dict(self.estimators),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Comparison:
        """Comparison from plain data.

        Parameters
        ----------
        content : dict
            Plain data from `to_dict`.

        Returns
        -------
        Comparison
            The same comparison.
        """
        content = dict(content)
        content["splits"] = [(np.array(train), np.array(test)) for train, test in content["splits"]]
        content["results"] = {
            name: [Result(**{**row, "scores": _with_nan(row["scores"])}) for row in rows]
            for name, rows in content["results"].items()
        }
        content["protocol"] = Protocol(**content["protocol"])
        return cls(**content)

    def to_markdown(self, reference: str | None = None, score: str = "balanced_accuracy") -> str:
        """Tables of all scores, and of the reference against every other method.

        Parameters
        ----------
        reference : str or None, default=None
            Name of a method; None: the first.
        score : str, default="balanced_accuracy"
            What the paired tables compare.

        Returns
        -------
        str
            Markdown.
        """
        parts = []
        for level in self.levels or ["distributions"]:  # a table of failures, where all failed
            parts.append(f"## {_TITLES[level]}\n\n{_level_table(self, level)}")
            if level in ("distributions", "points") and len(self.methods) > 1:
                parts.append(_paired_table(self, reference, score, level))
        notes = [*_how_to_read(self), *self.notes, *_failures(self)]
        return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"

    def to_csv(self, path: str | Path) -> None:
        """Write a row per method and split, a column per score.

        Parameters
        ----------
        path : path-like
            The file. An older table of this kind is replaced; any other file that exists is an error.
        """
        columns = [(level, score) for level in self.levels for score in LEVELS[level]]
        head = ["method", "split", "status", "n_train", "n_test", "seconds", *(f"{a}: {b}" for a, b in columns)]
        rows = []
        for method, results in self.results.items():
            for split, (result, (train, test)) in enumerate(zip(results, self.splits, strict=True)):
                values = [float(result.scores.get(level, {}).get(score, np.nan)) for level, score in columns]
                about = [method, split, result.status, train.size, test.size, f"{sum(result.seconds.values()):.3f}"]
                rows.append([*about, *values])
        tables.write_csv(path, head, rows)

    def _check(self, score: str, level: str, *methods: str) -> None:
        if level not in LEVELS:
            raise ValueError(f"level is {level!r}: expected one of {list(LEVELS)}")
        if score not in LEVELS[level]:
            raise ValueError(f"score is {score!r}: expected one of {list(LEVELS[level])}")
        for method in methods:
            if method not in self.results:
                raise ValueError(f"no method is called {method!r}: there are {self.methods}")

    def _has_interval(self, level: str) -> bool:
        """Clusters of everybody do not vary with who is tested, and clusters of several folds are not pooled."""
        if level in ("distributions", "points"):
            return True
        return self.rounds is None and self.protocol.clustering == "test"

    @property
    def _test_share(self) -> float:
        return float(np.mean([test.size / train.size for train, test in self.splits]))

    @functools.cached_property
    def _codes(self) -> np.ndarray:
        return encode(self.labels, self.classes)

    @functools.cached_property
    def _units(self) -> np.ndarray:
        """What is independent: outer groups where there are some, else distributions."""
        units = number_groups(self.groups, len(self.labels))
        return np.arange(len(self.labels)) if units is None else units

    @functools.cached_property
    def _draws(self) -> np.ndarray:
        return statistics.resample(self._units, self._codes)

    def _n_units(self, score: str, *methods: str) -> float:
        """Effective number of units that all these methods were tested on; but for accuracy, classes count the same."""
        weights = np.zeros(len(self.labels))
        for at, (_, test) in enumerate(self.splits):
            if all(self.results[method][at].status == OK for method in methods):
                weights[test] = 1.0
        if score != "accuracy":
            weights /= np.maximum(np.bincount(self._codes, weights), 1.0)[self._codes]
        return n_units(self._units, weights)

    def _with_width(self, estimate: Estimate, score: str, method: str) -> Estimate:
        """Wilson's interval where the score was the same in every split or draw."""
        if estimate.low != estimate.high:  # NaN included: not known
            return estimate
        return replace(wilson(estimate.value, self._n_units(score, method)), sd=estimate.sd)

    def _pooled(self, method: str, score: str, level: str, counted: list[bool] | None = None) -> statistics.Statistic:
        """A method's pooled score as a function of weights; splits that are not counted are as if they had failed."""
        assert self.rounds is not None
        chosen = [True] * len(self.splits) if counted is None else counted
        results = [r if c else Result("not counted") for r, c in zip(self.results[method], chosen, strict=True)]
        return pooled(self._codes, self.splits, self.rounds, results, score, level, len(self.classes))


def _counted(outcomes: list[str]) -> str:
    """The outcome of all splits; where they differ, the failures and in how many splits each."""
    counts = Counter(outcome for outcome in outcomes if outcome != OK)
    if not counts:
        return OK
    if list(counts.values()) == [len(outcomes)]:
        return outcomes[0]
    return "; ".join(f"{outcome} in {count} of {len(outcomes)} splits" for outcome, count in counts.items())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _with_nan(scores: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        level: {name: np.nan if value is None else value for name, value in row.items()}
        for level, row in scores.items()
    }


def _level_table(comparison: Comparison, level: str) -> str:
    names = LEVELS[level]
    rows = []
    for method in comparison.methods:
        cells = [format_estimate(comparison.estimate(method, name, level)) for name in names]
        outcomes = [result.outcome for result in comparison.results[method]]
        if OK not in outcomes:
            cells = [_counted(outcomes), *[""] * (len(names) - 1)]
        rows.append([method, *cells, tables.number(comparison.seconds(method), 1)])
    return tables.markdown(["method", *map(_name, names), "seconds per split"], rows)


def _paired_table(comparison: Comparison, reference: str | None, score: str, level: str) -> str:
    reference = comparison.methods[0] if reference is None else reference
    rows = []
    for other, (difference, adjusted) in comparison.against(reference, score, level).items():
        rows.append([other, *format_difference(difference), tables.p_value(difference.p), tables.p_value(adjusted)])
    title = f"{reference} against each, {_name(score)} of {level}"
    return f"### {title}\n\n" + tables.markdown(["method", "difference", "95 % interval", "p", "p (Holm)"], rows)


def _how_to_read(comparison: Comparison) -> Iterable[str]:
    protocol = comparison.protocol
    votes = "weighted by one over the distance" if protocol.weights == "distance" else "with equal votes"
    units = "distributions" if comparison.groups is None else "outer groups"
    yield f"k-NN {votes}, k = {protocol.n_neighbors} among distributions, {protocol.n_point_neighbors} among points"
    if comparison.rounds is None:
        yield f"mean ± SD over {len(comparison.splits)} shuffled splits [95 % interval by the corrected resampled t]"
    else:
        yield (
            f"score of the pooled predictions of {len(comparison.splits)} splits ± SD over splits "
            f"[95 % interval by the bootstrap over {units}]"
        )
    yield f"where nothing varied, as where all are right, the interval is Wilson's for so many {units}"
    for method, estimator in comparison.estimators.items():
        yield f"{method} is {estimator}"


def _failures(comparison: Comparison) -> Iterable[str]:
    for method in comparison.methods:
        status = comparison.status(method)
        if status != OK:
            yield f"{method}: {status}"
        warned = dict.fromkeys(n for r in comparison.results[method] if r.status == OK for n in r.notes)
        if warned:
            yield f"{method} warned: {'; '.join(warned)}"


def _name(score: str) -> str:
    return _NAMES.get(score, score.replace("_", " "))
