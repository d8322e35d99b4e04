"""`groundmetric report`: one page about a run of `learn`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import (
    add_cell_type,
    add_command,
    add_jobs,
    add_output,
    add_permutations,
    add_replace,
    log,
    positive,
    print_findings,
    whole,
    wrapped,
)

OPTION_OF = {"cell_type_key": "--cell-type", "group_key": "--group"}
PERMUTATIONS = (
    "of labels, to test scores and genes against chance; 0: no test (99; of a single learner 0: each costs a whole "
    "evaluation)"
)
BUDGET = "for all of it, e.g. 90s, 5m or 1h: permutations and refits are as many as fit"
CELLS = "file that was learned from, where it is not found (under its name, or beside RUN)"
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """A time with its unit, in seconds.

    >>> seconds("90s"), seconds("5m"), seconds("1.5h")
    (90.0, 300.0, 5400.0)
    """
    amount, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = positive(amount) * _UNITS[unit]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 5m or 1h, not {text!r}") from None
    return value


def add(commands: Any) -> None:
    command = add_command(
        commands, run, "report", "write one HTML page about a run of `learn`; what takes long is stored in its folder",
        "groundmetric report run --permutations 199 --jobs -1",
        interrupted="what takes long and is done is kept, and the same command goes on with it",
    )  # fmt: skip
    command.add_argument("trained", metavar="RUN", help="folder that `learn` wrote")
    add_output(command, "page to write (report.html in RUN)", metavar="FILE")
    command.add_argument("--title", help="of the page")
    command.add_argument(
        "--group",
        metavar="COLUMN",
        help="column of obs: the patient, who is never divided (that of learn, if it had one)",
    )
    add_cell_type(command)
    command.add_argument("--gene-sets", metavar="FILE.gmt", help="names the processes that axes have to do with")
    command.add_argument("--refits", metavar="N", type=whole, default=20,
                         help="of a single learner from samples drawn anew, for the stability of genes (%(default)s); "
                         "of an ensemble, its members tell")  # fmt: skip
    add_permutations(command, PERMUTATIONS, None)
    command.add_argument("--budget", metavar="TIME", type=seconds, help=BUDGET)
    command.add_argument("--cells", metavar="CELLS.h5ad", help=CELLS)
    command.add_argument("--evaluate", action=argparse.BooleanOptionalAction, default=True,
                         help="score held-out samples, against quick baselines and chance")  # fmt: skip
    command.add_argument("--figures", metavar="DIR", help="folder for every figure as PNG and SVG")
    add_replace(command, "the page of an earlier report")
    add_jobs(command)
    command.set_defaults(option_of=OPTION_OF)


def run(options: argparse.Namespace) -> None:
    from .. import report  # heavy, and not needed for --help

    if options.cells is not None and not Path(options.cells).exists():
        raise ValueError(f"--cells {options.cells!r} does not exist")
    trained = report.Run.open(options.trained, options.cells)
    page = Path(options.output) if options.output is not None else Path(options.trained) / report.REPORT
    _check_free(page, options.replace)
    if options.gene_sets is not None and not Path(options.gene_sets).is_file():
        raise ValueError(f"--gene-sets {options.gene_sets!r} is no file")
    findings = report.write(
        trained, page, title=options.title, group_key=options.group, cell_type_key=options.cell_type,
        gene_sets=options.gene_sets, refits=options.refits, permutations=options.permutations,
        evaluation=options.evaluate, budget=options.budget, figures=options.figures, n_jobs=options.jobs, verbose=1,
        log=log,
    )  # fmt: skip
    print_findings(findings, summary(findings), as_json=options.json)
    log(f"wrote {page} ({findings['bytes'] / 1e6:.1f} MB)")


def _check_free(page: Path, replace: bool) -> None:
    from ..report.write import check_output, is_first_page

    check_output(page)
    if page.exists() and not replace and not is_first_page(page):
        raise ValueError(f"output {str(page)!r} exists: give another file with -o, or --replace to replace it")


def summary(findings: dict[str, Any]) -> str:
    """What the page says first, what to be careful with, and what it lacks."""
    parts = [f"{question}\n{wrapped(answer)}" for question, answer in findings["summary"].items()]
    for title, lines in (("Read with care:", findings["warnings"]), ("Left out:", findings["left_out"])):
        if lines:
            parts.append("\n".join([title, *(wrapped(f"- {line}", hang=2) for line in lines)]))
    return "\n\n".join(parts)
