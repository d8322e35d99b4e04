"""Figures for a column of a paper: each function draws what was computed on `ax`, or on a new one, and returns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from scipy import sparse
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from .distributions import Distributions
from .metric import GroundMetric

# Okabe and Ito's palette for the colour-blind, without black and yellow, which vanish on a dark or a white page.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
# A shape beside each colour, for grey prints. Their numbers differ, so that many classes get different pairs.
MARKERS = ("o", "^", "s", "D", "v")
# Lines and letters; one colour for all of it, so that a page can exchange it for a dark background.
INK = "#262626"
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
    "figure.figsize": (3.3, 2.6), "figure.dpi": 150, "savefig.dpi": 300, "svg.fonttype": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.3,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "legend.frameon": False, "legend.handlelength": 1.0, "legend.handletextpad": 0.5, "legend.columnspacing": 1.2,
    "text.parse_math": False,  # names may contain $
}  # fmt: skip
_ONE_AXIS = 0.95  # share of the variance at which the first principal axis is shown alone


def points(D: Distributions, y: Any, ax: Axes | None = None, *, features: Any = (0, 1), n: int = 1000) -> Axes:
    """Points of all distributions along two features, coloured by class; at most `n` of them, always the same."""
    with _axes(ax) as ax:
        classes, codes = _classes(y, len(D))
        xy, names = D.points[:, list(features)], _feature_names(D)
        _scatter(ax, xy.toarray() if sparse.issparse(xy) else xy, np.repeat(codes, D.sizes), n)
        ax.set(xlabel=names[features[0]], ylabel=names[features[1]])
        _legend(ax, _dots(classes, "o"))
    return ax


def projection(metric: GroundMetric, D: Distributions, y: Any, ax: Axes | None = None, *, n: int = 1000) -> Axes:
    """Points in the learned space along its principal axes, coloured by class.

    Rotating the components leaves the metric as it is, so that only the principal axes mean something. Where the first
    has nearly all of the variance, the points are counted along it.
    """
    with _axes(ax) as ax:
        classes, codes = _classes(y, len(D))
        codes = np.repeat(codes, D.sizes)
        z, shares = principal_axes(metric.project(D))
        label = "learned axis {} ({} of variance)"
        ax.set_xlabel(label.format(1, percent(shares[0])))
        if shares.size == 1 or shares[0] >= _ONE_AXIS:
            _counts(ax, z[:, 0], codes, len(classes))
            _legend(ax, _boxes(classes, 0.3))
        else:
            _scatter(ax, z, codes, n)
            ax.set_ylabel(label.format(2, percent(shares[1])))
            ax.set_aspect("equal", adjustable="datalim")
            _legend(ax, _dots(classes, "o"))
    return ax


def ellipse(metrics: Mapping[str, GroundMetric], ax: Axes | None = None, *, variances: Any = None) -> Axes:
    """The matrices M of metrics on two features as ellipses, scaled to a longest half axis of 1.

    A direction counts for as much as the ellipse is long; in the grey circle, all count the same. With the `variances`
    of the features it is in units of the data's spread, so that the features' own units do not matter.
    """
    with _axes(ax) as ax:
        spread, names = np.sqrt((1.0, 1.0) if variances is None else variances), ["feature 0", "feature 1"]
        ax.add_patch(Ellipse((0, 0), 2, 2, fc="none", ec=INK, lw=0.6, alpha=0.4))
        for k, (name, metric) in enumerate(metrics.items()):
            if metric.n_features != 2:
                raise ValueError(f"metric {name!r} has {metric.n_features} features: an ellipse needs exactly two")
            values, vectors = np.linalg.eigh(metric.matrix() * np.outer(spread, spread))
            minor, major = 2 * np.sqrt(np.maximum(values, 0.0) / (values[-1] or 1.0))
            angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
            ax.add_patch(Ellipse((0, 0), major, minor, angle=angle, fc="none", ec=_colour(k), lw=1.3, label=name))
            names = _feature_names(metric)
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        unit = "relative weight" if variances is None else "relative weight × spread"
        ax.set(xlabel=f"{names[0]} ({unit})", ylabel=f"{names[1]} ({unit})")
        _legend(ax, [Line2D([], [], color=_colour(k), label=name) for k, name in enumerate(metrics)], length=2.0)
    return ax


def heatmap(distances: np.ndarray, y: Any, ax: Axes | None = None, *, names: Sequence[Any] | None = None) -> Axes:
    """A distance matrix in the order of `arrange`, with the classes as colours along two sides."""
    with _axes(ax) as ax:
        classes, codes = _classes(y, len(distances))
        order = arrange(distances, y)
        image = ax.imshow(np.asarray(distances)[np.ix_(order, order)], cmap="viridis", interpolation="none")
        ax.set(xticks=[], yticks=[], frame_on=False)
        ends = np.cumsum(np.bincount(codes)) - 0.5
        for c, (low, high) in enumerate(zip([-0.5, *ends], ends, strict=False)):
            look: dict[str, Any] = {"fc": _colour(c), "lw": 0, "clip_on": False}
            ax.add_patch(Rectangle((-0.05, low), 0.035, high - low, transform=ax.get_yaxis_transform(), **look))
            ax.add_patch(Rectangle((low, -0.05), high - low, 0.035, transform=ax.get_xaxis_transform(), **look))
        if names is not None:
            ax.set_yticks(np.arange(len(order)), [str(names[d]) for d in order], fontsize=5, parse_math=False)
            ax.tick_params("y", length=0, pad=9)
        ax.figure.colorbar(image, ax=ax, label="distance", shrink=0.9, pad=0.03).outline.set_visible(False)  # type: ignore[operator]
        _legend(ax, _boxes(classes))
    return ax


def embedding(distances: np.ndarray, y: Any, ax: Axes | None = None, *, train: Any = None) -> Axes:
    """Distributions in the plane, by classical scaling of their distances (`embed`).

    `train` marks those that were learned from (a mask or their places): filled, the others hollow.
    """
    with _axes(ax) as ax:
        classes, codes = _classes(y, len(distances))
        place = embed(distances)
        filled = np.zeros(codes.size, bool)
        filled[slice(None) if train is None else train] = True
        for c in range(len(classes)):
            # Later classes are smaller: where marks coincide, all are seen.
            look: dict[str, Any] = {
                "s": (24, 17, 10)[c % 3],
                "marker": MARKERS[c % len(MARKERS)],
                "ec": _colour(c),
                "lw": 0.9,
            }
            for chosen, face in ((filled, _colour(c)), (~filled, "none")):
                x, up = place[chosen & (codes == c)].T
                ax.scatter(x, up, fc=face, **look)
        ax.set(xlabel="axis 1 (units of distance)", ylabel="axis 2 (units of distance)")
        ax.set_aspect("equal", adjustable="datalim")
        ax.locator_params(nbins=5)
        _legend(
            ax, _dots(classes, MARKERS), [] if train is None else [_dot("training", fc=INK), _dot("test", fc="none")]
        )
    return ax


def importance(metric: GroundMetric, ax: Axes | None = None, *, n: int = 20) -> Axes:
    """The `n` most important features, with their shares of the importance."""
    with _axes(ax) as ax:
        shares, names = metric.importance(), _feature_names(metric)
        top = np.argsort(-shares, kind="stable")[:n]
        bars = ax.barh(np.arange(top.size), 100 * shares[top], color=_colour(0), height=0.7)
        ax.bar_label(bars, [f"{share:.2%}" for share in shares[top]], padding=2, fontsize=6)
        ax.set_yticks(np.arange(top.size), [names[f] for f in top], parse_math=False)
        ax.tick_params("y", length=0)
        ax.spines["left"].set_visible(False)
        ax.invert_yaxis()
        ax.set(xlabel="share of the importance (%)", xlim=(0, 115 * shares[top[0]]))
        if shares.size > top.size:
            rest = f"the other {shares.size - top.size}: {max(1 - shares[top].sum(), 0):.2%}"
            ax.text(1, 0.02, rest, transform=ax.transAxes, ha="right", va="bottom", fontsize=7)
    return ax


def history(record: Mapping[str, np.ndarray], ax: Axes | None = None) -> Axes:
    """Training by epoch (`learner.history_`): the loss relative to the first epoch's, and two shares.

    The shares are of the triplets within the margin, which pull, and of the solves that bounds made unnecessary.
    """
    with _axes(ax) as ax:
        epochs = np.arange(1, len(record["loss"]) + 1)
        first = record["loss"][0] or 1.0
        saved = record["saved"] / np.maximum(record["saved"] + record["solved"], 1)
        lines: list[tuple] = [(f"loss (100% is the first epoch's {first:.3g})", record["loss"] / first, "-")]
        if np.isfinite(record["validation_loss"]).any():
            lines.append(("loss of held-out triplets", record["validation_loss"] / first, "-."))
        lines += [("triplets within the margin", record["active"], "--"), ("solves saved by bounds", saved, ":")]
        for k, (label, values, dashes) in enumerate(lines):
            ax.plot(epochs, 100 * values, color=_colour(k), ls=dashes, label=label)
        ax.set(xlabel="epoch", ylabel="share (%)", xlim=(1, max(epochs[-1], 2)), ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        _legend(ax, list(ax.lines), length=2.4)
    return ax


def embed(distances: np.ndarray, n_components: int = 2) -> np.ndarray:
    """Places whose distances are close to those given: classical multidimensional scaling.

    >>> embed(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]), 1).round(3).ravel().tolist()
    [-1.333, -0.333, 1.667]
    """
    squares = np.asarray(distances, dtype=np.float64) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.25 * (centred + centred.T))
    last = slice(None, -n_components - 1, -1)
    places = _with_sign(vectors[:, last]) * np.sqrt(np.maximum(values[last], 0.0))
    return np.pad(places, ((0, 0), (0, n_components - places.shape[1])))


def arrange(distances: np.ndarray, y: Any) -> np.ndarray:
    """An order that keeps each class together, and within it near ones beside each other (average linkage).

    >>> arrange(np.abs(np.subtract.outer([0, 9, 1, 8], [0, 9, 1, 8])), ["a", "b", "a", "b"]).tolist()
    [0, 2, 3, 1]
    """
    distances, codes = np.asarray(distances), _classes(y, len(distances))[1]
    order: list[np.ndarray] = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        if members.size > 2:
            block = squareform(distances[np.ix_(members, members)], checks=False)
            members = members[leaves_list(linkage(block, "average", optimal_ordering=members.size <= 300))]
        # A tree has no direction: begin at the end that is nearer to where the first class began.
        start = order[0][0] if order else members[0]
        order.append(members[:: -1 if distances[start, members[-1]] < distances[start, members[0]] else 1])
    return np.concatenate(order)


def principal_axes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points turned onto their principal axes, and each axis's share of the variance."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    values, vectors = np.maximum(values[::-1], 0.0), _with_sign(vectors[:, ::-1])
    return z @ vectors, values / (values.sum() or 1.0)


def percent(share: float) -> str:
    """A share as text that is never rounded up to all of it.

    >>> percent(0.9734), percent(0.99997), percent(1.0)
    ('97.3%', '>99.9%', '100%')
    """
    return "100%" if share == 1.0 else ">99.9%" if share > 0.999 else f"{share:.1%}"


@contextmanager
def _axes(ax: Axes | None) -> Iterator[Axes]:
    with mpl.rc_context(STYLE):
        yield plt.subplots(layout="constrained")[1] if ax is None else ax


def _with_sign(vectors: np.ndarray) -> np.ndarray:
    """Columns with their largest entry positive: an eigenvector's sign is arbitrary, a figure should not be."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)


