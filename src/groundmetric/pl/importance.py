"""Importance of features: bars, components, intervals, scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..metrics.base import GroundMetric
from ..metrics.cost import Cost
from .data import entry, gene_names, is_anndata, metric_of, with_sign
from .style import INK, MISSING, axes, colour, row_size, short

_ROW = 0.105  # inches for a bar


def importance(
    metric: Any,
    ax: Axes | None = None,
    *,
    n: int = 20,
    intervals: Any = None,
    gene_symbols: str | None = None,
    key: str = "groundmetric",
) -> Axes:
    """The `n` most important features, with their shares of the importance.

    Parameters
    ----------
    metric : a GroundMetric or a learner; a mapping (or Series) of names to shares; or AnnData with
        `var["<key>_importance"]`
    intervals : lower and upper ends, (2, n_features), in the order of the features, drawn as whiskers; for AnnData also
        two columns of `var`
    gene_symbols : for AnnData, the column of `var` with the names to show
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


_COMPONENT_ROW = 0.105  # inches for a feature


def components(
    metric: Any, ax: Axes | None = None, *, n: int = 20, gene_symbols: str | None = None, key: str = "groundmetric"
) -> Axes:
    """The weights of the `n` most important features in each component, in units of the features' spread.

    Rotating the components leaves the metric as it is, so that they are turned onto their principal axes first: the
    first component accounts for as much of the importance as one can (its share is given below it), and so on. With
    Manhattan costs a rotation is another metric: then they are shown as they were learned, the strongest first.

    Parameters
    ----------
    metric : a GroundMetric or a learner, or AnnData with `varm["<key>_components"]` and `var["<key>_importance"]`
    gene_symbols : for AnnData, the column of `var` with the names to show
    """
    weights, names, may_turn = _weights(metric, gene_symbols, key)
    turned, shares = principal_components(weights) if may_turn else _by_strength(weights)
    top = np.argsort(-np.sum(weights**2, axis=0), kind="stable")[:n]
    with axes(ax, 0.5 + _COMPONENT_ROW * top.size) as ax:
        limit = np.abs(turned[:, top]).max() or 1.0
        image = ax.imshow(turned[:, top].T, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
        letters = np.clip(0.75 * row_size(ax, top.size), 3.0, 7.0)
        ax.set_yticks(np.arange(top.size), [short(names[f], 28) for f in top], parse_math=False, fontsize=letters)
        ax.set_xticks(np.arange(len(shares)), [f"{k}\n{share:.0%}" for k, share in enumerate(shares, 1)])
        ax.set(xlabel="component (share of the importance)")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, label="weight × spread", pad=0.03)
        bar.outline.set_visible(False)  # type: ignore[operator]
    return ax


def principal_components(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components turned onto their principal axes, and the share of the squared weights of each.

    >>> turned, shares = principal_components(np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]))
    >>> turned.round(3).tolist(), shares.round(3).tolist()
    ([[0.0, 2.449], [1.414, 0.0]], [0.75, 0.25])
    """
    _, sizes, axes = np.linalg.svd(weights, full_matrices=False)
    kept = sizes > 1e-9 * (sizes[0] or 1.0)
    kept[0] = True
    shares = sizes**2 / (np.sum(sizes**2) or 1.0)
    return (with_sign(axes.T).T * sizes[:, None])[kept], shares[kept]


def _by_strength(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The components as they are, and the share of the squared weights of each."""
    sizes = np.sum(weights**2, axis=1)
    order = np.argsort(-sizes, kind="stable")
    return weights[order], sizes[order] / (sizes.sum() or 1.0)


def _weights(source: Any, gene_symbols: str | None, key: str) -> tuple[np.ndarray, list[str], bool]:
    """Components for features of equal spread, (n_components, n_features): their squares sum to the importance.

    And the features' names, and whether a rotation of the components is the same metric.
    """
    may_turn = True
    if is_anndata(source):
        bare = np.asarray(entry(source, "varm", f"{key}_components"), dtype=float).T
        importance = np.asarray(entry(source, "var", f"{key}_importance"), dtype=float)
        names = gene_names(source, gene_symbols)
    else:
        metric = metric_of(source)
        bare, importance, may_turn = metric.components, metric.importance(), metric.cost is not Cost.MANHATTAN
        names = metric.features or [f"feature {k}" for k in range(metric.n_features)]
    lengths = np.sqrt(np.sum(bare**2, axis=0))
    scale = np.divide(np.sqrt(importance), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return bare * scale, names, may_turn


_INTERVAL_ROW = 0.115  # inches for a feature


def stability(result: Any, ax: Axes | None = None, *, n: int = 20, level: float = 0.05) -> Axes:
    """The `n` most important features with bootstrap intervals; grey, what exchanged labels give.

    Filled marks have a q-value below `level`; the text at the right is how often a feature is among the top in refits.

    Parameters
    ----------
    result : Stability, from `interpret.stability`
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
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
    return ax


_SCORE_ROW = 0.2  # inches for a number


def scores(
    rows: Mapping[str, Sequence[float | None]],
    ax: Axes | None = None,
    *,
    reference: float | None = None,
    name: str = "balanced accuracy",
) -> Axes:
    """A mark with a whisker for every row, the first in colour.

    Parameters
    ----------
    rows : name to (value, low, high); where low or high are None or NaN, there is no whisker
    reference : is drawn as a dashed line, e.g. the score of guessing
    name : of the numbers
    """
    if not rows:
        raise ValueError("rows are empty: at least one is needed")
    places = np.arange(len(rows))
    with axes(ax, 0.5 + _SCORE_ROW * len(rows)) as ax:
        if reference is not None:
            ax.axvline(reference, color=INK, lw=0.6, ls="--")
        for place, ends in zip(places, rows.values(), strict=True):
            value, low, high = (np.nan if end is None else float(end) for end in ends)
            shade = colour(0) if place == 0 else INK
            ax.plot([low, high], [place, place], color=shade, lw=1.3)
            ax.plot(value, place, "o", color=shade, ms=4.5, gid=f"score-{place}")
        ax.set_yticks(places, [short(each, 28) for each in rows], parse_math=False)
        ax.tick_params("y", length=0)
        ax.set(xlabel=name, ylim=(len(rows) - 0.5, -0.5))
    return ax
