"""Figures for a column of a paper: each function draws what was computed on `ax`, or on a new one, and returns it."""

from .bars import importance
from .clouds import points, projection
from .component_maps import components
from .curves import history
from .ellipses import ellipse
from .flows import flow
from .geometry import arrange, embed, principal_axes
from .heatmaps import heatmap
from .intervals import stability
from .maps import cells
from .samples import embedding
from .scores import scores
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
