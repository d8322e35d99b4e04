"""A metric: importance of its features, weights of its components, its ellipse on two features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from ..interpret.axes import rotate_components
from ..metrics import GroundMetric
from ..metrics.base import Cost
from . import style as legends
from .style import INK, axes, colour, entry, gene_names, is_anndata, metric_of, row_size, short

_ROW = 0.105  # inches for a feature


def importance(
    metric: Any,
    ax: Axes | None = None,
    *,
    n: int = 20,
    intervals: Any = None,
    gene_symbols: str | None = None,
    key: str = "groundmetric",
) -> Axes:
    """Bars of the `n` most important features, with their shares of the importance.

    Parameters
    ----------
    metric : GroundMetric, learner, mapping or AnnData
        Metric, or fitted learner; mapping (or Series) of names to shares; or AnnData with `var["<key>_importance"]`.
    ax : matplotlib axes or None
        Axes to draw on; None: a new figure.
    n : int, default=20
        Number of features.
    intervals : array-like of shape (2, n_features) or None, default=None
        Lower and upper ends of the shares of all features, in their order, drawn as lines; for AnnData also the names
        of two columns of `var`.
    gene_symbols : str or None, default=None
        For AnnData, the column of `var` with the names to show; None: `var_names`.
    key : str, default="groundmetric"
        For AnnData, the `key_added` of `tl.learn`.

    Returns
    -------
    matplotlib axes
        What was drawn on.

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.importance({"ISG15": 0.7, "MX1": 0.2, "ACTB": 0.1}, n=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ISG15', 'MX1']
    """
    shares, names = _shares(metric, gene_symbols, key)
    top = np.argsort(-shares, kind="stable")[:n]
    with axes(ax, 0.5 + _ROW * top.size) as ax:
        rows, ends = np.arange(top.size), 100 * shares[top]
        bars = ax.barh(rows, ends, color=colour(0), height=0.7)
        if intervals is not None:
            low, high = 100 * _ends(metric, intervals, shares.size)[:, top]
            ax.hlines(rows, low, high, color=INK, lw=0.8, capstyle="butt")
            ends = np.maximum(ends, high)
        letters = np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0)
        for bar, share, end in zip(bars, shares[top], ends, strict=True):
            middle = bar.get_y() + bar.get_height() / 2
            text: dict[str, Any] = {"xytext": (2, 0), "textcoords": "offset points", "va": "center_baseline"}
            ax.annotate(f"{share:.2%}", (end, middle), fontsize=min(6.0, letters), **text)
        ax.set_yticks(rows, [short(names[f], 28) for f in top], parse_math=False, fontsize=letters)
        ax.tick_params("y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set(xlabel="share of the importance (%)", xlim=(0, 1.18 * ends.max() or 1.0))
        more = shares.size - top.size
        ax.set_ylim(
            top.size - 0.5 + (more > 0) * 10.0 / row_size(ax, top.size), -0.5
        )  # a line of text below the last bar
        if more:
            rest = f"the other {more:,}: {max(shares.sum() - shares[top].sum(), 0):.2%}"
            ax.text(1, 0, rest, transform=ax.transAxes, ha="right", va="bottom", fontsize=7)
    return ax


def components(
    metric: Any, ax: Axes | None = None, *, n: int = 20, gene_symbols: str | None = None, key: str = "groundmetric"
) -> Axes:
    """Weights of the `n` most important features in each component, for features of equal spread.

    The weights are scaled such that the squares of a feature's weights sum to its importance. Rotating the components
    leaves the metric as it is, so they are rotated onto their principal axes first: the first component accounts for as
    much of the importance as one can (its share is given below it), and so on. With Manhattan costs a rotation is
    another metric: then they are shown as they were learned, the strongest first.

    Parameters
    ----------
    metric : GroundMetric, learner or AnnData
        Metric, or fitted learner, or AnnData with `varm["<key>_components"]` and `var["<key>_importance"]`.
    ax : matplotlib axes or None
        Axes to draw on; None: a new figure.
    n : int, default=20
        Number of features.
    gene_symbols : str or None, default=None
        For AnnData, the column of `var` with the names to show; None: `var_names`.
    key : str, default="groundmetric"
        For AnnData, the `key_added` of `tl.learn`.

    Returns
    -------
    matplotlib axes
        What was drawn on.

    Examples
    --------
    >>> import groundmetric as gm
    >>> metric = gm.GroundMetric([[3.0, 0.0, 0.0], [0.0, 2.0, 1.0]], features=["ISG15", "MX1", "ACTB"])
    >>> ax = gm.pl.components(metric, n=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ISG15', 'MX1']
    """
    weights, names, may_rotate = _weights(metric, gene_symbols, key)
    rotated, shares = rotate_components(weights) if may_rotate else _by_strength(weights)
    top = np.argsort(-np.sum(weights**2, axis=0), kind="stable")[:n]
    with axes(ax, 0.5 + _ROW * top.size) as ax:
        limit = np.abs(rotated[:, top]).max() or 1.0
        image = ax.imshow(
            rotated[:, top].T, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
        )
        letters = np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0)
        ax.set_yticks(np.arange(top.size), [short(names[f], 28) for f in top], parse_math=False, fontsize=letters)
        ax.set_xticks(np.arange(len(shares)), [f"{k}\n{share:.0%}" for k, share in enumerate(shares, 1)])
        ax.set(xlabel="component (share of the importance)")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, label="weight × spread", pad=0.03)
        bar.outline.set_visible(False)  # type: ignore[operator]
    return ax


def ellipse(metrics: Any, ax: Axes | None = None, *, variances: Any = None) -> Axes:
    """Ellipses of the matrices M of metrics on two features, scaled to a longest half axis of 1.

    A direction weighs as much as the ellipse extends along it; for the grey circle, all directions weigh the same. With
    the `variances` of the features, weights are in units of the data's spread, so that the features' own units do not
    matter.

    Parameters
    ----------
    metrics : GroundMetric, learner or mapping
        Metric, or fitted learner, on two features; or a mapping of names to several, which are listed in a legend.
    ax : matplotlib axes or None
        Axes to draw on; None: a new figure.
    variances : array-like of shape (2,) or None, default=None
        Variances of the two features; None: weights are in the features' own units.

    Returns
    -------
    matplotlib axes
        What was drawn on.

    Examples
    --------
    >>> import groundmetric as gm
    >>> metric = gm.GroundMetric([[2.0, 0.0], [0.0, 1.0]], features=["ISG15", "MX1"])
    >>> gm.pl.ellipse(metric).get_xlabel()
    'ISG15 (relative weight)'
    """
    with axes(ax) as ax:
        named = metrics if isinstance(metrics, Mapping) else {"learned": metrics}
        spread, names = np.sqrt((1.0, 1.0) if variances is None else variances), ["feature 0", "feature 1"]
        ax.add_patch(Ellipse((0, 0), 2, 2, fc="none", ec=INK, lw=0.6, alpha=0.4))
        for k, (name, given) in enumerate(named.items()):
            metric = metric_of(given)
            if metric.n_features != 2:
                raise ValueError(f"metric {name!r} has {metric.n_features} features: an ellipse needs exactly two")
            if metric.cost is Cost.MANHATTAN:
                raise ValueError(f"metric {name!r} has Manhattan costs, and points at one distance are no ellipse")
            values, vectors = np.linalg.eigh(metric.matrix() * np.outer(spread, spread))
            minor, major = 2 * np.sqrt(np.maximum(values, 0.0) / (values[-1] or 1.0))
            angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
            ax.add_patch(Ellipse((0, 0), major, minor, angle=angle, fc="none", ec=colour(k), lw=1.3, label=name))
            names = metric.features or names
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        unit = "relative weight" if variances is None else "relative weight × spread"
        ax.set(xlabel=f"{short(names[0], 20)} ({unit})", ylabel=f"{short(names[1], 20)} ({unit})")
        lines = [Line2D([], [], color=colour(k), label=short(name)) for k, name in enumerate(named)]
        if isinstance(metrics, Mapping):
            legends.above(ax, lines, length=2.0)
    return ax


def _shares(source: Any, gene_symbols: str | None, key: str) -> tuple[np.ndarray, list[str]]:
    if is_anndata(source):
        return np.asarray(entry(source, "var", f"{key}_importance"), dtype=float), gene_names(source, gene_symbols)
    if hasattr(source, "items") and not isinstance(source, GroundMetric):
        found = dict(source.items())
        return np.array(list(found.values()), dtype=float), [str(name) for name in found]
    metric = metric_of(source)
    return metric.importance(), metric.features or [f"feature {k}" for k in range(metric.n_features)]


def _ends(source: Any, intervals: Any, size: int) -> np.ndarray:
    if is_anndata(source) and all(isinstance(name, str) for name in intervals):
        intervals = [entry(source, "var", name) for name in intervals]
    ends = np.asarray(intervals, dtype=float)
    if ends.shape != (2, size):
        raise ValueError(f"intervals have shape {ends.shape}: expected lower and upper ends of {size}, (2, {size})")
    return ends


def _by_strength(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The components as they are, and the share of the squared weights of each."""
    sizes = np.sum(weights**2, axis=1)
    order = np.argsort(-sizes, kind="stable")
    return weights[order], sizes[order] / (sizes.sum() or 1.0)


def _weights(source: Any, gene_symbols: str | None, key: str) -> tuple[np.ndarray, list[str], bool]:
    """Components for features of equal spread, (n_components, n_features): their squares sum to the importance.

    And the features' names, and whether a rotation of the components is the same metric.
    """
    may_rotate = True
    if is_anndata(source):
        bare = np.asarray(entry(source, "varm", f"{key}_components"), dtype=float).T
        importance = np.asarray(entry(source, "var", f"{key}_importance"), dtype=float)
        names = gene_names(source, gene_symbols)
    else:
        metric = metric_of(source)
        bare, importance, may_rotate = metric.components, metric.importance(), metric.cost is not Cost.MANHATTAN
        names = metric.features or [f"feature {k}" for k in range(metric.n_features)]
    lengths = np.sqrt(np.sum(bare**2, axis=0))
    scale = np.divide(np.sqrt(importance), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return bare * scale, names, may_rotate
