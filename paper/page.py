"""The page of results: the findings of every section as tables beside the paper's, and what should be known of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groundmetric._internal.files import write_whole
from groundmetric._internal.tables import prose

from .ablations import surface, timing
from .classification import classification
from .clustering import clustering
from .figures import figures
from .real import real

MARK = "<!-- written by `groundmetric reproduce`: edits are lost when it runs again -->"
SECTIONS = {
    "classification": classification, "clustering": clustering, "surface": surface, "timing": timing,
    "figures": figures, "real": real,
}  # fmt: skip


def write_page(findings: dict[str, Any], output: Path, *, quick: bool, version: str) -> list[str]:
    """Write results.md, and tables and figures into results/; the names of all files, relative to the output."""
    folder = output / "results"
    folder.mkdir(parents=True, exist_ok=True)
    parts = [MARK, "# Results", _intro(quick, version)]
    for section, write in SECTIONS.items():
        if section in findings:
            parts += write(findings[section], folder)
    write_whole(output / "results.md", ["\n\n".join(parts).encode() + b"\n"])
    return ["results.md", *sorted(f"results/{path.name}" for path in folder.iterdir() if not path.name.startswith("."))]


def _intro(quick: bool, version: str) -> str:
    warning = "**A quick run: few points, splits, settings and epochs. Its numbers say nothing but that it runs.**"
    return prose(
        """The experiments of the paper (Kühn & Schaub, *Global Ground Metric Learning with Applications to scRNA data*,
        AISTATS 2025) on its synthetic data, and some on real data, run and written by `groundmetric reproduce` (version
        {version}). Figures that the paper prints stand beside ours; all tables are in `results/` as CSV. {warning}""",
        version=version,
        warning=warning if quick else "",
    ).rstrip()
