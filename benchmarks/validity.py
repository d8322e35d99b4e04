"""Table of error rates, optimism and coverage of every number that a user reads; writes docs/validity.md.

    OMP_NUM_THREADS=1 python benchmarks/validity.py [--quick] [--seed 0] [module.function ...]

`make validity` runs all rows, `make validity QUICK=1` a twelfth of the cohorts. Rows are kept in
benchmarks/work/validity.json after each function: a call that names functions measures these again, and writes the page
from their rows and the kept rows of the others.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from validity_interpret import Row, report

import groundmetric as gm

HERE = Path(__file__).resolve().parent
PAGE, STORED = HERE.parent / "docs" / "validity.md", HERE / "work" / "validity.json"
MODULES = ("validity_ensemble", "validity_interpret", "validity_evaluation", "validity_questions")
QUICK, LEAST_COHORTS = 1 / 12, 4

HEAD = """# Error rates of every number

This page measures error rates on simulated cohorts whose truth is known: how often a test rejects where labels have
no effect, how much a held-out score exceeds the score on new patients, and how often an interval contains the truth.

Cohorts are Gaussian unless a design says otherwise: the cells of a sample scatter around the mean of the sample,
sample means around the mean of their patient, and patients around the mean of their class and batch. *Measured* is
the mean over simulated cohorts with 95 % confidence limits, *nominal* is the value that the number should have. A row
*holds* unless the limits exclude the nominal value by more than a tolerance: a fifth of the nominal value for a rate,
0.02 for an accuracy or R², 0.01 for a log-probability, and 0.04 for the difference between a probability and its
frequency. Rows without a nominal value are *descriptive*.

`make validity` measures everything again and writes this page (about {minutes:.0f} minutes on one core for the rows
below); `make validity QUICK=1` takes a twelfth of the cohorts. Seed: {seed}. The last column is the number of simulated
cohorts. {summary}.
"""

PRELIMINARY = """\
**Preliminary.** Some rows have as few as {low:.0%} of the cohorts of a full run. Their limits are wide: "yes" means
that the limits do not exclude the nominal value, not that it was confirmed, and "**no**" may be sampling error. Not
measured for this page: {missing}.
"""

# Heading and text of each area, in the order of the page.
AREAS = {
    "held-out": (
        "Held-out predictions",
        """\
This section is about `held_out_` and `score_` of an ensemble, `concordance_` of survival models, and the held-out
accuracy of `tl.learn` and the report. The prediction of a fold uses no label of the fold at any step: features,
members, kernels, penalties and stacking weights come from the other folds. Exchanging the labels inside a fold
therefore changes no prediction of this fold. Without an effect, accuracy, score, R² and concordance are at chance or
slightly below: if a fold contains more samples of a class, fewer samples of this class remain for training. All samples
are compared by equal numbers of cells; the number of cells is not a feature. `score_` and the accuracies below weight
classes equally, with `strata` within each stratum.""",
    ),
    "new patients": (
        "Predictions for new patients",
        """\
`predict_proba`, `predict` and `typicality` use all training labels. *Optimism* is the held-out score of the training
patients minus the score of new patients of the same population. It should be at most 0, because held-out models are
trained on fewer patients. *Overconfidence* is the mean probability of the predicted class minus the share of correct
predictions; a negative value means underconfidence. In cohorts of 12 patients with a weak effect, `held_out_` is
overconfident: its accuracy is lower than that of predictions for new patients, whose probabilities are calibrated.
Probabilities assume equally frequent classes; the rows with a prior give `prior=` for a population in which the first
class has a frequency of 0.1. `typicality` ranks the distance of a sample to its nearest training sample among the same
distances of the training samples, without labels. With more features than the 50 principal components of the training
samples, new samples seem nearer than training samples: `typicality` is then conservative, and a large value does not
show that a sample is usual.""",
    ),
    "permutation_test": (
        "Permutation test of an ensemble",
        """\
