"""Options that several commands share, and what commands leave behind: lines on stderr, findings on stdout, folders."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._internal import files as safe_folders
from .._internal.files import write_whole
from .._internal.tables import write_csv


def add_command(commands: Any, run: Callable, name: str, help: str) -> argparse.ArgumentParser:
    """A command with the options that all have; `run` is called with what was parsed."""
    command = commands.add_parser(name, help=help, description=help)
    command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    command.add_argument("--debug", action="store_true", help="show a traceback where something goes wrong")
    command.set_defaults(run=run, prog=command.prog)
    return command


def add_seed(command: argparse.ArgumentParser, of: str) -> None:
    command.add_argument("--seed", metavar="N", type=seed, default=0, help=f"{of} (%(default)s)")


def add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace the folder of an earlier run")


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


# The file by which the folder of a run is known.
FINDINGS = "run.json"


def log(line: str) -> None:
    """Progress goes to stderr: stdout is for what was found."""
    print(line, file=sys.stderr, flush=True)


def new_folder(
    output: str | os.PathLike, *, force: bool, inputs: Iterable[str | os.PathLike] = (), beside: Sequence[str] = ()
) -> AbstractContextManager[Path]:
    """A folder for a run, which gets its name when all is done; see `safe_folders.new_folder`.

    With `force`, the files of an earlier run give way, and its report. Whatever else is there stays.
    """
    return safe_folders.new_folder(
        output, earlier=earlier_run, last=FINDINGS, replace=force, inputs=inputs, beside=beside
    )


def check_free(output: str | os.PathLike, *, force: bool, beside: Sequence[str] = ()) -> None:
    """Raise if `new_folder` would."""
    safe_folders.check_free(Path(os.path.realpath(output)), output, earlier_run, force, beside)


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


def print_findings(findings: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(findings) if as_json else text)


def aligned(rows: list[list[str]]) -> str:
    """Rows of text as a table; the first is the head.

    >>> print(aligned([["sample", "label"], ["a", "ill"]]))
    sample  label
    a       ill
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
