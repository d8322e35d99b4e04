"""The ensemble: label-free geometry, members, views and stacking, in one fitted object."""

from .fit import FittedEnsemble, Settings
from .geometry import Description, Geometry, Scaling
from .members import KINDS, Member
from .targets import Classes, Numbers, Survival, Target
from .views import EUCLIDEAN

__all__ = [
    "EUCLIDEAN",
    "KINDS",
    "Classes",
    "Description",
    "FittedEnsemble",
    "Geometry",
    "Member",
    "Numbers",
    "Scaling",
    "Settings",
    "Survival",
    "Target",
]
