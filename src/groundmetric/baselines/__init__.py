"""Baselines for a learned ground metric, all with the interface of `GroundMetricLearner`.

Every baseline has ``fit(D, y)``, ``distances(A, B)`` between distributions and ``point_distances(x, y)`` between
points; those that classify by themselves also have ``predict_proba(D)`` and ``classes_``.

>>> import groundmetric as gm
>>> D, y = gm.datasets.synth_2d(random_state=0)
>>> gm.baselines.by_name("pseudobulk", statistics="mean_sd").fit(D, y).distances(D[:4], D[4:]).shape
(4, 26)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._internal.types import Baseline
from .composition import Composition
from .metrics import NCA, Cosine, Euclidean, LinearDiscriminant, Manhattan, PCAEuclidean
from .pseudobulk import PseudobulkLogistic, PseudobulkNeighbors

BASELINES: dict[str, Callable[..., Any]] = {
    "euclidean": Euclidean,
    "manhattan": Manhattan,
    "cosine": Cosine,
    "nca": NCA,
    "pca": PCAEuclidean,
    "lda": LinearDiscriminant,
    "pseudobulk": PseudobulkNeighbors,
    "logistic": PseudobulkLogistic,
    "composition": Composition,
}


def by_name(name: str, **params: Any) -> Baseline:
    """A baseline by its short name.

    Parameters
    ----------
    name : str
        A key of `BASELINES`.
    **params : object
        Parameters of the baseline.

    Returns
    -------
    estimator
        Not yet fitted.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.by_name("pca", n_components=5)
    PCAEuclidean(n_components=5)
    """
    if name not in BASELINES:
        raise ValueError(f"no baseline is called {name!r}: expected one of {', '.join(BASELINES)}")
    return BASELINES[name](**params)


__all__ = [
    "BASELINES",
    "NCA",
    "Composition",
    "Cosine",
    "Euclidean",
    "LinearDiscriminant",
    "Manhattan",
    "PCAEuclidean",
    "PseudobulkLogistic",
    "PseudobulkNeighbors",
    "by_name",
]


def __dir__() -> list[str]:
    return sorted(__all__)
