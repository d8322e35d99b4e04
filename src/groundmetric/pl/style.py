"""Style of all figures: sizes, colours of classes and numbers, panels, legends, files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from .._internal.docstrings import documented

# Okabe and Ito's palette for the colour-blind, without black and yellow, which vanish on a dark or a white page; then
# six colours that are farthest from those before, seen with normal, green-blind and red-blind eyes.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00",
    "#5A1E00", "#2A2A8C", "#7FDDBB", "#873C5A", "#8778FF", "#B8001F",
)  # fmt: skip
# A shape beside each colour, for grey prints. Their numbers differ, so that many classes get different pairs.
MARKERS = ("o", "^", "s", "D", "v")
# Lines and letters; one colour for all of it, so that a page can exchange it for a dark background.
INK = "#262626"
MISSING = "#B0B0B0"  # what has no label
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.labelsize": 8, "axes.titlesize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "figure.figsize": (3.3, 2.6), "figure.dpi": 150, "savefig.dpi": 300, "svg.fonttype": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.3,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
    "legend.frameon": False, "legend.handlelength": 1.0, "legend.handletextpad": 0.5, "legend.columnspacing": 1.2,
    "text.parse_math": False,  # names may contain $
}  # fmt: skip
LEGEND_ROW = 0.14  # inches
_IN_ROW = 3  # panels
_FORMATS = (".pdf", ".png", ".svg")  # of files, by scanpy's rule; others are taken for a part of the name
_LONGEST = 40  # letters of a name that are shown
_NAME = 4.5  # points of the letters of names beside marks
_MOST_HIDDEN = 0.15  # of other names and marks, by a name, in units of its size
# Where a name may begin: points to the right of its mark, above it, and the part of its width that it is moved back by.
_AROUND = (
    (3, 0.5, 0), (-3, 0.5, 1), (3, -4.5, 0), (-3, -4.5, 1), (0, 3.5, 0.5), (0, -8, 0.5), (3, 4.5, 0), (-3, 4.5, 1),
)  # fmt: skip


@contextmanager
def axes(ax: Axes | None, height: float = 0.0, *, legend_above: bool = True) -> Iterator[Axes]:
    """`ax` in this style, or new axes in a figure of a column's width, which is at least so many inches high, and
    higher by what a large legend above the data takes."""
    with mpl.rc_context(STYLE):
        if ax is not None:
            _dress(ax)
            yield ax
            return
        figure, ax = plt.subplots(layout="constrained")
        figure.set_figheight(max(figure.get_figheight(), height))
        try:
            yield ax
        except BaseException:
            plt.close(figure)  # nothing is left behind
            raise
        if legend_above:
            figure.set_figheight(figure.get_figheight() + LEGEND_ROW * max(0, _legend_rows(ax) - 3))


def panels(n: int, height: float = 0.0) -> list[Axes]:
    """Axes of `n` panels in rows of at most three, in a new figure; each is at least so many inches high."""
    columns = min(n, _IN_ROW)
    rows = -(-n // columns)
    with mpl.rc_context(STYLE):
        wide, high = plt.rcParams["figure.figsize"]
        size = wide * columns, max(high, height) * rows
        _, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    found = list(np.ravel(grid))
    for spare in found[n:]:
        spare.remove()
    return found[:n]


def draw_panels(draw: Callable[[Any, str], Any], colors: Sequence[str], ax: Any, height: float = 0.0) -> list[Any]:
    """A panel for each colour, on the given axes or in a new figure, which an error does not leave behind."""
    found: list[Any] = panels(len(colors), height) if ax is None else list(np.ravel(ax))
    if len(found) != len(colors):
        raise ValueError(f"ax has {len(found)} axes for {len(colors)} colours: give one each, or None for a new figure")
    try:
        return [draw(one, color) for one, color in zip(found, colors, strict=True)]
    except BaseException:
        if ax is None:
            plt.close(found[0].figure)
        raise


# Texts of docstrings that figures share, by what stands for them there.
_TEXTS = {
    "ax": """ax : matplotlib axes or None, default=None
    Axes to draw on; None: a new figure.""",
    "panels": """ax : matplotlib axes, sequence of them or None, default=None
    Axes to draw on, one per panel; None: a new figure.""",
    "key": """key : str, default="groundmetric"
    For AnnData, the `key_added` of `tl.learn`.""",
    "gene_symbols": """gene_symbols : str or None, default=None
    For AnnData, the column of `var` with the names to show; None: `var_names`.""",
    "palette": """palette : dict, sequence or None, default=None
    Colours by class, or in order; None: Okabe and Ito's.""",
    "palette_of_uns": """palette : dict, sequence or None, default=None
    Colours by class, or in order; None: `uns["<color>_colors"]`, where there are, or Okabe and Ito's.""",
    "matrix": """obsp : str or None, default=None
    For AnnData, the entry of `obsp`; None: as in `embedding`.
palette : dict, sequence or None, default=None
    Colours by class, or in order, of the first labelling; None: as in `embedding`.""",
    "save": """save : bool, str, path or None, default=None
    File of the figure, as in scanpy: True, or what is appended to the name of the plot ("_kang.png"), in the folder
    "figures"; a path is the file itself.
show : bool or None, default=None
    Whether to show the figure at once, as `plt.show()` does.""",
}
_TEXTS["end"] = f"""{_TEXTS["save"]}

Returns
-------
matplotlib axes
    What was drawn on."""
