"""Penalties on the components: Frobenius norm and its square, lasso, group lasso, nuclear norm, or your own.

A module of a few lines, because the penalties belong to `learning` but are asked for by name from outside.
"""

from .learning.penalties import Frobenius, GroupLasso, Lasso, Nuclear, Penalty, SquaredFrobenius

__all__ = ["Frobenius", "GroupLasso", "Lasso", "Nuclear", "Penalty", "SquaredFrobenius"]


def __dir__() -> list[str]:
    return sorted(__all__)
