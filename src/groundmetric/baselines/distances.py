"""Methods with distances between distributions.

Summaries of distributions as vectors (means, moments, proportions of types, mean embeddings), PILOT's distance, and
optimal transport between points, as given or after a scikit-learn transformer.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, LabelsLike, RandomState, Transformer
from .._internal.validation import ParameterError, check_labels, check_number, is_missing
from ..distances import GroundMetricMethod, pairwise_distances
from ..distributions import Distributions, as_distributions
from ..ensemble.geometry import Scaling
from ..metrics.base import DiagonalMetric, GroundMetric, euclidean
from ..metrics.forms import MappedMetric, image, some_points

STATISTICS = ("mean", "moments", "type_means", "composition", "embedding")
# Points per distribution in all summaries but means, at most.
_MAX_POINTS = 1000
# Points that k-means is fitted to, at most.
_MAX_CLUSTERED_POINTS = 5000
# Points added to the number of points of each type before logarithms are taken (Jeffreys' prior).
_PSEUDO_COUNT = 0.5
# Points added to every distribution by `Composition`, as in PILOT.
_COMPOSITION_PRIOR = 0.2
# Features up to which a transformer is tested for being affine, which takes an identity matrix of this size.
_MAX_AFFINE_FEATURES = 5000


class Baseline(BaseEstimator):
    """Base of the methods for comparison: input in training, and later input with the same features."""

    def _training_input(self, D: Any) -> Distributions:
        D = as_distributions(D).with_mass()
        self.n_features_in_ = D.shape[1]
        self._features = GroundMetric.euclidean(D.shape[1], D.features)
        return D

    def _checked(self, D: Any) -> Distributions:
        check_is_fitted(self, "n_features_in_")
        D = as_distributions(D).with_mass()
        self._features.check_fit(D)
        return D


class LabelFree(Baseline):
    """Base of the methods that do not use labels: a permutation test fits them once."""

    uses_labels = False

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> Self:
        """Fit the method to training distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Labels, which are not used.

        Returns
        -------
        estimator
            The estimator itself.
        """
        D = self._training_input(D)
        if y is not None:
            check_labels(y, D.name_index)
        self._fit(D)
        return self

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return distances between the distributions of A and of B (or among those of A).

        Parameters
        ----------
        A : Distributions or array of shape (n_points, n_features)
            Distributions of the rows.
        B : Distributions, array of shape (n_points, n_features) or None, default=None
            Distributions of the columns; None: those of A.
        n_jobs : int or None, default=None
            Number of threads for transport; None means one, -1 one per core.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances.
        """
        raise NotImplementedError

    def _fit(self, D: Distributions) -> None:
        raise NotImplementedError


