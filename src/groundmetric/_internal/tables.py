"""Rows as Markdown for people and as CSV for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import files as safe_files


def prose(text: str, **values: Any) -> str:
    """Lines of source as one paragraph, with values filled in.

    >>> prose("one {what}\\n    and another", what="line")
    'one line and another'
    """
    return " ".join(text.split()).format(**values)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """A file with a column per key; its name."""
    head = list(dict.fromkeys(key for row in rows for key in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    safe_files.write_csv(path, head, [[_cell(row.get(key)) for key in head] for row in rows])
    return path.name


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where there is none; never -0.00.

    >>> number(-0.001), number(float("nan"))
    ('0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def spread(row: dict[str, float] | None) -> str:
    """Mean ± SD."""
    return f"{number(row['mean'])} ± {number(row['sd'])}" if row else "–"


def interval(row: dict[str, float] | None) -> str:
    """Mean and 95 % interval."""
    if not row or row.get("mean") is None or not math.isfinite(row["mean"]):
        return "–"
    known = row.get("low") is not None and math.isfinite(row["low"])
    return number(row["mean"]) + (f" [{number(row['low'])}, {number(row['high'])}]" if known else "")


def p_value(p: float | None) -> str:
    """
    >>> p_value(0.0), p_value(0.03)
    ('< 0.001', '0.030')
    """
    return "< 0.001" if p is not None and p < 0.001 else number(p, 3)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if not math.isfinite(value) else f"{value:.6g}"
    return value
