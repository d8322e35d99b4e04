"""Neighbourhood components analysis as a baseline: a ground metric learned on labelled points."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from .._internal.validation import check_number
from ._base import PointLearner, check_components, starting_map


class NCA(PointLearner):
    """Neighbourhood components analysis (Goldberger et al. 2004) on points with their distribution's label.

    Maximises the chance that a point, choosing a neighbour at random with near ones preferred, chooses one of its own
    class. The work is scikit-learn's; the defaults are metric-learn's (all components, 100 iterations), as in the
    paper. Every step takes the distances between all pairs of points, so that their number is limited.

    Parameters
    ----------
    n_components : int or None, default=None
        Rows of the map; None: as many as features.
    max_iter : int, default=100
        Iterations at most.
    tol : float, default=1e-7
        Stop when a step gains less than this share; 1e-7 is about where metric-learn stops.
    max_points : int or None, default=1500
        Points that are drawn for learning, the same share of every distribution; None: all.
    max_features : int, default=300
        More features are reduced to as many principal components first.
    standardise : bool, default=False
        Divide every feature by its standard deviation first. The paper used the features as they are.
    random_state : int, RandomState or None, default=None
        Seed of the draw of points.

    Attributes
    ----------
    metric_ : GroundMetric
        The learned ground metric.
    components_ : array of shape (n_components, n_features)
        Its map.
    classes_ : array of shape (n_classes,)
        Labels.
    n_features_in_ : int
        Features seen in `fit`.
    n_iter_ : int
        Iterations done.

    Notes
    -----
    Points of no mass are left out. Other weights count where features are standardised or reduced to principal
    components, and not in the analysis itself.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.NCA(1, max_iter=5, random_state=0).fit(D, y).components_.shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_iter: int = 100,
        tol: float = 1e-7,
        max_points: int | None = 1500,
        max_features: int = 300,
        standardise: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.max_points = max_points
        self.max_features = max_features
        self.standardise = standardise
        self.random_state = random_state

    def _check_settings(self, n_features: int) -> None:
        check_components(self.n_components, n_features)
        check_number("max_iter", self.max_iter, low=1, whole=True)
        check_number("tol", self.tol, low=0.0)

    def _learn(
        self, points: np.ndarray, codes: np.ndarray, weights: np.ndarray, random: np.random.RandomState
    ) -> np.ndarray:
        start = starting_map(points, codes, self.n_components, random)
        nca = NeighborhoodComponentsAnalysis(init=start, max_iter=self.max_iter, tol=self.tol).fit(points, codes)
        self.n_iter_ = nca.n_iter_
        return nca.components_
