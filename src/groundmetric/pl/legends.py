"""Legends: what the colours, shapes and lines of a figure mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from .classes import Classes
from .style import INK, row_size, short, width

_LETTERS = 7.0  # points of the letters
_LONGEST_BESIDE = 24  # letters of a name beside the figure: more would leave no room for the figure


def dot(label: str, marker: str = "o", edge: str = INK, face: str | None = None) -> Line2D:
    return Line2D([], [], ls="none", ms=4, marker=marker, mec=edge, mfc=face or edge, label=label)


def dots(classes: Classes, *, shapes: bool = False) -> list[Any]:
    """A mark per class; with `shapes`, each class's own."""
    marks = classes.markers if shapes else ["o"] * len(classes)
    found = zip(classes.names, marks, classes.colours, strict=True)
    return [dot(short(name), marker, colour) for name, marker, colour in found]


def boxes(classes: Classes, alpha: float = 1.0) -> list[Any]:
    found = zip(classes.names, classes.colours, strict=True)
    return [Patch(fc=(colour, alpha), ec=colour, label=short(name)) for name, colour in found]


def above(
    ax: Axes,
    *groups: list[Any],
    titles: Sequence[str] | None = None,
    length: float | None = None,
    height: float = 1.0,
) -> None:
    """A legend above the data, read by rows, with as many columns as fit. Each group begins a row, after its title."""
    names = [str(handle.get_label()) for group in groups for handle in group] + list(titles or ())
    entry = max(map(_text_width, names)) + _LETTERS * ((length or 1.0) + 1.7)  # with mark and spaces, in points
    spare = 0 if titles is None else 1
    fitting = int(72 * width(ax) // entry) - spare
    n = max(1, min(max(map(len, groups)) if spare else len(groups[0]), fitting))
    rows: list[Any] = []
    for k, group in enumerate(groups):
        for start in range(0, len(group), n):
            rows += [_blank(titles[k] if start == 0 else "")] if titles else []
            rows += group[start : start + n]
        if k + 1 < len(groups):
            rows += [_blank()] * (-len(group) % n)
    n += spare
    rows = [handle for column in range(n) for handle in rows[column::n]]  # matplotlib fills column by column
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, height), "borderaxespad": 0.3}
    ax.legend(handles=rows, ncols=n, handlelength=length, **place).set_gid("legend")


def _blank(label: str = "") -> Line2D:
    return dot(label, edge="none", face="none")


def beside(ax: Axes, handles: list[Any]) -> None:
    """A legend to the right of the data; where there are many entries, in smaller letters, then in columns."""
    for handle in handles:
        handle.set_label(short(handle.get_label(), _LONGEST_BESIDE))
    letters = min(_LETTERS, 0.7 * row_size(ax, len(handles)))
    columns = 1 if letters >= 4 else 2
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0.5}
    ax.legend(handles=handles, ncols=columns, fontsize=min(_LETTERS, letters * columns), **place)


def _text_width(text: str) -> float:
    """Points."""
    return TextPath((0, 0), text, size=_LETTERS).get_extents().width if text.strip() else 0.0
