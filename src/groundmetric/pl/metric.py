"""A metric: importance of its features, weights of its components, its ellipse on two features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from numpy.typing import ArrayLike

from .._internal.types import MetricLike
from ..interpret.axes import component_weights, ellipse_axes
from ..metrics import GroundMetric
from ..metrics.base import Cost
from . import style as legends
from ._read import entry, feature_names, is_anndata, metric_of, shares_of, two_features
from .style import INK, Save, axes, colour, figure_docs, finish, row_size, short

if TYPE_CHECKING:
    from anndata import AnnData

_ROW = 0.105  # inches for a feature
_MOST_COMPONENTS = 10  # that are drawn: those of an ensemble's metric may be as many as its features


@figure_docs
def importance(
    metric: MetricLike | Mapping[str, float] | AnnData,
    ax: Axes | None = None,
    *,
    n: int = 20,
    intervals: ArrayLike | None = None,
    gene_symbols: str | None = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Bars of the `n` most important features, with their shares of the importance.

    Parameters
    ----------
    metric : GroundMetric, learner, mapping or AnnData
        Metric, or fitted learner; mapping (or Series) of names to shares; or AnnData after `tl.learn`, of which the
        genes that were learned from are drawn and counted, and no others.
    {ax}
    n : int, default=20
        Number of features.
    intervals : array-like of shape (2, n_features), False or None, default=None
        Lower and upper ends of the shares of all features, in their order (or two Series, or a data frame, by the names
        of the features), drawn as lines; for AnnData also the names of two columns of `var`. None: for AnnData after an
        ensemble, between which 95% of its members lie; False: none.
    {gene_symbols}
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.importance({"ISG15": 0.7, "MX1": 0.2, "ACTB": 0.1}, n=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ISG15', 'MX1']
    """
    shares, names, intervals = shares_of(metric, intervals, gene_symbols, key)
    if n < 1 or not shares.size:
        raise ValueError(f"n is {n} of {shares.size} features: at least one bar is needed")
    top = np.argsort(-shares, kind="stable")[:n]
    with axes(ax, 0.5 + _ROW * top.size) as ax:
        rows, ends = np.arange(top.size), 100 * shares[top]
        bars = ax.barh(rows, ends, color=colour(0), height=0.7)
        if intervals is not None:
            low, high = 100 * intervals[:, top]
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
    return finish(ax, "importance", save, show)


@figure_docs
def components(
    metric: MetricLike | AnnData,
    ax: Axes | None = None,
    *,
    n: int = 20,
    gene_symbols: str | None = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Weights of the `n` most important features in each component, for features of equal spread.

    The weights are scaled such that the squares of a feature's weights sum to its importance. Rotating the components
    leaves the metric as it is, so they are rotated onto their principal axes first: the first component accounts for as
    much of the importance as one can (its share is given below it), and so on; ten are drawn at most. With Manhattan
    costs a rotation is another metric: then they are shown as they were learned, the strongest first.

    Parameters
    ----------
    metric : GroundMetric, learner or AnnData
        Metric, or fitted learner, or AnnData after `tl.learn`.
    {ax}
    n : int, default=20
        Number of features.
    {gene_symbols}
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
    found = metric_of(metric, key)
    names = _symbols(metric, found, gene_symbols)
    rotated, shares = (part[:_MOST_COMPONENTS] for part in component_weights(found))
    top = np.argsort(-found.importance(), kind="stable")[:n]
    with axes(ax, 0.5 + _ROW * top.size) as ax:
        limit = np.abs(rotated[:, top]).max() or 1.0
        image = ax.imshow(
            rotated[:, top].T, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
        )
        letters = np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0)
        ax.set_yticks(np.arange(top.size), [short(names[f], 28) for f in top], parse_math=False, fontsize=letters)
        texts = [f"{k}\n{share:.0%}" for k, share in enumerate(shares, 1)]
        ax.set_xticks(np.arange(len(shares)), texts, fontsize=7 if len(shares) < 8 else 6)
        some = (
            f", {len(shares)} of {found.n_components}" if len(shares) == _MOST_COMPONENTS < found.n_components else ""
        )
        ax.set(xlabel=f"component (share of the importance{some})")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, label="weight × spread", pad=0.03)
        bar.outline.set_visible(False)
    return finish(ax, "components", save, show)


