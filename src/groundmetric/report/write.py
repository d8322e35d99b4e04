"""Write a report: the HTML page from its template, and its figures as files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import pl, tl
from .._internal.files import write_whole
from .._internal.tables import visible
from .._internal.validation import ParameterError
from ..pl.style import COLOURS, MISSING, STYLE
from . import content
from .collect import collect, notes_data
from .content import Column, Page, make_page
from .run import Run, Steps

REPORT = "report.html"
SHORT = 8  # rows of a table up to which it has no filter
# Marks of classes, as SVG paths around the origin: circle, triangle, square, diamond, triangle.
SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", "M0-5L5 4H-5z", "M-4-4H4V4H-4z", "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "M0 5L5-4H-5z",
)  # fmt: skip


def write(
    run: str | os.PathLike[str] | ad.AnnData,
    output: str | os.PathLike[str] | None = None,
    *,
    cells: str | os.PathLike[str] | None = None,
    title: str | None = None,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike[str] | None = None,
    permutations: int | None = None,
    evaluation: bool = True,
    budget: float | None = None,
    figures: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> dict[str, Any]:
    """Write one HTML page about a run, and return its main results.

    Long computations are cached in the folder of the run, so that a second report is quick.

    Parameters
    ----------
    run : str, path or AnnData
        Folder that `groundmetric learn` wrote, or AnnData after `tl.learn`.
    output : str, path or None, default=None
        File to write; None: report.html in the folder of the run. An older report is replaced; any other file is an
        error.
    cells : str, path or None, default=None
        File that was learned from; None: the one that the run names.
    title : str or None, default=None
        Title of the page; None: made from the labels.
    group_key : str or None, default=None
        Column of `obs` with the patient: samples of one patient are held out together. None: that of `tl.learn`.
    cell_type_key : str or None, default=None
        Column of `obs` with the cell types; None: "cell_type" or a similar name, if there is one.
    gene_sets : str, path or None, default=None
        GMT file with gene sets, which are tested for enrichment in the axes.
    permutations : int or None, default=None
        Permutations of the labels for p- and q-values; 0: no test. None: 99 for an ensemble and 0 for a single metric,
        where each permutation costs a whole cross-validation.
    evaluation : bool, default=True
        Whether to compute baselines, tests and the stability of a single metric.
    budget : float or None, default=None
        Seconds for the whole report: steps that do not fit are reduced or omitted, and the page says so. If required
        steps exceed it by more than 20 %, the page names them.
    figures : str, path or None, default=None
        Folder for figures as PNG and SVG, which replace older ones of the same names; None: no files.
    n_jobs : int or None, default=None
        Threads or processes; None: one.
    verbose : int, default=0
        1 prints a line per step, and shows progress bars on a terminal.

    Returns
    -------
    dict
        "report" (path), "bytes", "summary" (section to text), "warnings" and "omitted" (dicts with "title", "text" and
        "remedy"), "scores", "permutation_test" and "figures" (names of files).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = gm.report.write(adata, Path(folder) / "report.html", evaluation=False)
    >>> found["warnings"][0]["title"]
    'Few samples'
    """
    steps = Steps(n_jobs, verbose, budget)
    if isinstance(run, ad.AnnData):
        run = Run(run, tl.samples(run, verbose=0), run if cells is None else Path(cells), {})
    opened = run if isinstance(run, Run) else Run.open(run, cells)
    if output is None and opened.folder is None:
        raise ParameterError("output", None, ": a run in memory needs the path of a file")
    path = Path(output) if output is not None else opened.folder / REPORT  # type: ignore[operator]
    check_output(path)
    results = collect(
        opened, group_key=group_key, cell_type_key=cell_type_key, gene_sets=gene_sets, permutations=permutations,
        evaluation=evaluation, steps=steps,
    )  # fmt: skip
    page = make_page(results, title)
    text = render(page).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [text])
    scores = results.evaluation
    return {
        "report": str(path),
        "bytes": len(text),
        "summary": page.summary,
        "warnings": notes_data(results.warnings),
        "omitted": notes_data(results.omitted),
        "scores": None if scores is None else scores.rows,
        "permutation_test": None if scores is None else scores.test,
        "figures": [] if figures is None else save_figures(page, Path(figures)),
    }


def check_output(path: Path) -> None:
    """Raise if a page would replace a file that is not a report."""
    if path.is_dir():
        raise ParameterError("output", str(path), ", which is a folder: expected a file")
    if os.path.lexists(path) and not is_page(path):
        raise ParameterError("output", str(path), ", which exists and is not a report: give another file")


def is_page(path: Path) -> bool:
    """Whether a file is a report, or empty."""
    if not path.is_file():
        return False
    text = path.read_bytes()
    return not text or (text.startswith(b"<!doctype html>") and b"<footer>Made by groundmetric " in text)


def render(page: Page) -> str:
    """Return the page as HTML."""
    environment = Environment(
        loader=PackageLoader(__package__, ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    environment.filters |= {"number": format, "prose": prose}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    text = environment.get_template("page.html.j2").render(
        page=page, results=page.results, run=page.results.run, content=content, asset=_asset, legend=_legend,
        data=_visible(_data(page)), shapes=SHAPES, short=SHORT,
    )  # fmt: skip
    return text.lstrip()  # macros leave empty lines before the page


def _asset(name: str) -> Markup:
    return Markup(files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _visible(data: Any) -> Any:
    """Return data in which invisible characters of texts are written out: a name cannot pass for another."""
    if isinstance(data, str) and not isinstance(data, Markup):
        return visible(data)
    if isinstance(data, dict):
        return {_visible(key): _visible(value) for key, value in data.items()}
    return [_visible(value) for value in data] if isinstance(data, list | tuple) else data


def prose(text: Any) -> Markup:
    """Return text for the page, with names and values of parameters as code.

    >>> prose("learn again within batches (batch_key='site')")
    Markup('learn again within batches (<code>batch_key=&#39;site&#39;</code>)')
    """
    parts = re.split(r"\b(\w+=(?:'[^']*'|[\w.]+))", visible(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(part if k % 2 == 0 else code.format(part) for k, part in enumerate(parts))


def _legend(column: Column, shapes: bool = True) -> list[tuple[str, int, str]]:
    """Return colour, shape and name of every class of a column that occurs; none for numbers."""
    found = [
        (COLOURS[code % len(COLOURS)], code % len(SHAPES) if shapes else 0, name)
        for code, name in enumerate(column.values or [])
        if np.any(column.codes == code)
    ]
    return [*found, (MISSING, 0, "unknown")] if np.any(column.shades < 0) else found


def _data(page: Page) -> dict[str, Any]:
    """Return the data of the script, in whole numbers, which are short."""
    samples = page.samples
    largest = float(samples.distances.max()) or 1.0
    few = len(samples.names) <= content.MAX_HOVERED
    distances = np.rint(1000 * samples.distances / largest).astype(int).tolist() if few else None
    return {
        "colours": COLOURS, "missing": MISSING, "ramp": content.ramp_colours(), "shapes": len(SHAPES),
        "samples": {"names": samples.names, "columns": [column.data() for column in samples.columns],
                    "order": samples.order.tolist(), "largest": largest, "distances": distances},
        "cells": {"x": page.cell_marks[:, 0].tolist(), "y": page.cell_marks[:, 1].tolist(),
                  "columns": [column.data() for column in page.cell_columns]},
    }  # fmt: skip


def save_figures(page: Page, folder: Path) -> list[str]:
    """Draw the figures of the page with `pl`, each as PNG and SVG; return the names of the files."""
    results, samples = page.results, page.samples
    run, label = results.run, samples.columns[0]
    classes: Any = [label.text(s) or "unknown" for s in range(len(samples.names))]
    drawings: dict[str, Callable[[Axes], Any]] = {
        "samples": lambda ax: pl.embedding(samples.layout, classes, ax=ax),
        "distances": lambda ax: pl.clustermap(samples.distances, classes, ax=ax, names=samples.names),
        "importance": lambda ax: pl.importance(run.stored.metric, ax=ax),
        "axes": lambda ax: pl.components(run.stored.metric, ax=ax),
    }
    for column in page.cell_columns:
        if column.values is not None and column.name != run.sample_key:
            drawings[f"cells {column.name}"] = partial(_draw_cells, run, column.name)
    if results.evaluation is not None and len(results.evaluation.rows) > 1:
        rows = {row["method"]: (row["value"], row["low"], row["high"]) for row in results.evaluation.rows}
        chance = results.evaluation.chance
        drawings["scores"] = lambda ax: pl.scores(rows, ax=ax, reference=chance)
    if page.types is not None:
        shares = {str(row[0]): (row[1], row[3], row[4]) for row in page.types.rows}
        drawings["cell types"] = lambda ax: pl.scores(shares, ax=ax, reference=0.0, name="share of the difference")
    if "history" in run.entry:
        drawings["training"] = lambda ax: pl.history(run.entry["history"], ax=ax)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for title, draw in drawings.items():
        stem = re.sub(r"\W+", "_", title.lower()).strip("_")
        # Without a date and random identifiers the same figure is the same file.
        with mpl.rc_context({**STYLE, "svg.hashsalt": stem}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a box stands for the character
            figure = Figure(layout="constrained")
            draw(figure.add_subplot())
            figure.savefig(folder / f"{stem}.png", facecolor="white")
            figure.savefig(folder / f"{stem}.svg", transparent=True, metadata={"Date": None})
        names += [f"{stem}.png", f"{stem}.svg"]
    return names


def _draw_cells(run: Run, column: str, ax: Axes) -> Any:
    return pl.cells(run.cells, color=column, key=run.key, ax=ax)
