"""Samples (or other distributions) by their distances: marks in the plane, and the matrix as colours."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import dendrogram

from .._internal.types import LabelsLike
from .._internal.validation import NameIndex, align_by_name, align_square_by_name, carries_names
from ..interpret.axes import average_linkage, classical_scaling, order_by_class
from . import style as legends
from ._read import (
    as_samples,
    axis_names,
    basis_of,
    colouring,
    distances_of,
    entry,
    is_anndata,
    labels,
    learned_label,
)
from .style import (
    INK,
    MISSING,
    Classes,
    Numbers,
    Palette,
    Save,
    axes,
    classes_of,
    draw_panels,
    figure_docs,
    finish,
    short,
    side,
    width,
)

if TYPE_CHECKING:
    from anndata import AnnData

_MDS = ("MDS axis 1", "MDS axis 2")  # in units of the distance
_BAR, _GAP = 0.07, 0.03  # inches: width of a bar of labels, and of the space beside it
_TREE = 0.14  # height of the tree, as a share of the matrix
_SMALLEST = 3.5  # points of the smallest letters


@dataclass(frozen=True)
class Layout:
    """Positions in the plane and orders of distributions by their distances; each computed once, if asked."""

    distances: np.ndarray
    y: LabelsLike | None = None
    names: list[Hashable] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        name_index = NameIndex.of(self.distances)
        named = list(name_index.names) if name_index.names is not None and carries_names(self.distances) else None
        square = align_square_by_name(self.distances, name_index, "distances")
        object.__setattr__(self, "y", align_by_name(self.y, name_index, "y"))
        object.__setattr__(self, "distances", np.asarray(square))
        object.__setattr__(self, "names", named)

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """Positions in the plane by classical multidimensional scaling, (n, 2)."""
        return classical_scaling(self.distances)

    @functools.cached_property
    def by_class(self) -> np.ndarray:
        """Order that keeps each class together, and within it near ones beside each other, (n,)."""
        return order_by_class(self.distances, np.zeros(len(self.distances)) if self.y is None else self.y)

    @functools.cached_property
    def tree(self) -> np.ndarray:
        """Average linkage of all, whatever their class, as SciPy has it, (n - 1, 4)."""
        return average_linkage(self.distances)


@figure_docs
def embedding(
    distances: ArrayLike | Layout | AnnData,
    y: LabelsLike | None = None,
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
    *,
    color: str | Sequence[str] | None = None,
    basis: str | None = None,
    obsp: str | None = None,
    train: LabelsLike | None = None,
    palette: Palette = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes | list[Axes]:
    """Distributions in the plane, coloured by class (or, for AnnData, by a number).

    Parameters
    ----------
    distances : array of shape (n, n) or (n, 2), Layout or AnnData
        Distances, or their `interpret.Layout`: positions by classical multidimensional scaling; positions; or an
        AnnData with a row per sample (`tl.samples`), or of the cells after `tl.learn` by an ensemble.
    y : array-like of shape (n,)
        Labels; None: those of a Layout; for AnnData, see `color`. A Series or dict is matched by name to the rows of
        `distances` where that is a data frame.
    {panels}
    color : str, sequence of str or None
        For AnnData, the column of `obs`, or the gene, to colour by; several give a panel each. None: the label that was
        learned.
    basis : str or None
        For AnnData, the places in `obsm`; None: "X_umap", or else those of the distances.
    obsp : str or None
        For AnnData, the entry of `obsp`. None: "<key>_distances", which after an ensemble are out of bag between
        training samples.
    train : array-like, str or None
        Samples of the training set (a mask, row numbers, or a column of `obs`) are filled, the others hollow. A mask
        with names is matched by name.
    {palette_of_uns}
    {key}
    {end_of_panels}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> gm.pl.embedding(gm.pairwise_distances(D), y).get_xlabel()
    'MDS axis 1'
    """
    if not is_anndata(distances):
        name_index = _name_index(distances)
        place, names = _positions(distances)
        y = distances.y if y is None and isinstance(distances, Layout) else y
        coloured = classes_of(align_by_name(y, name_index, "y"), len(place), palette)
        drawn: Any = _map(ax, place, names, coloured, _mask(train, name_index), "")
        return finish(drawn, "embedding", save, show)
    samples = as_samples(distances, key)
    by: Any = y if color is None else color  # names of columns of `obs`
    by = learned_label(samples, key) if by is None else by
    place, names = _positions_of(samples, basis, key, obsp)
    train = entry(samples, "obs", train).to_numpy(dtype=bool) if isinstance(train, str) else train
    train = _mask(train, NameIndex(list(samples.obs_names), items="samples"))
    if isinstance(by, str) or not by:
        drawn = _map(ax, place, names, colouring(samples, by, palette), train, str(by))
    else:
        found = {name: colouring(samples, name, palette) for name in by}

        def panel(one: Axes, name: str) -> Axes:
            return _map(one, place, names, found[name], train, name, titled=True)

        drawn = draw_panels(panel, by, ax)
    return finish(drawn, "embedding", save, show)


def _map(
    ax: Any,
    place: np.ndarray,
    names: tuple[str, str],
    coloured: Classes | Numbers,
    train: Any,
    title: str,
    *,
    titled: bool = False,
) -> Axes:
    """One panel of marks, with its legend (after the title, where that is wanted) or colour bar."""
    with axes(ax) as ax:
        filled = np.zeros(len(place), bool)
        filled[slice(None) if train is None else train] = True
        kinds = [] if train is None else [legends.dot("training", face=INK), legends.dot("test", face="none")]
        if isinstance(coloured, Numbers):
            _draw_numbers(ax, place, coloured, filled, title)
            if kinds:
                legends.above(ax, kinds)
        else:
            _draw_classes(ax, place, coloured, filled)
            groups = [legends.dots(coloured, shapes=True), *([kinds] if kinds else [])]
            legends.above(ax, *groups, titles=[f"{short(title, 16)}:", *[""] * len(kinds)] if titled else None)
        _dress(ax, names)
    return ax


@figure_docs
def heatmap(
    distances: ArrayLike | Layout | AnnData,
    y: LabelsLike | None = None,
    ax: Axes | None = None,
    *,
    color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = None,
    order: str = "classes",
    obsp: str | None = None,
    palette: Palette = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """A distance matrix, with the classes as bars of colour along two sides.

    Parameters
    ----------
    distances : array of shape (n, n), Layout or AnnData
        Distances, or their `interpret.Layout`; or an AnnData with a row per sample (`tl.samples`), or of the cells
        after `tl.learn` by an ensemble.
    y : array-like of shape (n,) or dict
        Labels, or titles with several labellings, each of which gets a bar; None: those of a Layout; for AnnData, see
        `color`. A Series, or a dict of names to labels, is matched by name to the rows of `distances` where that is a
        data frame.
    {ax}
    color : str, sequence of str or None
        For AnnData, one or several columns of `obs`. None: the label that was learned; where that is a number, rows are
        in its order.
    names : sequence, True or None
        Names of the rows, shown where there is room for them; True takes those of `obs` of AnnData, or of the rows of a
        data frame.
    order : {"classes", "clusters"}
        "classes" keeps each class of the first labelling together, and near ones beside each other within it;
        "clusters" puts near ones beside each other whatever their class, and draws the tree (average linkage).
    {matrix}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> gm.pl.heatmap(gm.pairwise_distances(D), y).images[0].get_array().shape == (len(D), len(D))
    True
    """
    if order not in ("classes", "clusters"):
        raise ValueError(f"order is {order!r}: expected 'classes' or 'clusters'")
    found = _matrix_of(distances, y, color, names, obsp, palette, key)
    return finish(_draw_matrix(ax, found, order), "heatmap", save, show)


@figure_docs
def clustermap(
    distances: ArrayLike | Layout | AnnData,
    y: LabelsLike | None = None,
    ax: Axes | None = None,
    *,
    color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = True,
    obsp: str | None = None,
    palette: Palette = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """A distance matrix in the order of its hierarchical clustering (average linkage), with the tree and names.

    Parameters
    ----------
    distances : array of shape (n, n), Layout or AnnData
        As in `heatmap`.
    y : array-like of shape (n,) or dict
        Labels, or titles with several labellings, each of which gets a bar; for AnnData, see `color`. Labels with names
        are matched as in `heatmap`.
    {ax}
    color : str, sequence of str or None
        For AnnData, one or several columns of `obs`. None: the label that was learned.
    names : sequence, bool or None
        Names of the rows, shown where there is room for them; True takes those of `obs` for AnnData, or of the rows of
        a data frame; None or False: no names.
    {matrix}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> len(gm.pl.clustermap(gm.pairwise_distances(D), y).child_axes)  # tree and colour bar
    2
    """
    found = _matrix_of(distances, y, color, names, obsp, palette, key)
    return finish(_draw_matrix(ax, found, "clusters"), "clustermap", save, show)


class Matrix(NamedTuple):
    """Distances with their labellings, names of rows, and what these and the distances are called."""

    layout: Layout
    groups: dict[str, Classes]
    names: Sequence[Any] | None
    items: str
    title: str


def _matrix_of(source: Any, y: Any, color: Any, names: Any, obsp: str | None, palette: Palette, key: str) -> Matrix:
    if is_anndata(source):
        samples, color = as_samples(source, key), y if color is None else color
        distances, title = distances_of(samples, key, obsp)
        label = learned_label(samples, key)
        numbers = colouring(samples, label) if color is None and label is not None else None
        if isinstance(numbers, Numbers):  # rows in the order of the label, which has no classes to mark
            layout, groups = Layout(distances, numbers.values), {}
            items = f"samples, from low to high {label}"
        else:
            layout, items = Layout(distances), "samples"
            groups = _groups_of(samples, label if color is None else color, palette)
        names = list(samples.obs_names) if names is True else names
    else:
        name_index = _name_index(source)
        layout = source if isinstance(source, Layout) else Layout(source)
        if layout.distances.ndim != 2 or layout.distances.shape[0] != layout.distances.shape[1]:
            raise ValueError(f"distances have shape {layout.distances.shape}: expected a square matrix")
        groups = _groups(layout.y if y is None else y, name_index, palette)
        items, title = "distributions", "distance"
        names = (
            layout.names
            if names is True
            else align_by_name(names, name_index, "names")
            if carries_names(names)
            else names
        )
    names = None if names is False else names
    if names is not None and len(names) != len(layout.distances):
        raise ValueError(f"names has {len(names)} entries for {len(layout.distances)} {items}: one is needed for each")
    if layout.y is None:
        layout = Layout(layout.distances, next(iter(groups.values())).codes)
    return Matrix(layout, groups, names, items, title)


def _draw_matrix(ax: Axes | None, found: Matrix, order: str) -> Axes:
    layout, groups = found.layout, found.groups
    with axes(ax) as ax:
        clusters = layout.tree if order == "clusters" and len(layout.distances) > 1 else None
        rows = layout.by_class if clusters is None else _draw_tree(ax, clusters)
        image = ax.imshow(layout.distances[np.ix_(rows, rows)], cmap="viridis", interpolation="none", gid="distances")
        ax.set(xticks=[], yticks=[], frame_on=False)
        for k, classes in enumerate(groups.values()):
            _draw_bars(ax, classes, rows, k)
        if not groups:
            ax.set_ylabel(found.items)
        if found.names is not None:
            _name_rows(ax, [found.names[d] for d in rows], 72 * len(groups) * (_BAR + _GAP) + 2, found.items)
        # Inside of the axes' own frame of reference, so that it stays beside the matrix, which is always a square.
        beside = ax.inset_axes((1.0 + _BAR / side(ax), 0.05, 0.1 / side(ax), 0.9))
        bar = ax.figure.colorbar(image, cax=beside, label=found.title)
        bar.outline.set_visible(False)
        if groups:
            _add_legend(ax, groups, 1.0 if clusters is None else 1.02 + _TREE)
        figure: Any = ax.figure
        if found.names is not None and hasattr(figure, "draw_without_rendering"):
            figure.draw_without_rendering()  # a square between long names is laid out right the second time only
    return ax


def _name_index(given: Any) -> NameIndex:
    """Return the names of the rows of a table, or the number of rows."""
    return NameIndex(given.names, None, n=len(given.distances)) if isinstance(given, Layout) else NameIndex.of(given)


def _mask(train: Any, name_index: NameIndex) -> Any:
    """Return the mask (or row numbers) of training samples; a mask that carries names is matched by name."""
    return np.asarray(align_by_name(train, name_index, "train")) if carries_names(train) else train


def _positions(given: Any) -> tuple[np.ndarray, tuple[str, str]]:
    if isinstance(given, Layout):
        return given.positions, _MDS
    if np.ndim(given) == 2 and np.shape(given)[0] == np.shape(given)[1]:
        return Layout(given).positions, _MDS
    given = np.asarray(given)
    if given.ndim != 2 or given.shape[1] != 2:
        raise ValueError(f"distances have shape {given.shape}: expected a square matrix, or positions of two columns")
    return given, ("axis 1", "axis 2")


def _positions_of(samples: Any, basis: str | None, key: str, obsp: str | None) -> tuple[np.ndarray, tuple[str, str]]:
    found = basis_of(samples, basis, () if obsp is not None else ("X_umap",))
    if found is None:
        return Layout(distances_of(samples, key, obsp)[0]).positions, _MDS
    return np.asarray(entry(samples, "obsm", found))[:, :2], axis_names(found)


def _draw_classes(ax: Axes, positions: np.ndarray, classes: Classes, filled: np.ndarray) -> None:
    for c, (colour, marker) in enumerate(zip(classes.colours, classes.markers, strict=True)):
        # Later classes are smaller: where marks coincide, all are seen.
        look: dict[str, Any] = {"s": (24, 17, 10)[c % 3], "marker": marker, "ec": colour, "lw": 0.9}
        for chosen, face, kind in ((filled, colour, "filled"), (~filled, "none", "hollow")):
            x, up = positions[chosen & (classes.codes == c)].T
            # The name is the id of an SVG's group: a page finds the marks there, in the order of the samples.
            ax.scatter(x, up, fc=face, gid=f"marks-{kind}-{c}", **look)


def _draw_numbers(ax: Axes, positions: np.ndarray, numbers: Numbers, filled: np.ndarray, label: str) -> None:
    colours = mpl.colormaps["viridis"].with_extremes(bad=MISSING)
    marks = ax.scatter(
        positions[:, 0], positions[:, 1], c=numbers.values, s=20, cmap=colours, lw=0.9, plotnonfinite=True
    )
    marks.set_gid("marks")
    shades = marks.to_rgba(numbers.values)
    marks.set_edgecolor(shades.tolist())
    marks.set_facecolor(np.where(filled[:, None], shades, 0.0).tolist())
    bar = ax.figure.colorbar(marks, ax=ax, label=label, pad=0.03)
    bar.ax.set_gid("legend")
    bar.outline.set_visible(False)


def _dress(ax: Axes, names: tuple[str, str]) -> None:
    """Equal scales; ticks only where the axes have units, and only as many as have room."""
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_aspect("equal", adjustable="datalim")
    if names is _MDS:
        ax.locator_params(nbins=5 if width(ax) > 2 else 3)
    else:
        ax.set(xticks=[], yticks=[])


def _groups(y: Any, name_index: NameIndex, palette: Palette) -> dict[str, Classes]:
    """Return labellings by title, each matched to the rows by name where it carries names.

    A dict whose keys are the names of the rows is one labelling; any other dict maps titles to labellings. Later
    labellings continue with other colours, so that no colour has two meanings.
    """
    by_row = isinstance(y, Mapping) and not any(np.ndim(each) or isinstance(each, Mapping) for each in y.values())
    groups: dict[str, Classes] = {}
    for title, given in (y if isinstance(y, Mapping) and not by_row else {"": y}).items():
        used = sum(map(len, groups.values()))
        labels = align_by_name(given, name_index, f"y[{title!r}]" if title else "y")
        groups[str(title)] = classes_of(labels, name_index.size, None if groups else palette, first=used)
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
        low, offset = start - 0.5, -(k + 1) * (bar + gap)
        ax.add_patch(Rectangle((offset, low), bar, size, transform=ax.get_yaxis_transform(), **look))
        ax.add_patch(Rectangle((low, offset), size, bar, transform=ax.get_xaxis_transform(), **look))


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
