"""The paper's tables and figures by one call, and the same comparison for anyone's data."""

from groundmetric.estimators.preprocessing import SelectedFeatures

from .run import SECTIONS, reproduce

__all__ = ["SECTIONS", "SelectedFeatures", "reproduce"]
