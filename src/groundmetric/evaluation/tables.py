"""A comparison as Markdown for people and as CSV for programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._internal import tables
from .._internal.tables import MISSING, number, p_value
from ._run import OK
from .results import LEVELS, Comparison
from .statistics import Difference, Estimate

_TITLES = {
    "distributions": "Distributions",
    "points": "Points",
    "clusters": "Clusters of distributions",
    "point clusters": "Clusters of points",
}
_NAMES = {"macro_f1": "macro F1", "roc_auc": "ROC AUC", "adjusted_rand": "adjusted Rand", "n_clusters": "clusters"}


def markdown(comparison: Comparison, reference: str | None, score: str) -> str:
    """A table per level, the paired comparisons, and what should be known to read them."""
    parts = []
    for level in comparison.levels or ["distributions"]:  # a table of failures, where all failed
        parts.append(f"## {_TITLES[level]}\n\n{_level_table(comparison, level)}")
        if level in ("distributions", "points") and len(comparison.methods) > 1:
            parts.append(_paired_table(comparison, reference, score, level))
    notes = [*_how_to_read(comparison), *comparison.notes, *_failures(comparison)]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"


def write_csv(comparison: Comparison, path: str | Path) -> None:
    columns = [(level, score) for level in comparison.levels for score in LEVELS[level]]
    head = ["method", "split", "status", "n_train", "n_test", "seconds", *(f"{a}: {b}" for a, b in columns)]
    rows = []
    for method, results in comparison.results.items():
        for split, (result, (train, test)) in enumerate(zip(results, comparison.splits, strict=True)):
            values = [float(result.scores.get(level, {}).get(score, np.nan)) for level, score in columns]
            about = [method, split, result.status, train.size, test.size, f"{sum(result.seconds.values()):.3f}"]
            rows.append([*about, *values])
    tables.write_csv(path, head, rows)


def _level_table(comparison: Comparison, level: str) -> str:
    names = LEVELS[level]
    rows = []
    for method in comparison.methods:
        cells = [_estimate(comparison.estimate(method, name, level)) for name in names]
        if not any(result.status == OK for result in comparison.results[method]):
            cells = [_short(comparison.status(method)), *[""] * (len(names) - 1)]
        rows.append([method, *cells, number(comparison.seconds(method), 1)])
    return tables.markdown(["method", *map(_name, names), "seconds per split"], rows)


def _paired_table(comparison: Comparison, reference: str | None, score: str, level: str) -> str:
    reference = comparison.methods[0] if reference is None else reference
    rows = []
    for other, (difference, adjusted) in comparison.against(reference, score, level).items():
        rows.append([other, *_difference(difference), p_value(difference.p), p_value(adjusted)])
    title = f"{reference} against each, {_name(score)} of {level}"
    return f"### {title}\n\n" + tables.markdown(["method", "difference", "95 % interval", "p", "p (Holm)"], rows)


def _how_to_read(comparison: Comparison) -> Iterable[str]:
    protocol = comparison.protocol
    votes = "weighted by one over the distance" if protocol.weights == "distance" else "with equal votes"
    yield f"k-NN {votes}, k = {protocol.k} among distributions, {protocol.k_points} among points"
    if comparison.rounds is None:
        yield f"mean ± SD over {len(comparison.splits)} shuffled splits [95 % interval by the corrected resampled t]"
    else:
        units = "distributions" if comparison.groups is None else "outer groups"
        yield (
            f"score of the pooled predictions of {len(comparison.splits)} splits ± SD over splits "
            f"[95 % interval by the bootstrap over {units}]"
        )
    yield "an interval of no width says that nothing varied from split to split, not that the score is certain"


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


def _estimate(estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return MISSING
    text = number(estimate.value)
    if np.isfinite(estimate.sd):
        text += f" ± {estimate.sd:.2f}"
    if np.isfinite(estimate.low):
        text += f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return text


def _difference(difference: Difference) -> tuple[str, str]:
    if np.isnan(difference.value):
        return MISSING, MISSING
    known = np.isfinite(difference.low)
    return f"{difference.value:+.2f}", f"[{difference.low:+.2f}, {difference.high:+.2f}]" if known else MISSING


def _short(status: Any) -> str:
    return "error" if status.startswith("error") else status
