"""Learning a ground metric: the objective, its penalties, the optimiser and the training loop."""

from .penalties import Frobenius, GroupLasso, Lasso, Nuclear, Penalty, SquaredFrobenius

__all__ = ["Frobenius", "GroupLasso", "Lasso", "Nuclear", "Penalty", "SquaredFrobenius"]
