"""Distributions as marks in the plane: the nearer two marks, the more alike."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from . import style as legends
from .data import axis_names, basis_of, colouring, embed, entry, is_anndata
from .style import INK, MISSING, Classes, Numbers, Palette, axes, classes_of, width

_MDS = ("MDS axis 1", "MDS axis 2")  # in units of the distance


def embedding(
    distances: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    color: str | None = None,
    basis: str | None = None,
    train: Any = None,
    palette: Palette = None,
    key: str = "groundmetric",
) -> Axes:
    """Distributions in the plane, coloured by class (or, for AnnData, by a number).

    Parameters
    ----------
    distances : a square matrix of distances, placed by classical scaling (`embed`); places, (n, 2); or AnnData with a
        row per sample
    y : labels; for AnnData, `color` names their column of `obs`, or a gene
    basis : for AnnData, the places in `obsm`. None: "X_umap", or else those of the distances in
        `obsp["<key>_distances"]`
    train : those that were learned from (a mask, their places, or a column of `obs`): filled, the others hollow
    palette : colours by class, or in order; None: `uns["<color>_colors"]`, where there are, or Okabe and Ito's
    """
    with axes(ax) as ax:
        if is_anndata(distances):
            samples, color = distances, y if color is None else color
            coloured = colouring(samples, color, palette)
            train = entry(samples, "obs", train).to_numpy(dtype=bool) if isinstance(train, str) else train
            place, names = _places_of(samples, basis, key)
        else:
            place, names = _places(np.asarray(distances))
            coloured = classes_of(y, len(place), palette)
        filled = np.zeros(len(place), bool)
        filled[slice(None) if train is None else train] = True
        kinds = [] if train is None else [legends.dot("training", face=INK), legends.dot("test", face="none")]
        if isinstance(coloured, Numbers):
            _draw_numbers(ax, place, coloured, filled, str(color))
            if kinds:
                legends.above(ax, kinds)
        else:
            _draw_classes(ax, place, coloured, filled)
            legends.above(ax, legends.dots(coloured, shapes=True), *([kinds] if kinds else []))
        _dress(ax, names)
    return ax


def _places(given: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    if given.ndim != 2 or given.shape[1] not in (2, given.shape[0]):
        raise ValueError(f"distances have shape {given.shape}: expected a square matrix, or places of two columns")
    return (embed(given), _MDS) if given.shape[0] == given.shape[1] else (given, ("axis 1", "axis 2"))


def _places_of(samples: Any, basis: str | None, key: str) -> tuple[np.ndarray, tuple[str, str]]:
    found = basis_of(samples, basis, ("X_umap",))
    if found is None:
        return embed(np.asarray(entry(samples, "obsp", f"{key}_distances"))), _MDS
    return np.asarray(entry(samples, "obsm", found))[:, :2], axis_names(found)


def _draw_classes(ax: Axes, place: np.ndarray, classes: Classes, filled: np.ndarray) -> None:
    for c, (colour, marker) in enumerate(zip(classes.colours, classes.markers, strict=True)):
        # Later classes are smaller: where marks coincide, all are seen.
        look: dict[str, Any] = {"s": (24, 17, 10)[c % 3], "marker": marker, "ec": colour, "lw": 0.9}
        for chosen, face, kind in ((filled, colour, "filled"), (~filled, "none", "hollow")):
            x, up = place[chosen & (classes.codes == c)].T
            # The name is the id of an SVG's group: a page finds the marks there, in the order of the samples.
            ax.scatter(x, up, fc=face, gid=f"marks-{kind}-{c}", **look)


def _draw_numbers(ax: Axes, place: np.ndarray, numbers: Numbers, filled: np.ndarray, label: str) -> None:
    colours = mpl.colormaps["viridis"].with_extremes(bad=MISSING)
    marks = ax.scatter(place[:, 0], place[:, 1], c=numbers.values, s=20, cmap=colours, lw=0.9, plotnonfinite=True)
    marks.set_gid("marks")
    shades = marks.to_rgba(numbers.values)
    marks.set_edgecolor(shades.tolist())
    marks.set_facecolor(np.where(filled[:, None], shades, 0.0).tolist())
    bar = ax.figure.colorbar(marks, ax=ax, label=label, pad=0.03)
    bar.ax.set_gid("legend")
    bar.outline.set_visible(False)  # type: ignore[operator]


def _dress(ax: Axes, names: tuple[str, str]) -> None:
    """Equal scales; ticks only where the axes have units, and only as many as have room."""
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_aspect("equal", adjustable="datalim")
    if names is _MDS:
        ax.locator_params(nbins=5 if width(ax) > 2 else 3)
    else:
        ax.set(xticks=[], yticks=[])
