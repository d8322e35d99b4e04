"""Optimal transport under the Euclidean distance between points, as given or after a scikit-learn transformer."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state, get_tags

from .._internal.types import DistributionsLike, LabelsLike, RandomState, Transformer
from .._internal.validation import check_labels, check_number
from ..distributions import Distributions
from ..estimators._base import GroundMetricMethod
from ..metrics.base import DiagonalMetric, GroundMetric
from ..metrics.forms import MappedMetric, image, some_points
from .summaries import Baseline, LabelFree

# Features up to which a transformer is tested for being affine, which takes an identity matrix of this size.
_MAX_AFFINE_FEATURES = 5000


class Euclidean(GroundMetricMethod, LabelFree):
    """Wasserstein distances with the Euclidean distance between points.

    Parameters
    ----------
    standardise : bool, default=False
        Divide every feature by its standard deviation over the training points.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 0.0], [3.0, 4.0]], samples=["a", "b"])
    >>> gm.baselines.Euclidean().fit(D).distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

    def __init__(self, *, standardise: bool = False) -> None:
        self.standardise = standardise

    def _fit(self, D: Distributions) -> None:
        self.metric_ = GroundMetric.euclidean(D.shape[1], D.features)
        if self.standardise:
            variance = D.moments()[1]
            # A constant feature contributes nothing for any weight.
            weights = 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0))
            self.metric_ = DiagonalMetric(weights, D.features, variances=variance)


class PointTransport(GroundMetricMethod, Baseline):
    """Wasserstein distances with the Euclidean distance between points mapped by a scikit-learn transformer.

    The transformer is fitted to points with the labels of their distributions. Principal components, linear
    discriminants and neighbourhood components are examples; pipelines may standardise the features first.

    Parameters
    ----------
    transformer : transformer
        Transformer of scikit-learn; a copy is fitted.
    max_points : int or None, default=10000
        Number of points, the same share of every distribution, that the transformer is fitted to; None: all.
    random_state : int, RandomState or None, default=None
        Seed of the subsample of points.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric: linear if the transformer is affine, a `MappedMetric` otherwise.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.PointTransport(LinearDiscriminantAnalysis()).fit(D, y).metric_.n_components
    2
    """

    def __init__(
        self, transformer: Transformer, *, max_points: int | None = 10_000, random_state: RandomState = None
    ) -> None:
        self.transformer = transformer
        self.max_points = max_points
        self.random_state = random_state

    @property
    def uses_labels(self) -> bool:
        """Whether the transformer needs labels; otherwise a permutation test fits it once."""
        return bool(get_tags(self.transformer).target_tags.required)

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> PointTransport:
        """Fit the transformer to points.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Class of each distribution, which its points get; None for transformers that need no labels.

        Returns
        -------
        PointTransport
            The estimator itself.
        """
        D = self._training_input(D)
        labels = None if y is None else np.repeat(check_labels(y, D.name_index), D.sizes)
        rows = np.arange(D.points.shape[0])
        if self.max_points is not None and rows.size > self.max_points:
            check_number("max_points", self.max_points, low=2, whole=True)
            random = check_random_state(self.random_state)
            counts = np.maximum(D.sizes * self.max_points // rows.size, 1)
            draws = [random.choice(size, count, replace=False) for size, count in zip(D.sizes, counts, strict=True)]
            rows = np.sort(np.concatenate([low + draw for low, draw in zip(D.bounds[:-1], draws, strict=True)]))
        fitted = clone(self.transformer).fit(D.points[rows], None if labels is None else labels[rows])
        variances, probes = D.moments()[1], some_points(D)
        images = image(fitted, probes)
        if D.shape[1] <= _MAX_AFFINE_FEATURES:
            # An affine map is determined by the images of the origin and of the unit vectors.
            origin = image(fitted, np.zeros((1, D.shape[1])))
            components = np.asarray(image(fitted, np.eye(D.shape[1])) - origin).T
            if np.allclose(probes @ components.T + origin, images, rtol=1e-6, atol=1e-6 * np.abs(images).max()):
                self.metric_ = GroundMetric(components, D.features, variances=variances)
                return self
        inner = GroundMetric.euclidean(images.shape[1])
        self.metric_ = MappedMetric(fitted, inner, D.shape[1], D.features, probes=probes)
        return self
