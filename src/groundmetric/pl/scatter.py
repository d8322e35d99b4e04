"""Scatter plots: points of distributions, cells, and samples by their distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy import sparse

from .._internal.types import LabelsLike, MetricLike
from .._internal.validation import NameIndex, align_by_name, align_square_by_name, carries_names
from ..distributions import Distributions, as_distributions
from ..interpret.axes import metric_scaling, principal_axes, stress_of
from . import style

if TYPE_CHECKING:
    from anndata import AnnData

_ONE_AXIS = 0.95  # share of the variance from which the first principal axis is shown alone
_NUMBERED = 8  # largest number of classes without numbers: more colours look alike


@style.figure_docs
def points(
    D: Distributions,
    y: LabelsLike,
    *,
    features: Sequence[str | int] = (0, 1),
    n: int = 1000,
    palette: style.Palette = None,
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
    """Scatter plot of the points of all distributions along two features, coloured by class.

    Parameters
    ----------
    {points}
    features : pair of int or str, default=(0, 1)
        Features along the horizontal and the vertical axis, by number or name.
    n : int, default=1000
        Largest number of points that are drawn: a random choice, the same in every call.
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
    classes = style.classes_of(align_by_name(y, D.name_index, "y"), len(D), palette)
    names = D.features or [f"feature {k}" for k in range(D.shape[1])]
    columns = style.two_features(names, features)
    xy = D.points[:, columns]
    with style.axes(ax) as ax:
        _scatter(ax, xy.toarray() if sparse.issparse(xy) else xy, classes, D.sizes, n)
        ax.set(xlabel=names[columns[0]], ylabel=names[columns[1]])
    return style.finish(ax, show)


