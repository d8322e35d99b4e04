"""Data sets: simulated from documented models, or downloaded from CELLxGENE."""

from .cohort import make_cohort
from .portal import PAPER_DATASETS, cellxgene
from .synthetic import make_modes, make_rings, make_survival, synth_2d, synth_200d

__all__ = [
    "PAPER_DATASETS", "cellxgene", "make_cohort", "make_modes", "make_rings", "make_survival", "synth_2d", "synth_200d",
]  # fmt: skip
