"""Points in the plane, coloured by what is known of them: features, the learned space, cells of an AnnData."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy import sparse

from .._internal.types import LabelsLike, MetricLike
from .._internal.validation import NameIndex, align_by_name
from ..distributions import Distributions, as_distributions
from ..interpret.axes import principal_axes
from . import style as legends
from ._read import axis_names, basis_of, colouring, entry, is_anndata, learned_label, metric_of, two_features
from .style import (
    LEGEND_ROW,
    Classes,
    Numbers,
    Palette,
    Save,
    axes,
    axis_name,
    classes_of,
    draw_panels,
    figure_docs,
    finish,
)

if TYPE_CHECKING:
    from anndata import AnnData

_ONE_AXIS = 0.95  # share of the variance at which the first principal axis is shown alone
_NUMBERED = 8  # classes above which colours alone no longer do


@figure_docs
def points(
    D: Distributions,
    y: LabelsLike,
    ax: Axes | None = None,
    *,
    features: Sequence[str | int] = (0, 1),
    n: int = 1000,
    palette: Palette = None,
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Scatter plot of the points of all distributions along two features, coloured by class.

    Parameters
    ----------
    D : Distributions
        Distributions whose points are drawn.
    y : array-like of shape (n_distributions,)
        Class of each distribution.
    {ax}
    features : pair of int or str, default=(0, 1)
        Features along the horizontal and the vertical axis, by number or name.
    n : int, default=1000
        Points that are drawn at most: a random choice, the same in every call.
    {palette}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> gm.pl.points(D, y).get_xlabel()
    'signal'
    """
    D = as_distributions(D)
    classes = classes_of(align_by_name(y, D.name_index, "y"), len(D), palette)
    names = D.features or [f"feature {k}" for k in range(D.shape[1])]
    across, up = two_features(names, features)
    with axes(ax) as ax:
        xy = D.points[:, [across, up]]
        _scatter(ax, xy.toarray() if sparse.issparse(xy) else xy, classes, D.sizes, n)
        ax.set(xlabel=names[across], ylabel=names[up])
        legends.above(ax, legends.dots(classes))
    return finish(ax, "points", save, show)


