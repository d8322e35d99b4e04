"""Tables as Markdown and CSV, and text of numbers and names."""

from __future__ import annotations

import math
import numbers
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .files import refuse_foreign, write_whole

MISSING = "–"
# Spreadsheets run text with these first characters as a formula; the last four are full-width forms.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Unicode's control and format characters (bidirectional overrides, zero-width spaces), line separators, surrogates.
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Cs"}
# Names of scores, where they differ from the name in code.
_SCORES = {
    "macro_f1": "macro F1", "roc_auc": "ROC AUC", "log_probability": "log-probability",
    "r2": "R²", "log_likelihood": "log-likelihood",
}  # fmt: skip


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write_csv(path: str | os.PathLike[str], head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV: numbers in full, missing numbers as empty cells, formulas escaped.

    An older table with the same first columns is replaced; another file is an error.
    """
    beginning = ",".join(map(_cell, head[:3]))
    refuse_foreign(path, beginning.encode(), f"table that begins with {beginning!r}")
    write_whole(path, (",".join(map(_cell, row)).encode() + b"\n" for row in [head, *rows]))


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, numbers.Real) and value != value):
        return ""
    text = str(value)
    if isinstance(value, str) and text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in '",\r\n') else text


def plain(value: Any) -> Any:
    """Return data as JSON has it: arrays as lists, numbers of NumPy as those of Python, None for NaN and infinity.

    >>> plain({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, never -0.00; a dash for a missing number.

    >>> number(-0.001), number(float("nan"))
    ('0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def p_value(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else number(p, 3)


def visible(text: Any) -> str:
    """Return text with invisible characters escaped, as `repr` does: names that differ also look different."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    hidden = {sign for sign in text if sign not in "\n\t" and unicodedata.category(sign) in _INVISIBLE}
    return "".join(repr(sign)[1:-1] if sign in hidden else sign for sign in text)


def counted(counts: Mapping[str, int]) -> list[str]:
    """Return the count of each label as text, with "of" between a count and a label that starts with a digit.

    >>> counted({"ill": 3, "well": 2}), counted({"<30": 3, "30-60": 2})
    (['3 ill', '2 well'], ['3 of <30', '2 of 30-60'])
    """
    between = " " if all(name[:1].isalpha() for name in counts) else " of "
    return [f"{count}{between}{name}" for name, count in counts.items()]


def listed(names: Sequence[Any], n: int) -> str:
    """Return the first names, and the number of the others.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(map(str, names[:n]))
    return shown if len(names) <= n else f"{shown} and {len(names) - n} more"


def score_name(score: str) -> str:
    return _SCORES.get(score, score.replace("_", " "))
