"""Results of evaluation and interpretation: scores of methods, stability of features, flow between kinds of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from .style import INK, MISSING, Save, axes, colour, figure_docs, finish, row_size, short, text_width, width

if TYPE_CHECKING:
    from ..interpret.flows import Flow
    from ..interpret.stability import Stability

_INTERVAL_ROW, _SCORE_ROW = 0.115, 0.2  # inches for a feature, for a score
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
def stability(
    result: Stability,
    ax: Axes | None = None,
    *,
    n: int = 20,
    level: float = 0.05,
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """The `n` most important features with bootstrap intervals, and the range under permuted labels in grey.

    Marks are the importances as fitted; they are filled where the q-value is below `level`. The text at the right is
    the share of refits in which a feature is among the top. What `result` has no refits or permutations for is left
    out.

    Parameters
    ----------
    result : Stability
        Result of `interpret.stability`.
    {ax}
    n : int, default=20
        Number of features.
    level : float, default=0.05
        Level of the q-values.
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_rings(5, points=4, random_state=0)
    >>> learner = gm.GroundMetricLearner(n_components=2, max_epochs=3, random_state=0).fit(D, y)
    >>> found = gm.interpret.stability(learner, D, y, n_refits=3, n_permutations=0)
    >>> gm.pl.stability(found).get_xlabel()
    'share of the importance (%)'
    """
    top = np.argsort(-result.importance, kind="stable")[:n]
    rows, found = np.arange(top.size), result.discoveries
    with axes(ax, 0.8 + _INTERVAL_ROW * top.size) as ax:
        ends = 100 * result.importance[top]
        if len(result.null):
            low, high = 100 * np.quantile(result.null[:, top], [0.025, 0.975], axis=0)
            label = f"labels exchanged ({len(result.null)} times)"
            ax.hlines(rows, low, high, color=MISSING, lw=0.45 * row_size(ax, top.size), alpha=0.6, label=label)
            ends = np.maximum(ends, high)
        if len(result.refits):
            low, high = 100 * result.interval[:, top]
            ax.hlines(
                rows,
                low,
                high,
                color=colour(0),
                lw=1.0,
                label=f"{result.confidence:.0%} of {len(result.refits)} refits",
            )
            ends = np.maximum(ends, high)
        sure = np.zeros(top.size, bool) if found is None else found.q[top] < level
        for chosen, face, label in ((sure, colour(0), f"q < {level:g}"), (~sure, "white", f"q ≥ {level:g}")):
            if chosen.any():
                name = label if found is not None else "as fitted"
                x = 100 * result.importance[top][chosen]
                ax.plot(x, rows[chosen], "o", ms=3.5, mfc=face, mec=colour(0), mew=0.8, ls="none", label=name)
        letters = float(np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0))
        if len(result.refits):
            for row, share in zip(rows.tolist(), result.selected[top], strict=True):
                ax.text(1.0, float(row), f"{share:.0%}", transform=ax.get_yaxis_transform(), ha="right", va="center",
                        fontsize=min(6.0, letters), color=INK)  # fmt: skip
        ax.set_yticks(rows, [short(result.features[f], 28) for f in top], parse_math=False, fontsize=letters)
        ax.tick_params("y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set(xlabel="share of the importance (%)", xlim=(0, 1.15 * ends.max() or 1.0), ylim=(top.size - 0.5, -0.5))
        legend = ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
        for line in legend.get_lines():
            line.set_linewidth(min(line.get_linewidth(), 4.0))  # as wide as a row of few features, it hides its text
    return finish(ax, "stability", save, show)


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
