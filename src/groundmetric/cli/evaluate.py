"""`groundmetric evaluate`: does the learned metric help on these data, against everything else one would try?"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from .options import (
    add_command,
    add_force,
    add_jobs,
    add_seed,
    aligned,
    check_free,
    count,
    count_or_all,
    log,
    new_folder,
    number,
    print_findings,
    write_findings,
)

SPELLING = {
    "sample_key": "--sample", "label_key": "--label", "group_key": "--group", "layer": "--layer", "use_rep": "--rep",
    "genes": "--genes", "time_limit": "--time-limit", "memory_limit": "--memory-limit",
}  # fmt: skip
METHODS = (
    "the first is compared with all others; all: every one there is (learned, euclidean, cosine, pca, lda, pseudobulk, "
    "logistic, composition)"
)
GENES = (
    "variance, or how many of the most variable: chosen from the training samples of each split; all; or a column of "
    "var that marks them (variance)"
)
CV = ("shuffle-split", "k-fold", "leave-one-group-out")
PERMUTATIONS = "of labels, to test the first method against chance; each costs as much as its evaluation"


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "evaluate", "compare the learned metric with other methods on held-out samples of an .h5ad file"
    )
    command.add_argument("cells", metavar="CELLS.h5ad", help="normalised values on a log scale; read in part only")
    command.add_argument("--sample", metavar="COLUMN", required=True, help="column of obs: the sample of each cell")
    command.add_argument("--label", metavar="COLUMN", required=True, help="column of obs: the label of its sample")
    command.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write")
    command.add_argument("--group", metavar="COLUMN", help="column of obs: the patient, who is never divided")
    command.add_argument("--methods", metavar="A,B,…", help=METHODS)
    command.add_argument("--cv", choices=CV, default="shuffle-split",
                         help="random splits, a fifth tested; folds, every sample tested once; or every --group tested "
                         "once (%(default)s)")  # fmt: skip
    command.add_argument("--n-splits", metavar="N", type=count, help="splits (10) or folds (5)")
    command.add_argument("--layer", help="use this layer rather than X")
    command.add_argument("--rep", metavar="NAME", help="use this entry of obsm rather than genes")
    command.add_argument("--genes", metavar="RULE", type=rule, help=GENES)
    command.add_argument("--cells-per-sample", "--cells", metavar="N", type=count_or_all, default=1000,
                         help="drawn at most; or all (%(default)s)")  # fmt: skip
    command.add_argument("--min-cells", metavar="N", type=count, default=1,
                         help="leave out samples with fewer (%(default)s)")  # fmt: skip
    command.add_argument("--permutations", metavar="N", type=count, default=0, help=PERMUTATIONS)
    command.add_argument("--time-limit", metavar="SECONDS", type=number, help="for one method on one split")
    command.add_argument("--memory-limit", metavar="MB", type=number, help="for one method on one split (Linux)")
    command.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")
    add_seed(command, "of the draw, the splits and the methods")
    add_jobs(command)
    add_force(command)
    command.set_defaults(spelling=SPELLING)


def rule(text: str) -> str | int:
    return count(text) if text.isdecimal() else text


def run(options: argparse.Namespace) -> None:
    from .._internal.cache import cache_files, remove_cache  # heavy, and not needed for --help

    kept = _unfinished(options.output)
    check_free(options.output, force=options.force, beside=cache_files(kept))
    if kept.exists() and not options.resume:
        if not options.force:
            raise ValueError(
                f"{str(kept)!r} holds an unfinished run: give --resume to go on with it, or --force to start anew"
            )
        remove_cache(kept)
    with new_folder(options.output, force=options.force, inputs=[options.cells], beside=cache_files(kept)) as folder:
        findings = _evaluate(options, folder, kept)
        write_findings(folder, findings)
    remove_cache(kept)
    print_findings(findings, summary(findings), as_json=options.json)
    log(f"wrote {', '.join(findings['files'])} to {options.output}")


def _unfinished(output: str) -> Path:
    """Where fits are kept until all are done: beside the folder, or in one whose place belongs to somebody else."""
    folder = Path(os.path.realpath(output))
    mounted = folder.is_dir() and (os.path.ismount(folder) or not os.access(folder.parent, os.W_OK))
    return folder / "unfinished" if mounted else folder.with_name(f"{folder.name}.unfinished")


def _evaluate(options: argparse.Namespace, folder: Path, kept: Path) -> dict[str, Any]:
    from .. import __version__
    from .._anndata.cohort import read_cohort
    from ._evaluation import NAMES, USUAL, Splitter, evaluate, make_methods

    methods = USUAL if options.methods is None else NAMES if options.methods == "all" else options.methods.split(",")
    if options.cv == "leave-one-group-out" and options.group is None:
        raise ValueError("--cv leave-one-group-out needs --group, the column of obs that holds the groups")
    n_splits = options.n_splits or (5 if options.cv == "k-fold" else 10)
    log(f"reading {options.cells}")
    cohort = read_cohort(
        options.cells, options.sample, options.label, group_key=options.group, layer=options.layer,
        use_rep=options.rep, genes=options.genes, n_cells=options.cells_per_sample, min_cells=options.min_cells,
        random_state=options.seed,
    )  # fmt: skip
    # Unknown methods and impossible splits are named before the long work.
    make_methods(methods, cohort, options.seed)
    Splitter(options.cv, n_splits, cohort.groups, options.seed)(cohort.y)
    findings = evaluate(
        cohort, folder, methods=methods, cv=options.cv, n_splits=n_splits, n_permutations=options.permutations,
        n_jobs=options.jobs, time_limit=options.time_limit, memory_limit=options.memory_limit, resume=kept,
        seed=options.seed, verbose=1, log=log,
    )  # fmt: skip
    return {"groundmetric": __version__, "command": "evaluate", "cells": str(options.cells), **findings}


def summary(findings: dict[str, Any]) -> str:
    """A line per method."""
    rows = [["method", "balanced accuracy", "95 % interval", "lead of first", "p (Holm)", "seconds per split"]]
    for method, row in findings["scores"].items():
        cells = [_number(row["balanced_accuracy"]), _pair(row["low"], row["high"])]
        cells += [_number(row.get("lead_of_first"), "+.2f"), _number(row.get("p_holm"), ".3f")]
        rows.append([method, *cells, _number(row["seconds"], ".1f")] if row["status"] == "ok" else
                    [method, row["status"], "", "", "", ""])  # fmt: skip
    chance = findings["against_chance"]
    more = (
        "" if chance is None else f"\nagainst chance  p = {chance['p']:.3g} ({chance['n_permutations']} permutations)"
    )
    return aligned(rows) + more


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
