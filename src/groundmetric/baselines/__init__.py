"""Baselines for a learned ground metric, all with the interface of `GroundMetricLearner`.

Every baseline has ``fit(D, y)``, ``distances(A, B)`` between distributions and ``point_distances(x, y)`` between
points; classifiers also have ``predict_proba(D)`` and ``classes_``.

>>> import groundmetric as gm
>>> D, y = gm.datasets.synth_2d(random_state=0)
>>> gm.baselines.PseudobulkNeighbors(statistics="mean_sd").fit(D, y).distances(D[:4], D[4:]).shape
(4, 26)
"""

from .points import NCA, Cosine, Euclidean, LinearDiscriminant, Manhattan, PCAEuclidean
from .summaries import Composition, PseudobulkLogistic, PseudobulkNeighbors

__all__ = [
    "NCA",
    "Composition",
    "Cosine",
    "Euclidean",
    "LinearDiscriminant",
    "Manhattan",
    "PCAEuclidean",
    "PseudobulkLogistic",
    "PseudobulkNeighbors",
]


def __dir__() -> list[str]:
    return sorted(__all__)
