"""Tools on AnnData, in scanpy's manner: learn a metric, compare samples, place new ones, look at cells."""

from .. import _anndata as cells  # noqa: F401  first of all: it says what to install where anndata is missing
from .learn import learn
from .relevance import cell_relevance
from .samples import average, samples
from .trajectory import trajectory
from .transfer import transfer

__all__ = ["average", "cell_relevance", "learn", "samples", "trajectory", "transfer"]
