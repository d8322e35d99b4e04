"""Ground metrics: distances and costs between points."""

from .base import DiagonalMetric, GroundMetric
from .forms import MappedMetric

__all__ = ["DiagonalMetric", "GroundMetric", "MappedMetric"]
