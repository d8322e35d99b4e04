"""Figures of the width of a column: each function draws on `ax`, or in a new figure, and returns the axes."""

from .charts import ellipse, flow, history, importance
from .maps import clustermap, confusion, embedding, heatmap, points, projection

__all__ = [
    "clustermap",
    "confusion",
    "ellipse",
    "embedding",
    "flow",
    "heatmap",
    "history",
    "importance",
    "points",
    "projection",
]


def __dir__() -> list[str]:
    return __all__
