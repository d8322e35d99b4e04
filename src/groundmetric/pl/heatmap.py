"""Distances between distributions as a matrix of colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from scipy.cluster.hierarchy import dendrogram

from . import style as legends
from .data import arrange, entry, is_anndata, labels, tree
from .style import INK, Classes, Palette, axes, classes_of, short, side

_BAR, _GAP = 0.07, 0.03  # inches: width of a bar of labels, and of the space beside it
_TREE = 0.14  # height of the tree, as a share of the matrix
_SMALLEST = 3.5  # points of the smallest letters


def heatmap(
    distances: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    color: str | Sequence[str] | None = None,
    names: Sequence[Any] | None = None,
    order: str = "classes",
    palette: Palette = None,
    key: str = "groundmetric",
) -> Axes:
    """A distance matrix, with the classes as bars of colour along two sides.

    Parameters
    ----------
    distances : a square matrix, or AnnData with a row per sample and `obsp["<key>_distances"]`
    y : labels, or a mapping of titles to several labellings, each of which gets a bar; for AnnData, `color` names one
        or several columns of `obs`
    names : of the distributions, shown where there is room for them; for AnnData, True takes those of `obs`
    order : "classes" keeps each class of the first labelling together, and near ones beside each other within it
        (`arrange`); "clusters" puts near ones beside each other whatever their class, and draws the tree (average
        linkage)
    palette : colours by class, or in order, of the first labelling; None: as in `embedding`
    """
    if order not in ("classes", "clusters"):
        raise ValueError(f"order is {order!r}: expected 'classes' or 'clusters'")
    with axes(ax) as ax:
        items = "distributions"
        if is_anndata(distances):
            items, names = "samples", list(distances.obs_names) if names is True else names
            groups = _groups_of(distances, y if color is None else color, palette)
            distances = entry(distances, "obsp", f"{key}_distances")
        else:
            groups = _groups(y, len(distances), palette)
        distances, first = np.asarray(distances), next(iter(groups.values()))
        clusters = tree(distances) if order == "clusters" and len(distances) > 1 else None
        rows = arrange(distances, first.codes) if clusters is None else _draw_tree(ax, clusters)
        image = ax.imshow(distances[np.ix_(rows, rows)], cmap="viridis", interpolation="none", gid="distances")
        ax.set(xticks=[], yticks=[], frame_on=False)
        for k, classes in enumerate(groups.values()):
            _draw_bars(ax, classes, rows, k)
        if names is not None:
            _name_rows(ax, [names[d] for d in rows], 72 * len(groups) * (_BAR + _GAP) + 2, items)
        # Inside of the axes' own frame of reference, so that it stays beside the matrix, which is always a square.
        beside = ax.inset_axes((1.0 + _BAR / side(ax), 0.05, 0.1 / side(ax), 0.9))
        bar = ax.figure.colorbar(image, cax=beside, label="distance")
        bar.outline.set_visible(False)  # type: ignore[operator]
        _add_legend(ax, groups, 1.0 if clusters is None else 1.02 + _TREE)
    return ax


def _groups(y: Any, size: int, palette: Palette) -> dict[str, Classes]:
    """Labellings by title. Later ones go on with other colours, so that no colour has two meanings."""
    groups: dict[str, Classes] = {}
    for title, given in (y if isinstance(y, Mapping) else {"": y}).items():
        used = sum(map(len, groups.values()))
        groups[str(title)] = classes_of(given, size, None if groups else palette, first=used)
    return groups


def _groups_of(samples: Any, color: Any, palette: Palette) -> dict[str, Classes]:
    groups: dict[str, Classes] = {}
    for key in [color] if color is None or isinstance(color, str) else color:
        used = sum(map(len, groups.values()))
        groups[str(key)] = labels(samples, key, None if groups else palette, first=used)
    return groups


def _draw_tree(ax: Axes, clusters: np.ndarray) -> np.ndarray:
    """Draw a tree above the matrix; return the order of its leaves."""
    drawn = dendrogram(clusters, no_plot=True)
    above = ax.inset_axes((0.0, 1.01, 1.0, _TREE))
    lines = [np.column_stack(pair) for pair in zip(drawn["icoord"], drawn["dcoord"], strict=True)]
    above.add_collection(LineCollection(lines, colors=INK, lw=0.5))
    # A dendrogram's leaves are 10 apart.
    above.set(xlim=(0, 10 * len(drawn["leaves"])), ylim=(0, 1.05 * clusters[-1, 2] or 1.0))
    above.axis("off")
    return np.array(drawn["leaves"])


def _draw_bars(ax: Axes, classes: Classes, rows: np.ndarray, k: int) -> None:
    """The k-th bars along the left and the lower side, a box for each run of a class."""
    codes, bar, gap = classes.codes[rows], _BAR / side(ax), _GAP / side(ax)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, size in zip(starts, np.diff([*starts, codes.size]), strict=True):
        look: dict[str, Any] = {"fc": classes.colours[codes[start]], "lw": 0, "clip_on": False}
        low, place = start - 0.5, -(k + 1) * (bar + gap)
        ax.add_patch(Rectangle((place, low), bar, size, transform=ax.get_yaxis_transform(), **look))
        ax.add_patch(Rectangle((low, place), size, bar, transform=ax.get_xaxis_transform(), **look))


def _name_rows(ax: Axes, names: Sequence[Any], pad: float, items: str) -> None:
    letters = min(7.0, 0.8 * 72 * side(ax) / len(names))  # legend and tree will take some of the side
    if letters < _SMALLEST:
        ax.set_ylabel(f"{len(names)} {items}", labelpad=pad)
        return
    ax.set_yticks(np.arange(len(names)), [short(name, 20) for name in names], fontsize=letters, parse_math=False)
    ax.tick_params("y", length=0, pad=pad)


def _add_legend(ax: Axes, groups: Mapping[str, Classes], height: float) -> None:
    """The classes of all labellings; where there are several, each after its title."""
    titles = [f"{short(title, 16)}:" for title in groups] if len(groups) > 1 else None
    legends.above(ax, *(legends.boxes(classes) for classes in groups.values()), titles=titles, height=height)
