"""`groundmetric demo`: simulate a cohort, learn from it, and write its report."""

from __future__ import annotations

import argparse
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
        truth = cells.uns["truth"]
        title = "A simulated cohort: differences between " + " and ".join(truth["conditions"])
        page = report.write(
            cells, folder / PAGE, title=title, permutations=permutations, n_jobs=n_jobs, verbose=verbose
        )
        findings = {
            "groundmetric": __version__,
            "command": "demo",
            "seed": seed,
            "seconds": round(seconds, 3),
            "truth": {
                "genes": list(map(str, truth["programme_genes"])), "cell_type": str(truth["programme_type"]),
                "condition": str(truth["conditions"][-1]),
            },
            **{name: page[name] for name in ("summary", "warnings", "omitted", "scores", "permutation_test")},
            "files": [CELLS, METRIC, PAGE, shared.FINDINGS],
        }  # fmt: skip
        shared.write_findings(folder, findings)
    return findings


def summary(findings: Mapping[str, Any]) -> str:
    """Return the simulated effect and the conclusions of the report."""
    truth = findings["truth"]
    simulated = f"{truth['genes'][0]} to {truth['genes'][-1]} rise in the {truth['cell_type']}s of {truth['condition']}"
    lines = {"Simulated": simulated, **findings["summary"]}
    return "\n".join(shared.wrapped(f"{title}: {text}", 0, 2) for title, text in lines.items())
