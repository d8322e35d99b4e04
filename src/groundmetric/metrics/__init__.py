"""Ground metrics: what a step between two points costs."""

from .base import GroundMetric
from .cost import Cost
from .diagonal import DiagonalMetric
from .mapped import MappedMetric

__all__ = ["Cost", "DiagonalMetric", "GroundMetric", "MappedMetric"]
