"""Figures for a column of a paper: each function draws what was computed on `ax`, or on a new one, and returns it."""

from .learning import confusion, history
from .metric import components, ellipse, importance
from .points import cells, points, projection
from .results import flow, scores
from .samples import clustermap, embedding, heatmap

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
