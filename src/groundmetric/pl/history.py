"""The course of training."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from . import style as legends
from .data import entry, is_anndata
from .style import axes, colour, width


def history(record: Any, ax: Axes | None = None, *, key: str = "groundmetric") -> Axes:
    """Training by epoch: the loss relative to the first epoch's, and two shares.

    The shares are of the triplets within the margin, which pull, and of the solves that bounds made unnecessary.
    `record` is `learner.history_`, the learner, or AnnData with `uns[key]["history"]`.
    """
    with axes(ax) as ax:
        record = entry(record, "uns", key)["history"] if is_anndata(record) else getattr(record, "history_", record)
        loss, solved, saved, active = (np.asarray(record[name]) for name in ("loss", "solved", "saved", "active"))
        held_out = np.asarray(record.get("validation_loss", np.nan))
        epochs, first = np.arange(1, loss.size + 1), loss[0] or 1.0
        unit = f" (100% is the first epoch's {first:.3g})" if width(ax) > 2 else ""
        lines: list[tuple] = [(f"loss{unit}", loss / first, "-")]
        if np.isfinite(held_out).any():
            lines.append(("loss of held-out triplets", held_out / first, "-."))
        lines.append(("triplets within the margin", active, "--"))
        lines.append(("solves saved by bounds", saved / np.maximum(saved + solved, 1), ":"))
        drawn = []
        for k, (label, values, dashes) in enumerate(lines):
            drawn += ax.plot(epochs, 100 * values, color=colour(k), ls=dashes, label=label)
        ax.set(xlabel="epoch", ylabel="share (%)", xlim=(1, max(epochs[-1], 2)), ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        legends.above(ax, drawn, length=2.4)
    return ax
