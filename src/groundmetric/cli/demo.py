"""`groundmetric demo`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from .options import add_command, add_jobs, add_seed, log, print_findings


def add(commands: Any) -> None:
    command = add_command(commands, run, "demo", "learn on built-in data; write figures and a report")
    command.add_argument("--output", metavar="DIR", default="groundmetric-demo", help="folder to write (%(default)s)")
    add_seed(command, "of data, split and learner")
    add_jobs(command)


def run(options: argparse.Namespace) -> None:
    from . import _demo as demo  # heavy, and not needed for --help

    findings = demo.run(options.output, seed=options.seed, n_jobs=options.jobs, verbose=1, log=log)
    print_findings(findings, demo.summary(findings), as_json=options.json)
    log(f"wrote results.json, figures and metrics to {options.output}")
    log(f"the report: {os.path.join(options.output, demo.PAGE)}")