_TEXTS["end_of_panels"] = f"""{_TEXTS["save"]}

Returns
-------
matplotlib axes or list of them
    What was drawn on; a list where `color` is a sequence."""


# Decorator of functions that draw a figure.
figure_docs = documented(_TEXTS)


Drawn = TypeVar("Drawn", Axes, list[Axes], Axes | list[Axes])


def finish(drawn: Drawn, name: str, save: Save, show: bool | None) -> Drawn:
    """Write the figure and show it, where that is asked for; the axes themselves.

    As in scanpy, `save` is True or what is appended to the name of the plot, in the folder of figures (that of
    scanpy's settings where scanpy is used, else "figures"). A path, or text that has a folder, is the file itself.
    """
    figure: Any = (drawn[0] if isinstance(drawn, list) else drawn).figure
    if save:
        path = _figure_file(name, save)
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(STYLE):
            figure.savefig(path)
    if show:
        plt.show()
    return drawn


def _figure_file(name: str, save: Save) -> Path:
    if isinstance(save, os.PathLike) or (isinstance(save, str) and os.path.dirname(save)):
        return Path(save)
    tail = "" if isinstance(save, bool) else str(save)
    scanpy = sys.modules.get("scanpy")
    folder = Path("figures" if scanpy is None else scanpy.settings.figdir)
    return folder / f"{name}{tail}{'' if Path(tail).suffix in _FORMATS else '.pdf'}"


def _dress(ax: Axes) -> None:
    """Give axes that were made in another style the lines and letters of this one."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[:].set(linewidth=STYLE["axes.linewidth"], color=INK)
    ax.tick_params(width=0.6, length=2.5, labelsize=7, color=INK, labelcolor=INK)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set(fontsize=8, color=INK)


def colour(c: int) -> str:
    return COLOURS[c % len(COLOURS)]


def row_size(ax: Axes, n: int) -> float:
    """Points of height for each of `n` rows over the height of the axes (before the layout: roughly)."""
    return 72 * ax.get_window_extent().height / ax.figure.dpi / n


def width(ax: Axes) -> float:
    """Inches of width of the axes (before the layout: roughly)."""
    return ax.get_window_extent().width / ax.figure.dpi


def side(ax: Axes) -> float:
    """Inches of the side of a square in the axes (before the layout: roughly)."""
    return min(width(ax), row_size(ax, 1) / 72)


def short(name: Any, longest: int = _LONGEST) -> str:
    """A name that leaves room for the figure; its middle goes, because long names often differ at their ends.

    >>> short("cardiomyopathy, stage 3", 12), short("ISG15", 12)
    ('cardio…age 3', 'ISG15')
    """
    text, tail = str(name), (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def write_names(ax: Axes, names: Sequence[str], places: np.ndarray) -> None:
    """Names beside marks, each at that side of its mark where it hides least of other names and marks.

    Where it would hide much of them at every side, it is left out.
    """
    ax.get_figure(root=True).draw_without_rendering()  # type: ignore[union-attr]  # after the layout, places are known
    marks = ax.transData.transform(places) * 72 / ax.figure.dpi  # in points
    taken = np.column_stack([marks - 2.5, marks + 2.5])  # left, bottom, right, top
    for name, place, (x, y) in zip(names, places, marks, strict=True):
        text = short(name, 14)
        wide = max(text_width(text, _NAME), 1.0)
        boxes = np.array([(left, low, left + wide, low + _NAME)
                          for dx, dy, shift in _AROUND for left, low in [(x + dx - shift * wide, y + dy)]])  # fmt: skip
        common = np.minimum(boxes[:, None, 2:], taken[:, 2:]) - np.maximum(boxes[:, None, :2], taken[:, :2])
        hidden = np.prod(np.maximum(common, 0.0), axis=2).sum(axis=1) / (wide * _NAME)
        best = int(hidden.argmin())
        if hidden[best] > _MOST_HIDDEN:
            continue
        taken = np.vstack([taken, boxes[best]])
        ax.annotate(text, place, boxes[best, :2] - (x, y), textcoords="offset points", fontsize=_NAME, color=INK,
                    parse_math=False, annotation_clip=False).set_in_layout(False)  # fmt: skip


def percent(share: float) -> str:
    """A share as text that is never rounded up to all of it.

    >>> percent(0.9734), percent(0.99997), percent(1.0)
    ('97.3%', '>99.9%', '100%')
    """
    return "100%" if share == 1.0 else ">99.9%" if share > 0.999 else f"{share:.1%}"


def axis_name(ax: Axes, number: int, share: float) -> str:
    """The name of a principal axis of the learned space, with its share of the variance."""
    long = width(ax) > 1.6
    return f"{'learned ' if long else ''}axis {number} ({percent(share)}{' of variance' if long else ''})"


def _legend_rows(ax: Axes) -> int:
    legend = ax.get_legend()
    return 0 if legend is None else -(-len(legend.get_texts()) // legend._ncols)  # type: ignore[attr-defined]


Palette = Mapping[Any, str] | Sequence[str] | None
Save = bool | str | os.PathLike[str] | None


@dataclass(frozen=True)
class Classes:
    """The classes that occur, as text, with a colour and a shape each; `codes` has the number of each item's class."""

    names: list[str]
    codes: np.ndarray
    colours: list[str]
    markers: list[str]
    values: list[Any]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def of_items(self) -> list[str]:
        """The colour of each item."""
        return [self.colours[c] for c in self.codes]