def _classes(y: Any, size: int) -> tuple[list[str], np.ndarray]:
    """The classes as text, and the place of each label among them."""
    values, codes = np.unique(np.asarray(y), return_inverse=True)
    if codes.shape != (size,):
        raise ValueError(f"y has shape {codes.shape}, but a label is needed for each of {size} distributions")
    return [value if isinstance(value, str) else f"class {value}" for value in values.tolist()], codes


def _feature_names(named: Distributions | GroundMetric) -> list[str]:
    count = named.n_features if isinstance(named, GroundMetric) else named.shape[1]
    return named.features or [f"feature {k}" for k in range(count)]


def _colour(c: int) -> str:
    return COLOURS[c % len(COLOURS)]


def _scatter(ax: Axes, xy: np.ndarray, codes: np.ndarray, n: int) -> None:
    """At most `n` of the points, the same in every run and mixed, so that no class lies on top of another."""
    shown = np.random.RandomState(0).permutation(codes.size)[:n]
    ax.scatter(xy[shown, 0], xy[shown, 1], s=3, c=[_colour(c) for c in codes[shown]], lw=0, alpha=0.8)


def _counts(ax: Axes, values: np.ndarray, codes: np.ndarray, n_classes: int) -> None:
    edges = np.histogram_bin_edges(values, 60).tolist()
    for c in range(n_classes):
        ax.hist(values[codes == c], edges, histtype="stepfilled", fc=_colour(c), alpha=0.3)
        ax.hist(values[codes == c], edges, histtype="step", ec=_colour(c), lw=1.0)
    ax.set_ylabel("points")
    ax.locator_params("x", nbins=6)


