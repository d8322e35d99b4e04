"""Learning a ground metric: its options as objects, the objective, the optimiser and the training loop."""

from ..supervision.labels import Classes, Distances, Ordered
from .options import Checkpoint, EarlyStopping, Mapped, Nearest

__all__ = ["Checkpoint", "Classes", "Distances", "EarlyStopping", "Mapped", "Nearest", "Ordered"]


def __dir__() -> list[str]:
    return sorted(__all__)
