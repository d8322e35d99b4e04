"""Tools on AnnData, in scanpy's manner: learn a metric, compare samples, place new ones, look at cells."""

from .. import cells  # noqa: F401  first of all: it says what to install where anndata is missing
from .averaging import average
from .learning import learn
from .relevance import cell_relevance
from .samples import samples
from .stored import metric
from .trajectory import trajectory
from .transfer import transfer

__all__ = ["average", "cell_relevance", "learn", "metric", "samples", "trajectory", "transfer"]
