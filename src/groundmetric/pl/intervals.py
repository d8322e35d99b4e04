"""Importances with their intervals, beside what labels that say nothing would give."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .style import INK, MISSING, axes, colour, row_size, short

_ROW = 0.115  # inches for a feature


def stability(result: Any, ax: Axes | None = None, *, n: int = 20, level: float = 0.05) -> Axes:
    """The `n` most important features with bootstrap intervals; grey, what exchanged labels give.

    Filled marks have a q-value below `level`; the text at the right is how often a feature is among the top in refits.

    Parameters
    ----------
    result : Stability, from `interpret.stability`
    """
    top = np.argsort(-result.importance, kind="stable")[:n]
    rows, found = np.arange(top.size), result.discoveries
    with axes(ax, 0.8 + _ROW * top.size) as ax:
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
