"""Figures of the width of a column: each function draws on `ax`, or in a new figure, and returns the axes."""

from .charts import ellipse, flow, history, importance, scores
from .matrices import clustermap, components, confusion, heatmap
from .scatter import cells, embedding, points, projection

__all__ = [
    "cells",
    "clustermap",
    "components",
    "confusion",
    "ellipse",
    "embedding",
    "flow",
    "heatmap",
    "history",
    "importance",
    "points",
    "projection",
    "scores",
]


def __dir__() -> list[str]:
    return __all__
