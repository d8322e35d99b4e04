"""Metrics on two features, as ellipses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from ..point_distances import Cost
from . import legends
from .style import INK, axes, colour, short
from .tables import metric_of


def ellipse(metrics: Any, ax: Axes | None = None, *, variances: Any = None) -> Axes:
    """The matrices M of metrics on two features as ellipses, scaled to a longest half axis of 1.

    A direction counts for as much as the ellipse is long; in the grey circle, all count the same. With the `variances`
    of the features it is in units of the data's spread, so that the features' own units do not matter.

    `metrics` is a metric, a learner, or a mapping of names to several.
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
