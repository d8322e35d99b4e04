"""Optimal transport: one problem through one door, `solve` or `solve_points`, and many pairs at a time."""

from .compiling import prepare_compilation

prepare_compilation()  # before the first kernel is defined

from .choice import Auto  # noqa: E402
from .coarse import Coarse  # noqa: E402
from .coarsening import Coarsened, coarsen  # noqa: E402
from .details import Details  # noqa: E402
from .door import solve  # noqa: E402
from .exact import Exact  # noqa: E402
from .partial import Partial, Unbalanced  # noqa: E402
from .plan import Basis, Plan, Status  # noqa: E402
from .points import solve_points  # noqa: E402
from .pot import Entropic, Gaussian, Mixture, Sliced  # noqa: E402

__all__ = [
    "Auto",
    "Basis",
    "Coarse",
    "Coarsened",
    "Details",
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
