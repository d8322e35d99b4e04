"""Ground metrics: distances and costs between points."""

from .base import DiagonalMetric, GroundMetric
from .forms import MappedMetric

__all__ = ["DiagonalMetric", "GroundMetric", "MappedMetric"]


def __dir__() -> list[str]:
    return sorted(__all__)
