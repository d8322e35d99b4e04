"""What the genes of an axis take part in, against sets of a GMT file."""

from __future__ import annotations

import os

import numpy as np

from ..interpret import over_representation, read_gmt
from .content import Field, Table
from .reading import Directions

TOP, SHOWN, SURE = 50, 8, 0.05


def processes_of_axes(axes: Directions, features: list[str], gene_sets: str | os.PathLike) -> list[Table | None]:
    """For each axis, the sets in which its strongest genes are over-represented; None where there are none."""
    sets = read_gmt(gene_sets)
    found: list[Table | None] = []
    for a, loadings in enumerate(axes.loadings, 1):
        n = min(TOP, max(1, len(features) // 5))
        top = [features[g] for g in np.argsort(-np.abs(loadings), kind="stable")[:n]]
        tested = over_representation(top, features, sets)
        rows = [
            [name.replace("_", " "), float(tested.q[s]), float(tested.effect[s]), ", ".join(tested.overlap[s])]
            for s, name in enumerate(tested.sets[:SHOWN])
            if tested.q[s] < SURE
        ]
        fields = [Field("Process"), Field("q", ".1e"), Field("Fold", ".1f"), Field("Genes")]
        caption = f"Processes of the {n} strongest genes of axis {a}" + ("" if rows else f": none with q < {SURE}")
        found.append(Table(f"processes-{a}", caption, fields, rows) if rows else None)
    return found
