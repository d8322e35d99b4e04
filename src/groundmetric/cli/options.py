"""Options that several commands share, and what commands leave behind: lines on stderr, findings on stdout, folders."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._internal import files as safe_folders
from .._internal.files import write_whole
from .._internal.tables import counted, write_csv


def add_command(
    commands: Any,
    run: Callable[..., Any],
    name: str,
    help: str,
    example: str,
    *,
    interrupted: str = "nothing was written",
) -> argparse.ArgumentParser:
    """A command with the options that all have, and an example; `run` is called with what was parsed.

    `interrupted` is what is said after Ctrl-C, unless `run` says what it has kept.
    """
    command = commands.add_parser(
        name, help=help, description=textwrap.fill(help[0].upper() + help[1:] + ".", 100),
        epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    command.add_argument("--debug", action="store_true", help="show a traceback where something goes wrong")
    command.set_defaults(run=run, prog=command.prog, interrupted=interrupted)
    return command


# Options that several commands have mean the same in all of them, so each is defined once.


def add_cells(command: argparse.ArgumentParser) -> None:
    """The file to learn from, its columns, and the folder to write."""
    command.add_argument("cells", metavar="CELLS.h5ad", help="normalised values on a log scale; read in part only")
    command.add_argument("--sample", metavar="COLUMN", required=True, help="column of obs: the sample of each cell")
    command.add_argument("--label", metavar="COLUMN", required=True, help="column of obs: the label of its sample")
    command.add_argument("--group", metavar="COLUMN", help="column of obs: the patient, who is never divided")
    add_output(command, required=True)


def add_output(command: argparse.ArgumentParser, what: str = "folder to write", **more: Any) -> None:
    command.add_argument("-o", "--output", metavar=more.pop("metavar", "DIR"), help=what, **more)


def add_values(command: argparse.ArgumentParser, default: str) -> None:
    """What describes a cell, and how many cells of a sample are drawn; `default` is said of genes."""
    command.add_argument("--layer", help="use this layer rather than X")
    command.add_argument("--rep", metavar="NAME", help="use this entry of obsm rather than genes")
    which = (
        "N: so many of the most variable; variance: those above the average; highly_variable or another column of var "
        f"that marks them; or all ({default})"
    )
    command.add_argument("--genes", metavar="RULE", type=genes, help=which)
    add_draw(command)


def add_draw(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cells-per-sample", metavar="N", type=count_or_all, default=1000,
                         help="drawn at most; or all (%(default)s)")  # fmt: skip


def add_cell_type(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--cell-type", metavar="COLUMN", help="column of obs: the type of each cell (cell_type, if there)"
    )


def add_permutations(command: argparse.ArgumentParser, text: str, default: int | None = 0) -> None:
    command.add_argument("--permutations", metavar="N", type=whole, default=default, help=text)


def add_seed(command: argparse.ArgumentParser, of: str) -> None:
    command.add_argument("--seed", metavar="N", type=seed, default=0, help=f"{of} (%(default)s)")


def add_replace(
    command: argparse.ArgumentParser, what: str = "the folder of an earlier run", *, former: bool = True
) -> None:
    """`--replace`; with `former`, also as `--force`, as it was called before that meant another thing in `predict`."""
    command.add_argument("--replace", action="store_true", help=f"replace {what}")
    if former:
        command.add_argument("--force", dest="replace", action="store_true", help=argparse.SUPPRESS)


def add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", metavar="N", type=jobs, default=None, help="threads; -1: one per core (1)")


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {2**32 - 1}, not {text!r}")
    return int(text)


def count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, not {text!r}")
    return int(text)


def count_or_all(text: str) -> int | None:
    return None if text == "all" else count(text)


def genes(text: str) -> str | int:
    """A rule, or a number of genes."""
    return count(text) if text.isdecimal() else text


def labels(text: str) -> list[str]:
    """Labels from low to high, separated by commas.

    >>> labels("mild, moderate,severe")
    ['mild', 'moderate', 'severe']
    """
    found = [label.strip() for label in text.split(",")]
    if len(found) < 2 or not all(found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"expected different labels from low to high, as A,B,C, not {text!r}")
    return found


def jobs(text: str) -> int:
    return -1 if text == "-1" else count(text)


def number(text: str) -> float:
    """Not negative and finite."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, not {text!r}")
    return value