class Types:
    """Types of points: an annotation, or clusters found by k-means on principal components."""

    def __init__(self, D: Distributions, annotation: str | None, n_types: int, seed: int) -> None:
        check_number("n_types", n_types, low=1, whole=True)
        self.annotation, self.scaling = annotation, Scaling.fit(D, seed, _MAX_POINTS)
        if annotation is not None:
            self.names = np.unique(self._annotated(D))
            return
        from sklearn.cluster import KMeans  # slow to import

        z = self.scaling.describe(D).euclidean.points
        z = z[np.linspace(0, len(z) - 1, min(len(z), _MAX_CLUSTERED_POINTS)).astype(np.intp)]
        n_clusters = min(n_types, len(np.unique(z, axis=0)))
        self._kmeans = KMeans(n_clusters, n_init=3, random_state=seed).fit(z)
        self.names = np.arange(n_clusters)

    def draw(self, D: Distributions) -> tuple[Distributions, np.ndarray]:
        """Return equal numbers of points of each distribution, and the type of each; -1: not a type of training."""
        description = self.scaling.describe(D)
        if self.annotation is None:
            # Distances are computed here: `KMeans.predict` depends on the number of threads in the last bit.
            z, centres = description.euclidean.points, self._kmeans.cluster_centers_
            return description.transported, sklearn_distances(z, centres, metric="sqeuclidean").argmin(axis=1)
        index = {name: t for t, name in enumerate(self.names.tolist())}
        return description.transported, np.array(
            [index.get(name, -1) for name in self._annotated(description.transported).tolist()]
        )

    def counts(self, D: Distributions) -> np.ndarray:
        """Return the number of points of each type, (n_distributions, n_types)."""
        drawn, types = self.draw(D)
        counts = np.zeros((len(D), self.names.size))
        owners, masses = np.repeat(np.arange(len(D)), drawn.sizes), drawn.weights * np.repeat(drawn.sizes, drawn.sizes)
        np.add.at(counts, (owners[types >= 0], types[types >= 0]), masses[types >= 0])
        return counts

    def means(self, D: Distributions) -> np.ndarray:
        """Return the mean of each feature in each type, (n_distributions, n_types, n_features); NaN without points."""
        drawn, types = self.draw(D)
        owners, rows = np.repeat(np.arange(len(D)), drawn.sizes), np.flatnonzero(types >= 0)
        cells = owners[rows] * self.names.size + types[rows]
        shape = (len(D) * self.names.size, types.size)
        masses = sparse.csr_matrix((drawn.weights[rows], (cells, rows)), shape)
        sums, totals = masses @ drawn.points, np.asarray(masses.sum(axis=1))
        sums = np.asarray(sums.toarray() if sparse.issparse(sums) else sums, dtype=np.float64)
        means = np.divide(sums, totals, out=np.full(sums.shape, np.nan), where=totals > 0)
        return means.reshape(len(D), self.names.size, -1)

    def _annotated(self, D: Distributions) -> np.ndarray:
        if self.annotation not in D.annotations:
            raise ParameterError("annotation", self.annotation, f": expected one of {sorted(D.annotations)}, or None")
        values = D.annotations[self.annotation]
        if values.dtype.kind in "fOmM" and any(map(is_missing, values)):
            raise ParameterError("annotation", self.annotation, ", which is missing for at least one point")
        return values


class Summary(TransformerMixin, LabelFree):
    """One vector per distribution: means of the features, or other statistics.

    All statistics but means depend on the number of points of a distribution, so they are computed from equal numbers.

    Parameters
    ----------
    statistics : {"mean", "moments", "type_means", "composition", "embedding"}, default="mean"
        "mean": mean of each feature (pseudobulk). "moments": means and standard deviations. "type_means": mean of each
        feature in each type of points; without points of a type, the mean of the training distributions.
        "composition": proportions of types as centred log-ratios. "embedding": kernel mean embedding by random Fourier
        features, at four bandwidths.
    annotation : str or None, default=None
        Annotation of the points that holds their types, e.g. "cell_type". None: clusters found by k-means.
    n_types : int, default=20
        Number of clusters; not used with an annotation.
    random_state : int, default=0
        Seed of draws of points, clusters and random features.

    Attributes
    ----------
    centre_, scale_ : array of shape (n_statistics,)
        Mean and standard deviation of each statistic over the training distributions.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [2.0], [5.0]], samples=["a", "a", "b"])
    >>> gm.baselines.Summary().fit(D).transform(D).tolist()
    [[1.0], [5.0]]
    """

    def __init__(
        self, statistics: str = "mean", *, annotation: str | None = None, n_types: int = 20, random_state: int = 0
    ) -> None:
        self.statistics = statistics
        self.annotation = annotation
        self.n_types = n_types
        self.random_state = random_state

    def _fit(self, D: Distributions) -> None:
        if self.statistics not in STATISTICS:
            raise ParameterError("statistics", self.statistics, f": expected one of {list(STATISTICS)}")
        if self.statistics in ("type_means", "composition"):
            self._types = Types(D, self.annotation, self.n_types, self.random_state)
            if self.statistics == "type_means":
                means = self._types.means(D)
                present = np.isfinite(means)
                sums = np.where(present, means, 0.0).sum(axis=0)
                self._imputed = sums / np.maximum(present.sum(axis=0), 1)
        elif self.statistics != "mean":
            self._scaling = Scaling.fit(D, self.random_state, _MAX_POINTS)
        x = self._vectors(D)
        self.centre_, deviation = x.mean(axis=0), x.std(axis=0)
        # The deviation of a constant statistic is 0 up to rounding, and its scale infinite: it never counts.
        self.scale_ = np.where(deviation > 1e-10 * np.abs(self.centre_), deviation, np.inf)

    def transform(self, D: DistributionsLike) -> np.ndarray:
        """Return a vector per distribution.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`.

        Returns
        -------
        array of shape (n_distributions, n_statistics)
            Statistics.
        """
        return self._vectors(self._checked(D))

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        a, b = ((self.transform(D) - self.centre_) / self.scale_ for D in (A, A if B is None else B))
        return euclidean(a, b)

    def _vectors(self, D: Distributions) -> np.ndarray:
        if self.statistics == "mean":
            return D.means()
        if self.statistics == "type_means":
            means = self._types.means(D)
            return np.where(np.isfinite(means), means, self._imputed).reshape(len(D), -1)
        if self.statistics == "composition":
            logs = np.log(self._types.counts(D) + _PSEUDO_COUNT)
            return logs - logs.mean(axis=1, keepdims=True)
        description = self._scaling.describe(D)
        return description.moments if self.statistics == "moments" else description.embedding


