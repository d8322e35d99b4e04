"""Optimal transport: one problem by `solve` or `solve_points`, and many pairs at a time."""

from typing import TYPE_CHECKING, Any

from .._internal import find
from .plan import Basis, BoundedDistances, Plan, Status
from .solve import Auto, solve, solve_points
from .solvers.exact import Exact

if TYPE_CHECKING:
    from .cohort import pairwise
    from .solvers.coarse import Coarse, Coarsened, coarsen
    from .solvers.partial import Partial, Unbalanced
    from .solvers.pot import POT

__all__ = [
    "POT",
    "Auto",
    "Basis",
    "BoundedDistances",
    "Coarse",
    "Coarsened",
    "Exact",
    "Partial",
    "Plan",
    "Status",
    "Unbalanced",
    "coarsen",
    "pairwise",
    "solve",
    "solve_points",
]

# Solvers other than the exact one need scipy or scikit-learn: they are imported when they are first used.
_HOME = {
    **dict.fromkeys(("Coarse", "Coarsened", "coarsen"), "solvers.coarse"),
    **dict.fromkeys(("Partial", "Unbalanced"), "solvers.partial"),
    "POT": "solvers.pot",
    "pairwise": "cohort",
}


def __getattr__(name: str) -> Any:
    return find(name, _HOME, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
