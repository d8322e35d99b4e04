"""The paper's tables and figures by one call, and the same comparison for anyone's data."""

from .running import SECTIONS, reproduce
from .selected import SelectedFeatures

__all__ = ["SECTIONS", "SelectedFeatures", "reproduce"]
