"""The ensemble: label-free geometry, members, views and stacking, in one fitted object."""

from .fit import FittedEnsemble, Predicted, Predictor, Settings
from .geometry import Geometry
from .members import KINDS
from .stacking import Classes, Numbers, Survival, Target

__all__ = [
    "KINDS", "Classes", "FittedEnsemble", "Geometry", "Numbers", "Predicted", "Predictor", "Settings", "Survival",
    "Target",
]  # fmt: skip
