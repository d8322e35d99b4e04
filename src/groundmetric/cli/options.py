"""Options that several commands share, and their output: lines on stderr, text of findings, folders."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from .._internal.files import remove_leftovers, temporary_name, temporary_prefix, write_whole
from .._internal.tables import counted, write_csv

FINDINGS = "run.json"  # the file that marks the folder of a run
_MAX_WIDTH = 110  # characters of a line
_MAX_NUMBERS = 8  # numeric labels up to which each is counted
# Options of parameters: messages of the package name parameters, those of the command line options.
OPTION_OF = {
    "sample_key": "--sample", "label_key": "--label", "group_key": "--group", "batch_key": "--batch",
    "cell_type_key": "--cell-type", "layer": "--layer", "use_rep": "--rep", "genes": "--genes",
    "n_cells": "--cells-per-sample", "method": "--method", "target": "--target",
    "order": "--order", "n_components": "--components", "strength": "--strength", "max_epochs": "--epochs",
    "checkpoint": "--checkpoint", "resample": "--resample", "max_missing": "--max-missing", "output": "--output",
    "cells": "--cells", "gene_sets": "--gene-sets", "permutations": "--permutations", "evaluation": "--evaluate",
    "budget": "--budget", "run": "RUN", "replace": "--replace", "force": "--force",
}  # fmt: skip


def add_command(
    commands: Any, name: str, help: str, example: str, *, interrupted: str = "nothing was written"
) -> argparse.ArgumentParser:
    """Add a command with the options of all commands; `interrupted` is the message after Ctrl-C."""
    command = commands.add_parser(
        name, help=help, description=textwrap.fill(help[0].upper() + help[1:] + ".", 100),
        epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    command.add_argument("--debug", action="store_true", help="show a traceback on errors")
    command.set_defaults(prog=command.prog, interrupted=interrupted, ended=None)
    return command


# Types of options.


def _number(kind: Callable[[str], Any], low: float, high: float, expected: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")
        return value

    return parse


non_negative = _number(int, 0, float("inf"), "a whole number of at least 0")
count = _number(int, 1, float("inf"), "a whole number of at least 1")
seed = _number(int, 0, 2**32 - 1, f"a whole number from 0 to {2**32 - 1}")
number = _number(float, 0.0, sys.float_info.max, "a number of at least 0")
share = _number(float, 0.0, 1.0, "a share from 0 to 1")


def labels(text: str) -> list[str]:
    """Return labels from low to high.

    >>> labels("mild, moderate,severe")
    ['mild', 'moderate', 'severe']
    """
    order = [label.strip() for label in text.split(",")]
    if len(order) < 2 or not all(order) or len(set(order)) < len(order):
        raise argparse.ArgumentTypeError(f"expected different labels from low to high, as A,B,C, not {text!r}")
    return order


# Options of several commands, by their name in `add_options`: flags, and settings of argparse.
SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "cells": ("cells", {"metavar": "CELLS.h5ad", "help": "file with normalised values on a log scale"}),
    "trained": ("trained", {"metavar": "RUN", "help": "folder that `learn` wrote"}),
    "sample": ("--sample", {"metavar": "COLUMN", "required": True, "help": "column of obs: the sample of each cell"}),
    "label": ("--label", {"metavar": "COLUMN", "required": True, "help": "column of obs: the label of its sample"}),
    "group": ("--group", {"metavar": "COLUMN", "help": "column of obs: the patient; samples of one stay together"}),
    "output": ("-o --output", {"metavar": "DIR", "help": "folder to write"}),
    "layer": ("--layer", {"help": "use this layer instead of X"}),
    "rep": ("--rep", {"metavar": "NAME", "help": "use this entry of obsm instead of genes"}),
    "genes": ("--genes", {"metavar": "RULE", "type": lambda text: count(text) if text.isdecimal() else text}),
    "draw": ("--cells-per-sample", {
        "metavar": "N", "type": lambda text: None if text == "all" else count(text), "default": 1000,
        "help": "number of subsampled cells, or all (1000)",
    }),
    "cell_type": ("--cell-type", {
        "metavar": "COLUMN", "help": "column of obs: the cell type (cell_type, if present)",
    }),
    "seed": ("--seed", {"metavar": "N", "type": seed, "default": 0}),
    "jobs": ("--jobs", {
        "metavar": "N", "type": lambda text: -1 if text == "-1" else count(text),
        "help": "threads; -1: one per core (1)",
    }),
    "replace": ("--replace", {"action": "store_true", "help": "replace the folder of an earlier run"}),
}  # fmt: skip


def add_options(command: argparse.ArgumentParser, *names: str, **settings: Any) -> None:
    """Add options of `SHARED`, with other `settings` of argparse."""
    for name in names:
        flags, shared = SHARED[name]
        command.add_argument(*flags.split(), **{**shared, **settings})


def add_values(command: argparse.ArgumentParser, default: str) -> None:
    """Add the features and the number of cells; `default` describes the default of `--genes`."""
    rules = "N: the N most variable; variance: those with variance above the average; highly_variable or another "
    add_options(command, "layer", "rep")
    add_options(command, "genes", help=f"{rules}boolean column of var; all ({default})")
    add_options(command, "draw")


# Messages and output.


def as_options(values: Mapping[str, Any]) -> str:
    """Return parameters with values as options to type.

    >>> as_options({"order": ["<30", "30-60", ">60"], "evaluation": False})
    "--order '<30,30-60,>60', --no-evaluate"
    """
    words = []
    for name, value in values.items():
        option = OPTION_OF.get(name)
        if option is None:
            words.append(f"{name}={value!r}")
        elif isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words.append(f"{option} {shlex.quote(','.join(value) if isinstance(value, list) else str(value))}")
    return ", ".join(words)


def with_options(text: str) -> str:
    """Return a message with options instead of settings of parameters.

    >>> with_options("if patients have several samples, give group_key='donor', or force=True")
    'if patients have several samples, give --group donor, or --force'
    """

    def option(setting: re.Match[str]) -> str:
        name, value = setting[1], setting[2]
        return as_options({name: value == "True" if value in ("True", "False") else value.strip("'")})

    return re.sub(rf"\b({'|'.join(OPTION_OF)})=('[^']*'|\w+)", option, text)


def log(line: str) -> None:
    """Print a line of progress to stderr; stdout is for findings."""
    print(line, file=sys.stderr, flush=True)


def origin(options: argparse.Namespace) -> dict[str, str]:
    """Return the first findings of every command: version and name."""
    return {"groundmetric": __version__, "command": options.prog.split()[-1]}


def write_run(
    options: argparse.Namespace, make: Callable[[Path], dict[str, Any]], inputs: Iterable[str] = (),
    beside: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Write the output folder of a command by `make`, which returns the findings; write and return them."""
    with new_folder(options.output, replace=options.replace, inputs=inputs, beside=beside) as folder:
        findings = {**origin(options), **make(folder)}
        write_whole(folder / FINDINGS, [json.dumps(findings, indent=2).encode() + b"\n"])
    log(f"wrote {', '.join(findings['files'])} to {options.output}")
    return findings


