"""Which features count, and how much."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..metric import GroundMetric
from .style import INK, axes, colour, row_size, short
from .tables import entry, gene_names, is_anndata, metric_of

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
