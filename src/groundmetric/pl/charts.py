"""Charts of results: importance of features, ellipses of metrics, training, flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from .._internal.types import Learned, MetricLike
from ..interpret.axes import ellipse_axes
from ..metrics import GroundMetric
from ..metrics.base import Cost
from . import style

if TYPE_CHECKING:
    from anndata import AnnData

    from ..interpret import Flow

_LEAST = 1e-3  # smallest mass of a band or kind of points that is drawn in a flow
_END = 0.05  # width of the bars at both ends of a flow, relative to the distance between them


@style.figure_docs
def importance(
    metric: MetricLike | Mapping[str, float] | AnnData, *, n: int = 20, key: str = "groundmetric",
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Bars of the `n` most important features, with their shares of the importance.

    After an ensemble, lines show the range of the shares in 95% of its members.

    Parameters
    ----------
    metric : GroundMetric, learner, mapping or AnnData
        Metric, or fitted learner; mapping (or Series) of names to shares; or AnnData after `tl.learn`, whose genes of
        the metric are shown.
    n : int, default=20
        Number of features.
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.importance({"ISG15": 0.7, "MX1": 0.2, "ACTB": 0.1}, n=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ISG15', 'MX1']
    """
    shares, names, ends = _shares(metric, key)
    if n < 1 or not shares.size:
        raise ValueError(f"n is {n} of {shares.size} features: at least one bar is needed")
    top = np.argsort(-shares, kind="stable")[:n]
    with style.axes(ax, show, 0.5 + 0.105 * top.size) as ax:
        rows, tips = np.arange(top.size), 100 * shares[top]
        ax.barh(rows, tips, color=style.colour(0), height=0.7)
        if ends is not None:
            low, high = 100 * ends[:, top]
            ax.hlines(rows, low, high, color=style.INK, lw=0.8, capstyle="butt")
            tips = np.maximum(tips, high)
        size = style.fitting_size(ax, top.size)
        text: dict[str, Any] = {"xytext": (2, 0), "textcoords": "offset points", "va": "center_baseline"}
        for row, share, tip in zip(rows, shares[top], tips, strict=True):
            ax.annotate(f"{share:.2%}", (tip, row), fontsize=min(6.0, size), **text)
        style.name_rows(ax, [names[f] for f in top], size)
        ax.spines["left"].set_visible(False)
        ax.set(xlabel="share of the importance (%)", xlim=(0, 1.18 * tips.max() or 1.0))
        line = 0.0  # height of a line of text below the last bar
        if n_more := shares.size - top.size:
            line = 10.0 * top.size / (72 * style.inches(ax)[1])
            rest = f"the other {n_more:,}: {max(shares.sum() - shares[top].sum(), 0):.2%}"
            ax.text(1, 0, rest, transform=ax.transAxes, ha="right", va="bottom", fontsize=7)
        ax.set_ylim(top.size - 0.5 + line, -0.5)
    return ax


def _shares(source: Any, key: str) -> tuple[np.ndarray, list[str], np.ndarray | None]:
    """Return the importance of each feature of a metric, their names, and the ends of intervals, (2, n_features)."""
    column = f"{key}_importance"
    if style.is_anndata(source) and (column in source.var or "metric" not in style.learned_entry(source, key)):
        features = style.learned_entry(source, key).get("metric", {}).get("features", source.var_names)
        var = source.var[source.var_names.isin(list(map(str, features)))]
        values = style.entry(source, "var", column)[var.index].to_numpy(dtype=float)
        columns = [f"{column}_low", f"{column}_high"]  # of the members of an ensemble
        ends = var[columns].to_numpy(dtype=float).T if set(columns) <= {*var.columns} else None
        return values, list(map(str, var.index)), ends
    if hasattr(source, "items") and not isinstance(source, GroundMetric):
        items = dict(source.items())
        return np.array(list(items.values()), dtype=float), list(map(str, items)), None
    metric = style.metric_of(source, key)  # of AnnData: learned from an entry of obsm
    return metric.importance(), style.feature_names(metric), None