def _dot(label: str, marker: str = "o", ec: str = INK, fc: str | None = None) -> Line2D:
    return Line2D([], [], ls="none", ms=4, marker=marker, mec=ec, mfc=fc or ec, label=label)


def _dots(classes: Sequence[str], markers: Sequence[str]) -> list[Any]:
    return [_dot(name, markers[c % len(markers)], _colour(c)) for c, name in enumerate(classes)]


def _boxes(classes: Sequence[str], alpha: float = 1.0) -> list[Any]:
    return [Patch(fc=(_colour(c), alpha), ec=_colour(c), label=name) for c, name in enumerate(classes)]


def _legend(ax: Axes, handles: list[Any], more: Sequence[Any] = (), *, length: float | None = None) -> None:
    """A legend above the data, read by rows, with as many columns as fit; `more` in rows of its own."""
    widest = max(len(str(handle.get_label())) for handle in (*handles, *more))
    n = max(1, min(len(handles), 56 // (widest + 5)))
    rows = [*handles, *[_dot("", fc="none", ec="none")] * (-len(handles) % n if more else 0), *more]
    rows = [handle for column in range(n) for handle in rows[column::n]]  # matplotlib fills column by column
    ax.legend(handles=rows, loc="lower left", bbox_to_anchor=(0, 1), ncols=n, borderaxespad=0.3, handlelength=length)