@style.figure_docs
def projection(
    metric: MetricLike,
    D: Distributions,
    y: LabelsLike,
    *,
    n: int = 1000,
    palette: style.Palette = None,
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
    """Scatter plot of points in the learned space along its principal axes, coloured by class.

    A rotation of the components leaves the metric unchanged, so single components have no meaning, but the principal
    axes of the projected points do. If the first axis has at least 95 % of the variance, a histogram along it is
    drawn.

    Parameters
    ----------
    metric : GroundMetric or learner
        Metric, or fitted learner, that projects the points.
    {points}
    n : int, default=1000
        Largest number of points of a scatter plot: a random choice, the same in every call. A histogram counts all.
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
    classes = style.classes_of(align_by_name(y, D.name_index, "y"), len(D), palette)
    z, shares = principal_axes(style.metric_of(metric).project(D))
    with style.axes(ax) as ax:
        ax.set_xlabel(style.axis_name(ax, 1, shares[0]))
        if shares.size == 1 or shares[0] >= _ONE_AXIS:
            codes, edges = np.repeat(classes.codes, D.sizes), np.histogram_bin_edges(z[:, 0], 60).tolist()
            for c, shade in enumerate(classes.colours):
                ax.hist(z[codes == c, 0], edges, histtype="stepfilled", fc=shade, alpha=0.3)
                ax.hist(z[codes == c, 0], edges, histtype="step", ec=shade, lw=1.0)
            ax.set_ylabel("points")
            ax.locator_params("x", nbins=6)
            style.legend_above(ax, {"": classes.boxes(0.3)})
        else:
            _scatter(ax, z, classes, D.sizes, n)
            ax.set_ylabel(style.axis_name(ax, 2, shares[1]))
            ax.set_aspect("equal", adjustable="datalim")
    return style.finish(ax, show)


def _scatter(ax: Axes, xy: np.ndarray, classes: style.Classes, sizes: np.ndarray, n: int) -> None:
    """Draw at most `n` points with a legend; the random order prevents that one class covers another."""
    codes = np.repeat(classes.codes, sizes)
    rows = np.random.RandomState(0).permutation(codes.size)[:n]
    ax.scatter(xy[rows, 0], xy[rows, 1], s=3, c=[classes.colours[c] for c in codes[rows]], lw=0, alpha=0.8)
    style.legend_above(ax, {"": classes.dots()})


@style.figure_docs
def cells(
    adata: AnnData,
    *,
    color: str | Sequence[str] | None = None,
    basis: str | None = None,
    palette: style.Palette = None,
    key: str = "groundmetric",
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
    show: bool | None = None,
) -> Axes | list[Axes]:
    """Scatter plot of cells, coloured by condition, cell type, a number, or the expression of a gene.

    More than 8 classes are numbered, in the legend and on the map. If the first principal axis of the learned space has
    at least 95 % of the variance, cells are drawn along it, with a row for each class.

    Parameters
    ----------
    adata : AnnData
        Cells, e.g. after `tl.learn`.
    color : str, sequence of str or None, default=None
        Column of `obs` or a gene; several give a panel each. None: the label that was learned.
    basis : str or None, default=None
        Coordinates in `obsm`; None: "X_umap", or else the principal axes of the learned space,
        `obsm["X_<key>"]`.
    {palette}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(2, 20, 150, random_state=0)
    >>> adata.obsm["X_umap"] = adata.X[:, :2].toarray()
    >>> gm.pl.cells(adata, color="cell_type").get_xlabel()
    'UMAP 1'
    """
    colors: Any = style.learned_label(adata, key) if color is None else color
    name = style.basis_of(adata, basis, ("X_umap", f"X_{key}"))
    if name is None:
        raise ValueError(f"adata.obsm has neither 'X_umap' nor 'X_{key}': name a basis of {sorted(adata.obsm.keys())}")
    xy = np.asarray(style.entry(adata, "obsm", name))
    axes: Any = style.axis_names(name)
    if name == f"X_{key}":
        xy, axes = principal_axes(xy)
    colourings = style.colourings(adata, colors, palette)
    size = np.array([_cells_size(colouring) for colouring in colourings.values()]).max(axis=0)
    drawn = style.draw_panels(lambda panel, c: _draw_cells(panel, xy, axes, colourings[c], c), colors, ax, size)
    return style.finish(drawn, show)


def _cells_size(colouring: style.Classes | style.Numbers) -> tuple[float, float]:
    """Return width and height of a figure, in inches, in which the legend fits to the right of the map."""
    if isinstance(colouring, style.Numbers):
        return 3.3, 2.6
    width = style.LETTER * 7 * max(len(style.short(name, 24)) for name in colouring.names) / 72
    numbered = len(colouring) > _NUMBERED
    return max(3.3, 2.9 + width) if numbered else 3.3, max(2.6, style.LEGEND_ROW * (len(colouring) + 2))


def _draw_cells(ax: Any, xy: np.ndarray, axes: Any, colouring: style.Classes | style.Numbers, title: str) -> Axes:
    """Draw one panel; `axes` are the names of the axes, or shares of the variance in the learned space."""
    learned = isinstance(axes, np.ndarray)
    one_axis = learned and (axes.size == 1 or axes[0] >= _ONE_AXIS)
    random = np.random.RandomState(0)  # the same figure in every run
    if one_axis:  # a row for each class, the first on top, in which cells are spread at random
        y = random.uniform(-0.4, 0.4, len(xy)) - (0 if isinstance(colouring, style.Numbers) else colouring.codes)
        xy = np.column_stack([xy[:, 0], y])
    order = random.permutation(len(xy))  # prevents that one class covers another
    x, y = xy[order, :2].T
    width, height = _cells_size(colouring)
    with style.axes(ax, height, width) as ax:
        look: dict[str, Any] = {"s": np.clip(6000 / x.size, 0.4, 8.0), "lw": 0, "rasterized": x.size > 5000}
        if isinstance(colouring, style.Numbers):
            marks = ax.scatter(x, y, c=colouring.values[order], cmap=style.CMAP, **look)
            style.add_colorbar(ax, marks, shrink=0.8)
        else:
            ax.scatter(x, y, c=np.array(colouring.colours)[colouring.codes[order]], **look)
            _legend_right(ax, xy, colouring)
        if one_axis:
            ax.spines["left"].set_visible(False)
        else:
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_ylabel(style.axis_name(ax, 2, axes[1]) if learned else axes[1])
        ax.set(xlabel=style.axis_name(ax, 1, axes[0]) if learned else axes[0], xticks=[], yticks=[], title=title)
    return ax


def _legend_right(ax: Axes, xy: np.ndarray, classes: style.Classes) -> None:
    """Add a legend to the right; more than 8 classes have numbers, which are also written on the map."""
    entries, numbered = classes.dots(), len(classes) > _NUMBERED
    for c, (handle, name) in enumerate(zip(entries, classes.names, strict=True)):
        handle.set_label(f"{c + 1} {style.short(name, 24)}" if numbered else style.short(name, 24))
        if numbered:
            x, y = np.median(xy[classes.codes == c, :2], axis=0)
            halo = [patheffects.withStroke(linewidth=1.5, foreground="white")]
            ax.text(x, y, str(c + 1), ha="center", va="center", fontsize=6, path_effects=halo)
    size = min(7.0, 0.7 * 72 * style.inches(ax)[1] / len(entries))
    n_columns = 1 if size >= 4 else 2
    ax.legend(handles=entries, ncols=n_columns, fontsize=min(7.0, size * n_columns), loc="center left",
              bbox_to_anchor=(1.0, 0.5), borderaxespad=0.5)  # fmt: skip


@style.figure_docs
def embedding(
    distances: ArrayLike | AnnData,
    y: LabelsLike | None = None,
    *,
    color: str | Sequence[str] | None = None,
    basis: str | None = None,
    train: LabelsLike | None = None,
    palette: style.Palette = None,
    key: str = "groundmetric",
    ax: Axes | Sequence[Axes] | np.ndarray | None = None,
    show: bool | None = None,
) -> Axes | list[Axes]:
    """Scatter plot of samples by their distances, coloured by class (or, for AnnData, by a number).

    Positions are those of metric multidimensional scaling, whose stress (0: all distances are exact) is written into
    the figure.

    Parameters
    ----------
    distances : array of shape (n, n) or (n, 2), or AnnData
        Distances; positions; or AnnData with a row per sample (`tl.samples`).
    y : array-like of shape (n,)
        Labels. A Series or dict is matched by name to the rows of `distances` if that is a data frame.
    color : str, sequence of str or None
        For AnnData, the column of `obs`, or the gene, to colour by; several give a panel each. None: the label that was
        learned.
    basis : str or None
        For AnnData, the positions in `obsm`; None: "X_umap", or else those of the distances.
    train : array-like, str or None
        Samples of the training set (a mask, row numbers, or a column of `obs`) are filled, the others hollow. A mask
        with names is matched by name.
    {palette}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> gm.pl.embedding(gm.pairwise_distances(D), y).get_xlabel()
    'MDS axis 1'
    """
    colors: Any = ""
    if style.is_anndata(distances):
        samples: Any = distances
        style.check_samples(samples, key)
        colors = (style.learned_label(samples, key) if y is None else y) if color is None else color
        name = style.basis_of(samples, basis, ("X_umap",))
        matrix = style.distances_of(samples, key)[0] if name is None else None
        index = NameIndex(list(samples.obs_names), items="samples")
        train = style.entry(samples, "obs", train).to_numpy(dtype=bool) if isinstance(train, str) else train
        colourings = style.colourings(samples, colors, palette)
        if name is not None:
            xy, axes = np.asarray(style.entry(samples, "obsm", name))[:, :2], style.axis_names(name)
    else:
        index, shape = NameIndex.of(distances), np.shape(distances)
        if len(shape) != 2 or shape[1] not in (2, shape[0]):
            expected = "a square matrix, or positions of two columns"
            raise ValueError(f"distances have shape {shape}: expected {expected}")
        matrix = align_square_by_name(distances, index, "distances") if shape[0] == shape[1] else None
        colourings = {"": style.classes_of(align_by_name(y, index, "y"), shape[0], palette)}
        if matrix is None:
            xy, axes = np.asarray(distances), ("axis 1", "axis 2")
    stress = None
    if matrix is not None:
        xy, axes = metric_scaling(matrix), ("MDS axis 1", "MDS axis 2")
        stress = stress_of(xy, np.asarray(matrix))
    filled = np.ones(len(xy), bool)
    if train is not None:
        chosen: Any = np.asarray(align_by_name(train, index, "train")) if carries_names(train) else train
        filled[:] = False
        filled[chosen] = True
    kinds = [] if train is None else [style.dot("training", face=style.INK), style.dot("test", face="none")]
    several = not isinstance(colors, str)

    def draw(ax: Any, color: str) -> Axes:
        return _draw_samples(ax, xy, axes, colourings[color], filled, kinds, color, several, stress)

    return style.finish(style.draw_panels(draw, colors, ax), show)


def _draw_samples(
    ax: Any, xy: np.ndarray, axes: tuple[str, str], colouring: style.Classes | style.Numbers, filled: np.ndarray,
    kinds: list[Any], title: str, titled: bool, stress: float | None,
) -> Axes:  # fmt: skip
    """Draw one panel, with the title in its legend if `titled`; `kinds` are legend entries of training and test set."""
    with style.axes(ax) as ax:
        groups: dict[str, Any] = {"": kinds} if kinds else {}
        if isinstance(colouring, style.Numbers):
            cmap = mpl.colormaps[style.CMAP].with_extremes(bad=style.MISSING)
            marks = ax.scatter(*xy.T, c=colouring.values, s=20, cmap=cmap, lw=0.9, plotnonfinite=True)
            shades = marks.to_rgba(colouring.values)
            marks.set_edgecolor(shades.tolist())
            marks.set_facecolor(np.where(filled[:, None], shades, 0.0).tolist())
            style.add_colorbar(ax, marks, title)
        else:
            for c, (colour, marker) in enumerate(zip(colouring.colours, colouring.markers, strict=True)):
                # Later classes are smaller: if marks coincide, all are visible.
                look: dict[str, Any] = {"s": (24, 17, 10)[c % 3], "marker": marker, "ec": colour, "lw": 0.9}
                for chosen, face, kind in ((filled, colour, "filled"), (~filled, "none", "hollow")):
                    ax.scatter(*xy[chosen & (colouring.codes == c)].T, fc=face, gid=f"marks-{kind}-{c}", **look)
            groups = {f"{style.short(title, 16)}:": colouring.dots(shapes=True), **groups}
        if groups:
            style.legend_above(ax, groups, titles=titled)
        ax.set(xlabel=axes[0], ylabel=axes[1])
        ax.set_aspect("equal", adjustable="datalim")
        if stress is None:  # other positions have no unit
            ax.set(xticks=[], yticks=[])
        else:
            ax.locator_params(nbins=5 if style.inches(ax)[0] > 2 else 3)
            ax.text(0.99, 0.02, f"stress {stress:.2f}", transform=ax.transAxes, ha="right", fontsize=6, alpha=0.8)
    return ax
