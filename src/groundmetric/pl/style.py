"""Style of all figures (sizes, colours of classes and numbers, legends), and what they read from AnnData."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .._internal import documented
from ..metrics.base import GroundMetric

# Okabe and Ito's palette for colour vision deficiency, without black and yellow, which have little contrast on a dark
# or white page; then six colours with the largest distance to those before for normal, green- and red-blind vision.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00",
    "#5A1E00", "#2A2A8C", "#7FDDBB", "#873C5A", "#8778FF", "#B8001F",
)  # fmt: skip
# Marker of each class, for grey prints. 5 markers and 12 colours have no common factor: 60 different pairs.
MARKERS = ("o", "^", "s", "D", "v")
CMAP = "viridis"  # of distances and numbers, in figures and in the report
# A distance below the smallest one between two samples is that of a sample to itself: it is grey.
DISTANCE_CMAP = mpl.colormaps[CMAP].with_extremes(under="#D9D9D9")
INK = "#262626"  # lines and letters
MISSING = "#B0B0B0"  # items without a label
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.labelsize": 8, "axes.titlesize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "figure.figsize": (3.3, 2.6), "figure.dpi": 150, "savefig.dpi": 300, "svg.fonttype": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.3,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
    "legend.frameon": False, "legend.handlelength": 1.0, "legend.handletextpad": 0.5, "legend.columnspacing": 1.2,
    "text.parse_math": False,  # names may contain $
}  # fmt: skip
LETTER = 0.5  # mean width of a letter, relative to the font size

Palette = Mapping[Any, str] | Sequence[str] | None

# Parameters that several figures share, by the placeholder in their docstrings.
figure_docs = documented({
    "metric": """metric : GroundMetric, learner or AnnData
    Metric, fitted learner, or AnnData after `tl.learn`.""",
    "distances": """distances : array of shape (n, n) or AnnData
    Distances; or AnnData with a row per sample (`tl.samples`), whose distances between training samples of an ensemble
    are out-of-bag.""",
    "labellings": """y : array-like of shape (n,) or dict
    Labels; or a dict of titles and labellings, with a bar for each. A Series, or a dict of names to labels, is
    matched by name to the rows of `distances` if that is a data frame.
color : str, sequence of str or None
    For AnnData, one or several columns of `obs`. None: the label that was learned; if that is a number, a heat map
    has its rows in the order of the number.
names : sequence, bool or None
    Names of the rows, shown if they fit; True: those of `obs` of AnnData, or of the rows of a data frame.""",
    "points": """D : Distributions
    Distributions whose points are drawn.
y : array-like of shape (n_distributions,)
    Class of each distribution.""",
    "key": """key : str, default="groundmetric"
    For AnnData, the `key_added` of `tl.learn`.""",
    "palette": """palette : dict, sequence or None, default=None
    Colours by class, or in order. None: for AnnData `uns["<color>_colors"]` if present, else Okabe and Ito's.""",
    "end": """ax : matplotlib axes or None, default=None
    Axes to draw on, one per panel; None: a new figure.
show : bool or None, default=None
    Whether to show the figure at once, as `plt.show()` does.

Returns
-------
matplotlib axes
    Axes of the figure; a list of them if `color` is a sequence.""",
})  # fmt: skip