`evaluation.permutation_test` permutes labels among the units that the design allows (patients, samples of a patient,
within strata), refits the given ensemble with its own settings, and combines the p-value of the held-out score with
those of association statistics, which need no fit. Without an effect, a p-value is at most α with probability at most
α. `p_values["map separation"]` belongs to a 2-D map of `distances_`. Power is compared with PERMANOVA of the sample
means and with the largest t statistic of the sample means.""",
    ),
    "map": (
        "Maps",
        """\
`distances_`, `tl.samples` and the map of the report compare each pair of samples by members that were trained on
neither sample. All members still share features that are associated with the labels by chance, and a map of noise can
look separated: a test that ignores training rejects in up to 20 % of cohorts instead of 5 %. The p-value of the
separation, `p_values["map separation"]` of the permutation test, refits the ensemble with permuted labels and keeps its
level (see the previous table).""",
    ),
    "feature_significance": (
        "Significance of features",
        """\
`interpret.feature_significance` and the column q of the report test each feature alone, with patients as units.
Differences between strata are removed from the statistic, and labels are permuted as in the permutation test. q-values
control the expected share of false discoveries (FDR).""",
    ),
    "batch_effects": (
        "Batch effects",
        """\
`interpret.batch_effects` and the warning of batch effects in the report test whether nearby samples share a batch, and
whether batch and label are associated. Batches are permuted among patients of the same label.""",
    ),
    "evaluation.compare": (
        "Scores of compared methods",
        """\
`evaluation.compare`, `groundmetric evaluate` and the report fit methods to the training set of each split and score
them on its test set. The 95 % intervals are for the mean score on new patients of the same population if the method is
trained on cohorts of the size of the training sets; their coverage is at least 92 %. They are not intervals for the
score of the one model that is trained on the whole cohort. Tests of differences are paired over patients.""",
    ),
    "annotation_relevance": (
        "Relevance of cell types",
        """\
`interpret.annotation_relevance` and the shares of cell types in the report compare two samples by ensemble members that
were trained on neither. Intervals are bootstrap intervals over patients with a fixed metric: they cover the share under
the learned metric, not the variation of the metric itself.""",
    ),
    "get.importance": (
        "Importance of features",
        """\
`get.importance` and the table of genes in the report describe the members of one ensemble: 95 % of the members are
between `low` and `high`, and `selected` is the share of members in which a feature is among the 20 most important.
Members share patients, so these are neither confidence intervals nor tests: even in noise, nearly all members select
the same feature. The same is true of the intervals of `interpret.stability`, which are percentiles over refits to
bootstrap samples. For error rates, use `interpret.feature_significance`.""",
    ),
    "predict_set": ("Prediction sets", "`TransportClassifier.predict_set`, by class, for new patients."),
    "predict_interval": ("Prediction intervals", "`TransportRegressor.predict_interval`, for new patients."),
    "learning_curve": (
        "Learning curves",
        """\
