"""Optimal transport: one problem by `solve` or `solve_points`, and many pairs at a time."""

from .plan import Basis, BoundedDistances, Plan, Status
from .solve import Auto, solve, solve_points
from .solvers.coarse import Coarse, Coarsened, coarsen
from .solvers.exact import SOLVERS, Exact
from .solvers.partial import Partial, Unbalanced
from .solvers.pot import Entropic, Gaussian, Mixture, Sliced

__all__ = [
    "Auto",
    "Basis",
    "BoundedDistances",
    "Coarse",
    "Coarsened",
    "Entropic",
    "Exact",
    "Gaussian",
    "Mixture",
    "Partial",
    "Plan",
    "Sliced",
    "Status",
    "Unbalanced",
    "coarsen",
    "solve",
    "solve_points",
]

SOLVERS |= {kind.name: kind for kind in (Exact, Partial, Unbalanced, Entropic, Sliced, Gaussian, Mixture, Coarse, Auto)}


def __dir__() -> list[str]:
    return sorted(__all__)
