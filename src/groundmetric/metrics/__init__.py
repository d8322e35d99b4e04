"""Ground metrics: distances and costs between points."""

from .base import Cost, DiagonalMetric, GroundMetric
from .forms import MappedMetric

__all__ = ["Cost", "DiagonalMetric", "GroundMetric", "MappedMetric"]


def __dir__() -> list[str]:
    return sorted(__all__)
