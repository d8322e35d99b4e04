"""Points of all distributions, as they are and as a metric sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy import sparse

from ..alignment import aligned
from ..distributions import Distributions
from . import legends
from .classes import Classes, Palette, classes_of
from .geometry import ONE_AXIS, principal_axes
from .style import axes, axis_name
from .tables import metric_of


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
    for c, colour in enumerate(classes.colours):
        ax.hist(values[codes == c], edges, histtype="stepfilled", fc=colour, alpha=0.3)
        ax.hist(values[codes == c], edges, histtype="step", ec=colour, lw=1.0)
    ax.set_ylabel("points")
    ax.locator_params("x", nbins=6)
