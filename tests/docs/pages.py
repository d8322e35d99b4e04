"""Run the Python blocks of README and docs/; `CELLS` and `POINTS` name the pages of the two files of tests.

Two files, because pytest-xdist gives a whole file to one process.
"""

from pathlib import Path

import pytest
from executed_pages import blocks, run

ROOT = Path(__file__).resolve().parents[2]

CELLS = [
    "atlas",
    "counterfactual",
    "from_ggml_ot",
    "from_moscot",
    "from_pertpy",
    "from_pilot_patpy",
    "influence",
    "multimodal",
    "new_patients",
    "planning",
    "prediction_sets",
    "spatial",
    "tutorial",
]
POINTS = [
    "README",
    "cluster",
    "from_pot",
    "index",
    "labels",
    "method",
    "metrics",
    "point_sets",
    "survival",
    "transport",
    "transport_problem",
]


def path_of(name: str) -> Path:
    return ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"


def pages_with_blocks() -> list[str]:
    """Names of all pages that have a Python block to run."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return sorted(page.stem for page in pages if any(block.why_not is None for block in blocks(page.read_text())))


def run_page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Names that the blocks of a page have defined, run in an empty folder and without arguments."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names, _ = run(path_of(name))
    return names
