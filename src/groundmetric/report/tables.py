"""Tables of the page: headings that sort, a field that filters, a choice, and a button that saves."""

from __future__ import annotations

from typing import Any

from .content import Field, Table
from .markup import Markup, tag

SHORT = 8  # rows up to which there is nothing to filter


def table(content: Table) -> Markup:
    """Without scripts, a plain table; with them, one to work with."""
    long = len(content.rows) > SHORT
    most = [_largest(content, place) if field.bar else 0.0 for place, field in enumerate(content.fields)]
    head = tag("tr", [_heading(field) for field in content.fields])
    body = [tag("tr", [_cell(*part) for part in zip(content.fields, row, most, strict=True)]) for row in content.rows]
    made = tag("table", tag("caption", content.caption), tag("thead", head), tag("tbody", body), id=content.identifier)
    held = tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=content.caption)
    return tag("div", _controls(content, long), held, data_table=True, class_="long" if long else None)


def _heading(field: Field) -> Markup:
    return tag("th", tag("button", field.name, type="button", title=field.note or None), scope="col",
               class_=None if field.digits is None else "number")  # fmt: skip


def _cell(field: Field, value: Any, most: float) -> Markup:
    if field.digits is None:
        return tag("td", "" if value is None else value)
    if value is None:
        return tag("td", "–", class_="number", data_value="")
    part = f"--part: {100 * max(0.0, value) / most:.1f}%" if field.bar and most > 0 else None
    exact = int(value) if field.digits == "d" else f"{value:.6g}"
    return tag("td", format(value, field.digits), class_="number bar" if part else "number", style=part,
               data_value=exact)  # fmt: skip


def _largest(content: Table, place: int) -> float:
    return max((row[place] for row in content.rows if row[place] is not None), default=0.0)


def _controls(content: Table, long: bool) -> Markup:
    parts: list[Any] = []
    if long:
        parts.append(
            tag(
                "label",
                "Filter rows",
                tag("input", type="search", autocomplete="off", aria_label=f"Filter rows: {content.caption}"),
            )
        )
    if long and content.choice is not None:
        values = sorted({str(row[content.choice]) for row in content.rows}, key=lambda text: (len(text), text))
        options = [tag("option", "all", value=""), *(tag("option", value, value=value) for value in values)]
        parts.append(
            tag("label", content.fields[content.choice].name, tag("select", options, data_column=content.choice))
        )
    parts.append(
        tag("button", "Save as CSV", type="button", data_csv=True, aria_label=f"Save as CSV: {content.caption}")
    )
    if long:
        parts.append(tag("span", f"{len(content.rows)} rows", class_="count note", role="status"))
    return tag("div", parts, class_="controls")
