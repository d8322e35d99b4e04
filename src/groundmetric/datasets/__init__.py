"""Data to try things on: made on the spot from stated models, or fetched from CELLxGENE."""

from .cohort import make_cohort
from .portal import PAPER_DATASETS, cellxgene, cellxgene_file
from .survival import make_survival
from .synthetic import make_modes, make_rings, synth_2d, synth_200d

__all__ = [
    "PAPER_DATASETS",
    "cellxgene",
    "cellxgene_file",
    "make_cohort",
    "make_modes",
    "make_rings",
    "make_survival",
    "synth_2d",
    "synth_200d",
]


def __dir__() -> list[str]:
    return __all__
