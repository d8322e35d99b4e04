"""Learning a ground metric: its options as objects, the objective, the optimiser and the training loop."""

from ..supervision.labels import Classes, Distances, Ordered, Survival
from ..supervision.survival import survival_percentiles
from .options import Checkpoint, EarlyStopping, Mapped, Nearest

__all__ = [
    "Checkpoint",
    "Classes",
    "Distances",
    "EarlyStopping",
    "Mapped",
    "Nearest",
    "Ordered",
    "Survival",
    "survival_percentiles",
]


def __dir__() -> list[str]:
    return sorted(__all__)
