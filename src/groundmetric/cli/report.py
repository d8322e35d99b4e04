"""`groundmetric report`: one HTML page about a run of `learn`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from . import options as shared


def seconds(text: str) -> float:
    """Return a time with its unit in seconds.

    >>> seconds("90s"), seconds("5m"), seconds("1.5h")
    (90.0, 300.0, 5400.0)
    """
    amount = re.fullmatch(r"(\d+\.?\d*)([smh]?)", text)
    value = float(amount[1]) * {"m": 60, "h": 3600}.get(amount[2], 1) if amount else 0.0
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 5m or 1h, not {text!r}")
    return value


def add(commands: Any) -> None:
    command = shared.add_command(
        commands, "report", "write one HTML page about a run of `learn`; its folder caches long computations",
        "groundmetric report run --permutations 199 --jobs -1",
        interrupted="finished computations are cached, and the same command continues",
    )  # fmt: skip
    shared.add_options(command, "trained")
    shared.add_options(command, "output", metavar="FILE", help="page to write (report.html in RUN)")
    command.add_argument("--title", help="title of the page")
    shared.add_options(command, "cell_type")
    command.add_argument("--gene-sets", metavar="FILE.gmt", help="gene sets to test for enrichment in the axes")
    command.add_argument("--permutations", metavar="N", type=shared.non_negative,
                         help="permutations of the labels for p- and q-values; 0: no test (99; for --method ggml 0, "
                         "because each costs a whole cross-validation)")  # fmt: skip
    command.add_argument("--budget", metavar="TIME", type=seconds,
                         help="time for the report, e.g. 90s, 5m or 1h; it omits other steps")  # fmt: skip
    command.add_argument("--cells", metavar="CELLS.h5ad", help="file that was learned from, if it has moved")
    command.add_argument("--evaluate", action=argparse.BooleanOptionalAction, default=True,
                         help="compare with baselines on held-out samples, and test")  # fmt: skip
    shared.add_options(command, "replace", help="replace the page of an earlier report")
    shared.add_options(command, "jobs")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from .._internal.validation import ParameterError  # slow to import, and not needed for --help
    from ..report.page import REPORT, check_output, write

    for name, path in (("cells", options.cells), ("gene_sets", options.gene_sets)):
        if path is not None and not Path(path).exists():
            raise ParameterError(name, path, ", which does not exist")
    page = Path(options.output) if options.output is not None else Path(options.trained) / REPORT
    check_output(page)
    if page.exists() and not options.replace:
        raise ValueError(f"output {str(page)!r} exists: give another file with -o, or --replace to replace it")
    findings = write(
        options.trained, page, cells=options.cells, title=options.title, cell_type_key=options.cell_type,
        gene_sets=options.gene_sets, permutations=options.permutations, evaluation=options.evaluate,
        budget=options.budget, n_jobs=options.jobs, verbose=1,
    )  # fmt: skip
    shared.log(f"wrote {page} ({findings['bytes'] / 1e6:.1f} MB)")
    return findings


def summary(findings: dict[str, Any]) -> str:
    """Return the conclusions of the page, its warnings, and the results that were not computed."""
    parts = [f"{title}\n{shared.wrapped(text)}" for title, text in findings["summary"].items()]
    for title, notes in (("Warnings", findings["warnings"]), ("Not computed", findings["omitted"])):
        lines = [title]
        for note in notes:
            remedy = f" ({shared.as_options(note['remedy'])})" if note["remedy"] else ""
            lines.append(shared.wrapped(f"- {note['title']}: {note['text']}{remedy}.", hang=2))
        if notes:
            parts.append("\n".join(lines))
    return "\n\n".join(parts)
