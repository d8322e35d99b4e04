"""`groundmetric reproduce`: the paper's tables and figures, and some on real data, as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import add_command, add_jobs, add_seed
from .output import log, print_findings

SECTIONS = ("classification", "clustering", "timing", "figures", "surface", "real")
# Where the real data sets lie in a checkout of the project.
DATA = Path("../shared/data")


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "reproduce", "run the paper's experiments; an interrupted run goes on where it stopped"
    )
    command.add_argument("sections", metavar="SECTION", nargs="*", help=f"some of {', '.join(SECTIONS)} (all)")
    command.add_argument("-o", "--output", metavar="DIR", default="reproduced",
                         help="folder for results.md and results/ (%(default)s)")  # fmt: skip
    command.add_argument(
        "--quick", action="store_true", help="a rehearsal in a minute or two; its numbers mean nothing"
    )
    command.add_argument("--data", metavar="DIR", help=f"folder of the real data sets ({DATA}, if there)")
    add_seed(command, "of data, splits and learners")
    add_jobs(command)


def run(options: argparse.Namespace) -> None:
    from ..reproduce import reproduce  # heavy, and not needed for --help

    if options.data is not None and not Path(options.data).is_dir():
        raise ValueError(f"--data {options.data!r} is no folder")
    data = options.data or (DATA if DATA.is_dir() else None)
    found = reproduce(
        options.sections, options.output, n_jobs=options.jobs, quick=options.quick, data=data, seed=options.seed,
        verbose=1, log=log,
    )  # fmt: skip
    print_findings(found, summary(found), as_json=options.json)
    log(f"wrote {', '.join(found['files'])} to {options.output}")


def summary(found: dict[str, Any]) -> str:
    """A line per section, with the figure that is asked for first."""
    lines = []
    for name, content in found["sections"].items():
        text = "done"
        if name == "classification":
            text = ", ".join(
                f"{data} {study['rows']['GGML']['distributions']['mean']:.2f}" for data, study in content.items()
            )
            text = f"accuracy of GGML: {text}"
        elif name == "real":
            text = f"{len(content['sets'])} data sets" + (
                f", {len(content['absent'])} absent" if content["absent"] else ""
            )
        lines.append(f"{name:<16}{text}")
    return "\n".join(lines)