@style.figure_docs
def ellipse(
    metrics: MetricLike | AnnData | Mapping[str, MetricLike | AnnData], *,
    features: Sequence[str | int] | None = None, variances: ArrayLike | None = None, key: str = "groundmetric",
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Ellipses of the matrices M of metrics on two features, scaled to a longest half axis of 1.

    The extent of the ellipse along a direction is the weight of the direction; the grey circle weighs all directions
    equally. A metric on more than two features is restricted to points that differ in the two `features`.

    Parameters
    ----------
    metrics : GroundMetric, learner, AnnData or mapping
        Metric, fitted learner, or AnnData after `tl.learn`; or a mapping of names to metrics, which a legend lists.
    features : pair of str or int, or None, default=None
        The two features, by name or number. None: those of a metric on two.
    variances : array-like of shape (2,) or None, default=None
        Variances of the two features, which make weights independent of the features' units. None: for AnnData those of
        the training cells, else weights are in the features' own units.
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
    learned = {name: style.metric_of(metric, key) for name, metric in named.items()}
    planes = {}
    for name, metric in learned.items():
        names = style.feature_names(metric)
        if metric.cost is Cost.MANHATTAN:
            raise ValueError(f"metric {name!r} has Manhattan costs: points at one distance are not on an ellipse")
        if features is None and metric.n_features != 2:
            top = tuple(names[f] for f in np.argsort(-metric.importance(), kind="stable")[:2])
            problem = f"has {metric.n_features} features: an ellipse needs two; name them, e.g. features={top!r}"
            raise ValueError(f"metric {name!r} {problem}")
        planes[name] = [0, 1] if features is None else style.two_features(names, features)
    if variances is None and style.is_anndata(metrics) and learned["learned"].variances is not None:
        variances = learned["learned"].variances[planes["learned"]]
    spread = np.sqrt((1.0, 1.0) if variances is None else variances)
    with style.axes(ax, show) as ax:
        ax.add_patch(Ellipse((0, 0), 2, 2, fc="none", ec=style.INK, lw=0.6, alpha=0.4))
        for k, (name, metric) in enumerate(learned.items()):
            matrix = metric.matrix()[np.ix_(planes[name], planes[name])]
            major, minor, angle = ellipse_axes(matrix * np.outer(spread, spread))
            look: dict[str, Any] = {"fc": "none", "ec": style.colour(k), "lw": 1.3, "label": name}
            ax.add_patch(Ellipse((0, 0), 2 * major, 2 * minor, angle=angle, **look))
            names = [style.short(style.feature_names(metric)[f], 20) for f in planes[name]]
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        unit = "relative weight" if variances is None else "relative weight × spread"
        ax.set(xlabel=f"{names[0]} ({unit})", ylabel=f"{names[1]} ({unit})")
        if isinstance(metrics, Mapping):
            lines = [Line2D([], [], color=style.colour(k), label=style.short(name)) for k, name in enumerate(named)]
            style.legend_above(ax, lines, length=2.0)
    return ax


@style.figure_docs
def history(
    record: Learned | Mapping[str, Any] | AnnData, *, key: str = "groundmetric",
    ax: Axes | None = None, show: bool | None = None,
) -> Axes:  # fmt: skip
    """Training history: held-out scores of the views of an ensemble, or the epochs of a single learner.

    Of an ensemble: the held-out score of each view and of all together, against guessing (dashed). Of a single learner:
    the loss of held-out (`stopping`) and training triplets, with a mark at the selected epoch; without held-out
    triplets, the share of active triplets (within the margin), which alone contribute to the gradient.

    Parameters
    ----------
    record : learner, ensemble, mapping or AnnData
        Fitted learner or its `history_`; fitted ensemble or predictor; or AnnData after `tl.learn`.
    {key}
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> ax = gm.pl.history({"active": [0.9, 0.5]})
    >>> ax.lines[0].get_ydata().tolist()
    [90.0, 50.0]
    """
    views, epochs = None, record
    if style.is_anndata(record):
        results = style.entry(record, "uns", key)
        epochs, stored = results.get("history"), results.get("ensemble")
        if stored is not None:
            views = stored["views"], stored["score"], stored["chance"], "classes" in stored
    else:
        ensemble: Any = getattr(record, "ensemble_", record)
        epochs = getattr(record, "history_", record)
        if hasattr(ensemble, "chance_"):
            views = ensemble.fitted_.view_scores, ensemble.score_, ensemble.chance_, bool(ensemble.classes_.size)
    if views is not None:
        by_view, score, chance, of_classes = views
        scores = {"all views": score, **dict(sorted(by_view.items(), key=lambda item: -float(item[1])))}
        with style.axes(ax, show, 0.5 + 0.25 * len(scores)) as ax:
            line = ax.axvline(float(chance), color=style.INK, lw=0.6, ls="--", label="guessing")
            style.legend_above(ax, [line], length=2.4)
            for row, value in enumerate(map(float, scores.values())):
                shade = style.colour(0) if row == 0 else style.INK
                ax.plot([float(chance), value], [row, row], color=shade, lw=1.3)
                ax.plot(value, row, "o", color=shade, ms=4.5, gid=f"score-{row}")
            style.name_rows(ax, list(scores))
            ax.set_ylim(len(scores) - 0.5, -0.5)
            ax.set_xlabel(f"held-out {'log-probability' if of_classes else 'log-likelihood'} per sample")
        return ax
    if not isinstance(epochs, Mapping):
        raise TypeError(f"{type(record).__name__} has no history: give a fitted learner, its history_, or AnnData")
    if "active" not in epochs or not len(epochs["active"]):
        raise ValueError("the history has no epochs: it needs the share of active triplets of each, 'active'")
    held_out = np.asarray(epochs.get("validation_loss", np.nan), dtype=float)
    active = np.asarray(epochs["active"], dtype=float)
    numbers = np.arange(1, active.size + 1)
    with style.axes(ax, show) as ax:
        if np.isfinite(held_out).any():
            best = int(np.nanargmin(held_out))
            lines = ax.plot(numbers, held_out, color=style.colour(0), label="held-out")
            lines += ax.plot(numbers, np.asarray(epochs["loss"]), color=style.colour(1), ls="--", label="training")
            look: dict[str, Any] = {"color": style.colour(0), "ms": 4, "label": "selected", "clip_on": False}
            lines += ax.plot(best + 1, held_out[best], "o", **look)
            ax.set(ylabel="loss per triplet", ylim=(0, None))
            style.legend_above(ax, lines, length=2.4)
        else:
            ax.plot(numbers, 100 * active, color=style.colour(0))
            ax.set(ylabel="active triplets, within the margin (%)", ylim=(0, None))
            if active[-1] == 0.0:
                text = "training is complete:\nno triplet is within the margin"
                ax.text(0.98, 0.96, text, transform=ax.transAxes, ha="right", va="top", fontsize=7)
                ax.set_ylim(0, max(ax.get_ylim()[1], 10.0))  # a line at 0 alone gives no scale
        ax.set(xlabel="epoch", xlim=(1, max(active.size, 2)))
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    return ax


@style.figure_docs
def flow(result: Flow, *, ax: Axes | None = None, show: bool | None = None) -> Axes:
    """Flow of mass between kinds of points: bands as wide as the mass, darker for longer distances.

    Parameters
    ----------
    result : Flow
        Result of `interpret.flow`.
    {end}

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> result = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> gm.pl.flow(result).get_xlabel()
    'mean distance 0.75; 100% stays with its kind'
    """
    mass, distance = result.mass, result.distance
    shown = (mass >= _LEAST) & np.isfinite(distance)
    norm, cmap = Normalize(0.0, float(distance[shown].max(initial=0.0)) or 1.0), mpl.colormaps[f"{style.CMAP}_r"]
    heights = mass.sum(axis=1), mass.sum(axis=0)
    # Bars of the kinds start after gaps of 2 % of the mass, if there is any mass before them.
    left, right = (np.cumsum(h) - h + 0.02 * (np.cumsum(h > 0) - (h > 0)) for h in heights)
    # Bands are stacked in the same order at both ends: no two cross next to a bar.
    tops_left = left[:, None] + np.cumsum(mass, axis=1) - mass
    tops_right = right + np.cumsum(mass, axis=0) - mass
    with style.axes(ax, show) as ax:
        for r, c in np.argwhere(shown):
            tops = np.repeat([tops_left[r, c], tops_right[r, c]], 2)
            upper = list(zip((_END / 2, 0.5, 0.5, 1.0 - _END / 2), tops, strict=True))
            lower = [(x, y + mass[r, c]) for x, y in reversed(upper)]
            curve = [Path.CURVE4] * 3
            path = Path([*upper, *lower, upper[0]], [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY])
            ax.add_patch(PathPatch(path, fc=cmap(norm(distance[r, c])), ec="none", alpha=0.75))
        style.add_colorbar(ax, mpl.cm.ScalarMappable(norm, cmap), "distance", pad=0.02, shrink=0.9)
        names = [style.short(value, 20) for value in result.values]
        # Names at both sides take at most three quarters of the width (0.9 of the axes, before the layout).
        needed = (style.LETTER * 6.5 * max(map(len, names)) / 72 + 0.05) / (0.9 * style.inches(ax)[0])
        share = min(needed, 0.375)
        margin, size = share / (1.0 - 2.0 * share) + _END, 6.5 * share / needed
        for x, starts, sizes, side in ((0.0, left, heights[0], -1), (1.0, right, heights[1], 1)):
            for k in np.flatnonzero(sizes >= _LEAST).tolist():
                ax.add_patch(Rectangle((x - _END / 2, starts[k]), _END, sizes[k], fc=style.colour(k), lw=0))
                ax.text(x + side * _END, starts[k] + sizes[k] / 2, names[k], parse_math=False, va="center",
                        ha="left" if side == 1 else "right", fontsize=size, color=style.INK)  # fmt: skip
        lowest = max(left[-1] + heights[0][-1], right[-1] + heights[1][-1])
        ax.set(xlim=(-margin, 1.0 + margin), ylim=(lowest, 0.0), yticks=[])
        ax.set_xticks([0, 1], [style.short(result.source, 16), style.short(result.target, 16)], parse_math=False)
        ax.tick_params("x", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"mean distance {result.value:.3g}; {result.kept:.0%} stays with its kind")
    return ax
