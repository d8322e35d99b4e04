"""The ensemble: label-free geometry, members, views and stacking, in one fitted object."""

from .fit import FittedEnsemble, Predicted, Predictor, Settings
from .geometry import Description, Geometry, Scaling
from .members import EUCLIDEAN, KINDS, Member
from .stacking import Classes, Numbers, Survival, Target

__all__ = [
    "EUCLIDEAN",
    "KINDS",
    "Classes",
    "Description",
    "FittedEnsemble",
    "Geometry",
    "Member",
    "Numbers",
    "Predicted",
    "Predictor",
    "Scaling",
    "Settings",
    "Survival",
    "Target",
]
