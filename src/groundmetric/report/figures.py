"""Every figure of a report as a file for a paper: PNG on white, and SVG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import pl
from ..safe_files import write_whole
from .content import Content
from .run import Run

Draw = Callable[[Axes], Any]


def figures_of(run: Run, content: Content) -> dict[str, Draw]:
    """By name, functions that draw on axes."""
    label = content.samples.columns[0].name
    found: dict[str, Draw] = {
        "samples": partial(_keyed, pl.embedding, run.samples, color=label, key=run.key),
        "distances": partial(_keyed, pl.heatmap, run.samples, color=label, key=run.key),
        "importance": partial(_keyed, pl.importance, run.stored.metric),
        "axes": partial(_keyed, pl.components, run.stored.metric),
        "training": partial(_keyed, pl.history, content.history),
    }
    for column in content.cells.columns:
        if column.is_class and column.name != run.sample_key and column.name in run.cells.obs:
            found[f"cells {column.name}"] = partial(_keyed, pl.cells, run.cells, color=column.name, key=run.key)
    if content.evaluation is not None:
        rows = {row["method"]: (row["value"], row["low"], row["high"]) for row in content.evaluation.rows}
        found["scores"] = partial(_keyed, pl.scores, rows, reference=content.evaluation.chance)
    if content.types is not None:
        shares = {str(row[0]): row[1:4] for row in content.types.rows}
        found["cell types"] = partial(_keyed, pl.scores, shares, reference=0.0, name="share of the difference")
    return found


def _keyed(draw: Callable, what: Any, ax: Axes, **options: Any) -> Any:
    """Functions of `pl` take axes by name, after labels."""
    return draw(what, ax=ax, **options)


def save_figures(figures: Mapping[str, Draw], folder: Path, stem: str = "") -> list[str]:
    """Write each as PNG and SVG; return the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for title, draw in figures.items():
        name = plain_name(f"{stem} {title}")
        for suffix, content in render(draw, name).items():
            files.append(f"{name}.{suffix}")
            write_whole(folder / files[-1], [content])
    return files


def plain_name(text: str) -> str:
    """A name for a file: letters, digits and underscores.

    >>> plain_name("Cells: cell type"), plain_name("état/<b>")
    ('cells_cell_type', 'état_b')
    """
    return re.sub(r"\W+", "_", text.lower()).strip("_") or "figure"


def render(draw: Draw, name: str) -> dict[str, bytes]:
    """The figure as PNG, on white, and as SVG, without a background."""
    png, svg = io.BytesIO(), io.BytesIO()
    # No date and no random identifiers: the same figure is the same file.
    with mpl.rc_context({**pl.STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of a name: a box stands for it
        figure = Figure(layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(png, format="png", facecolor="white")
        figure.savefig(
            svg, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return {"png": png.getvalue(), "svg": svg.getvalue()}
