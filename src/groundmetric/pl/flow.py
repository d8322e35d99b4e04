"""Mass that moves between kinds of points, as bands."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from .style import INK, axes, colour, short, side

_BAR = 0.05  # width of the bars at both ends, of the distance between them
_GAP = 0.02  # between kinds, of all mass
_ROOM, _LONGEST = 0.85, 17  # for the names at both sides, and how many letters of them fit there
_LEAST = 1e-3  # bands of less mass are not drawn


def flow(result: Any, ax: Axes | None = None, *, least: float = _LEAST) -> Axes:
    """Which kinds of points are matched to which: bands as wide as the mass, the darker the farther it moves.

    Parameters
    ----------
    result : Flow, from `interpret.flow`
    least : bands of less mass are left out
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
        for x, starts, sizes, align in ((0.0, left, mass.sum(axis=1), "right"), (1.0, right, mass.sum(axis=0), "left")):
            for k, (start, size) in enumerate(zip(starts, sizes, strict=True)):
                if size < least:
                    continue
                ax.add_patch(Rectangle((x - _BAR / 2, start), _BAR, size, fc=colour(k), lw=0))
                place = x + _BAR * (1 if align == "left" else -1)
                text = short(result.values[k], _LONGEST)
                ax.text(place, start + size / 2, text, ha=align, va="center", fontsize=6.5, color=INK, parse_math=False)
        highest = max(left[-1] + mass[-1].sum(), right[-1] + mass[:, -1].sum())
        ax.set(xlim=(-_ROOM, 1.0 + _ROOM), ylim=(highest, 0.0), yticks=[])
        ax.set_xticks([0, 1], [short(result.source, 16), short(result.target, 16)], parse_math=False)
        ax.tick_params("x", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"mean distance {result.value:.3g}; {result.kept:.0%} stays with its kind")
        beside = ax.inset_axes((1.0 + 0.05 / side(ax), 0.05, 0.1 / side(ax), 0.9))
        bar = ax.figure.colorbar(mpl.cm.ScalarMappable(colours, shades), cax=beside, label="distance")
        bar.outline.set_visible(False)  # type: ignore[operator]
    return ax


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
