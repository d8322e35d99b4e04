"""Matrices as colours: distances between samples, confusion of labels, components of a metric."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import dendrogram
from sklearn.metrics import confusion_matrix

from .._internal.types import LabelsLike, Learned, MetricLike
from .._internal.validation import NameIndex, align_by_name, align_square_by_name, carries_names
from ..interpret.axes import average_linkage, component_weights, order_by_class
from . import style

if TYPE_CHECKING:
    from anndata import AnnData

_BAR, _GAP = 0.07, 0.03  # inches: width of a bar of labels, and its distance from the next one
_TREE = 0.14  # height of the tree, as a share of the matrix
_SMALLEST = 3.5  # smallest font size of names
_MOST_COMPONENTS = 10  # the metric of an ensemble may have as many components as features


@style.figure_docs
def heatmap(
    distances: ArrayLike | AnnData,
    y: LabelsLike | None = None,
    *,
    color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = None,
    order: str = "classes",
    palette: style.Palette = None,
    key: str = "groundmetric",
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
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
    title, items, label = "distance", "distributions", None
    if style.is_anndata(distances):
        samples: Any = distances
        items = "samples"
        style.check_samples(samples, key)
        matrix, title = style.distances_of(samples, key)
        columns: Any = y if color is None else color
        label = style.learned_label(samples, key)
        numbers = None if label is None else style.colouring(samples, label)
        if columns is None and isinstance(numbers, style.Numbers):
            groups, sort_by = {}, numbers.values
            items = f"samples, from low to high {label}"
        else:
            groups = _column_labellings(samples, label if columns is None else columns, palette)
            sort_by = next(iter(groups.values())).codes
        names = list(samples.obs_names) if names is True else names
    else:
        if np.ndim(distances) != 2 or np.shape(distances)[0] != np.shape(distances)[1]:
            raise ValueError(f"distances have shape {np.shape(distances)}: expected a square matrix")
        index = NameIndex.of(distances)
        matrix = np.asarray(align_square_by_name(distances, index, "distances"))
        groups = _named_labellings(y, index, palette)
        sort_by = next(iter(groups.values())).codes
        if names is True:
            names = list(index.names) if index.names is not None and carries_names(distances) else None
        elif carries_names(names):
            names = align_by_name(names, index, "names")
    texts: Any = None if names is False else names
    if texts is not None and len(texts) != len(matrix):
        raise ValueError(f"names has {len(texts)} entries for {len(matrix)} {items}: one is needed for each")
    with style.axes(ax) as ax:
        clustered = order == "clusters" and len(matrix) > 1
        rows = _draw_tree(ax, average_linkage(matrix)) if clustered else order_by_class(matrix, sort_by)
        between = matrix[~np.eye(len(matrix), dtype=bool)] if len(matrix) > 1 else matrix
        image = ax.imshow(matrix[np.ix_(rows, rows)], cmap=style.DISTANCE_CMAP, vmin=between.min(), vmax=between.max(),
                          interpolation="none")  # fmt: skip
        ax.set(xticks=[], yticks=[], frame_on=False)
        side = min(style.inches(ax))
        for k, classes in enumerate(groups.values()):
            _draw_bars(ax, classes, rows, k, side)
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
            entries = {f"{style.short(name, 16)}:": classes.boxes() for name, classes in groups.items()}
            style.legend_above(ax, entries, titles=len(groups) > 1, height=1.02 + _TREE if clustered else 1.0)
        figure: Any = ax.figure
        if texts is not None and hasattr(figure, "draw_without_rendering"):
            figure.draw_without_rendering()  # the layout of a square between long names needs two passes
    return style.finish(ax, show)


@style.figure_docs
def clustermap(
    distances: ArrayLike | AnnData,
    y: LabelsLike | None = None,
    *,
    color: str | Sequence[str] | None = None,
    names: Sequence[Hashable] | bool | None = True,
    palette: style.Palette = None,
    key: str = "groundmetric",
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
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


def _named_labellings(y: Any, index: NameIndex, palette: style.Palette) -> dict[str, style.Classes]:
    """Return labellings by title, each matched to the rows by name if it has names.

    A dict whose keys are the names of the rows is one labelling; any other dict maps titles to labellings. Colours of
    later labellings continue those of the first: a colour has one meaning.
    """
    by_row = isinstance(y, Mapping) and not any(np.ndim(value) or isinstance(value, Mapping) for value in y.values())
    groups: dict[str, style.Classes] = {}
    for title, values in (y if isinstance(y, Mapping) and not by_row else {"": y}).items():
        n_used = sum(map(len, groups.values()))
        labels = align_by_name(values, index, f"y[{title!r}]" if title else "y")
        groups[str(title)] = style.classes_of(labels, index.size, None if groups else palette, first=n_used)
    return groups


def _column_labellings(samples: Any, color: Any, palette: style.Palette) -> dict[str, style.Classes]:
    """Return the classes of one or several columns of `obs`, by their names."""
    groups: dict[str, style.Classes] = {}
    for name in [color] if color is None or isinstance(color, str) else color:
        classes = style.colouring(samples, name, None if groups else palette, sum(map(len, groups.values())))
        if isinstance(classes, style.Numbers):
            raise ValueError(f"adata.obs[{name!r}] holds numbers, but classes are needed: make it categorical")
        groups[str(name)] = classes
    return groups


def _draw_tree(ax: Axes, tree: np.ndarray) -> np.ndarray:
    """Draw a tree above the matrix; return the order of its leaves."""
    drawn = dendrogram(tree, no_plot=True)
    inset = ax.inset_axes((0.0, 1.01, 1.0, _TREE))
    lines = [np.column_stack(pair) for pair in zip(drawn["icoord"], drawn["dcoord"], strict=True)]
    inset.add_collection(LineCollection(lines, colors=style.INK, lw=0.5))
    # SciPy's leaves are 10 apart.
    inset.set(xlim=(0, 10 * len(drawn["leaves"])), ylim=(0, 1.05 * tree[-1, 2] or 1.0))
    inset.axis("off")
    return np.array(drawn["leaves"])


def _draw_bars(ax: Axes, classes: style.Classes, rows: np.ndarray, k: int, side: float) -> None:
    """Draw the k-th bars along the left and the lower side, a box for each run of a class."""
    codes, bar, gap = classes.codes[rows], _BAR / side, _GAP / side
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, size in zip(starts, np.diff([*starts, codes.size]), strict=True):
        look: dict[str, Any] = {"fc": classes.colours[codes[start]], "lw": 0, "clip_on": False}
        low, offset = start - 0.5, -(k + 1) * (bar + gap)
        ax.add_patch(Rectangle((offset, low), bar, size, transform=ax.get_yaxis_transform(), **look))
        ax.add_patch(Rectangle((low, offset), size, bar, transform=ax.get_xaxis_transform(), **look))


@style.figure_docs
def confusion(
    source: AnnData | LabelsLike,
    predicted: LabelsLike | Learned | None = None,
    *,
    key: str = "groundmetric",
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
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
    with style.axes(ax, 0.9 + 0.2 * len(names)) as ax:
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
    return style.finish(ax, show)


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


@style.figure_docs
def components(
    metric: MetricLike | AnnData,
    *,
    n: int = 20,
    key: str = "groundmetric",
    ax: Axes | None = None,
    show: bool | None = None,
) -> Axes:
    """Weights of the `n` most important features in each component, for features of equal spread.

    The squares of a feature's weights sum to its importance. A rotation of the components leaves the metric unchanged;
    they are rotated onto their principal axes: the first component has the largest possible share of the importance
    (given below it), and so on; at most ten are drawn. With Manhattan costs a rotation is another metric: components
    are shown as learned, sorted by importance.

    Parameters
    ----------
    {metric}
    n : int, default=20
        Number of features.
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> metric = gm.GroundMetric([[3.0, 0.0, 0.0], [0.0, 2.0, 1.0]], features=["ISG15", "MX1", "ACTB"])
    >>> ax = gm.pl.components(metric, n=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ISG15', 'MX1']
    """
    learned = style.metric_of(metric, key)
    names = style.feature_names(learned)
    weights, shares = (part[:_MOST_COMPONENTS] for part in component_weights(learned))
    top = np.argsort(-learned.importance(), kind="stable")[:n]
    with style.axes(ax, 0.5 + 0.105 * top.size) as ax:
        limit = np.abs(weights[:, top]).max() or 1.0
        look: dict[str, Any] = {"cmap": "PuOr_r", "aspect": "auto", "interpolation": "none"}
        image = ax.imshow(weights[:, top].T, vmin=-limit, vmax=limit, **look)
        style.name_rows(ax, [names[f] for f in top], style.fitting_size(ax, top.size))
        texts = [f"{k}\n{share:.0%}" for k, share in enumerate(shares, 1)]
        ax.set_xticks(np.arange(len(shares)), texts, fontsize=7 if len(shares) < 8 else 6)
        n_all = f", {len(shares)} of {learned.n_components}" if learned.n_components > _MOST_COMPONENTS else ""
        ax.set(xlabel=f"component (share of the importance{n_all})")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        style.add_colorbar(ax, image, "weight × spread")
    return style.finish(ax, show)
