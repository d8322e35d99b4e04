"""Run the Python blocks of a Markdown page, in the order of the page, and show what they print and draw.

The tests run every page by `run`; Sphinx shows the results by `setup`. Blocks are ordinary fences that begin with
```python. A comment in the line before a block changes how it is run:

- `<!-- needs NAME -->`: run only where the module NAME is installed;
- `<!-- not run: WHY -->`: shown, never run.

All blocks of a page share one namespace, and the working folder is the same for all of them. What a block prints, the
value of its last line if that is an expression, and its figures are shown below it, as in a notebook.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import pprint
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"^(?:<!-- (?:needs (?P<needs>\w+)|not run: (?P<why>[^>]*)) -->\n)?```python\n(?P<code>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """Python block of a page: its code, its first line, where it ends in the text, and what it needs."""

    code: str
    line: int
    end: int
    needs: str | None = None
    why_not: str | None = None

    @property
    def runs(self) -> bool:
        """False for blocks that are only shown, or whose module is not installed."""
        return self.why_not is None and (self.needs is None or importlib.util.find_spec(self.needs) is not None)


@dataclass
class Output:
    """What a block printed, the value of its last expression, and the paths of its figures."""

    printed: str = ""
    value: Any = None
    figures: list[Path] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """Python blocks of a page."""
    return [
        Block(
            found["code"],
            text.count("\n", 0, found.start("code")) + 1,
            found.end(),
            found["needs"],
            found["why"],
        )
        for found in FENCE.finditer(text)
    ]


def run(page: Path, *, text: str | None = None, figures: Path | None = None) -> tuple[dict, dict[int, Output]]:
    """Run all blocks of a page in the present folder; their names, and the output of each by where it ends.

    Figures are closed after each block, and kept only with a folder for them. An error names page and line.
    """
    names: dict = {"__name__": "__main__"}
    outputs = {}
    for number, block in enumerate(blocks(page.read_text() if text is None else text)):
        if block.runs:
            outputs[block.end] = _run_block(block, page, names)
            outputs[block.end].figures = _take_figures(figures, f"{page.stem}-{number}")
    return names, outputs


def _run_block(block: Block, page: Path, names: dict) -> Output:
    # Lines of the page, so that a traceback points there.
    tree = ast.parse("\n" * (block.line - 1) + block.code, filename=str(page))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(page), "exec"), names)
        value = eval(compile(ast.Expression(last.value), str(page), "eval"), names) if last else None
    return Output(printed.getvalue(), value)


def _take_figures(folder: Path | None, name: str) -> list[Path]:
    """Save the open figures and close them; nothing is imported for pages that draw nothing."""
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
    """The page with the output of every block below it, as MyST Markdown; figures by their path from `source`."""
    parts, begin = [], 0
    for end, output in sorted(outputs.items()):
        parts += [text[begin:end], *_lines(output, source)]
        begin = end
    return "".join([*parts, text[begin:]])


def _lines(output: Output, source: Path) -> list[str]:
    if output.figures:  # the value of a line that draws is its axes, which say nothing
        drawn = [f"\n![figure](/{path.relative_to(source).as_posix()})\n" for path in output.figures]
        return [_fence(output.printed), *drawn]
    if hasattr(output.value, "columns") and hasattr(output.value, "_repr_html_"):  # a data frame
        return [_fence(output.printed), f"\n<div class='output'>{output.value._repr_html_()}</div>\n"]
    return [_fence(output.printed + _text(output.value))]


def _text(value: Any) -> str:
    """The value as a notebook shows it, with NumPy's numbers as plain ones."""
    said = "" if value is None else pprint.pformat(value, width=110, sort_dicts=False)
    return re.sub(r"np\.\w+\(([^()]*)\)", r"\1", said)


def _fence(said: str) -> str:
    return f"\n````{{code-block}} text\n:class: output\n\n{said.rstrip()}\n````\n" if said.strip() else ""


def setup(app: Any) -> dict:
    """Sphinx extension: pages are run when they are read, unless `run_pages` is off."""
    app.add_config_value("run_pages", True, "env", [bool])
    app.connect("source-read", _show_page)
    return {"version": "1", "parallel_read_safe": False}


def _show_page(app: Any, name: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    if not app.config.run_pages or page.suffix != ".md" or "```python" not in source[0]:
        return
    folder, work = Path(app.srcdir), Path(app.outdir).parent / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(work):
        _, outputs = run(page, text=source[0], figures=folder / "generated" / "figures")
    source[0] = shown(source[0], outputs, folder)
