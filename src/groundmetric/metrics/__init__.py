"""Ground metrics: what a step between two points costs."""

from .base import GroundMetric
from .cost import Cost
from .diagonal import DiagonalMetric
from .mapped import MappedMetric

__all__ = ["Cost", "DiagonalMetric", "GroundMetric", "MappedMetric"]


def __dir__() -> list[str]:
    return sorted(__all__)
