"""Report as a file: figures drawn by `pl`, the page that shows them, and both written whole."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anndata as ad
import matplotlib as mpl
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from .. import pl
from .._internal import documented, parameter_texts
from .._internal.files import write_whole
from .._internal.tables import visible
from ..interpret.importance import training_summary
from ..pl.style import COLOURS, INK, MARKERS, STYLE, write_names
from .collect import collect
from .content import CellMap, Column, Content, Evaluation, Part, SampleMap, as_data
from .run import Log, Run
from .samples import sample_table

REPORT = "report.html"
SHORT = 8  # rows of a table up to which there is nothing to filter
MOST_NAMED = 60  # samples up to which names are written beside marks
Draw = Callable[[Axes], Any]


@documented(parameter_texts(collect))
def write(
    run: Run | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    group_key: str | None = None,
    cell_type_key: str | None = None,
    gene_sets: str | os.PathLike[str] | None = None,
    refits: int = 20,
    permutations: int | None = None,
    evaluation: bool = True,
    budget: float | None = None,
    figures: str | os.PathLike[str] | None = None,
    parts: Sequence[Part] = (),
    n_jobs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Write one HTML page about what was learned, and return its summary.

    A first page, of samples and genes, is written before the first step that takes long, and says that more follows;
    the whole one replaces it. Results that take long to compute are stored in the folder of the run, so that a second
    report is quick.

    Parameters
    ----------
    run : Run, str or path
        Run, or the folder that `groundmetric learn` wrote.
    output : str, path or None, default=None
        File to write; None: report.html in the folder of the run. An older report is replaced, no other file is.
    {title}
    {group_key}
    {cell_type_key}
    {gene_sets}
    {refits}
    {permutations}
    {evaluation}
    {budget}
    figures : str, path or None, default=None
        Folder for every figure as PNG and SVG, over older ones of the same names; None: no files.
    {parts}
    {n_jobs}
    {verbose}
    {log}

    Returns
    -------
    dict
        "report" (path), "bytes", "summary", "warnings", "left_out", "scores", "against_chance", and "figures" (names of
        files).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), None, {})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = gm.report.write(run, Path(folder) / "report.html", refits=0, evaluation=False)
    >>> found["warnings"][0].split(":")[0]
    'Few samples'
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if output is None and run.folder is None:
        raise ValueError("output is None: for a run that has no folder, say which file to write")
    path = Path(output) if output is not None else run.folder / REPORT  # type: ignore[operator]
    check_output(path)
    content = collect(
        run, title=title, group_key=group_key, cell_type_key=cell_type_key, gene_sets=gene_sets, refits=refits,
        permutations=permutations, evaluation=evaluation, budget=budget, parts=parts,
        first=partial(_save_first, path=path, log=log), n_jobs=n_jobs, verbose=verbose, log=log,
    )  # fmt: skip
    drawn = []
    if figures is not None:
        log("drawing")
        drawn = save_figures(figures_of(run, content), Path(figures))
    return {**save(content, path), "figures": drawn}


def _save_first(content: Content, path: Path, log: Log) -> None:
    save(content, path)
    log(f"wrote a first page, of samples and genes: {path}")


def save(content: Content, path: Path) -> dict[str, Any]:
    """Write a page, and return its summary.

    The file is written whole or not at all. An older report, or an empty file, is replaced; any other file is an error.

    Parameters
    ----------
    content : Content
        Content of the page, e.g. from `collect`.
    path : Path
        File to write; its folder is created if it does not exist.

    Returns
    -------
    dict
        "report" (path), "bytes", "summary", "warnings", "left_out", "scores" and "against_chance".

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), None, {})
    >>> content = gm.report.collect(run, refits=0, evaluation=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     gm.report.save(content, path)["bytes"] == path.stat().st_size
    True
    """
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(content).encode()
    write_whole(path, [text])
    return {
        "report": str(path),
        "bytes": len(text),
        "summary": content.summary,
        "warnings": [f"{caution.title}: {caution.text}" for caution in content.cautions],
        "left_out": content.left_out,
        "scores": None if content.evaluation is None else content.evaluation.rows,
        "against_chance": None if content.evaluation is None else content.evaluation.test,
    }


def check_output(path: Path) -> None:
    """Raise if a page would replace something else."""
    if path.is_dir():
        raise ValueError(f"output {str(path)!r} is a folder: give a file")
    if os.path.lexists(path) and not is_page(path):
        raise ValueError(f"output {str(path)!r} exists and is no earlier report: it would be lost; give another file")


def is_page(path: Path) -> bool:
    """Whether a file is a page that `save` wrote, or empty."""
    if not path.is_file():
        return False
    content = path.read_bytes()
    return not content or (content.startswith(b"<!doctype html>") and b"<footer>Made by groundmetric " in content)


def is_first_page(path: Path) -> bool:
    """Whether a page waits for the whole one: `write` was interrupted, or is still at work."""
    return is_page(path) and b'<p class="pending"' in path.read_bytes()


def page(content: Content) -> str:
    """The whole page as text."""
    figures = {name: render(draw, name, ["svg"])["svg"] for name, draw in figures_of_page(content).items()}
    environment = Environment(
        loader=PackageLoader(__package__, ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    environment.filters["number"] = format
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    environment.filters["prose"] = prose
    text = environment.get_template("page.html.j2").render(
        content=content, figures=figures, inline=inline, training_summary=training_summary, asset=_asset,
        sample_table=sample_table(content.samples),
        score_texts=_score_texts(content.evaluation), data=_shown(_data(content)),
        shapes=[_outline(m) for m in MARKERS], short_table=SHORT,
    )  # fmt: skip
    return text.lstrip()  # macros leave empty lines before the page


def _shown(data: Any) -> Any:
    """Data in which no text hides a character: a name cannot pass for another on the page."""
    if isinstance(data, str) and not isinstance(data, Markup):
        return visible(data)
    if isinstance(data, dict):
        return {_shown(key): _shown(value) for key, value in data.items()}
    return [_shown(value) for value in data] if isinstance(data, list | tuple) else data


def prose(text: str) -> Markup:
    """Text for the page; commands and options are not broken between lines.

    >>> prose("learn again with --batch site, by `groundmetric learn` & co")
    Markup('learn again with <code>--batch</code> site, by <code>groundmetric learn</code> &amp; co')
    """
    parts = re.split(r"`([^`]+)`|(?<!\S)(--[a-z][a-z-]*)", visible(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(
        part if k % 3 == 0 else code.format(part) for k, part in enumerate(parts) if part is not None
    )


def _asset(name: str) -> Markup:
    return Markup(files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _score_texts(found: Evaluation | None) -> list[str]:
    """Scores as text, in the order of their marks."""
    texts = []
    for row in [] if found is None else found.rows:
        interval = "" if row.get("low") is None else f" ({row['low']:.2f} to {row['high']:.2f})"
        texts.append(f"{row['method']}: " + ("no score" if row["value"] is None else f"{row['value']:.2f}{interval}"))
    return texts


def _data(content: Content) -> dict[str, Any]:
    """What the scripts need, in whole numbers, which are short."""
    samples, order = content.samples, content.samples.order
    most = float(samples.distances.max()) or 1.0
    stops = np.rint(255 * mpl.colormaps["viridis"](np.linspace(0, 1, 9))[:, :3]).astype(int)
    return {
        "colours": COLOURS, "ramp": stops.tolist(), "shapes": len(MARKERS),
        "scores": _score_texts(content.evaluation),
        "samples": {"names": samples.names, "columns": [as_data(column) for column in samples.columns],
                    "marks": np.argsort(samples.columns[0].groups, kind="stable").tolist()},
        "heat": {"order": order.tolist(), "most": most,
                 "far": np.rint(1000 * samples.distances[np.ix_(order, order)] / most).astype(int).tolist()},
        "cells": _cell_data(content.cells),
    }  # fmt: skip


def _cell_data(cells: CellMap | None) -> dict[str, Any] | None:
    if cells is None:
        return None
    low, high = cells.places.min(axis=0), cells.places.max(axis=0)
    places = np.rint(1000 * (cells.places - low) / np.where(high > low, high - low, 1.0)).astype(int)
    columns = [as_data(column) for column in cells.columns]
    return {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "columns": columns}


def _outline(marker: str) -> str:
    """A marker of matplotlib as a path of SVG, as large as in `pl.embedding`."""
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform() + Affine2D().scale(4.5, -4.5))  # SVG goes down
    letters = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}
    parts = []
    for vertices, code in path.iter_segments(simplify=False):
        numbers = "" if code == Outline.CLOSEPOLY else " ".join(f"{number:.2f}" for number in vertices)
        parts.append(letters[code] + numbers)
    return "".join(parts)


def figures_of_page(content: Content) -> dict[str, Draw]:
    """By name, functions that draw on axes what the page shows."""
    samples = content.samples
    found: dict[str, Draw] = {
        "samples": partial(_draw_samples, samples),
        "distances": partial(_draw_distances, samples),
    }
    if content.history:
        found["training"] = partial(_keyed, pl.history, content.history)
    if content.evaluation is not None and len(content.evaluation.rows) > 1:
        rows = {row["method"]: (row["value"], row["low"], row["high"]) for row in content.evaluation.rows}
        found["scores"] = partial(_keyed, pl.scores, rows, reference=content.evaluation.chance)
    return found


def _draw_samples(samples: SampleMap, ax: Axes) -> None:
    """The map, and the names beside the marks: on paper nothing can be pointed at."""
    pl.embedding(_as_anndata(samples), color=samples.columns[0].name, ax=ax)
    if len(samples.names) > MOST_NAMED:
        return
    ax.margins(x=0.12)
    write_names(ax, [visible(name) for name in samples.names], samples.places)


def _draw_distances(samples: SampleMap, ax: Axes) -> None:
    """The matrix with names and tree, colours by rank: what sets classes apart would else hide what is within them."""
    label, names = samples.columns[0], [visible(name) for name in samples.names]
    if label.is_class:
        pl.heatmap(_as_anndata(samples), color=label.name, names=names, order="clusters", ax=ax)
    else:
        pl.heatmap(samples.distances, y=_thirds(label), names=names, order="clusters", ax=ax)
    steps = np.unique(np.quantile(samples.distances[~np.eye(len(names), dtype=bool)], np.linspace(0, 1, 11)))
    if steps.size < 3:
        return
    for tree in ax.child_axes[:1]:  # from the lowest branch on: below it there is nothing to see
        tree.set_ylim(bottom=steps[0] - 0.1 * (steps[-1] - steps[0]))
    ranks = np.linspace(0, 1, steps.size)
    image = ax.images[0]
    image.set_norm(FuncNorm((partial(np.interp, xp=steps, fp=ranks), partial(np.interp, xp=ranks, fp=steps)),
                            steps[0], steps[-1], clip=True))  # fmt: skip
    assert image.colorbar is not None
    ticks = np.interp([0, 0.25, 0.5, 0.75, 1], ranks, steps)
    image.colorbar.set_ticks(ticks.tolist(), labels=[f"{tick:.2g}" for tick in ticks])
    image.colorbar.minorticks_off()


def _thirds(label: Column) -> list[str]:
    """Numbers as classes, for bars beside a matrix."""
    known = label.codes[np.isfinite(label.codes)]
    ends = np.quantile(known, [1 / 3, 2 / 3]) if known.size else np.zeros(2)
    parts = [f"{part} {label.name}" for part in ("low", "middle", "high")]
    which = np.searchsorted(ends, label.codes)
    return [parts[k] if np.isfinite(code) else "unknown" for k, code in zip(which, label.codes, strict=True)]


def _as_anndata(found: SampleMap) -> ad.AnnData:
    """Samples as `pl` takes them: the label, as classes or numbers, and the distances that the page has."""
    label = found.columns[0]
    values = label.codes if label.values is None else pd.Categorical.from_codes(label.codes, label.values)
    obs = pd.DataFrame({label.name: values}, index=found.names)
    return ad.AnnData(obs=obs, obsp={"groundmetric_distances": found.distances})


def figures_of(run: Run, content: Content) -> dict[str, Draw]:
    """By name, functions that draw on axes: those of the page, and what it shows as tables and maps."""
    found = figures_of_page(content) | {
        "importance": partial(_keyed, pl.importance, run.stored.metric),
        "axes": partial(_keyed, pl.components, run.stored.metric),
    }
    for column in [] if content.cells is None else content.cells.columns:
        if column.is_class and column.name != run.sample_key and column.name in run.cells.obs:
            found[f"cells {column.name}"] = partial(_keyed, pl.cells, run.cells, color=column.name, key=run.key)
    if content.types is not None:
        shares = {str(row[0]): row[1:4] for row in content.types.rows}
        found["cell types"] = partial(_keyed, pl.scores, shares, reference=0.0, name="share of the difference")
    return found


def _keyed(draw: Callable[..., Any], what: Any, ax: Axes, **options: Any) -> Any:
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


def render(draw: Draw, name: str, formats: Iterable[str] = ("png", "svg")) -> dict[str, bytes]:
    """The figure as PNG, on white, and as SVG, without a background."""
    looks: dict[str, dict[str, Any]] = {
        "png": {"facecolor": "white"},
        "svg": {"transparent": True, "metadata": dict.fromkeys(("Creator", "Date", "Format", "Type"))},
    }
    made = {}
    # No date and no random identifiers: the same figure is the same file.
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of a name: a box stands for it
        figure = Figure(layout="constrained")
        draw(figure.add_subplot())
        for kind in formats:
            figure.savefig(content := io.BytesIO(), format=kind, **looks[kind])
            made[kind] = content.getvalue()
    return made


def inline(svg: bytes, name: str, alt: str, role: str = "img") -> Markup:
    """An SVG of `render` for the page: unique identifiers, ink in the colour of the text, as wide as there is room."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # HTML knows no namespaces
        element.attrib = {key.rpartition("}")[2]: _unique(key, value, name) for key, value in element.attrib.items()}
    for defs in root.findall("defs"):
        for sheet in defs.findall("style"):
            defs.remove(sheet)  # it would be the whole page's; style.css says the same
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": role, "aria-label": alt, "class": "figure"}
    return Markup(visible(ElementTree.tostring(root, encoding="unicode")))


def _unique(key: str, value: str, name: str) -> str:
    """An attribute with identifiers that are unique in the page, and ink that a dark page can change."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    return value.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")
