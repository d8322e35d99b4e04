"""`groundmetric evaluate`: compare methods on held-out samples of a cohort, and write tables."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import options as shared

# Modules that are heavy are imported by the functions that need them: `--help` does not.
if TYPE_CHECKING:
    from .._anndata.cohort import Labelled

METHODS = (
    "methods; the first is compared with all others (all). groundmetric: the ensemble with its classifier, as in learn "
    "and predict; ggml: one metric (GroundMetricLearner), 5-NN. Logistic regression on: pseudobulk (means), moments "
    "(means and standard deviations), type-means (means of cell types), composition (log-ratios of cell types), "
    "embedding (kernel mean embedding), transport-kernel (Euclidean transport); 5-NN: pseudobulk-5-nn, transport-5-nn"
)
CV = ("shuffle-split", "k-fold", "leave-one-group-out")
LEARNED = ("groundmetric", "ggml")
# Classes have equal weight in the score and in the votes.
SCORE, CLASS_WEIGHT = "balanced_accuracy", "balanced"
MAX_POINTS = 2000  # cells of either side of a split that are voted on at cell level


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "evaluate",
        "compare the learned metric with other methods on held-out samples of an .h5ad file",
        "groundmetric evaluate cells.h5ad --sample sample --label disease --group patient -o comparison --jobs -1",
        interrupted="finished fits are saved, and --resume continues from them",
    )  # fmt: skip
    shared.add_options(command, "cells", "sample", "label", "group")
    shared.add_options(command, "output", required=True)
    command.add_argument("--methods", metavar="A,B,…", help=METHODS)
    command.add_argument("--cv", choices=CV, default="shuffle-split",
                         help="random splits, a fifth tested; folds, every sample tested once; or every --group tested "
                         "once (%(default)s)")  # fmt: skip
    command.add_argument("--n-splits", metavar="N", type=shared.count, help="splits (10) or folds (5)")
    shared.add_values(command, "variance; this and N choose from the training samples of each split")
    command.add_argument("--min-cells", metavar="N", type=shared.count, default=1,
                         help="leave out samples with fewer (%(default)s)")  # fmt: skip
    shared.add_options(command, "cell_type")
    command.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    shared.add_options(command, "seed", help="seed of the draw, the splits and the methods (0)")
    shared.add_options(command, "jobs", "replace")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from .._internal.cache import cache_files, remove_cache  # heavy, and not needed for --help

    # Finished fits are next to the output folder, or inside it if the folder cannot be replaced.
    folder = Path(os.path.realpath(options.output))
    mounted = folder.is_dir() and (os.path.ismount(folder) or not os.access(folder.parent, os.W_OK))
    fits = folder / "unfinished" if mounted else folder.with_name(f"{folder.name}.unfinished")
    beside = cache_files(fits)
    shared.check_free(options.output, replace=options.replace, beside=beside)
    if fits.exists() and not options.resume:
        if not options.replace:
            raise ValueError(
                f"{str(fits)!r} holds an unfinished run: give --resume to continue it, or --replace to start again"
            )
        remove_cache(fits)
    findings = shared.write_run(options, partial(_evaluate, options, fits), [options.cells], beside)
    remove_cache(fits)
    return findings


def _evaluate(options: argparse.Namespace, fits: Path, folder: Path) -> dict[str, Any]:
    """Write results.md, .csv and .json into the folder; `fits` is the file of finished fits."""
    from .._anndata.cohort import read_cohort
    from .._internal.files import write_whole
    from .._internal.tables import plain
    from ..evaluation import Voting, compare, folds, leave_one_group_out, shuffled

    names = None if options.methods in (None, "all") else options.methods.split(",")
    if options.cv == "leave-one-group-out" and options.group is None:
        raise ValueError("--cv leave-one-group-out needs --group, the column of obs that holds the groups")
    shared.log(f"reading {options.cells}")
    cohort = read_cohort(
        options.cells, options.sample, options.label, group_key=options.group, layer=options.layer,
        use_rep=options.rep, genes=options.genes, n_cells=options.cells_per_sample, min_cells=options.min_cells,
        cell_type_key=options.cell_type, random_state=options.seed,
    )  # fmt: skip
    methods = make_methods(names, cohort, options.seed)
    if options.cv == "leave-one-group-out":
        splits = leave_one_group_out(cohort.groups)  # type: ignore[arg-type]
    else:
        make, number = (folds, 5) if options.cv == "k-fold" else (shuffled, 10)
        splits = make(cohort.y, groups=cohort.groups, n_splits=options.n_splits or number, random_state=options.seed)
    shared.log(f"comparing {len(methods)} methods on {len(splits)} splits of {len(cohort.D)} samples")
    comparison = compare(
        methods, cohort.D, cohort.y, cv=splits, groups=cohort.groups,
        voting=Voting(class_weight=CLASS_WEIGHT, max_points=MAX_POINTS), n_jobs=options.jobs,
        resume=fits, verbose=1,
    )  # fmt: skip
    comparison.notes += cohort.notes
    comparison.notes.append(
        f"at cell level, at most {MAX_POINTS:,} cells of either side of a split vote or are voted on"
    )
    if cohort.rule is not None:
        rule = "with variance above the average" if cohort.rule == "variance" else f"the {cohort.rule} most variable"
        comparison.notes.append(f"features are chosen anew from the training samples of every split: {rule}")
    first, *others = comparison.methods
    compared = [name for name in others if name not in LEARNED] if first in LEARNED else []
    verdict = comparison.verdict(first, compared, SCORE) if compared else None
    if verdict is not None:
        comparison.notes.insert(0, verdict)
    if "groundmetric" in methods:
        comparison.notes.append("groundmetric is the TransportClassifier that learn fits and predict uses")
    labels = dict(Counter(map(str, cohort.y.tolist())))
    title = f"# {len(cohort.D)} samples: {shared.label_counts(labels)}"
    write_whole(folder / "results.md", [f"{title}\n\n{comparison.to_markdown()}\n".encode()])
    comparison.to_csv(folder / "results.csv")
    write_whole(folder / "results.json", [json.dumps({"comparison": comparison.to_dict()}).encode() + b"\n"])
    against, scores = comparison.against(first, SCORE), {}
    for method in comparison.methods:
        estimate = comparison.estimate(method, SCORE)
        row: dict[str, Any] = {
            "status": comparison.status(method), SCORE: estimate.value, "low": estimate.low, "high": estimate.high,
            "seconds": comparison.seconds(method),
        }  # fmt: skip
        if method != first:
            lead, p = against[method]
            row |= {"lead_of_first": lead.value, "lead_low": lead.low, "lead_high": lead.high, "p_holm": p}
        scores[method] = row
    return plain(
        {
            "cells": str(options.cells), "n_samples": len(cohort.D), "n_points": int(cohort.D.points.shape[0]),
            "n_features": int(cohort.D.shape[1]), "labels": labels, "n_splits": len(comparison.splits),
            "estimators": comparison.estimators, "scores": scores, "best_baseline": verdict,
            "notes": comparison.notes, "files": ["results.md", "results.csv", "results.json", "run.json"],
        }
    )  # fmt: skip


def make_methods(names: Sequence[str] | None, cohort: Labelled, seed: int) -> dict[str, Any]:
    """Return methods by name, None for all: "groundmetric" (the ensemble), "ggml" (one metric), and the baselines.

    >>> import groundmetric as gm
    >>> from groundmetric._anndata.cohort import Labelled
    >>> list(make_methods(["groundmetric", "moments"], Labelled(*gm.datasets.synth_2d(0), None, None, []), 0))
    ['groundmetric', 'moments']
    """
    from .. import baselines
    from .._anndata.cohort import CELL_TYPE
    from ..estimators import GroundMetricLearner, TransportClassifier
    from ..estimators.preprocessing import SelectedFeatures

    annotation = CELL_TYPE if CELL_TYPE in cohort.D.annotations else None
    methods = {
        "groundmetric": TransportClassifier(random_state=seed),
        "ggml": GroundMetricLearner(random_state=seed),
        **baselines.standard(annotation=annotation, random_state=seed),
    }
    names = list(methods) if names is None else names
    if unknown := [name for name in names if name not in methods]:
        raise ValueError(f"no method is called {unknown[0]!r}: expected some of {', '.join(methods)}")
    chosen = {name: methods[name] for name in names}
    return chosen if cohort.rule is None else {name: SelectedFeatures(m, cohort.rule) for name, m in chosen.items()}


def summary(findings: dict[str, Any]) -> str:
    """Return a line per method, and the verdict."""
    rows = [["method", "balanced accuracy", "95% interval", "lead of first", "p (Holm)", "seconds per split"]]
    for method, row in findings["scores"].items():
        if row["status"] != "ok":
            rows.append([method, row["status"], "", "", "", ""])
            continue
        interval = "-" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
        lead, p = _number(row.get("lead_of_first"), "+.2f"), _number(row.get("p_holm"), ".3f")
        rows.append([method, _number(row[SCORE]), interval, lead, p, _number(row["seconds"], ".1f")])
    first = next(iter(findings["scores"]))
    verdict = [] if findings["best_baseline"] is None else [findings["best_baseline"]]
    scored = f"{first} is {findings['estimators'][first]}; the others are in results.md"
    return "\n".join([shared.aligned(rows), *verdict, scored])


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)
