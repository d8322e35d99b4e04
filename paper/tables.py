"""Tables and paragraphs of the page of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groundmetric._internal.tables import MISSING, number, write_csv


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> str:
    """Write records as CSV with a column per key and six digits per number; returns the name of the file."""
    head = list(dict.fromkeys(key for record in records for key in record))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, head, [[_rounded(record.get(key)) for key in head] for record in records])
    return path.name


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return "" if not math.isfinite(value) else f"{value:.6g}"
    return value


def spread(row: Mapping[str, float] | None) -> str:
    """Mean ± SD."""
    if not row or row["mean"] is None:
        return MISSING
    return f"{number(row['mean'])} ± {number(row['sd'])}"


def interval(row: Mapping[str, float] | None) -> str:
    """Mean and 95 % interval."""
    if not row or row.get("mean") is None or not math.isfinite(row["mean"]):
        return MISSING
    labelled = row.get("low") is not None and math.isfinite(row["low"])
    return number(row["mean"]) + (f" [{number(row['low'])}, {number(row['high'])}]" if labelled else "")


def prose(text: str, **values: Any) -> str:
    """Lines of source as one paragraph, with values filled in.

    >>> prose("one {what}\\n    and another", what="line")
    'one line and another'
    """
    return " ".join(text.split()).format(**values)