@dataclass(frozen=True)
class Numbers:
    """A number per item, which colours of increasing lightness show."""

    values: np.ndarray


def classes_of(
    labels: Any, size: int, palette: Palette = None, *, first: int = 0, items: str = "distributions"
) -> Classes:
    """The classes of plain labels, in sorted order."""
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    if codes.shape != (size,):
        raise ValueError(f"y has shape {codes.shape}, but a label is needed for each of {size} {items}")
    return name_classes(values.tolist(), codes, palette, first)


def name_classes(values: Sequence[Any], codes: np.ndarray, palette: Palette = None, first: int = 0) -> Classes:
    """Classes in the order of their `values`, of those that occur; items of code -1 are without label.

    A palette gives colours by value, or in order; None: those of the style, from number `first` on. A class keeps its
    colour where others do not occur.
    """
    colours = _colours(values, palette, first)
    markers = [MARKERS[c % len(MARKERS)] for c in range(len(values))]
    names = [value if isinstance(value, str) else f"class {value}" for value in values]
    if np.any(codes < 0):
        values, names, colours, markers = [*values, None], [*names, "no label"], [*colours, MISSING], [*markers, "X"]
        codes = np.where(codes < 0, len(values) - 1, codes)
    used, codes = np.unique(codes, return_inverse=True)
    names, colours, markers, values = ([part[c] for c in used] for part in (names, colours, markers, values))
    return Classes(names, codes, colours, markers, values)


def _colours(values: Sequence[Any], palette: Palette, first: int) -> list[str]:
    if palette is None:
        return [colour(first + c) for c in range(len(values))]
    if isinstance(palette, Mapping):
        lacking = [value for value in values if value not in palette]
        if lacking:
            raise ValueError(f"palette has no colour for {lacking}")
        return [palette[value] for value in values]
    if len(palette) < len(values):
        raise ValueError(f"palette has {len(palette)} colours for {len(values)} classes")
    return list(palette)[: len(values)]


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
    entry = max(map(text_width, names)) + _LETTERS * ((length or 1.0) + 1.7)  # with mark and spaces, in points
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
    location: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, height), "borderaxespad": 0.3}
    ax.legend(handles=rows, ncols=n, handlelength=length, **location).set_gid("legend")


def _blank(label: str = "") -> Line2D:
    return dot(label, edge="none", face="none")


def beside(ax: Axes, handles: list[Any]) -> None:
    """A legend to the right of the data; where there are many entries, in smaller letters, then in columns."""
    for handle in handles:
        handle.set_label(short(handle.get_label(), _LONGEST_BESIDE))
    letters = min(_LETTERS, 0.7 * row_size(ax, len(handles)))
    columns = 1 if letters >= 4 else 2
    location: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0.5}
    ax.legend(handles=handles, ncols=columns, fontsize=min(_LETTERS, letters * columns), **location)


def text_width(text: str, letters: float = _LETTERS) -> float:
    """Points, of letters of so many points."""
    return TextPath((0, 0), text, size=letters).get_extents().width if text.strip() else 0.0
