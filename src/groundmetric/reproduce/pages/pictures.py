"""The figures of the synthetic data."""

from __future__ import annotations

from pathlib import Path

from ..tables import prose

READING = """
    Above: the points; the points in the space of GGML; and what the metrics weigh (the longer the half axis of an
    ellipse, the more a direction counts, in units of the features' spread) or, of many features, the importance.
    Middle: distances between all distributions by GGML with default settings, learned from the filled ones. Below:
    by the Euclidean metric. Places are by classical scaling, where the paper has UMAP."""


def figures(found: dict[str, str], folder: Path) -> list[str]:
    """The section's paragraphs; the figures are there already."""
    shown = [
        f"![{data}: points, learned space, embeddings, cluster maps](results/{name})" for data, name in found.items()
    ]
    parts = [part for data, image in zip(found, shown, strict=True) for part in (f"### Figures of {data}", image)]
    return ["## Figures", prose(READING), *parts]
