"""Data sets: simulated from documented models, or downloaded from CELLxGENE."""

from .cohort import CohortModel, make_cohort
from .portal import PAPER_DATASETS, cellxgene
from .synthetic import make_modes, make_rings, make_survival, synth_2d, synth_200d

__all__ = [
    "PAPER_DATASETS",
    "CohortModel",
    "cellxgene",
    "make_cohort",
    "make_modes",
    "make_rings",
    "make_survival",
    "synth_2d",
    "synth_200d",
]


def __dir__() -> list[str]:
    return __all__
