"""Baselines of the paper's tables: those of the package, LMNN, LFDA and ITML, and the linear map of the scripts.

The code of the paper's experiments does not apply W, with M = WᵀW, to the points, but another map made of M. Both are
in the tables, to see what difference it makes: `ScriptsMap` puts that map in place of any learned one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from groundmetric import baselines
from groundmetric.metrics.base import GroundMetric

from .itml import ITML
from .lfda import LFDA
from .lmnn import LMNN
from .points import NCA, Cosine, LinearDiscriminant, Manhattan, PCAEuclidean, PointLearner

BASELINES: dict[str, Callable[..., Any]] = {
    "euclidean": baselines.Euclidean, "manhattan": Manhattan, "cosine": Cosine, "nca": NCA, "pca": PCAEuclidean,
    "lda": LinearDiscriminant, "pseudobulk": baselines.Summary, "logistic": baselines.SummaryModel,
    "composition": baselines.Composition, "lmnn": LMNN, "lfda": LFDA, "itml": ITML,
}  # fmt: skip

# Number of features up to which the scripts apply M itself; beyond, they apply a factor of this rank.
_MATRIX_FEATURES, _FACTOR_RANK = 100, 5


def by_name(name: str, **params: Any) -> Any:
    """A baseline by its short name (a key of `BASELINES`), with these parameters."""
    if name not in BASELINES:
        raise ValueError(f"no baseline is called {name!r}: expected one of {', '.join(BASELINES)}")
    return BASELINES[name](**params)


def as_in_scripts(name: str, **params: Any) -> ScriptsMap:
    """A baseline that learns, in the form of the paper's scripts: their map, and for LFDA metric-learn's arithmetic."""
    return ScriptsMap(by_name(name, **params, **({"as_metric_learn": True} if name == "lfda" else {})))


class ScriptsMap(PointLearner):
    """A metric learned on labelled points, with the map of the paper's scripts in place of W.

    Parameters
    ----------
    method : PointLearner
        LMNN, LFDA, NCA or ITML; a copy of it is fitted.

    Attributes
    ----------
    method_ : PointLearner
        The fitted copy, with the metric as published.
    metric_, components_, classes_, n_features_in_

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> fitted = ScriptsMap(LFDA(max_points=200, random_state=0)).fit(D, y)
    >>> bool(np.allclose(fitted.components_, fitted.method_.metric_.matrix()))
    True
    """

    def __init__(self, method: Any) -> None:
        self.method = method

    def fit(self, D: Any, y: Any = None) -> ScriptsMap:
        """Fit the method, then replace its map."""
        self.method_ = clone(self.method).fit(D, y)
        learned = self.method_.metric_
        self.classes_, self.n_features_in_ = self.method_.classes_, self.method_.n_features_in_
        self.components_ = scripts_map(self.method_.components_)
        self.metric_ = GroundMetric(self.components_, learned.features, variances=learned.variances)
        return self


def scripts_map(components: np.ndarray) -> np.ndarray:
    """The linear map that the code of the paper's experiments has in place of W.

    Up to 100 features it applies M = WᵀW itself to the points, which gives the distance of M²; beyond, five rows of
    a pivoted Cholesky factor of M, which keeps the distance along the five features that add most to it. It does not by
    itself give the published figures: with LMNN on the synthetic data it gives far better ones.
    """
    if components.shape[1] <= _MATRIX_FEATURES:
        return components.T @ components
    return pivoted_cholesky(components, _FACTOR_RANK)


def pivoted_cholesky(components: np.ndarray, rank: int) -> np.ndarray:
    """At most `rank` rows F such that FᵀF approximates M = WᵀW, each chosen at the largest diagonal entry left.

    >>> F = pivoted_cholesky(np.array([[1.0, 0.0], [2.0, 3.0]]), rank=2)
    >>> (F.T @ F).round(12).tolist()
    [[5.0, 6.0], [6.0, 9.0]]
    """
    remaining = np.einsum("cf,cf->f", components, components)  # diagonal of M - FᵀF
    smallest = 1e-12 * remaining.max()
    rows: list[np.ndarray] = []
    while len(rows) < rank and remaining.max() > smallest:
        pivot = int(remaining.argmax())
        row = components.T @ components[:, pivot] - sum(done * done[pivot] for done in rows)
        rows.append(row / np.sqrt(remaining[pivot]))
        remaining = np.maximum(remaining - rows[-1] ** 2, 0.0)
    return np.array(rows) if rows else np.zeros((1, components.shape[1]))
