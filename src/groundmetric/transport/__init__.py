"""Optimal transport: one problem by `solve` or `solve_points`, and many pairs at a time."""

from .._internal.compile import prepare_compilation

prepare_compilation()  # before the first kernel is defined

from .plan import Basis, BoundedDistances, Plan, Status  # noqa: E402
from .solve import Auto, solve, solve_points  # noqa: E402
from .solvers.coarse import Coarse, Coarsened, coarsen  # noqa: E402
from .solvers.exact import SOLVERS, Exact  # noqa: E402
from .solvers.partial import Partial, Unbalanced  # noqa: E402
from .solvers.pot import Entropic, Gaussian, Mixture, Sliced  # noqa: E402

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
