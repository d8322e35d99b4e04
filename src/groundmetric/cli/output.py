"""What commands leave behind: lines on stderr, findings on stdout, and folders that are written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .. import safe_folders
from ..safe_files import write_csv, write_whole

# The file by which the folder of a run is known.
FINDINGS = "run.json"


def log(line: str) -> None:
    """Progress goes to stderr: stdout is for what was found."""
    print(line, file=sys.stderr, flush=True)


def new_folder(
    output: str | os.PathLike, *, force: bool, inputs: Iterable[str | os.PathLike] = (), beside: Sequence[str] = ()
) -> AbstractContextManager[Path]:
    """A folder for a run, which is put into place when all is done; see `safe_folders.new_folder`.

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
    """Page and kept answers of `groundmetric report`, if this is what they are."""
    if not (folder / "report.html").exists() and not (folder / "report").is_dir():
        return []
    from ..report.write import is_page  # heavy, and rarely needed

    kept = list((folder / "report").glob("*"))
    ours = bool(kept) and all(re.fullmatch(r"\w+-[0-9a-f]{12}\.json", path.name) for path in kept)
    return ["report.html"] * is_page(folder / "report.html") + ["report"] * ours


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
