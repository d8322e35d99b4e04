"""Maps of points and samples, and matrices: distances between samples, confusion of labels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.cluster.hierarchy import dendrogram
from sklearn.metrics import confusion_matrix

from .._internal.types import LabelsLike, Learned, MetricLike
from .._internal.validation import NameIndex, align_by_name, align_square_by_name, carries_names
from ..distributions import Distributions, as_distributions
from ..interpret.axes import average_linkage, metric_scaling, order_by_class, principal_axes, stress_of
from . import style

if TYPE_CHECKING:
    from anndata import AnnData

_ONE_AXIS = 0.95  # share of the variance from which the first principal axis is shown alone
_BAR, _GAP = 0.07, 0.03  # inches: width of a bar of labels, and its distance from the next one
_TREE = 0.14  # height of the tree, as a share of the matrix
_SMALLEST = 3.5  # smallest font size of names


@style.figure_docs
def points(
    D: Distributions, y: LabelsLike, *, features: Sequence[str | int] = (0, 1), n: int = 1000,
    palette: style.Palette = None, ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
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
    with style.axes(ax, show) as ax:
        _scatter(ax, xy.toarray() if sparse.issparse(xy) else xy, classes, D.sizes, n)
        ax.set(xlabel=names[columns[0]], ylabel=names[columns[1]])
    return ax


@style.figure_docs
def projection(
    metric: MetricLike, D: Distributions, y: LabelsLike, *, n: int = 1000, palette: style.Palette = None,
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
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
    names = [f"learned axis {k} ({100 * share:.3g}% of variance)" for k, share in enumerate(shares, 1)]
    with style.axes(ax, show) as ax:
        ax.set_xlabel(names[0])
        if shares.size == 1 or shares[0] >= _ONE_AXIS:
            codes, edges = np.repeat(classes.codes, D.sizes), np.histogram_bin_edges(z[:, 0], 60).tolist()
            for c, shade in enumerate(classes.colours):
                ax.hist(z[codes == c, 0], edges, histtype="stepfilled", fc=shade, alpha=0.3)
                ax.hist(z[codes == c, 0], edges, histtype="step", ec=shade, lw=1.0)
            ax.set_ylabel("points")
            ax.locator_params("x", nbins=6)
            style.legend_above(ax, classes.boxes(0.3))
        else:
            _scatter(ax, z, classes, D.sizes, n)
            ax.set_ylabel(names[1])
            ax.set_aspect("equal", adjustable="datalim")
    return ax


def _scatter(ax: Axes, xy: np.ndarray, classes: style.Classes, sizes: np.ndarray, n: int) -> None:
    """Draw at most `n` points with a legend; the random order prevents that one class covers another."""
    codes = np.repeat(classes.codes, sizes)
    rows = np.random.RandomState(0).permutation(codes.size)[:n]
    ax.scatter(xy[rows, 0], xy[rows, 1], s=3, c=[classes.colours[c] for c in codes[rows]], lw=0, alpha=0.8)
    style.legend_above(ax, classes.dots())


@style.figure_docs
def embedding(
    distances: ArrayLike | AnnData, y: LabelsLike | None = None, *, color: str | Sequence[str] | None = None,
    basis: str | None = None, train: LabelsLike | None = None, palette: style.Palette = None,
    key: str = "groundmetric", ax: Axes | Sequence[Axes] | np.ndarray | None = None, show: bool | None = None,
) -> Axes | list[Axes]:  # fmt: skip
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
        index = NameIndex(list(samples.obs_names), items="samples")
        train = style.entry(samples, "obs", train).to_numpy(dtype=bool) if isinstance(train, str) else train
        names = [colors] if isinstance(colors, str) or not colors else colors
        colourings = {name: style.colouring(samples, name, palette) for name in names}
        if basis is None and "X_umap" not in samples.obsm:
            xy, matrix = None, np.asarray(style.entry(samples, "obsp", f"{key}_distances"))
        else:
            basis = basis or "X_umap"
            if basis not in samples.obsm and f"X_{basis}" in samples.obsm:
                basis = f"X_{basis}"  # as scanpy names it
            xy, title = np.asarray(style.entry(samples, "obsm", basis))[:, :2], basis.removeprefix("X_").upper()
    else:
        index, shape = NameIndex.of(distances), np.shape(distances)
        if len(shape) != 2 or shape[1] not in (2, shape[0]):
            expected = "a square matrix, or positions of two columns"
            raise ValueError(f"distances have shape {shape}: expected {expected}")
        colourings = {"": style.classes_of(align_by_name(y, index, "y"), shape[0], palette)}
        if shape[0] == shape[1]:
            xy, matrix = None, np.asarray(align_square_by_name(distances, index, "distances"))
        else:
            xy, title = np.asarray(distances), "axis"
    stress = None
    if xy is None:
        xy, title = metric_scaling(matrix), "MDS axis"
        stress = stress_of(xy, matrix)
    filled, kinds = np.ones(len(xy), bool), []
    if train is not None:
        chosen: Any = np.asarray(align_by_name(train, index, "train")) if carries_names(train) else train
        filled[:] = False
        filled[chosen] = True
        kinds = [style.dot("training"), style.dot("test", face="none")]

    def draw(panel: Any, color: str, heading: list[Any]) -> Axes:
        with style.axes(panel, show and panel is None) as ax:
            shown = colourings[color]
            if isinstance(shown, style.Classes):
                for c, (colour, marker) in enumerate(zip(shown.colours, shown.markers, strict=True)):
                    # Later classes are smaller: if marks coincide, all are visible.
                    look: dict[str, Any] = {"s": (24, 17, 10)[c % 3], "marker": marker, "ec": colour, "lw": 0.9}
                    for chosen, face, kind in ((filled, colour, "filled"), (~filled, "none", "hollow")):
                        x, y = xy[chosen & (shown.codes == c)].T
                        ax.scatter(x, y, fc=face, gid=f"marks-{kind}-{c}", **look)
                style.legend_above(ax, [*heading, *shown.dots(shapes=True)], *([kinds] if kinds else []))
            else:
                cmap = mpl.colormaps[style.CMAP].with_extremes(bad=style.MISSING)
                marks = ax.scatter(xy[:, 0], xy[:, 1], c=shown, s=20, cmap=cmap, lw=0.9, plotnonfinite=True)
                shades = marks.to_rgba(shown)
                marks.set_edgecolor(shades.tolist())
                marks.set_facecolor(np.where(filled[:, None], shades, 0.0).tolist())
                style.add_colorbar(ax, marks, color)
                if kinds:
                    style.legend_above(ax, kinds)
            ax.set(xlabel=f"{title} 1", ylabel=f"{title} 2")
            ax.set_aspect("equal", adjustable="datalim")
            if stress is None:  # other positions have no unit
                ax.set(xticks=[], yticks=[])
            else:
                ax.locator_params(nbins=5 if style.inches(ax)[0] > 2 else 3)
                ax.text(0.99, 0.02, f"stress {stress:.2f}", transform=ax.transAxes, ha="right", fontsize=6, alpha=0.8)
        return ax

    if isinstance(colors, str):
        return draw(ax, colors, [])
    panels: Any = ax
    if ax is None:  # rows of three panels
        n_rows, n_columns = -(-len(colors) // 3), min(len(colors), 3)
        with mpl.rc_context(style.STYLE):
            figure = plt.figure(figsize=(3.3 * n_columns, 2.6 * n_rows), layout="constrained")
            panels = [figure.add_subplot(n_rows, n_columns, k + 1) for k in range(len(colors))]
    if np.size(panels) != len(colors):
        raise ValueError(f"ax has {np.size(panels)} axes for {len(colors)} colours: give one each, or None")
    drawn = [draw(panel, name, [style.heading(name)]) for panel, name in zip(np.ravel(panels), colors, strict=True)]
    if show:
        plt.show()
    return drawn


@style.figure_docs
def heatmap(
    distances: ArrayLike | AnnData, y: LabelsLike | None = None, *, color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = None, order: str = "classes", palette: style.Palette = None,
    key: str = "groundmetric", ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Distance matrix, with the classes as bars of colour along two sides.

    The colours range from the smallest to the largest distance between different samples, as in the report.

    Parameters
    ----------
    {distances}
    {labellings}
    order : {"classes", "clusters"}
        "classes" keeps each class of the first labelling together, with similar rows next to each other; "clusters" is
        the order of hierarchical clustering (average linkage), whose tree is drawn.
    {palette}
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
    title, items = "distance", "distributions"
    groups: dict[str, style.Classes] = {}
    sort_by: Any = None
    if style.is_anndata(distances):
        samples: Any = distances
        items = "samples"
        style.check_samples(samples, key)
        matrix = np.asarray(style.entry(samples, "obsp", f"{key}_distances"))
        if style.learned_entry(samples, key).get("out_of_bag", False):
            title = "out-of-bag distance"
        label = style.learned_label(samples, key)
        columns: Any = (label if y is None else y) if color is None else color
        for name in [columns] if columns is None or isinstance(columns, str) else columns:
            used = sum(len(classes.names) for classes in groups.values())
            classes = style.colouring(samples, name, None if groups else palette, used)
            if isinstance(classes, style.Classes):
                groups[str(name)] = classes
            elif y is None and color is None:
                sort_by, items = classes, f"samples, from low to high {label}"
            else:
                raise ValueError(f"adata.obs[{name!r}] holds numbers, but classes are needed: make it categorical")
        names = list(samples.obs_names) if names is True else names
    else:
        if np.ndim(distances) != 2 or np.shape(distances)[0] != np.shape(distances)[1]:
            raise ValueError(f"distances have shape {np.shape(distances)}: expected a square matrix")
        index = NameIndex.of(distances)
        matrix = np.asarray(align_square_by_name(distances, index, "distances"))
        # A dict whose keys are the names of the rows is one labelling; any other dict maps titles to labellings.
        by_title = isinstance(y, Mapping) and any(np.ndim(v) or isinstance(v, Mapping) for v in y.values())
        for name, values in (y if by_title else {"": y}).items():  # type: ignore[union-attr]
            used = sum(len(classes.names) for classes in groups.values())
            labels = align_by_name(values, index, f"y[{name!r}]" if name else "y")
            # Colours of later labellings continue those of the first: a colour has one meaning.
            groups[str(name)] = style.classes_of(labels, index.size, None if groups else palette, first=used)
        if names is True:
            names = list(index.names) if index.names is not None and carries_names(distances) else None
        elif carries_names(names):
            names = align_by_name(names, index, "names")
    texts: Any = None if names is False else names
    if texts is not None and len(texts) != len(matrix):
        raise ValueError(f"names has {len(texts)} entries for {len(matrix)} {items}: one is needed for each")
    with style.axes(ax, show) as ax:
        clustered = order == "clusters" and len(matrix) > 1
        if clustered:
            tree = average_linkage(matrix)
            leaves = dendrogram(tree, no_plot=True)
            rows = np.array(leaves["leaves"])
            inset = ax.inset_axes((0.0, 1.01, 1.0, _TREE))
            lines = [np.column_stack(pair) for pair in zip(leaves["icoord"], leaves["dcoord"], strict=True)]
            inset.add_collection(LineCollection(lines, colors=style.INK, lw=0.5))
            # SciPy's leaves are 10 apart.
            inset.set(xlim=(0, 10 * rows.size), ylim=(0, 1.05 * tree[-1, 2] or 1.0))
            inset.axis("off")
        else:
            rows = order_by_class(matrix, next(iter(groups.values())).codes if sort_by is None else sort_by)
        between = matrix[~np.eye(len(matrix), dtype=bool)] if len(matrix) > 1 else matrix
        image = ax.imshow(matrix[np.ix_(rows, rows)], cmap=style.DISTANCE_CMAP, vmin=between.min(), vmax=between.max(),
                          interpolation="none")  # fmt: skip
        ax.set(xticks=[], yticks=[], frame_on=False)
        side = min(style.inches(ax))
        bar, gap = _BAR / side, _GAP / side
        for k, classes in enumerate(groups.values(), 1):  # along the left and the lower side, a box per run of a class
            codes = classes.codes[rows]
            starts = np.flatnonzero(np.diff(codes, prepend=-1))
            for start, size in zip(starts, np.diff([*starts, codes.size]), strict=True):
                look: dict[str, Any] = {"fc": classes.colours[codes[start]], "lw": 0, "clip_on": False}
                low, offset = start - 0.5, -k * (bar + gap)
                ax.add_patch(Rectangle((offset, low), bar, size, transform=ax.get_yaxis_transform(), **look))
                ax.add_patch(Rectangle((low, offset), size, bar, transform=ax.get_xaxis_transform(), **look))
        if not groups:
            ax.set_ylabel(items)
        if texts is not None:
            pad = 72 * len(groups) * (_BAR + _GAP) + 2
            size = min(7.0, 0.8 * 72 * side / len(texts))  # legend and tree will take a part of the height
            if size < _SMALLEST:
                ax.set_ylabel(f"{len(texts)} {items}", labelpad=pad)
            else:
                shown = [style.short(texts[row], 20) for row in rows]
                ax.set_yticks(np.arange(len(rows)), shown, fontsize=size, parse_math=False)
                ax.tick_params("y", length=0, pad=pad)
        # In coordinates of the axes: the colour bar stays next to the matrix, which is always a square.
        style.add_colorbar(ax, image, title, ax.inset_axes((1.0 + _BAR / side, 0.05, 0.1 / side, 0.9)))
        if groups:
            headings = [[style.heading(name)] if len(groups) > 1 else [] for name in groups]
            entries = [[*h, *classes.boxes()] for h, classes in zip(headings, groups.values(), strict=True)]
            style.legend_above(ax, *entries, height=1.02 + _TREE if clustered else 1.0)
        figure: Any = ax.figure
        if texts is not None and hasattr(figure, "draw_without_rendering"):
            figure.draw_without_rendering()  # the layout of a square between long names needs two passes
    return ax


@style.figure_docs
def clustermap(
    distances: ArrayLike | AnnData, y: LabelsLike | None = None, *, color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = True, palette: style.Palette = None, key: str = "groundmetric",
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Distance matrix in the order of hierarchical clustering, with the tree and names.

    It is `heatmap` with ``order="clusters", names=True``.

    Parameters
    ----------
    {distances}
    {labellings}
    {palette}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> len(gm.pl.clustermap(gm.pairwise_distances(D), y).child_axes)  # tree and colour bar
    2
    """
    return heatmap(distances, y, color=color, names=names, order="clusters", palette=palette, key=key,
                   ax=ax, show=show)  # fmt: skip


