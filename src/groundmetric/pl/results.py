"""Results of evaluation and interpretation: scores of methods, flow between kinds of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from .style import INK, Save, axes, colour, figure_docs, finish, short, text_width, width

if TYPE_CHECKING:
    from ..interpret.flows import Flow

_SCORE_ROW = 0.2  # inches for a score
_BAR = 0.05  # width of the bars at both ends of a flow, of the distance between them
_GAP = 0.02  # between kinds, of all mass
_LONGEST, _NAME = 20, 6.5  # letters of the names at both sides of a flow, and points of their height
_LEAST_ROOM = 0.25  # for the flow itself, of the width of the axes
_LEAST = 1e-3  # bands of less mass are not drawn


@figure_docs
def scores(
    rows: Mapping[str, Sequence[float | None]],
    ax: Axes | None = None,
    *,
    reference: float | None = None,
    name: str = "balanced accuracy",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Scores of several methods with their intervals, the first in colour.

    Parameters
    ----------
    rows : dict
        By name, the value and the lower and upper end of its interval; where an end is None or NaN, no interval is
        drawn.
    {ax}
    reference : float or None, default=None
        Value that is drawn as a dashed line, e.g. the score of guessing.
    name : str, default="balanced accuracy"
        Label of the axis.
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.scores({"learned": (0.9, 0.8, 0.95), "Euclidean": (0.6, None, None)}, reference=0.5)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['learned', 'Euclidean']
    """
    if not rows:
        raise ValueError("rows are empty: at least one is needed")
    positions = np.arange(len(rows))
    with axes(ax, 0.5 + _SCORE_ROW * len(rows)) as ax:
        if reference is not None:
            ax.axvline(reference, color=INK, lw=0.6, ls="--")
        for row, ends in zip(positions, rows.values(), strict=True):
            value, low, high = (np.nan if end is None else float(end) for end in ends)
            shade = colour(0) if row == 0 else INK
            ax.plot([low, high], [row, row], color=shade, lw=1.3)
            ax.plot(value, row, "o", color=shade, ms=4.5, gid=f"score-{row}")
        ax.set_yticks(positions, [short(each, 28) for each in rows], parse_math=False)
        ax.tick_params("y", length=0)
        ax.set(xlabel=name, ylim=(len(rows) - 0.5, -0.5))
    return finish(ax, "scores", save, show)


@figure_docs
def flow(
    result: Flow,
    ax: Axes | None = None,
    *,
    least: float = _LEAST,
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Flow of mass between kinds of points: bands as wide as the mass, the darker the farther it moves.

    Parameters
    ----------
    result : Flow
        Result of `interpret.flow`.
    {ax}
    least : float, default=0.001
        Mass below which bands and kinds are not drawn.
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> found = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> gm.pl.flow(found).get_xlabel()
    'mean distance 0.75; 100% stays with its kind'
    """
    mass, distance = result.mass, result.distance
    shown = (mass >= least) & np.isfinite(distance)
    colours = Normalize(0.0, float(distance[shown].max(initial=0.0)) or 1.0)
    shades = mpl.colormaps["viridis_r"]
    with axes(ax) as ax:
        left, right = (_ends(mass.sum(axis=k)) for k in (1, 0))
        for band in _bands(mass, left, right, shown):
            face = shades(colours(distance[band.row, band.col]))
            ax.add_patch(PathPatch(band.path, fc=face, ec="none", alpha=0.75))
        bar = ax.figure.colorbar(mpl.cm.ScalarMappable(colours, shades), ax=ax, label="distance", pad=0.02, shrink=0.9)
        bar.outline.set_visible(False)
        names = [short(value, _LONGEST) for value in result.values]
        room, letters = _room_for(names, ax)
        for x, starts, sizes, align in ((0.0, left, mass.sum(axis=1), "right"), (1.0, right, mass.sum(axis=0), "left")):
            for k, (start, size) in enumerate(zip(starts, sizes, strict=True)):
                if size < least:
                    continue
                ax.add_patch(Rectangle((x - _BAR / 2, start), _BAR, size, fc=colour(k), lw=0))
                outside, middle = x + _BAR * (1 if align == "left" else -1), start + size / 2
                look: dict[str, Any] = {"ha": align, "va": "center", "fontsize": letters, "color": INK}
                ax.text(outside, middle, names[k], parse_math=False, **look)
        highest = max(left[-1] + mass[-1].sum(), right[-1] + mass[:, -1].sum())
        ax.set(xlim=(-room, 1.0 + room), ylim=(highest, 0.0), yticks=[])
        ax.set_xticks([0, 1], [short(result.source, 16), short(result.target, 16)], parse_math=False)
        ax.tick_params("x", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"mean distance {result.value:.3g}; {result.kept:.0%} stays with its kind")
    return finish(ax, "flow", save, show)


def _room_for(names: Sequence[str], ax: Axes) -> tuple[float, float]:
    """Room for names at either side of a flow, in units of its width, and points of their letters."""
    longest = (max(text_width(name, _NAME) for name in names) / 72 + 0.05) / (0.9 * width(ax))  # before the layout
    share = min(longest, (1.0 - _LEAST_ROOM) / 2)
    return share / (1.0 - 2.0 * share) + _BAR, _NAME * share / longest


def _ends(sizes: np.ndarray) -> np.ndarray:
    """Where the bar of each kind begins, with gaps between those that have any mass."""
    gaps = _GAP * np.concatenate([[0], np.cumsum(sizes[:-1] > 0)])
    return np.concatenate([[0.0], np.cumsum(sizes)[:-1]]) + gaps


class _Band:
    def __init__(self, row: int, col: int, top_left: float, top_right: float, size: float) -> None:
        self.row, self.col = row, col
        x0, x1, bend = _BAR / 2, 1.0 - _BAR / 2, 0.5
        there = [(x0, top_left), (bend, top_left), (bend, top_right), (x1, top_right)]
        back = [(x1, top_right + size), (bend, top_right + size), (bend, top_left + size), (x0, top_left + size)]
        curve = [Path.CURVE4] * 3
        self.path = Path([*there, *back, there[0]], [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY])


def _bands(mass: np.ndarray, left: np.ndarray, right: np.ndarray, shown: np.ndarray) -> list[_Band]:
    """Bands from each kind to each, stacked in the same order at both ends, so that none cross beside a bar."""
    from_top = left[:, None] + np.cumsum(mass, axis=1) - mass
    to_top = right + np.cumsum(mass, axis=0) - mass
    return [_Band(r, c, from_top[r, c], to_top[r, c], mass[r, c]) for r, c in np.argwhere(shown)]