@figure_docs
def projection(
    metric: MetricLike,
    D: Distributions,
    y: LabelsLike,
    ax: Axes | None = None,
    *,
    n: int = 1000,
    palette: Palette = None,
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Points in the learned space along its principal axes, coloured by class.

    Rotating the components leaves the metric as it is, so the single components have no meaning of their own, but the
    principal axes of the projected points do. Where the first has at least 95 % of the variance, a histogram of the
    points along it is drawn.

    Parameters
    ----------
    metric : GroundMetric or learner
        Metric, or fitted learner, that projects the points.
    D : Distributions
        Distributions whose points are drawn.
    y : array-like of shape (n_distributions,)
        Class of each distribution.
    {ax}
    n : int, default=1000
        Points of a scatter plot at most: a random choice, the same in every call. A histogram counts all.
    {palette}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> gm.pl.projection(gm.GroundMetric([[1.0, 0.0]]), D, y).get_xlabel()
    'learned axis 1 (100% of variance)'
    """
    D = as_distributions(D)
    classes = classes_of(align_by_name(y, D.name_index, "y"), len(D), palette)
    z, shares = principal_axes(metric_of(metric).project(D))
    with axes(ax) as ax:
        ax.set_xlabel(axis_name(ax, 1, shares[0]))
        if shares.size == 1 or shares[0] >= _ONE_AXIS:
            _counts(ax, z[:, 0], classes, D.sizes)
            legends.above(ax, legends.boxes(classes, 0.3))
        else:
            _scatter(ax, z, classes, D.sizes, n)
            ax.set_ylabel(axis_name(ax, 2, shares[1]))
            ax.set_aspect("equal", adjustable="datalim")
            legends.above(ax, legends.dots(classes))
    return finish(ax, "projection", save, show)


@figure_docs
def cells(
    adata: AnnData | ArrayLike,
    y: LabelsLike | None = None,
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
    *,
    color: str | Sequence[str] | None = None,
    basis: str | None = None,
    palette: Palette = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes | list[Axes]:
    """Cells in the plane, coloured by condition, cell type, a number, or the expression of a gene.

    More than 8 classes are numbered, in the legend and on the map. Where the first principal axis of the learned space
    has at least 95 % of the variance, cells are drawn along it, with a row for each class.

    Parameters
    ----------
    adata : AnnData or array of shape (n, 2)
        Cells; or their coordinates, with their labels `y`.
    y : array-like of shape (n,) or None, default=None
        Labels of the cells, for coordinates, matched by name where both carry names; for AnnData, what `color` is where
        that is None.
    {panels}
    color : str, sequence of str or None, default=None
        For AnnData, a column of `obs` or a gene; several give a panel each. None: the label that was learned.
    basis : str or None, default=None
        For AnnData, the coordinates in `obsm`; None: "X_umap", or else the principal axes of the learned space,
        `obsm["X_<key>"]`.
    {palette_of_uns}
    {key}
    {end_of_panels}

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.pl.cells([[0.0, 1.0], [2.0, 3.0], [4.0, 1.0]], ["T", "B", "T"]).get_xlabel()
    'axis 1'
    """
    if not is_anndata(adata):
        positions = np.asarray(adata, dtype=float)
        if positions.ndim != 2 or positions.shape[1] < 2:
            raise ValueError(f"adata has shape {positions.shape}: expected AnnData, or coordinates of two columns")
        name_index = NameIndex.of(adata, items="cells")
        coloured: Classes | Numbers = classes_of(
            align_by_name(y, name_index, "y"), len(positions), palette, items="cells"
        )
        drawn: Any = _panel(ax, Map(positions[:, :2], ("axis 1", "axis 2")), coloured, "")
        return finish(drawn, "cells", save, show)
    by: Any = y if color is None else color  # names of columns of `obs`
    by = learned_label(adata, key) if by is None else by
    map_ = _map_of(adata, basis, key)
    if isinstance(by, str) or not by:
        drawn = _panel(ax, map_, colouring(adata, by, palette), str(by))
    else:
        found = {name: colouring(adata, name, palette) for name in by}
        height = max(map(_height, found.values()))
        drawn = draw_panels(lambda one, name: _panel(one, map_, found[name], name), by, ax, height)
    return finish(drawn, "cells", save, show)


def _scatter(ax: Axes, xy: np.ndarray, classes: Classes, sizes: np.ndarray, n: int) -> None:
    """At most `n` of the points, the same in every run and mixed, so that no class lies on top of another."""
    codes = np.repeat(classes.codes, sizes)
    shown = np.random.RandomState(0).permutation(codes.size)[:n]
    ax.scatter(xy[shown, 0], xy[shown, 1], s=3, c=[classes.colours[c] for c in codes[shown]], lw=0, alpha=0.8)


def _counts(ax: Axes, values: np.ndarray, classes: Classes, sizes: np.ndarray) -> None:
    codes, edges = np.repeat(classes.codes, sizes), np.histogram_bin_edges(values, 60).tolist()
    for c, shade in enumerate(classes.colours):
        ax.hist(values[codes == c], edges, histtype="stepfilled", fc=shade, alpha=0.3)
        ax.hist(values[codes == c], edges, histtype="step", ec=shade, lw=1.0)
    ax.set_ylabel("points")
    ax.locator_params("x", nbins=6)


class Map(NamedTuple):
    """Places of cells, and the names of the axes, or their shares of the variance in the learned space."""

    positions: np.ndarray
    names: tuple[str, str] | None
    shares: np.ndarray | None = None

    @property
    def is_line(self) -> bool:
        return self.shares is not None and (self.shares.size == 1 or self.shares[0] >= _ONE_AXIS)


def _height(coloured: Classes | Numbers) -> float:
    """Inches that a legend beside the map needs."""
    return 0.0 if isinstance(coloured, Numbers) else LEGEND_ROW * (len(coloured) + 2)


def _map_of(adata: Any, basis: str | None, key: str) -> Map:
    found = basis_of(adata, basis, ("X_umap", f"X_{key}"))
    if found is None:
        raise ValueError(f"adata.obsm has neither 'X_umap' nor 'X_{key}': name a basis of {sorted(adata.obsm.keys())}")
    positions = np.asarray(entry(adata, "obsm", found))
    if found != f"X_{key}":
        return Map(positions[:, :2], axis_names(found))
    positions, shares = principal_axes(positions)
    return Map(positions, None, shares)


def _panel(ax: Any, map_: Map, coloured: Classes | Numbers, title: str) -> Axes:
    with axes(ax, _height(coloured), legend_above=False) as ax:
        random = np.random.RandomState(0)  # the same in every run
        x, up = (
            map_.positions[:, 0],
            _rows(coloured, len(map_.positions), random) if map_.is_line else map_.positions[:, 1],
        )
        order = random.permutation(len(x))  # mixed, so that no class lies on top of another
        look: dict[str, Any] = {"s": np.clip(6000 / x.size, 0.4, 8.0), "lw": 0, "rasterized": x.size > 5000}
        if isinstance(coloured, Numbers):
            marks = ax.scatter(x[order], up[order], c=coloured.values[order], cmap="viridis", **look)
            ax.figure.colorbar(marks, ax=ax, pad=0.03, shrink=0.8).outline.set_visible(False)
        else:
            ax.scatter(x[order], up[order], c=np.array(coloured.colours)[coloured.codes[order]], **look)
            legends.beside(ax, _handles(ax, np.column_stack([x, up]), coloured))
        _name_axes(ax, map_)
        ax.set(xticks=[], yticks=[], title=title)
    return ax


def _rows(coloured: Classes | Numbers, size: int, random: np.random.RandomState) -> np.ndarray:
    """Heights for cells on a line: a row for each class, with the first on top, and room for the cells in it."""
    return random.uniform(-0.4, 0.4, size) - (0 if isinstance(coloured, Numbers) else coloured.codes)


def _name_axes(ax: Axes, map_: Map) -> None:
    if map_.names is not None:
        ax.set(xlabel=map_.names[0], ylabel=map_.names[1])
    else:
        assert map_.shares is not None
        ax.set_xlabel(axis_name(ax, 1, map_.shares[0]))
        ax.set_ylabel("" if map_.is_line else axis_name(ax, 2, map_.shares[1]))
    if map_.is_line:
        ax.spines["left"].set_visible(False)
    else:
        ax.set_aspect("equal", adjustable="datalim")


def _handles(ax: Axes, positions: np.ndarray, classes: Classes) -> list[Any]:
    """Legend entries; where classes are many, with numbers, which are written on the map as well."""
    handles = legends.dots(classes)
    if len(classes) > _NUMBERED:
        halo = [patheffects.withStroke(linewidth=1.5, foreground="white")]
        for c, handle in enumerate(handles):
            x, up = np.median(positions[classes.codes == c], axis=0)
            ax.text(x, up, str(c + 1), ha="center", va="center", fontsize=6, path_effects=halo)
            handle.set_label(f"{c + 1} {handle.get_label()}")
    return handles
