"""Figures for a column of a paper: each function draws what was computed on `ax`, or on a new one, and returns it."""

from .cells import cells
from .data import arrange, embed, principal_axes
from .flow import flow
from .heatmap import heatmap
from .history import history
from .importance import components, importance, scores, stability
from .points import ellipse, points, projection
from .samples import embedding
from .style import COLOURS, INK, MARKERS, STYLE, percent

__all__ = [
    "COLOURS",
    "INK",
    "MARKERS",
    "STYLE",
    "arrange",
    "cells",
    "components",
    "ellipse",
    "embed",
    "embedding",
    "flow",
    "heatmap",
    "history",
    "importance",
    "percent",
    "points",
    "principal_axes",
    "projection",
    "scores",
    "stability",
]