`evaluation.learning_curve` and `groundmetric plan` are compared with the accuracy on new patients, and the power, in
simulated cohorts of twice as many patients as the pilot.""",
    ),
    "counterfactual": ("Counterfactual changes", "`interpret.counterfactual`; p-values are adjusted for all features."),
    "influence": ("Influence of patients", "`interpret.influence`, with one patient in the wrong class."),
}


# Areas of single rows, which share a section.
OTHERS = (
    "Further rows",
    "Held-out accuracy of other methods with unequal numbers of points, and labels that are matched by name.",
)


def functions() -> Iterator[tuple[str, Callable[..., list[Row]]]]:
    """Yield the name and the function of all rows."""
    for module in MODULES:
        for function in importlib.import_module(module).ROWS:
            yield f"{module.removeprefix('validity_')}.{function.__name__}", function


def number_of_cohorts(function: Callable[..., list[Row]], share: float) -> dict[str, int]:
    """Return the argument `n_cohorts` of a function; empty if it has none."""
    parameters = inspect.signature(function).parameters
    if "n_cohorts" not in parameters:
        return {}
    default = int(parameters["n_cohorts"].default)
    return {"n_cohorts": default if share >= 1 else max(LEAST_COHORTS, round(default * share))}


def table(rows: list[dict[str, Any]]) -> str:
    """Return a folded table; it is open if a row does not hold."""
    short = sum(not row["holds"] for row in rows)
    summary = f"{len(rows)} row{'s' * (len(rows) > 1)}" + (f", {short} do not hold" if short else "")
    lines = [
        f"<details{' open' if short else ''}><summary>{summary}</summary>",
        "",
        "| number | design | measured [95 %] | nominal | holds | cohorts |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        digits = 3 if abs(row["measured"]) < 1e3 else 0
        measured = "{measured:.{d}f} [{low:.{d}f}, {high:.{d}f}]".format(**row, d=digits)
        exact = row["low"] == row["high"] and row["cohorts"] is None
        measured = f"{row['measured']:.2g}" if exact else measured
        has_nominal = math.isfinite(row["nominal"])
        nominal = f"{row['nominal']:g}" if has_nominal else ""
        holds = "descriptive" if not has_nominal else "yes" if row["holds"] else "**no**"
        cohorts = row["cohorts"] or ""
        lines.append(f"| {row['number']} | {row['design']} | {measured} | {nominal} | {holds} | {cohorts} |")
    return "\n".join([*lines, "", "</details>"])


def page(results: dict[str, Any], missing: Sequence[str] = ()) -> str:
    """Return the text of docs/validity.md from the rows of all functions."""
    rows = [row for entry in results.values() for row in entry["rows"]]
    seeds = sorted({entry["seed"] for entry in results.values()})
    short = sum(not row["holds"] for row in rows)
    summary = f"{len(rows) - short} of {len(rows)} rows hold"
    minutes = sum(entry["seconds"] / entry["share"] for entry in results.values()) / 60
    shares = [entry["share"] for entry in results.values()]
    text = [HEAD.format(minutes=max(minutes, 1), seed=", ".join(map(str, seeds)), summary=summary)]
    if min(shares) < 1 or missing:
        text.append(PRELIMINARY.format(low=min(shares), missing=", ".join(f"`{name}`" for name in missing) or "none"))
    sections = [(AREAS[area], [row for row in rows if row["area"] == area]) for area in AREAS]
    single = [{**row, "number": f"`{row['area']}`: {row['number']}"} for row in rows if row["area"] not in AREAS]
    for (heading, words), chosen in [*sections, (OTHERS, single)]:
        if chosen:
            text.append(f"## {heading}\n\n{words}\n\n{table(chosen)}\n")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", help="e.g. ensemble.held_out; all if none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a twelfth of the cohorts")
    parser.add_argument("--share", type=float, default=1.0, help="share of the cohorts to simulate")
    options = parser.parse_args()
    share = QUICK if options.quick else options.share
    available = dict(functions())
    unknown = set(options.functions) - set(available)
    if unknown:
        parser.error(f"no rows named {sorted(unknown)}: expected some of {list(available)}")
    warnings.simplefilter("ignore")
    results: dict[str, Any] = json.loads(STORED.read_text()) if options.functions and STORED.exists() else {}
    for name, function in available.items():
        if options.functions and name not in options.functions:
            continue
        start, cohorts = time.process_time(), number_of_cohorts(function, share)
        rows = function(options.seed, **cohorts)
        seconds = time.process_time() - start
        print(f"{report(rows)}\n[{name}: {seconds:.0f} s]", flush=True)
        number = cohorts.get("n_cohorts")
        entries = [{**asdict(row), "holds": bool(row.holds), "cohorts": number} for row in rows]
        measured = number / number_of_cohorts(function, 1.0)["n_cohorts"] if number else 1.0
        results[name] = {
            "seed": options.seed,
            "share": measured,
            "seconds": seconds,
            "version": gm.__version__,
            "rows": entries,
        }
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(results, default=float))
    ordered = {name: results[name] for name in available if name in results}
    PAGE.write_text(page(ordered, [name for name in available if name not in ordered]))
    short = [row for entry in ordered.values() for row in entry["rows"] if not row["holds"]]
    print(f"{len(short)} short; wrote {PAGE}")
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
