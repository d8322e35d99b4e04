"""Figures for a column of a paper: each function draws what was computed on `ax`, or on a new one, and returns it."""

from .metric import components, ellipse, importance
from .points import cells, points, projection
from .results import flow, history, scores, stability
from .samples import embedding, heatmap

__all__ = [
    "cells",
    "components",
    "ellipse",
    "embedding",
    "flow",
    "heatmap",
    "history",
    "importance",
    "points",
    "projection",
    "scores",
    "stability",
]


def __dir__() -> list[str]:
    return __all__
