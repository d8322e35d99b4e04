"""`groundmetric plan`: number of patients of a study, from a pilot cohort."""

from __future__ import annotations

import argparse
from typing import Any

from .._internal.tables import plain
from . import options as shared


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "plan", "estimate how many patients a study needs, from a pilot cohort",
        "groundmetric plan pilot.h5ad --sample sample --label disease --power 0.8",
    )  # fmt: skip
    shared.add_options(command, "cells", "sample", "label", "group")
    command.add_argument("--power", metavar="SHARE", type=shared.share, default=0.8,
                         help="power of the permutation test of the planned study (%(default)s)")  # fmt: skip
    command.add_argument("--level", metavar="SHARE", type=shared.share, default=0.05,
                         help="significance level of this test (%(default)s)")  # fmt: skip
    shared.add_values(command, "variance")
    shared.add_options(command, "seed", help="seed of subsamples and permutations (0)")
    shared.add_options(command, "jobs")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from .._anndata.cohort import read_cohort
    from ..estimators import GroundMetricEnsemble
    from ..evaluation import learning_curve

    shared.log(f"reading {options.cells}")
    cohort = read_cohort(
        options.cells, options.sample, options.label, group_key=options.group, layer=options.layer,
        use_rep=options.rep, genes=options.genes, n_cells=options.cells_per_sample, random_state=options.seed,
    )  # fmt: skip
    ensemble = GroundMetricEnsemble(n_jobs=options.jobs, random_state=options.seed)
    curve = learning_curve(
        ensemble, cohort.D, cohort.y, groups=cohort.groups, level=options.level, random_state=options.seed, verbose=1
    )
    patients = dict(zip(("estimate", "low", "high"), curve.patients_for(options.power), strict=True))
    return {
        "cells": str(options.cells), "power": options.power, "patients": plain(patients),
        "curve": curve.table().to_dict("records"), "text": curve.describe(options.power),
    }  # fmt: skip


def summary(findings: dict[str, Any]) -> str:
    rows = [[f"{value:.2f}" for value in row.values()] for row in findings["curve"]]
    rows = [[str(int(float(row[0]))), *row[1:]] for row in rows]
    return f"{shared.aligned([list(findings['curve'][0]), *rows])}\n\n{findings['text']}"
