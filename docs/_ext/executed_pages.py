"""Run the Python blocks of a Markdown page and show their output below them.

The tests call `run` for every page; Sphinx uses `setup`. Blocks are fences that begin with ```python. A comment in the
line before a block changes how it is run:

- `<!-- needs NAME -->`: run only if the module NAME is installed;
- `<!-- not run: WHY -->`: shown but not run;
- `<!-- figure -->`: run; the page shows the figure, and the code in a closed dropdown.

All blocks of a page share one namespace and one working folder. The output of a block is its printed text, the value of
its last line if that is an expression, and its figures, as in a notebook. Each page with blocks can be downloaded as a
notebook.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import pprint
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"^(?:<!-- (?:needs (?P<needs>\w+)|not run: (?P<why>[^>]*)|(?P<figure>figure)) -->\n)?"
    r"```python\n(?P<code>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """Python block of a page: code, first line, positions in the text, and the marks of the comment above it."""

    code: str
    line: int
    start: int
    end: int
    needs: str | None = None
    why_not: str | None = None
    is_figure: bool = False

    @property
    def runs(self) -> bool:
        """Whether the block is run: it is not marked as not run, and its module is installed."""
        return self.why_not is None and (self.needs is None or importlib.util.find_spec(self.needs) is not None)


@dataclass
class Output:
    """Printed text of a block, value of its last expression, and paths of its figures."""

    printed: str = ""
    value: Any = None
    figures: list[Path] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page."""
    return [
        Block(
            match["code"],
            text.count("\n", 0, match.start("code")) + 1,
            match.start(),
            match.end(),
            match["needs"],
            match["why"],
            match["figure"] is not None,
        )
        for match in FENCE.finditer(text)
    ]


def run(page: Path, *, text: str | None = None, figures: Path | None = None) -> tuple[dict, dict[int, Output]]:
    """Run all blocks of a page in the current folder.

    Returns the namespace and the output of each block by its end position. Figures are closed after each block, and
    saved if `figures` is a folder. The traceback of an error has the line of the page.
    """
    names: dict = {"__name__": "__main__"}
    outputs = {}
    for number, block in enumerate(blocks(page.read_text() if text is None else text)):
        if block.runs:
            outputs[block.end] = _run_block(block, page, names)
            outputs[block.end].figures = _save_figures(figures, f"{page.stem}-{number}")
    return names, outputs


def _run_block(block: Block, page: Path, names: dict) -> Output:
    # Leading empty lines make the line numbers of tracebacks those of the page.
    tree = ast.parse("\n" * (block.line - 1) + block.code, filename=str(page))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(page), "exec"), names)
        value = eval(compile(ast.Expression(last.value), str(page), "eval"), names) if last else None
    return Output(printed.getvalue(), value)


def _save_figures(folder: Path | None, name: str) -> list[Path]:
    """Save and close the open figures; matplotlib is not imported for pages without figures."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    paths = []
    for number in pyplot.get_fignums():
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            paths.append(folder / f"{name}-{number}.png")
            pyplot.figure(number).savefig(paths[-1], dpi=100, bbox_inches="tight")
    pyplot.close("all")
    return paths


def shown(text: str, outputs: dict[int, Output], source: Path) -> str:
    """Return the page as MyST Markdown with the output of each block below it; figures by their path from `source`."""
    parts, begin = [], 0
    for block in blocks(text):
        output = outputs.get(block.end)
        if output is None:
            continue
        code = text[block.start : block.end]
        if block.is_figure:
            code = f"\n````{{dropdown}} Code of the figure\n```python\n{block.code}```\n````\n"
        lines = _lines(output, source)
        parts += [text[begin : block.start], *([*lines, code] if block.is_figure else [code, *lines])]
        begin = block.end
    return "".join([*parts, text[begin:]])


def _lines(output: Output, source: Path) -> list[str]:
    if output.figures:  # do not show the value of a plotting call (axes)
        images = [f"\n![figure](/{path.relative_to(source).as_posix()})\n" for path in output.figures]
        return [_fence(output.printed), *images]
    if hasattr(output.value, "columns") and hasattr(output.value, "_repr_html_"):  # a data frame
        return [_fence(output.printed), f"\n<div class='output'>{output.value._repr_html_()}</div>\n"]
    return [_fence(output.printed + _text(output.value))]


def _text(value: Any) -> str:
    """Return the text of a value as in a notebook, with NumPy scalars as plain numbers."""
    text = "" if value is None else pprint.pformat(value, width=110, sort_dicts=False)
    return re.sub(r"np\.\w+\(([^()]*)\)", r"\1", text)


def _fence(text: str) -> str:
    return f"\n````{{code-block}} text\n:class: output\n\n{text.rstrip()}\n````\n" if text.strip() else ""


def notebook(text: str) -> dict:
    """Return a page as a Jupyter notebook (format 4) without outputs; links to other pages become plain text."""
    cells, begin = [], 0
    for block in blocks(text):
        cells += [_cell("markdown", text[begin : block.start])]
        cells += [
            _cell(
                "code" if block.why_not is None else "markdown",
                block.code if block.why_not is None else f"```python\n{block.code}```",
            )
        ]
        begin = block.end
    cells += [_cell("markdown", text[begin:])]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {
        "cells": [cell for cell in cells if cell["source"]],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def _cell(kind: str, text: str) -> dict:
    if kind == "markdown":
        text = re.sub(r"\[([^]]*)\]\((?!http)[^)]*\)", r"\1", text)
    cell = {"cell_type": kind, "metadata": {}, "source": text.strip()}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


def setup(app: Any) -> dict:
    """Run pages when Sphinx reads them, unless `run_pages` is off."""
    app.add_config_value("run_pages", True, "env", [bool])
    app.connect("source-read", _show_page)
    return {"version": "1", "parallel_read_safe": False}


def _show_page(app: Any, name: str, source: list[str]) -> None:
    page, text = Path(app.env.doc2path(name)), source[0]
    if page.suffix != ".md" or "```python" not in text:
        return
    folder, work = Path(app.srcdir), Path(app.outdir).parent / "work" / name
    if app.config.run_pages:
        work.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(work):
            _, outputs = run(page, text=text, figures=folder / "generated" / "figures")
        source[0] = shown(text, outputs, folder)
    if name != "index":
        path = folder / "generated" / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook(text), indent=1, ensure_ascii=False))
        link = f"{{download}}`Download this page as a notebook </generated/notebooks/{name}.ipynb>`"
        source[0] = re.sub(r"\A(# .*\n)", rf"\1\n{link}\n", source[0], count=1)
