"""Data made on the spot: nothing is downloaded."""

from .synthetic import make_modes, synth_2d, synth_200d

__all__ = ["make_modes", "synth_2d", "synth_200d"]