@contextmanager
def axes(ax: Axes | None, show: bool | None, height: float = 0.0) -> Iterator[Axes]:
    """Yield `ax` in this style, or axes of a new figure of at least this height in inches; then show the figure.

    A new figure is 3.3 inches (a column) wide, and higher if the legend above the data has more than three rows.
    """
    with mpl.rc_context(STYLE):
        if ax is not None:
            ax.spines[["top", "right"]].set_visible(False)
            yield ax
        else:
            figure, ax = plt.subplots(layout="constrained")
            figure.set_figheight(max(figure.get_figheight(), height))
            try:
                yield ax
            except BaseException:
                plt.close(figure)
                raise
            if (legend := ax.get_legend()) is not None:
                n_rows = -(-len(legend.get_texts()) // legend._ncols)  # type: ignore[attr-defined]
                figure.set_figheight(figure.get_figheight() + 0.14 * max(0, n_rows - 3))
    if show:
        plt.show()


def colour(c: int) -> str:
    return COLOURS[c % len(COLOURS)]


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes (an estimate before the layout)."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def fitting_size(ax: Axes, n: int, largest: float = 7.0) -> float:
    """Return the font size of `n` rows of text over the height of the axes, from 3 to `largest` points."""
    return float(np.clip(0.75 * 72 * inches(ax)[1] / n, 3.0, largest))


def short(name: Any, longest: int = 40) -> str:
    """Return a name without its middle if it is longer: long names often differ at their ends.

    >>> short("cardiomyopathy, stage 3", 12), short("ISG15", 12)
    ('cardio…age 3', 'ISG15')
    """
    text, tail = str(name), (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def name_rows(ax: Axes, names: Sequence[Any], size: float = 7.0) -> None:
    """Write the names of rows 0, 1, …, from top to bottom, without tick marks."""
    ax.set_yticks(np.arange(len(names)), [short(name, 28) for name in names], parse_math=False, fontsize=size)
    ax.tick_params("y", length=0)


def add_colorbar(ax: Axes, mappable: Any, label: str, cax: Axes | None = None, **options: Any) -> None:
    options = {"ax": ax, "pad": 0.03, **options} if cax is None else {"cax": cax}
    bar: Any = ax.figure.colorbar(mappable, label=label, **options)
    bar.outline.set_visible(False)


@dataclass(frozen=True)
class Classes:
    """Classes that occur, with a colour and a marker each; `codes` has the number of each item's class."""

    names: list[str]
    codes: np.ndarray
    colours: list[str]
    markers: list[str]

    def dots(self, *, shapes: bool = False) -> list[Line2D]:
        """Return a legend entry per class; with `shapes`, with the marker of each class."""
        markers = self.markers if shapes else ["o"] * len(self.names)
        return [dot(short(name), m, c) for name, m, c in zip(self.names, markers, self.colours, strict=True)]

    def boxes(self, alpha: float = 1.0) -> list[Patch]:
        return [Patch(fc=(c, alpha), ec=c, label=short(name)) for name, c in zip(self.names, self.colours, strict=True)]


def classes_of(labels: Any, size: int, palette: Palette = None, *, first: int = 0) -> Classes:
    """Return the classes of plain labels, sorted."""
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    if codes.shape != (size,):
        raise ValueError(f"y has shape {codes.shape}, but a label is needed for each of {size} distributions")
    return name_classes(values.tolist(), codes, palette, first)


def name_classes(values: Sequence[Any], codes: np.ndarray, palette: Palette = None, first: int = 0) -> Classes:
    """Return the classes that occur, in the order of `values`; items of code -1 have no label.

    A palette has colours by value, or in order; None: the colours of this style from number `first` on.
    """
    if palette is None:
        colours = [colour(first + c) for c in range(len(values))]
    elif isinstance(palette, Mapping):
        if lacking := [value for value in values if value not in palette]:
            raise ValueError(f"palette has no colour for {lacking}")
        colours = [palette[value] for value in values]
    elif len(palette) < len(values):
        raise ValueError(f"palette has {len(palette)} colours for {len(values)} classes")
    else:
        colours = list(palette)[: len(values)]
    markers = [MARKERS[c % len(MARKERS)] for c in range(len(values))]
    names = [value if isinstance(value, str) else f"class {value}" for value in values]
    if np.any(codes < 0):
        names, colours, markers = [*names, "no label"], [*colours, MISSING], [*markers, "X"]
        codes = np.where(codes < 0, len(names) - 1, codes)
    used, codes = np.unique(codes, return_inverse=True)  # their colours do not depend on the classes that occur
    names, colours, markers = ([part[c] for c in used] for part in (names, colours, markers))
    return Classes(names, codes, colours, markers)


def dot(label: str, marker: str = "o", edge: str = INK, face: str | None = None) -> Line2D:
    return Line2D([], [], ls="none", ms=4, marker=marker, mec=edge, mfc=face or edge, label=label)


def heading(title: str) -> Line2D:
    """Return a legend entry without a mark, before the entries that it names."""
    return dot(f"{short(title, 16)}:", edge="none")


def legend_above(ax: Axes, *groups: Sequence[Any], length: float = 1.0, height: float = 1.0) -> None:
    """Add a legend above the data, with as many columns as fit; each group of entries begins a row."""
    widest = LETTER * 7 * max(len(str(entry.get_label())) for entries in groups for entry in entries)
    n_fitting = 72 * inches(ax)[0] // (widest + 7.0 * (length + 1.7))
    n = int(np.clip(n_fitting, 1, max(map(len, groups))))
    rows: list[Any] = []
    for entries in groups:
        rows += [*([dot("", edge="none")] * (-len(rows) % n)), *entries]
    by_column = [entry for column in range(n) for entry in rows[column::n]]  # matplotlib fills column by column
    ax.legend(
        handles=by_column, ncols=n, handlelength=length, loc="lower left", bbox_to_anchor=(0, height), borderaxespad=0.3
    )


# Reading of AnnData


def is_anndata(source: Any) -> bool:
    """Return whether an object has the parts of AnnData; the package itself is not needed for a figure."""
    return all(hasattr(source, part) for part in ("obs", "var", "obsm", "uns"))


def metric_of(source: Any, key: str = "groundmetric") -> GroundMetric:
    """Return a ground metric: as given, of a fitted learner, or of AnnData after `tl.learn`."""
    if is_anndata(source):
        from .. import get  # needs anndata

        entry(source, "uns", key)
        return get.metric(source, key=key)
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"expected a GroundMetric, a fitted learner or AnnData, not {type(source).__name__}")
    return metric


def entry(adata: Any, part: str, key: str) -> Any:
    """Return `adata.<part>[key]`, or raise an error that lists the keys."""
    table = getattr(adata, part)
    if key not in table:
        raise ValueError(f"adata.{part} has no {key!r}: it has {sorted(map(str, table.keys()))}")
    return table[key]


def learned_entry(adata: Any, key: str) -> Mapping[str, Any]:
    """Return the results of `tl.learn` or `tl.samples` in `uns`; empty if neither was run."""
    results = adata.uns.get(key)
    return results if isinstance(results, Mapping) else {}


def learned_label(adata: Any, key: str) -> str | None:
    """Return the column of `obs` with the labels that were learned from, if `uns` names it and it is present."""
    name = learned_entry(adata, key).get("params", {}).get("label_key")
    return None if name is None or str(name) not in adata.obs else str(name)


def colouring(adata: Any, color: Any, palette: Palette = None, first: int = 0) -> Classes | np.ndarray:
    """Return a column of `obs`, as classes (in scanpy's colours if there is no palette) or numbers, or a gene."""
    if not isinstance(color, str) or not color:
        columns = list(adata.obs.columns)
        raise ValueError(f"color is missing: name a column of adata.obs, which has {columns}, or a gene")
    if color not in adata.obs and color in adata.var_names:
        values = adata[:, [adata.var_names.tolist().index(color)]].X
        return np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=float).ravel()
    column = entry(adata, "obs", color)
    if getattr(column, "cat", None) is None:
        if column.dtype.kind in "iuf":
            return column.astype(float).to_numpy()
        column = column.where(column.isna(), column.astype(str)).astype("category")
    categories = column.cat.categories.tolist()
    if palette is None and len(adata.uns.get(f"{color}_colors", ())) >= len(categories):
        palette = [str(colour) for colour in adata.uns[f"{color}_colors"]]
    return name_classes(categories, column.cat.codes.to_numpy(), palette, first)


def feature_names(metric: GroundMetric) -> list[str]:
    return metric.features or [f"feature {k}" for k in range(metric.n_features)]


def two_features(names: list[str], features: Sequence[str | int]) -> list[int]:
    """Return the positions of two features that are given by name or number."""
    if isinstance(features, str) or len(features) != 2:
        raise ValueError(f"features is {features!r}: expected two of them, by name or number")
    for feature in features:
        if feature not in names if isinstance(feature, str) else not 0 <= feature < len(names):
            raise ValueError(f"features holds {feature!r}: there are {len(names)} features, e.g. {names[:3]}")
    return [names.index(feature) if isinstance(feature, str) else int(feature) for feature in features]


def check_samples(adata: Any, key: str) -> None:
    """Raise if AnnData has a row per cell."""
    if f"X_{key}" in adata.obsm and f"{key}_distances" not in adata.obsp:
        raise ValueError("adata has a row per cell: draw gm.tl.samples(adata), which has a row per sample")
