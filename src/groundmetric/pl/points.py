"""Points of all distributions, as they are and as a metric sees them; metrics on two features as ellipses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from scipy import sparse

from .._internal.alignment import aligned
from ..distributions import Distributions
from ..metrics.cost import Cost
from . import style as legends
from .data import ONE_AXIS, metric_of, principal_axes
from .style import INK, Classes, Palette, axes, axis_name, classes_of, colour, short


def points(
    D: Distributions, y: Any, ax: Axes | None = None, *, features: Any = (0, 1), n: int = 1000, palette: Palette = None
) -> Axes:
    """Points of all distributions along two features, coloured by class; at most `n` of them, always the same."""
    with axes(ax) as ax:
        classes = classes_of(aligned(y, D.roll, "y"), len(D), palette)
        xy = D.points[:, list(features)]
        names = D.features or [f"feature {k}" for k in range(D.shape[1])]
        _scatter(ax, xy.toarray() if sparse.issparse(xy) else xy, classes, D.sizes, n)
        ax.set(xlabel=names[features[0]], ylabel=names[features[1]])
        legends.above(ax, legends.dots(classes))
    return ax


def projection(
    metric: Any, D: Distributions, y: Any, ax: Axes | None = None, *, n: int = 1000, palette: Palette = None
) -> Axes:
    """Points in the space of a metric (or of a learner's) along its principal axes, coloured by class.

    Rotating the components leaves the metric as it is, so that only the principal axes mean something. Where the first
    has nearly all of the variance, the points are counted along it.
    """
    with axes(ax) as ax:
        classes = classes_of(aligned(y, D.roll, "y"), len(D), palette)
        z, shares = principal_axes(metric_of(metric).project(D))
        ax.set_xlabel(axis_name(ax, 1, shares[0]))
        if shares.size == 1 or shares[0] >= ONE_AXIS:
            _counts(ax, z[:, 0], classes, D.sizes)
            legends.above(ax, legends.boxes(classes, 0.3))
        else:
            _scatter(ax, z, classes, D.sizes, n)
            ax.set_ylabel(axis_name(ax, 2, shares[1]))
            ax.set_aspect("equal", adjustable="datalim")
            legends.above(ax, legends.dots(classes))
    return ax


def _scatter(ax: Axes, xy: np.ndarray, classes: Classes, sizes: np.ndarray, n: int) -> None:
    """At most `n` of the points, the same in every run and mixed, so that no class lies on top of another."""
    codes = np.repeat(classes.codes, sizes)
    shown = np.random.RandomState(0).permutation(codes.size)[:n]
    ax.scatter(xy[shown, 0], xy[shown, 1], s=3, c=[classes.colours[c] for c in codes[shown]], lw=0, alpha=0.8)


def _counts(ax: Axes, values: np.ndarray, classes: Classes, sizes: np.ndarray) -> None:
    codes, edges = np.repeat(classes.codes, sizes), np.histogram_bin_edges(values, 60).tolist()
    for c, shade in enumerate(classes.colours):
        ax.hist(values[codes == c], edges, histtype="stepfilled", fc=shade, alpha=0.3)
        ax.hist(values[codes == c], edges, histtype="step", ec=shade, lw=1.0)
    ax.set_ylabel("points")
    ax.locator_params("x", nbins=6)


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
