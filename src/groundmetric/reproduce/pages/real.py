"""Tables of the real data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..figures import draw_scores
from ..protocol import SEARCH
from ..tables import interval, markdown, number, prose, write_csv

INTRODUCTION = """
    The learner with its nested search against Euclid and what else is quickly tried; the paper's own data sets are
    not among these. At most 150 cells per sample; where there are more than 30 features, all methods are shown the 30
    leading principal components, found in each training part. 5-NN votes are weighted by one over the distance, and
    where a set is judged by balanced accuracy, also by one over the number of training samples of their class (and
    the logistic regression likewise): leaving a sample out takes a vote from its own class, which pulls plain votes
    below chance. Scores are those of pooled predictions, with a bootstrap interval over patients (over samples where
    there is one of each). Silhouettes are those of the labels on distances between held-out samples, mean over
    splits. Where there are more than 200 samples, the search holds out once and tries 9 settings for 20 epochs, to
    keep its time in check. Seconds are by the clock, on a machine that did other work as well. Intervals are wide:
    these cohorts are small."""

ALL_CELLS = """
    The same splits of the data sets with many features, prepared as their description does it: features scaled and 30
    components found once, without labels but on all cells, those of held-out samples too. That is no fair test of what
    will happen to a new patient, but the figures in the description are of this kind; its votes are not balanced,
    though, which leaves rare classes fewer."""


def real(found: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table and figure go into the folder."""
    parts = ["## Real data", prose(INTRODUCTION)]
    for name, study in found["sets"].items():
        parts += [f"### {name}", _about(study), _scores(study["rows"])]
        parts.append(" ".join([_verdict(study["rows"], study["score"]), *_lead(study.get("against_euclid"))]))
    all_cells = found.get("all cells", {})
    if all_cells:
        parts += ["### Components of all cells", prose(ALL_CELLS), _one_score_each(all_cells)]
    if found["sets"]:
        picture = draw_scores(found["sets"], "balanced_accuracy", folder, "real")
        again = {f"{name}, components of all cells": study for name, study in all_cells.items()}
        table = write_csv(folder / "real.csv", _records(found["sets"] | again))
        parts += [f"![scores on real data](results/{picture})", f"As CSV: [{table}](results/{table})"]
    if found["pending"]:
        parts.append(f"The run was not finished when this page was written. Missing: {', '.join(found['pending'])}.")
    if found["absent"]:
        parts.append(f"Left out, because the files were not there: {', '.join(found['absent'])}.")
    return parts


def _one_score_each(sets: dict[str, Any]) -> str:
    methods = list(dict.fromkeys(method for study in sets.values() for method in study["rows"]))
    lines = []
    for name, study in sets.items():
        rows, score = study["rows"], study["score"]
        values = [(rows.get(method, {}).get(score) or {}).get("mean") for method in methods]
        lines.append([name, score.replace("_", " "), *map(number, values)])
    return markdown(["data", "judged by", *methods], lines)


def _about(study: dict[str, Any]) -> str:
    labels = ", ".join(f"{count} {label}" for label, count in study["labels"].items())
    about = study["about"][0].upper() + study["about"][1:]
    sizes = f"{study['n_samples']} samples ({labels}), {study['n_points']:,} points, {study['n_features']:,} features"
    votes = "" if study.get("class_weight") is None else " Votes are balanced."
    return " ".join(
        [f"{about}. {sizes}; {study['splits']}.{votes}", *(f"Of the file, {note}." for note in study["notes"])]
    )


def _scores(rows: dict[str, Any]) -> str:
    lines = []
    for method, row in rows.items():
        cells = [interval(row.get(score)) for score in ("accuracy", "balanced_accuracy", "roc_auc")]
        cells += [number((row.get("silhouette") or {}).get("mean")), number(row["seconds"], 1)]
        lines.append([method, *(cells if row["status"] == "ok" else [row["status"], "", "", "", ""])])
    return markdown(["method", "accuracy", "balanced accuracy", "ROC AUC", "silhouette", "seconds per split"], lines)


def _verdict(rows: dict[str, Any], score: str) -> str:
    """Where the learner stands among the others, by the score that the set is judged by."""
    found = {method: (row.get(score) or {}).get("mean") for method, row in rows.items()}
    values = {method: value for method, value in found.items() if value is not None}
    name = score.replace("_", " ")
    if SEARCH not in values:
        return f"{SEARCH} has no {name} here."
    ours = values[SEARCH]
    better = [f"{method} ({number(value)})" for method, value in values.items() if value > ours + 0.005]
    if better:
        return f"By {name}, {SEARCH} ({number(ours)}) falls short of {', '.join(better)}."
    return f"By {name}, none is better than {SEARCH} ({number(ours)}; Euclidean {number(values.get('Euclidean'))})."


def _lead(against: dict[str, float] | None) -> list[str]:
    if against is None:
        return []
    low, high = against["low"], against["high"]
    where = "significantly worse" if high < 0 else "significantly better" if low > 0 else "no significant difference"
    lead = f"{against['lead']:+.2f} [{low:+.2f}, {high:+.2f}]"
    return [f"Its lead in balanced accuracy over Euclid is {lead}: {where}."]


def _records(sets: dict[str, Any]) -> list[dict[str, Any]]:
    records = []
    for name, study in sets.items():
        for method, row in study["rows"].items():
            scores = {
                f"{key}: {part}": v
                for key, value in row.items()
                if isinstance(value, dict)
                for part, v in value.items()
            }
            records.append(
                {"data": name, "method": method, "status": row["status"], "seconds": row["seconds"], **scores}
            )
    return records
