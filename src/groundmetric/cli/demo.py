"""`groundmetric demo`: simulate a cohort, learn from it, and write its report."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping
from typing import Any

from . import options as shared

PAGE, CELLS, METRIC = "index.html", "cohort.h5ad", "cohort.gm"
N_CELLS = 100  # per sample, to save time


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, run, "demo", "simulate a cohort, learn from it and write its report",
        "groundmetric demo -o demo --jobs -1",
    )  # fmt: skip
    shared.add_options(command, "output", help="folder to write (%(default)s)", default="groundmetric-demo")
    shared.add_options(command, "seed", help="seed of simulation and learner (0)")
    shared.add_options(command, "jobs")


def run(options: argparse.Namespace) -> None:
    findings = make_demo(options.output, seed=options.seed, n_jobs=options.jobs, verbose=1)
    shared.print_findings(findings, summary(findings), as_json=options.json)
    shared.log(f"the report: {os.path.join(options.output, PAGE)}")


def make_demo(
    output: str | os.PathLike[str],
    *,
    seed: int = 0,
    cohort: Mapping[str, Any] | None = None,
    permutations: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    **learning: Any,
) -> dict[str, Any]:
    """Write a simulated cohort, its metric and its report into a folder, and return the findings.

    `cohort` are parameters of `datasets.make_cohort`, `learning` of `tl.learn`. A folder with other files than those of
    an earlier demo is an error.
    """
    from .. import __version__, datasets, get, report, tl

    with shared.new_folder(output, replace=True) as folder:
        if verbose:
            shared.log("simulating a cohort and learning from it")
        cells = datasets.make_cohort(**{**(cohort or {}), "random_state": seed})
        cells.write_h5ad(folder / CELLS)
        started = time.perf_counter()
        tl.learn(
            cells, "sample", "condition", **{"n_cells": N_CELLS, "random_state": seed, "verbose": verbose, **learning}
        )
        seconds = time.perf_counter() - started
        get.metric(cells).save(folder / METRIC)
        title = "A simulated cohort: differences between " + " and ".join(cells.uns["truth"]["conditions"])
        page = report.write(
            cells, folder / PAGE, title=title, permutations=permutations, n_jobs=n_jobs, verbose=verbose
        )
        findings = {
            "groundmetric": __version__,
            "command": "demo",
            "seed": seed,
            "seconds": round(seconds, 3),
            "truth": compare_with_truth(cells, page),
            **{name: page[name] for name in ("summary", "warnings", "omitted", "scores", "permutation_test")},
            "files": [CELLS, METRIC, PAGE, shared.FINDINGS],
        }
        shared.write_findings(folder, findings)
    return findings


def compare_with_truth(cells: Any, page: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the simulated effects and the conclusions of the report, by subject."""
    from .. import get

    truth = cells.uns["truth"]
    genes = sorted(map(str, truth["programme_genes"]))
    top = list(get.importance(cells).index[: len(genes)])
    strengths = zip(truth["conditions"], truth["condition_strengths"], strict=True)
    batch = [note for note in page["warnings"] if note["title"] == "Possible batch effect"]
    return {
        "Genes": [f"{genes[0]} to {genes[-1]}", f"{len(set(top) & set(genes))} of the top {len(top)} are among them"],
        "Cell type": [str(truth["programme_type"]), page["summary"].get("Cell types", "not computed")],
        "Conditions": [
            ", ".join(f"{name}: fold {math.exp(strength):.1f}" for name, strength in strengths),
            page["summary"]["Prediction"],
        ],
        "Batches": [
            f"{len(truth['batches'])}, {float(truth['parameters']['confounding']):.0%} confounded with the condition",
            batch[0]["text"] if batch else "no batch effect is suspected",
        ],
    }


def summary(findings: Mapping[str, Any]) -> str:
    """Return the conclusions of the report and the simulated effects."""
    lines = [shared.wrapped(f"{title}: {text}", 0, 2) for title, text in findings["summary"].items()]
    lines.append("Simulated effects and conclusions of the report:")
    lines += [
        shared.wrapped(f"{name:<12}{simulated}: {reported}", 2, 12)
        for name, (simulated, reported) in findings["truth"].items()
    ]
    return "\n".join(lines)