@figure_docs
def ellipse(
    metrics: MetricLike | AnnData | Mapping[str, MetricLike | AnnData],
    ax: Axes | None = None,
    *,
    features: Sequence[str | int] | None = None,
    variances: ArrayLike | None = None,
    key: str = "groundmetric",
    save: Save = None,
    show: bool | None = None,
) -> Axes:
    """Ellipses of the matrices M of metrics on two features, scaled to a longest half axis of 1.

    A direction weighs as much as the ellipse extends along it; for the grey circle, all directions weigh the same. With
    the `variances` of the features, weights are in units of the data's spread, so that the features' own units do not
    matter. Of a metric on more features, two are named: the ellipse is then that of points that differ in these alone.

    Parameters
    ----------
    metrics : GroundMetric, learner, AnnData or mapping
        Metric, fitted learner, or AnnData after `tl.learn`; or a mapping of names to several, which are listed in a
        legend.
    {ax}
    features : pair of str or int, or None, default=None
        The two features, by name or number. None: those of a metric on two.
    variances : array-like of shape (2,) or None, default=None
        Variances of the two features. None: for AnnData those of the training cells, else weights are in the features'
        own units.
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> metric = gm.GroundMetric([[2.0, 0.0], [0.0, 1.0]], features=["ISG15", "MX1"])
    >>> gm.pl.ellipse(metric).get_xlabel()
    'ISG15 (relative weight)'
    """
    named = metrics if isinstance(metrics, Mapping) else {"learned": metrics}
    found = {name: metric_of(given, key) for name, given in named.items()}
    planes = {name: _plane(name, metric, features) for name, metric in found.items()}
    if variances is None and is_anndata(metrics) and found["learned"].variances is not None:
        variances = found["learned"].variances[planes["learned"]]
    spread = np.sqrt((1.0, 1.0) if variances is None else variances)
    with axes(ax) as ax:
        ax.add_patch(Ellipse((0, 0), 2, 2, fc="none", ec=INK, lw=0.6, alpha=0.4))
        for k, (name, metric) in enumerate(found.items()):
            matrix = metric.matrix()[np.ix_(planes[name], planes[name])]
            major, minor, angle = ellipse_axes(matrix * np.outer(spread, spread))
            look: dict[str, Any] = {"fc": "none", "ec": colour(k), "lw": 1.3, "label": name}
            ax.add_patch(Ellipse((0, 0), 2 * major, 2 * minor, angle=angle, **look))
            names = [feature_names(metric)[place] for place in planes[name]]
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        unit = "relative weight" if variances is None else "relative weight × spread"
        ax.set(xlabel=f"{short(names[0], 20)} ({unit})", ylabel=f"{short(names[1], 20)} ({unit})")
        lines = [Line2D([], [], color=colour(k), label=short(name)) for k, name in enumerate(named)]
        if isinstance(metrics, Mapping):
            legends.above(ax, lines, length=2.0)
    return finish(ax, "ellipse", save, show)


def _plane(name: str, metric: GroundMetric, features: Sequence[str | int] | None) -> list[int]:
    """Positions of the two features, or why there is no ellipse."""
    if metric.cost is Cost.MANHATTAN:
        raise ValueError(f"metric {name!r} has Manhattan costs, and points at one distance are no ellipse")
    names = feature_names(metric)
    if features is None:
        if metric.n_features != 2:
            first, second, *_ = [*(names[f] for f in np.argsort(-metric.importance(), kind="stable")[:2]), "", ""]
            raise ValueError(
                f"metric {name!r} has {metric.n_features} features: an ellipse needs exactly two; name them, e.g. "
                f"features=({first!r}, {second!r})"
            )
        return [0, 1]
    return list(two_features(names, features))


def _symbols(source: Any, metric: GroundMetric, gene_symbols: str | None) -> list[str]:
    """Names of the metric's features, or what a column of `var` calls them."""
    names = feature_names(metric)
    if gene_symbols is None or not is_anndata(source):
        return names
    called = entry(source, "var", gene_symbols)
    return [str(called[name]) if name in called.index else name for name in names]