@style.figure_docs
def confusion(
    source: AnnData | LabelsLike, predicted: LabelsLike | Learned | None = None, *, key: str = "groundmetric",
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Confusion matrix: numbers of samples by label (rows) and held-out predicted label (columns).

    Parameters
    ----------
    source : AnnData or array-like of shape (n,)
        `tl.samples` after an ensemble, with held-out predictions; or true labels.
    predicted : array-like of shape (n,), ensemble or None, default=None
        Predicted labels, matched to true labels by name if both have names (a Series, a dict); or a fitted ensemble or
        predictor, whose held-out predictions are taken: then `source` has the labels that it was fitted to, in the
        order of the distributions.
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.confusion(["ill", "ill", "well"], ["ill", "well", "well"])
    >>> [text.get_text() for text in ax.texts]
    ['1', '1', '0', '1']
    """
    true, guessed, held_out = _predictions(source, predicted, key)
    if len(true) != len(guessed) or not len(true):
        raise ValueError(f"{len(true)} true and {len(guessed)} predicted labels: one of each is needed per sample")
    categories = list(getattr(getattr(true, "cat", None), "categories", []))
    pair = np.asarray(true), np.asarray(guessed)
    if any(v.dtype.kind == "f" for v in pair) and not all(np.all(np.mod(v, 1) == 0) for v in pair):
        raise ValueError("labels are numbers with fractions, not classes: a confusion matrix needs classes")
    texts = [[str(label) for label in labels] for labels in pair]
    present = {*texts[0], *texts[1]}
    names = [str(value) for value in (categories or np.unique(pair[0]).tolist()) if str(value) in present]
    names += sorted(present.difference(names))
    counts = confusion_matrix(*texts, labels=names)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with style.axes(ax, show, 0.9 + 0.2 * len(names)) as ax:
        image = ax.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100, interpolation="none")
        size = style.fitting_size(ax, len(names), 8.0)
        for row, col in np.ndindex(counts.shape):
            shade = "white" if shares[row, col] > 0.55 else style.INK
            ax.text(col, row, str(counts[row, col]), ha="center", va="center", fontsize=size, color=shade)
        ticks = [style.short(name, 18) for name in names]
        style.name_rows(ax, ticks)
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        fits = max(map(len, ticks)) <= 30 / len(names)
        ax.set_xticks(np.arange(len(names)), ticks, parse_math=False, **({} if fits else slanted))  # type: ignore[arg-type]
        accuracy = np.mean([shares[c, c] for c in range(len(names)) if counts[c].any()])
        ax.set(xlabel=f"{'held-out prediction' if held_out else 'predicted'} (balanced accuracy {accuracy:.2f})")
        ax.set_ylabel("label")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        style.add_colorbar(ax, image, "share of the row (%)", shrink=0.9)
    return ax


def _predictions(source: Any, predicted: Any, key: str) -> tuple[Any, Any, bool]:
    """Return true and predicted labels, and whether predictions are known to be held out."""
    if style.is_anndata(source):
        style.check_samples(source, key)
        column = f"{key}_held_out"
        if column not in source.obs:
            raise ValueError(
                f"adata.obs has no {column!r}: only an ensemble makes held-out predictions; learn with one (tl.learn, "
                "method='ensemble'), or give true and predicted labels"
            )
        label = style.learned_label(source, key)
        if label is None:
            raise ValueError(f"uns[{key!r}] does not name the label that was learned: give true and predicted labels")
        predictions = source.obs[[label, column]].dropna()
        return predictions[label], predictions[column], True
    if predicted is None:
        raise ValueError("predicted is missing: give the predicted labels, or the ensemble that predicts them")
    ensemble = getattr(predicted, "ensemble_", predicted)
    held_out = hasattr(ensemble, "held_out_")
    if held_out:
        if not ensemble.classes_.size:
            raise ValueError("the ensemble predicts numbers, not classes: a confusion matrix needs classes")
        predicted = ensemble.classes_[ensemble.held_out_.argmax(axis=1)]
    predicted = align_by_name(predicted, NameIndex.of(source, items="true labels"), "predicted")
    if isinstance(source, Mapping):
        if not isinstance(predicted, list) and not carries_names(predicted):
            raise ValueError("true labels are a mapping by name, but predicted labels have no names: give both by name")
        source = list(source.values())
    return source, predicted, held_out
