"""What a comparison found: scores with intervals, paired comparisons, predictions, and ways to keep them."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._internal.tables import without_nan
from ..supervision.splits import Split, number_groups, rounds_of
from ._run import OK, Protocol, Result, pooled, split_scores
from .scores import CLUSTERING, SCORES, encode
from .statistics import (
    Difference,
    Estimate,
    Statistic,
    bootstrap,
    corrected_t,
    holm,
    paired_bootstrap,
    paired_t,
    resample,
)

LEVELS = {"distributions": SCORES, "points": SCORES, "clusters": CLUSTERING, "point clusters": CLUSTERING}


@dataclass(repr=False)
class Comparison:
    """Methods on the same splits.

    Where test parts make up the cohort (folds, leave one out), scores are those of pooled predictions with a bootstrap
    interval over distributions, or over outer groups where there are some; otherwise means over splits with the
    corrected resampled t interval. See `groundmetric.evaluation.statistics`.

    Attributes
    ----------
    names, labels, groups : of the distributions
    classes : list, in the order of the columns of probabilities
    splits : list of (train, test)
    results : method to a list of results, one per split; `status` says what failed
    protocol : Protocol
    notes : what should be known when reading the scores
    """

    names: list
    labels: list
    classes: list
    splits: list[Split]
    results: dict[str, list[Result]]
    protocol: Protocol
    groups: list | None = None
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.methods)}; {len(self.splits)} splits of {len(self.labels)} distributions)"

    @property
    def methods(self) -> list[str]:
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
        """ "ok", or what went wrong in how many of the splits."""
        wrong = [result.status for result in self.results[method] if result.status != OK]
        if not wrong:
            return OK
        counts = {status: wrong.count(status) for status in dict.fromkeys(wrong)}
        if list(counts.values()) == [len(self.splits)]:
            return wrong[0]
        return "; ".join(f"{status} in {count} of {len(self.splits)} splits" for status, count in counts.items())

    def scores(self, score: str = "balanced_accuracy", level: str = "distributions") -> dict[str, np.ndarray]:
        """Method to its score on every split; NaN where it failed or the score is not defined."""
        self._check(score, level)
        return {method: split_scores(results, score, level) for method, results in self.results.items()}

    def estimate(self, method: str, score: str = "balanced_accuracy", level: str = "distributions") -> Estimate:
        """A method's score with its standard deviation over splits and its confidence interval."""
        self._check(score, level, method)
        scores = split_scores(self.results[method], score, level)
        plain = corrected_t(scores, self._test_share)
        if not self._has_interval(level) or score == "n_clusters":
            return Estimate(plain.value, plain.sd, np.nan, np.nan, "")
        if self.rounds is None:
            return _within(plain, 0.0, 1.0) if score in SCORES else plain
        estimate = bootstrap(self._pooled(method, score, level), self._draws, sd=plain.sd)
        if np.isfinite(estimate.value):
            return estimate
        return Estimate(plain.value, plain.sd, np.nan, np.nan, "")  # the AUC of points is not pooled

    def difference(
        self, one: str, other: str, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> Difference:
        """How much better `one` is than `other`, on the splits where both ran, with its interval and p-value."""
        self._check(score, level, one, other)
        first, second = (split_scores(self.results[method], score, level) for method in (one, other))
        plain = paired_t(first, second, self._test_share)
        if not self._has_interval(level):
            return Difference(plain.value, np.nan, np.nan, np.nan, "")
        if self.rounds is None:
            return _within(plain, -1.0, 1.0) if score in SCORES else plain
        ran = [a.status == b.status == OK for a, b in zip(self.results[one], self.results[other], strict=True)]
        found = paired_bootstrap(
            self._pooled(one, score, level, ran), self._pooled(other, score, level, ran), self._draws
        )
        return found if np.isfinite(found.value) else Difference(plain.value, np.nan, np.nan, np.nan, "")

    def against(
        self, reference: str | None = None, score: str = "balanced_accuracy", level: str = "distributions"
    ) -> dict[str, tuple[Difference, float]]:
        """The reference (the first method unless named) against every other: its lead, and the p-value by Holm."""
        reference = self.methods[0] if reference is None else reference
        others = [method for method in self.methods if method != reference]
        found = [self.difference(reference, other, score, level) for other in others]
        adjusted = holm([difference.p for difference in found])
        return {other: (difference, float(p)) for other, difference, p in zip(others, found, adjusted, strict=True)}

    def predictions(self, method: str) -> dict[str, np.ndarray]:
        """Mean probabilities of each distribution over the splits that tested it, and the class they point to.

        `tested` counts these splits; where it is 0, probabilities are NaN and `predicted` is None.
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
        predicted[seen] = [self.classes[place] for place in mean[seen].argmax(axis=1)]
        return {"probabilities": mean, "predicted": predicted, "tested": tested}

    def seconds(self, method: str) -> float:
        """Mean time per split; NaN where none was finished."""
        times = [sum(result.seconds.values()) for result in self.results[method] if result.status == OK]
        return float(np.mean(times)) if times else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data that JSON can hold; `from_dict` reads it."""
        return {
            "names": [_plain(name) for name in self.names],
            "labels": [_plain(label) for label in self.labels],
            "classes": [_plain(label) for label in self.classes],
            "groups": None if self.groups is None else [_plain(group) for group in self.groups],
            "splits": [[train.tolist(), test.tolist()] for train, test in self.splits],
            "results": {name: [without_nan(r.to_dict()) for r in rows] for name, rows in self.results.items()},
            "protocol": asdict(self.protocol),
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Comparison:
        content = dict(content)
        content["splits"] = [(np.array(train), np.array(test)) for train, test in content["splits"]]
        content["results"] = {
            name: [Result(**{**row, "scores": _with_nan(row["scores"])}) for row in rows]
            for name, rows in content["results"].items()
        }
        content["protocol"] = Protocol(**content["protocol"])
        return cls(**content)

    def to_markdown(self, reference: str | None = None, score: str = "balanced_accuracy") -> str:
        """Tables of all scores, and of the reference (the first method unless named) against every other."""
        from .tables import markdown

        return markdown(self, reference, score)

    def to_csv(self, path: str | Path) -> None:
        """A row per method and split, a column per score; an older table of this kind is replaced, no other file is."""
        from .tables import write_csv

        write_csv(self, path)

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
    def _draws(self) -> np.ndarray:
        units = number_groups(self.groups, len(self.labels))
        return resample(np.arange(len(self.labels)) if units is None else units, self._codes)

    def _pooled(self, method: str, score: str, level: str, counted: list[bool] | None = None) -> Statistic:
        """A method's pooled score as a function of weights; splits that are not counted are as if they had failed."""
        assert self.rounds is not None
        chosen = [True] * len(self.splits) if counted is None else counted
        results = [r if c else Result("not counted") for r, c in zip(self.results[method], chosen, strict=True)]
        return pooled(self._codes, self.splits, self.rounds, results, score, level, len(self.classes))


def _within(estimate: Any, lowest: float, highest: float) -> Any:
    """The interval cut to values that are possible."""
    low, high = np.clip([estimate.low, estimate.high], lowest, highest)
    return replace(estimate, low=float(low), high=float(high))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _with_nan(scores: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        level: {name: np.nan if value is None else value for name, value in row.items()}
        for level, row in scores.items()
    }
