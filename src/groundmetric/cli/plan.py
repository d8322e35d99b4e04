"""`groundmetric plan`: number of patients of a study, from a pilot cohort."""

from __future__ import annotations

import argparse
import math
from typing import Any

from . import options as shared


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, run, "plan", "estimate how many patients a study needs, from a pilot cohort",
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


def run(options: argparse.Namespace) -> None:
    from .. import __version__
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
    findings = {
        "groundmetric": __version__,
        "command": "plan",
        "cells": str(options.cells),
        "power": options.power,
        "patients": {name: value if math.isfinite(value) else None for name, value in patients.items()},
        "curve": curve.table().to_dict("records"),
    }
    shared.print_findings(findings, _summary(curve, options.power), as_json=options.json)


def _summary(curve: Any, power: float) -> str:
    table = curve.table().round(2)
    rows = [[str(int(row[0])), *(f"{value:.2f}" for value in row[1:])] for row in table.itertuples(index=False)]
    return f"{shared.aligned([list(table.columns), *rows])}\n\n{curve.describe(power)}"