class Composition(LabelFree):
    """Wasserstein distances between the proportions of types in each distribution (PILOT; Joodaki et al. 2024).

    Moving mass from one type to another costs the cosine distance between the medians of the types, on 50 principal
    components if the points have more features. 0.2 points, divided among the types as all training points are, are
    added to every distribution.

    Parameters
    ----------
    n_types : int, default=20
        Number of clusters; not used with an annotation.
    annotation : str or None, default=None
        Annotation of the points that holds their types, e.g. "cell_type". None: clusters found by k-means.
    random_state : int, default=0
        Seed of draws of points and of k-means.

    Attributes
    ----------
    types_ : array of shape (n_types,)
        Names of the types; 0, 1, … for clusters.
    medians_ : array of shape (n_types, n_components)
        Median of each type.
    costs_ : array of shape (n_types, n_types)
        Distances between the medians.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.Composition(3).fit(D).proportions(D).shape
    (30, 3)
    """

    def __init__(
        self,
        n_types: int = 20,
        *,
        annotation: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_types = n_types
        self.annotation = annotation
        self.random_state = random_state

    def _fit(self, D: Distributions) -> None:
        self._types = Types(D, self.annotation, self.n_types, self.random_state)
        self.types_ = self._types.names
        z, types = self._types.scaling.describe(D).euclidean.points, self._types.draw(D)[1]
        overall = np.median(z, axis=0)  # of types without a drawn point
        medians = [np.median(z[types == t], axis=0) if np.any(types == t) else overall for t in range(self.types_.size)]
        self.medians_ = np.stack(medians)
        self.costs_ = sklearn_distances(self.medians_, metric="cosine")
        np.fill_diagonal(self.costs_, 0.0)
        counts = self._types.counts(D).sum(axis=0)
        self._prior = _COMPOSITION_PRIOR * counts / counts.sum()

    def proportions(self, D: DistributionsLike) -> np.ndarray:
        """Return the share of each type in every distribution, including the pseudo-counts.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`.

        Returns
        -------
        array of shape (n_distributions, n_types)
            Shares in the order of `types_`; each row sums to 1.
        """
        D = self._checked(D)
        counts = self._types.counts(D) + self._prior
        return counts / counts.sum(axis=1, keepdims=True)

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        rows, columns = self._transported(A), None if B is None else self._transported(B)
        costs: Any = _Costs(self.costs_)
        return pairwise_distances(rows, columns, costs, n_jobs=n_jobs)

    def _transported(self, D: Any) -> Distributions:
        """Return distributions whose points are indices of types, with the proportions as masses."""
        shares = self.proportions(D)
        types = np.tile(np.arange(self.types_.size, dtype=np.float64), len(shares))
        return Distributions(
            types[:, None], np.repeat(np.arange(len(shares)), self.types_.size), weights=shares.ravel()
        )


class _Costs:
    """Ground metric between indices of types, read from a matrix."""

    def __init__(self, costs: np.ndarray) -> None:
        self.costs = costs

    def distances(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        rows = x[:, 0].astype(np.intp)
        return self.costs[np.ix_(rows, rows if y is None else y[:, 0].astype(np.intp))]


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
