"""Learning a ground metric: labels, triplets, loss and penalties, the training loop and its options, checkpoints."""

from .labels import Classes, Distances, Ordered, Survival
from .objective import Lasso, Penalty
from .survival import survival_percentiles
from .training import Checkpoint, EarlyStopping, Mapped, Nearest

__all__ = [
    "Checkpoint",
    "Classes",
    "Distances",
    "EarlyStopping",
    "Lasso",
    "Mapped",
    "Nearest",
    "Ordered",
    "Penalty",
    "Survival",
    "survival_percentiles",
]


def __dir__() -> list[str]:
    return sorted(__all__)
