"""Tools on AnnData, in scanpy's manner: learn a metric, compare samples, transfer to new ones, look at cells."""

from .. import _anndata  # noqa: F401  first of all: it says what to install where anndata is missing
from .._anndata.annotations import CohortWarning
from .learn import learn
from .relevance import cell_relevance
from .samples import average, samples, trajectory
from .transfer import transfer

__all__ = ["CohortWarning", "average", "cell_relevance", "learn", "samples", "trajectory", "transfer"]


def __dir__() -> list[str]:
    return __all__
