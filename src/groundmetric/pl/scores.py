"""Numbers with intervals, one below the other: scores of methods, shares of cell types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from .style import INK, axes, colour, short

_ROW = 0.2  # inches for a number


def scores(
    rows: Mapping[str, Sequence[float | None]],
    ax: Axes | None = None,
    *,
    reference: float | None = None,
    name: str = "balanced accuracy",
) -> Axes:
    """A mark with a whisker for every row, the first in colour.

    Parameters
    ----------
    rows : name to (value, low, high); where low or high are None or NaN, there is no whisker
    reference : is drawn as a dashed line, e.g. the score of guessing
    name : of the numbers
    """
    if not rows:
        raise ValueError("rows are empty: at least one is needed")
    places = np.arange(len(rows))
    with axes(ax, 0.5 + _ROW * len(rows)) as ax:
        if reference is not None:
            ax.axvline(reference, color=INK, lw=0.6, ls="--")
        for place, ends in zip(places, rows.values(), strict=True):
            value, low, high = (np.nan if end is None else float(end) for end in ends)
            shade = colour(0) if place == 0 else INK
            ax.plot([low, high], [place, place], color=shade, lw=1.3)
            ax.plot(value, place, "o", color=shade, ms=4.5, gid=f"score-{place}")
        ax.set_yticks(places, [short(each, 28) for each in rows], parse_math=False)
        ax.tick_params("y", length=0)
        ax.set(xlabel=name, ylim=(len(rows) - 0.5, -0.5))
    return ax
