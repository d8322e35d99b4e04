"""Tools for AnnData in the style of scanpy: learn a metric, compare samples, predict new ones, rank cells."""

from .. import _anndata  # noqa: F401  first, for its error message without anndata
from .._anndata.cohort import CohortWarning
from .learn import learn
from .relevance import cell_relevance
from .samples import samples, trajectory
from .transfer import transfer

__all__ = ["CohortWarning", "cell_relevance", "learn", "samples", "trajectory", "transfer"]


def __dir__() -> list[str]:
    return __all__
