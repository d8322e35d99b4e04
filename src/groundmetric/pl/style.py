"""How all figures look: for a column of a paper, and to be told apart by the colour-blind and in grey prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

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
_LONGEST = 40  # letters of a name that are shown


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