@contextlib.contextmanager
def new_folder(
    output: str | os.PathLike[str], *, replace: bool, inputs: Iterable[str | os.PathLike[str]] = (),
    beside: Sequence[str] = (),
) -> Iterator[Path]:  # fmt: skip
    """Create a temporary folder whose files are moved to the folder `output` at the end.

    An existing folder is kept (it may be mounted, or the current folder of a shell). If moving fails, or the disk is
    full, the results stay in a folder that the error names; after other errors they are removed. With `replace`, the
    files of an earlier run and its report are replaced; other files stay. `inputs` must not be in the folder, and files
    with the names `beside` may be in it: the state of an interrupted run.
    """
    folder = Path(os.path.realpath(output))
    for path in inputs:
        if Path(os.path.realpath(path)).is_relative_to(folder) and os.path.lexists(path):
            raise ValueError(
                f"output {os.fspath(output)!r} is where {os.fspath(path)!r} is, which is read: give another folder"
            )
    check_free(output, replace=replace, beside=beside)
    remove_leftovers(folder)
    # Inside an existing folder: moving stays on one file system even if the folder is mounted.
    work = folder / temporary_name(folder).name if folder.is_dir() else temporary_name(folder)
    work.mkdir(parents=True)
    complete = False
    try:
        yield work
        complete = True
        check_free(output, replace=replace, beside=beside)  # another process may have written there meanwhile
        if not folder.exists():
            os.replace(work, folder)  # fails if another process was faster
            return
        # In place of the files of an earlier run. The findings are moved last: they mark a finished run.
        old, names = earlier_run(folder) or [], sorted(os.listdir(work), key=lambda name: (name == FINDINGS, name))
        foreign = [name for name in names if name not in old and os.path.lexists(folder / name)]
        if foreign:
            raise FileExistsError(f"{str(folder / foreign[0])!r} exists and was not written by an earlier run")
        for name in [*(name for name in old if name not in names), *names]:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            if name in names:
                os.replace(work / name, folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    except Exception as error:
        # Complete results are never lost; on a full disk, complete files are kept.
        if (complete or isinstance(error, OSError)) and any(work.iterdir()):
            rescue = work.with_name(f"{folder.name}.kept-{work.name[-21:-5]}")
            os.rename(work, rescue)
            raise OSError(f"output {os.fspath(output)!r}: {error}. Its files are in {str(rescue)!r}") from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_free(output: str | os.PathLike[str], *, replace: bool, beside: Sequence[str] = ()) -> None:
    """Raise unless the folder is absent, empty except for `beside`, or an earlier run that may be replaced."""
    folder, name = Path(os.path.realpath(output)), os.fspath(output)
    if not folder.exists():
        return
    from .._internal.validation import ParameterError  # imports numpy, which `groundmetric --help` does not need

    if not folder.is_dir():
        raise ParameterError("output", name, ", which is a file: give a folder")
    temporary = temporary_prefix(folder)
    if not {entry for entry in os.listdir(folder) if not entry.startswith(temporary)} - set(beside):
        return
    if earlier_run(folder) is None:
        raise ParameterError("output", name, ", which exists and is not an earlier run: give another folder")
    if not replace:
        raise ParameterError("output", name, ", which exists: give another folder", {"replace": True})


def earlier_run(folder: Path) -> list[str] | None:
    """Return the files that the findings list, and a report; None if the folder is not a run."""
    try:
        content = json.loads((folder / FINDINGS).read_text(encoding="utf-8"))
        files = [name for name in content["files"] if os.path.basename(name) == name and name not in ("", ".", "..")]
        if "groundmetric" not in content or "command" not in content:
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    from .._internal.cache import cache_files, is_cache  # slow to import, and not needed for --help

    cache = folder / "report.cache"
    caches = cache_files(cache) if is_cache(cache) else []
    if (folder / "report.html").exists():
        from ..report.page import is_page

        caches += ["report.html"] * is_page(folder / "report.html")
    return [*dict.fromkeys([*files, FINDINGS]), *caches]


def write_frame(path: Path, frame: Any, index: str) -> None:
    """Write a data frame as CSV, with its index as first column."""
    write_csv(path, [index, *map(str, frame.columns)], frame.itertuples(name=None))


def wrapped(text: str, indent: int = 0, hang: int = 0) -> str:
    """Wrap text to the terminal, continuation lines indented by `hang` more; one line without a terminal."""
    if not sys.stdout.isatty():
        return " " * indent + text
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
    return textwrap.fill(
        text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + hang), break_on_hyphens=False
    )


def label_counts(counts: Mapping[str, int]) -> str:
    """Return the number of samples by label; many numbers as a range.

    >>> label_counts({"ill": 3, "well": 2}), label_counts({"<30": 2, "30-60": 3}), label_counts({"0.123456789": 1})
    ('3 ill, 2 well', '2 of <30, 3 of 30-60', '1 of 0.1235')
    >>> label_counts({str(k / 7): 1 for k in range(20)})
    '20 numbers from 0 to 2.714'
    """
    try:
        numbers = {float(label): count for label, count in counts.items()}
    except ValueError:
        return ", ".join(counted(counts))
    if len(numbers) > _MAX_NUMBERS:
        return f"{len(numbers)} numbers from {min(numbers):.4g} to {max(numbers):.4g}"
    return ", ".join(f"{numbers[value]} of {value:.4g}" for value in sorted(numbers))


def aligned(rows: list[list[str]]) -> str:
    """Return rows of text as a table; the first is the head.

    >>> print(aligned([["sample", "label"], ["a", "ill"]]))
    sample  label
    a       ill
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
