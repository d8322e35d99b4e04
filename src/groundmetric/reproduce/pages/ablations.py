"""The hyper-parameter surface, and the time of an epoch beside the paper's Table 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import paper
from ..figures import draw_surface
from ..tables import markdown, number, prose, write_csv

LEVELS = ("distributions", "points")
SURFACE = """
    Accuracy on held-out halves over the paper's grid, mean over {n_splits} halves, at most {max_epochs} epochs; of
    points, at most {max_points:,} vote and are voted on. Our margin is in units of the mean distance at the start,
    and the penalty in units of its value there, so that these axes are not those of the paper."""
TIMING = """
    Seconds per epoch on Synth 200D by neighbours and rank, the paper's in brackets. Ours are CPU seconds of one
    thread (mean of {n_epochs} epochs, from a cold start); the paper's were measured on 64 cores: other machines and
    another way of counting, so that only orders of magnitude can be compared. `make bench` has ratios measured side
    by side."""


def surface(found: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table and figure go into the folder."""
    grid = found["grid"]
    records = [
        {"data": data, "level": level, "margin": margin, "strength": strength, "accuracy": found[data][level][i][j]}
        for data in paper.DATA
        for level in LEVELS
        for i, margin in enumerate(grid)
        for j, strength in enumerate(grid)
    ]
    table, picture = write_csv(folder / "surface.csv", records), draw_surface(found, folder)
    return [
        "## Margin and strength",
        prose(SURFACE, n_splits=found["n_splits"], max_points=found["max_points"], max_epochs=found["max_epochs"]),
        f"![accuracy by margin and strength](results/{picture})",
        "Patient level: " + "; ".join(_breadth(data, found[data]["distributions"]) for data in paper.DATA) + ".",
        f"As CSV: [{table}](results/{table})",
    ]


def _breadth(data: str, accuracies: list[list[float]]) -> str:
    values = [value for row in accuracies for value in row]
    near = sum(value >= max(values) - 0.02 for value in values)
    return f"on {data}, {near} of {len(values)} settings are within 0.02 of the best ({number(max(values))})"


def timing(found: dict[str, Any], folder: Path) -> list[str]:
    """The section's paragraphs; its table goes into the folder."""
    records, rows = [], []
    for t, seconds in zip(found["neighbours"], found["seconds"], strict=True):
        both = list(zip(found["ranks"], seconds, paper.TIMING[t], strict=True))
        records += [{"neighbours": t, "rank": rank, "seconds": a, "paper seconds": b} for rank, a, b in both]
        rows.append([str(t), *(f"{number(a)} ({b:g})" for _, a, b in both)])
    table = write_csv(folder / "timing.csv", records)
    return [
        "## Time per epoch",
        prose(TIMING, n_epochs=found["n_epochs"]),
        markdown(["neighbours", *(f"rank {rank}" for rank in found["ranks"])], rows),
        f"As CSV: [{table}](results/{table})",
    ]