def positive(text: str) -> float:
    value = number(text)
    if value == 0.0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value


def share(text: str) -> float:
    value = number(text)
    if value > 1.0:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, not {text!r}")
    return value


_WIDEST = 110  # letters of a line
_MOST_NUMBERS = 8  # labels that are numbers, up to which each is named
# The file by which the folder of a run is known.
FINDINGS = "run.json"


def log(line: str) -> None:
    """Progress goes to stderr: stdout is for what was found."""
    print(line, file=sys.stderr, flush=True)


def new_folder(
    output: str | os.PathLike[str],
    *,
    replace: bool,
    inputs: Iterable[str | os.PathLike[str]] = (),
    beside: Sequence[str] = (),
) -> AbstractContextManager[Path]:
    """A folder for a run, which gets its name when all is done; see `safe_folders.new_folder`.

    With `replace`, the files of an earlier run give way, and its report. Whatever else is there stays.
    """
    return safe_folders.new_folder(
        output, earlier=earlier_run, last=FINDINGS, replace=replace, inputs=inputs, beside=beside
    )


def check_free(output: str | os.PathLike[str], *, replace: bool, beside: Sequence[str] = ()) -> None:
    """Raise if `new_folder` would."""
    safe_folders.check_free(Path(os.path.realpath(output)), output, earlier_run, replace, beside)


def earlier_run(folder: Path) -> list[str] | None:
    """The files of a run, by its own list, and its report."""
    try:
        findings = json.loads((folder / FINDINGS).read_text(encoding="utf-8"))
        files = [name for name in findings["files"] if os.path.basename(name) == name and name not in ("", ".", "..")]
        if "groundmetric" not in findings or "command" not in findings:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return [*dict.fromkeys([*files, FINDINGS]), *_report_of(folder)]


def _report_of(folder: Path) -> list[str]:
    """Page and cache of `groundmetric report`, if this is what they are."""
    from .._internal.cache import cache_files, is_cache  # heavy, and not needed for --help

    cache = folder / "report.cache"
    caches = cache_files(cache) if is_cache(cache) else []
    if not (folder / "report.html").exists():
        return caches
    from ..report.write import is_page  # heavy, and rarely needed

    return ["report.html"] * is_page(folder / "report.html") + caches


def write_findings(folder: Path, findings: Mapping[str, Any]) -> None:
    write_whole(folder / FINDINGS, [json.dumps(findings, indent=2).encode() + b"\n"])


def write_frame(path: Path, frame: Any, index: str | None = None) -> None:
    """A data frame as CSV, its index as a first column of this name."""
    rows = frame.itertuples(index=index is not None, name=None)
    write_csv(path, [*([] if index is None else [index]), *map(str, frame.columns)], rows)


def plain(value: Any) -> Any:
    """A value as JSON has it: an array as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def print_findings(findings: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(findings) if as_json else text)


def wrapped(text: str, indent: int = 0, hang: int = 0) -> str:
    """Text in lines of the terminal, all but the first moved in by `hang` more; one line where there is no terminal."""
    first, others = " " * indent, " " * (indent + hang)
    if not sys.stdout.isatty():
        return first + text
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def label_counts(counts: Mapping[str, int]) -> str:
    """How many samples each label has; numbers are rounded, and of many their range is given.

    >>> label_counts({"ill": 3, "well": 2}), label_counts({"<30": 2, "30-60": 3}), label_counts({"0.123456789": 1})
    ('3 ill, 2 well', '2 of <30, 3 of 30-60', '1 of 0.1235')
    >>> label_counts({str(k / 7): 1 for k in range(20)})
    '20 numbers from 0 to 2.714'
    """
    try:
        numbers = {float(label): count for label, count in counts.items()}
    except ValueError:
        return ", ".join(counted(counts))
    if len(numbers) > _MOST_NUMBERS:
        return f"{len(numbers)} numbers from {min(numbers):.4g} to {max(numbers):.4g}"
    return ", ".join(f"{numbers[value]} of {value:.4g}" for value in sorted(numbers))


def aligned(rows: list[list[str]]) -> str:
    """Rows of text as a table; the first is the head.

    >>> print(aligned([["sample", "label"], ["a", "ill"]]))
    sample  label
    a       ill
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
