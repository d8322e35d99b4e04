"""`groundmetric demo`: simulate a cohort, learn from it, and write its report."""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from . import options as shared

PAGE, CELLS, METRIC = "index.html", "cohort.h5ad", "cohort.gm"
N_CELLS = 100  # per sample, to save time


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "demo", "simulate a cohort, learn from it and write its report",
        "groundmetric demo -o demo --jobs -1",
    )  # fmt: skip
    shared.add_options(command, "output", help="folder to write (%(default)s)", default="groundmetric-demo")
    shared.add_options(command, "seed", help="seed of simulation and learner (0)")
    shared.add_options(command, "jobs")
    command.set_defaults(replace=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    findings = shared.write_run(options, partial(make_demo, seed=options.seed, n_jobs=options.jobs))
    shared.log(f"the report: {os.path.join(options.output, PAGE)}")
    return findings


def make_demo(
    folder: Path, *, seed: int, n_jobs: int | None = None, cohort: dict[str, Any] | None = None,
    permutations: int | None = None, **learning: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write a simulated cohort, its metric and its report into a folder, and return the findings.

    `cohort` are parameters of `datasets.make_cohort`, `learning` of `tl.learn`.
    """
    from .. import datasets, get, report, tl

    shared.log("simulating a cohort and learning from it")
    cells = datasets.make_cohort(**{**(cohort or {}), "random_state": seed})
    cells.write_h5ad(folder / CELLS)
    started = time.perf_counter()
    tl.learn(cells, "sample", "condition", **{"n_cells": N_CELLS, "random_state": seed, "verbose": 1, **learning})
    seconds = time.perf_counter() - started
    get.metric(cells).save(folder / METRIC)
    truth = cells.uns["truth"]
    title = "A simulated cohort: differences between " + " and ".join(truth["conditions"])
    page = report.write(cells, folder / PAGE, title=title, permutations=permutations, n_jobs=n_jobs, verbose=1)
    return {
        "seed": seed, "seconds": round(seconds, 3),
        "truth": {
            "genes": list(map(str, truth["programme_genes"])), "cell_type": str(truth["programme_type"]),
            "condition": str(truth["conditions"][-1]),
        },
        **{name: page[name] for name in ("summary", "warnings", "omitted", "scores", "permutation_test")},
        "files": [CELLS, METRIC, PAGE, shared.FINDINGS],
    }  # fmt: skip


def summary(findings: dict[str, Any]) -> str:
    """Return the simulated effect and the conclusions of the report."""
    truth = findings["truth"]
    simulated = f"{truth['genes'][0]} to {truth['genes'][-1]} rise in the {truth['cell_type']}s of {truth['condition']}"
    lines = {"Simulated": simulated, **findings["summary"]}
    return "\n".join(shared.wrapped(f"{title}: {text}", 0, 2) for title, text in lines.items())
