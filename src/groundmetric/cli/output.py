"""What commands leave behind: lines on stderr, findings on stdout, and folders that are written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# The file by which the folder of a run is known.
FINDINGS = "run.json"


def log(line: str) -> None:
    """Progress goes to stderr: stdout is for what was found."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def new_folder(output: str | os.PathLike, *, force: bool) -> Iterator[Path]:
    """A folder to write to, which takes its place in one step when all is done; otherwise nothing is left of it.

    One that exists is replaced with `force` only, and only where it is empty or an earlier run.
    """
    folder = Path(os.path.abspath(output))
    check_free(folder, output, force)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        new = Path(beside) / "new"
        new.mkdir()
        yield new
        check_free(folder, output, force)  # somebody may have written there meanwhile
        if folder.exists():
            folder.rename(Path(beside) / "old")
        new.rename(folder)


def check_free(folder: Path, output: str | os.PathLike, force: bool) -> None:
    name = repr(os.fspath(output))
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"output {name} is a file: give a folder")
    if not any(folder.iterdir()):
        return
    if not (folder / FINDINGS).exists():
        raise ValueError(f"output {name} exists and is no earlier run: give another folder")
    if not force:
        raise ValueError(f"output {name} exists: give another folder, or --force to replace it")


def write_findings(folder: Path, findings: Mapping[str, Any]) -> None:
    (folder / FINDINGS).write_text(json.dumps(findings, indent=2) + "\n")


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
