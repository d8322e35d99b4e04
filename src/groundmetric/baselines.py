"""Methods that a learned ground metric is compared with; `standard` makes those of `groundmetric evaluate`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.linalg import svd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.metrics import pairwise_distances as sklearn_distances
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ._internal.types import DistributionsLike, Estimator, LabelsLike, Transformer
from ._internal.validation import (
    ParameterError,
    check_labels,
    check_number,
    group_list,
    is_missing,
    keyed_uniform,
    unit_codes,
)
from .distances import GroundMetricMethod, pairwise_distances
from .distributions import Distributions, as_distributions
from .ensemble import Classes, Geometry, Survival
from .ensemble.geometry import Scaling
from .ensemble.members import EuclideanView
from .ensemble.stacking import KernelModel, Target
from .estimators.ensemble import read_target
from .metrics.base import DiagonalMetric, GroundMetric, euclidean
from .metrics.forms import MappedMetric, image, some_points

__all__ = [
    "Composition", "Euclidean", "PointTransport", "Summary", "SummaryModel", "TransportKernel", "standard",
]  # fmt: skip

STATISTICS = ("mean", "moments", "type_means", "composition", "embedding")
# Points per distribution in all summaries but means, and points that k-means is fitted to, at most.
_MAX_POINTS, _MAX_CLUSTERED_POINTS = 1000, 5000
# Clusters in summaries by type.
_N_TYPES = 20
# Points added to the number of points of each type before logarithms are taken (Jeffreys' prior).
_PSEUDO_COUNT = 0.5
# Points added to every distribution by `Composition`, as in PILOT.
_COMPOSITION_PRIOR = 0.2
# Points that a transformer is fitted to, at most.
_MAX_TRANSFORMED_POINTS = 10_000
# Features up to which a transformer is tested for being affine, which takes an identity matrix of this size.
_MAX_AFFINE_FEATURES = 5000
# Inverse penalties, and numbers of selected columns (None: all), that cross-validation chooses from. Columns are
# divided by the root of their number: a penalty means the same for any number of columns.
STRENGTHS = np.array([0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
N_SELECTED = (20, 200, None)
# Principal components of the selected columns, at most: bounds the time of large cohorts.
_MAX_AXES = 200
# Inverse penalty if classes are too small for cross-validation.
_USUAL_STRENGTH = 10.0
_MAX_FOLDS = 5
# Lower limit of probabilities in the score that penalties are chosen by.
_LEAST_PROBABILITY = 1e-3
# Points per distribution in transport, as many as an ensemble member compares.
_TRANSPORT_POINTS = 100


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


class DistanceMethod(Baseline):
    """Base of the methods with distances between distributions; subclasses give `_fit`."""

    uses_labels = False  # a permutation test fits methods without labels once
    _fit: Any

    def fit(self, D: DistributionsLike, y: LabelsLike | None = None) -> Self:
        """Fit the method to training distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,) or None, default=None
            Class of each distribution, for transformers that need labels.
        """
        D = self._training_input(D)
        self._fit(D, None if y is None else check_labels(y, D.name_index))
        return self

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return distances between the distributions of `A` and of `B` (None: of `A`), shape (len(A), len(B)).

        Transport uses `n_jobs` threads; None means one, -1 one per core.
        """
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

    def draw(self, D: Distributions) -> tuple[Distributions, np.ndarray, np.ndarray]:
        """Return equal numbers of points of each distribution, their types (-1: new), and standardised points."""
        description = self.scaling.describe(D)
        drawn, z = description.transported, description.euclidean.points
        if self.annotation is None:
            # Distances are computed here: `KMeans.predict` depends on the number of threads in the last bit.
            types = sklearn_distances(z, self._kmeans.cluster_centers_, metric="sqeuclidean").argmin(axis=1)
        else:
            index = {name: t for t, name in enumerate(self.names.tolist())}
            types = np.array([index.get(name, -1) for name in self._annotated(drawn).tolist()])
        return drawn, types, z

    def counts(self, D: Distributions) -> np.ndarray:
        """Return the number of points of each type, (n_distributions, n_types)."""
        drawn, types, _ = self.draw(D)
        counts, rows = np.zeros((len(D), self.names.size)), np.flatnonzero(types >= 0)
        owners, sizes = (np.repeat(values, drawn.sizes) for values in (np.arange(len(D)), drawn.sizes))
        np.add.at(counts, (owners[rows], types[rows]), (drawn.weights * sizes)[rows])
        return counts

    def means(self, D: Distributions) -> np.ndarray:
        """Return the mean of each feature in each type, (n_distributions, n_types, n_features); NaN without points."""
        drawn, types, _ = self.draw(D)
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


class Summary(TransformerMixin, DistanceMethod):
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
        Annotation of the points that holds their types, e.g. "cell_type". None: 20 clusters found by k-means.
    random_state : int, default=0
        Seed of draws of points, clusters and random features.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [2.0], [5.0]], samples=["a", "a", "b"])
    >>> gm.baselines.Summary().fit_transform(D).tolist()
    [[1.0], [5.0]]
    """

    def __init__(self, statistics: str = "mean", *, annotation: str | None = None, random_state: int = 0) -> None:
        self.statistics = statistics
        self.annotation = annotation
        self.random_state = random_state

    def _fit(self, D: Distributions, labels: np.ndarray | None) -> None:
        if self.statistics not in STATISTICS:
            raise ParameterError("statistics", self.statistics, f": expected one of {list(STATISTICS)}")
        if self.statistics in ("type_means", "composition"):
            self._types = Types(D, self.annotation, _N_TYPES, self.random_state)
            if self.statistics == "type_means":
                means = self._types.means(D)
                present = np.isfinite(means)
                sums = np.where(present, means, 0.0).sum(axis=0)
                self._imputed = sums / np.maximum(present.sum(axis=0), 1)
        elif self.statistics != "mean":
            self._scaling = Scaling.fit(D, self.random_state, _MAX_POINTS)
        x = self._vectors(D)
        self._centre, deviation = x.mean(axis=0), x.std(axis=0)
        # The deviation of a constant statistic is 0 up to rounding, and its scale infinite: it never counts.
        self._scale = np.where(deviation > 1e-10 * np.abs(self._centre), deviation, np.inf)

    def transform(self, D: DistributionsLike) -> np.ndarray:
        """Return a vector per distribution of `D`, shape (n_distributions, n_statistics)."""
        return self._vectors(self._checked(D))

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        a, b = ((self.transform(D) - self._centre) / self._scale for D in (A, A if B is None else B))
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


class Composition(DistanceMethod):
    """Wasserstein distances between the proportions of types in each distribution (PILOT; Joodaki et al. 2024).

    Moving mass from one type to another costs the cosine distance between the medians of the types, on 50 principal
    components if the points have more features. 0.2 points, with the types of all training points, are added to every
    distribution.

    Parameters
    ----------
    n_types : int, default=20
        Number of clusters; not used with an annotation.
    annotation, random_state : as in `Summary`
        Annotation with the types of the points, and seed.

    Attributes
    ----------
    types_ : array of shape (n_types,)
        Names of the types; 0, 1, … for clusters.
    costs_ : array of shape (n_types, n_types)
        Distances between the medians of the types.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.Composition(3).fit(D).proportions(D).shape
    (30, 3)
    """

    def __init__(self, n_types: int = 20, *, annotation: str | None = None, random_state: int = 0) -> None:
        self.n_types = n_types
        self.annotation = annotation
        self.random_state = random_state

    def _fit(self, D: Distributions, labels: np.ndarray | None) -> None:
        self._types = Types(D, self.annotation, self.n_types, self.random_state)
        self.types_ = self._types.names
        _, types, z = self._types.draw(D)
        overall = np.median(z, axis=0)  # of types without a drawn point
        medians = [np.median(z[types == t], axis=0) if np.any(types == t) else overall for t in range(self.types_.size)]
        self.costs_ = sklearn_distances(np.stack(medians), metric="cosine")
        np.fill_diagonal(self.costs_, 0.0)
        counts = self._types.counts(D).sum(axis=0)
        self._prior = _COMPOSITION_PRIOR * counts / counts.sum()

    def proportions(self, D: DistributionsLike) -> np.ndarray:
        """Return the share of each type in every distribution of `D`, including the pseudo-counts.

        The columns are in the order of `types_`; each row sums to 1.
        """
        D = self._checked(D)
        counts = self._types.counts(D) + self._prior
        return counts / counts.sum(axis=1, keepdims=True)

    def distances(
        self, A: DistributionsLike, B: DistributionsLike | None = None, *, n_jobs: int | None = None
    ) -> np.ndarray:
        def types_as_points(D: DistributionsLike) -> Distributions:
            shares = self.proportions(D)
            types = np.tile(np.arange(self.types_.size, dtype=np.float64), len(shares))
            owners = np.repeat(np.arange(len(shares)), self.types_.size)
            return Distributions(types[:, None], owners, weights=shares.ravel())

        rows, columns = types_as_points(A), None if B is None else types_as_points(B)
        costs: Any = _Costs(self.costs_)
        return pairwise_distances(rows, columns, costs, n_jobs=n_jobs)


class _Costs:
    """Ground metric between indices of types."""

    def __init__(self, costs: np.ndarray) -> None:
        self.costs = costs

    def distances(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        rows = x[:, 0].astype(np.intp)
        return self.costs[np.ix_(rows, rows if y is None else y[:, 0].astype(np.intp))]


class Euclidean(GroundMetricMethod, DistanceMethod):
    """Wasserstein distances with the Euclidean distance between points.

    Parameters
    ----------
    standardise : bool, default=False
        Divide every feature by its standard deviation over the training points.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 0.0], [3.0, 4.0]], samples=["a", "b"])
    >>> gm.baselines.Euclidean().fit(D).distances(D).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

    def __init__(self, *, standardise: bool = False) -> None:
        self.standardise = standardise

    def _fit(self, D: Distributions, labels: np.ndarray | None) -> None:
        self.metric_ = GroundMetric.euclidean(D.shape[1], D.features)
        if self.standardise:
            variance = D.moments()[1]
            # A constant feature contributes nothing for any weight.
            weights = 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0))
            self.metric_ = DiagonalMetric(weights, D.features, variances=variance)


class PointTransport(GroundMetricMethod, DistanceMethod):
    """Wasserstein distances with the Euclidean distance between points mapped by a scikit-learn transformer.

    The transformer, such as PCA, LinearDiscriminantAnalysis or a pipeline, is fitted to points with the labels of their
    distributions: to all, or to 10,000 that are drawn, the same share of every distribution.

    Parameters
    ----------
    transformer : transformer
        Transformer of scikit-learn; a copy is fitted.

    Attributes
    ----------
    metric_ : GroundMetric
        The ground metric: linear if the transformer is affine, a `MappedMetric` otherwise.

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.PointTransport(LinearDiscriminantAnalysis()).fit(D, y).metric_.n_components
    2
    """

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer

    @property
    def uses_labels(self) -> bool:  # type: ignore[override]
        """Whether the transformer needs labels."""
        return bool(get_tags(self.transformer).target_tags.required)

    def _fit(self, D: Distributions, labels: np.ndarray | None) -> None:
        rows = np.arange(D.points.shape[0])
        if rows.size > _MAX_TRANSFORMED_POINTS:
            random = np.random.RandomState(0)
            counts = np.maximum(D.sizes * _MAX_TRANSFORMED_POINTS // rows.size, 1)
            parts = zip(D.bounds[:-1], D.sizes, counts, strict=True)
            rows = np.sort(np.concatenate([low + random.choice(size, k, replace=False) for low, size, k in parts]))
        point_labels = None if labels is None else np.repeat(labels, D.sizes)[rows]
        fitted = clone(self.transformer).fit(D.points[rows], point_labels)
        variances, probes = D.moments()[1], some_points(D)
        images = image(fitted, probes)
        if D.shape[1] <= _MAX_AFFINE_FEATURES:
            # An affine map is determined by the images of the origin and of the unit vectors.
            origin = image(fitted, np.zeros((1, D.shape[1])))
            components = np.asarray(image(fitted, np.eye(D.shape[1])) - origin).T
            if np.allclose(probes @ components.T + origin, images, rtol=1e-6, atol=1e-6 * np.abs(images).max()):
                self.metric_ = GroundMetric(components, D.features, variances=variances)
                return
        inner = GroundMetric.euclidean(images.shape[1])
        self.metric_ = MappedMetric(fitted, inner, D.shape[1], D.features, probes=probes)


class _Predictor(Baseline):
    """Base of the methods that predict labels; subclasses give `_fit` and `_predict`."""

    takes_groups = True
    target: str
    _fit: Any
    _predict: Any

    def fit(self, D: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None) -> Self:
        """Fit the model, with its penalty chosen by cross-validation inside these distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes, numbers or survival times, by `target`.
        groups : array-like of shape (n_distributions,) or None, default=None
            Group (patient) of each distribution, which folds do not divide.
        """
        D = self._training_input(D)
        target, classes = read_target(y, self.target, D)
        if isinstance(target, Classes):
            if classes.size < 2:
                raise ValueError(f"all distributions have the class {classes.tolist()[0]!r}: two are needed")
            self.classes_ = classes
        units = unit_codes(group_list(groups, D.name_index), len(D))
        self._fit(D, target, inner_folds(target, units, D.names))
        return self

    def predict(self, D: DistributionsLike) -> np.ndarray:
        """Return the class, number, or risk (the higher, the earlier the event) of each distribution of `D`."""
        predictions = self._predict(self._checked(D))
        return self.classes_[predictions.argmax(axis=1)] if self.target == "classes" else predictions

    @available_if(lambda self: self.target == "classes")
    def predict_proba(self, D: DistributionsLike) -> np.ndarray:
        """Return the probability of each class, shape (n_distributions, n_classes), in the order of `classes_`."""
        return self._predict(self._checked(D))


def inner_folds(target: Target, units: np.ndarray, names: Any) -> np.ndarray:
    """Return the fold of each distribution; a single fold if a class has one unit. Folds are keyed by name."""
    n_folds = int(units.max()) + 1
    if isinstance(target, Classes):
        n_folds = min(np.unique(units[target.codes == c]).size for c in range(target.n_classes))
    n_folds = min(n_folds, _MAX_FOLDS)
    if n_folds < 2:
        return np.zeros(len(target), dtype=np.intp)
    first = np.unique(units, return_index=True)[1]
    order = keyed_uniform([names[d] for d in first], "folds of a baseline")
    return target.deal(units, order, n_folds)[units]


class SummaryModel(_Predictor):
    """A scikit-learn classifier or regressor on one vector per distribution.

    The default model is logistic regression with balanced classes, ridge regression for numbers, or Cox regression for
    survival times. The number of columns (20, 200 or all, those most associated with the label) and the penalty are
    chosen by held-out likelihood inside the training set.

    Parameters
    ----------
    statistics : str, default="mean"
        Statistics of `Summary`: "mean", "moments", "type_means", "composition" or "embedding".
    model : estimator or None, default=None
        Estimator of scikit-learn that is fitted to the unscaled vectors; None: the default model.
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation, random_state : as in `Summary`
        Annotation with the types of the points, and seed.

    Attributes
    ----------
    summary_, model_ : estimator
        The fitted summary and model.
    classes_ : array of shape (n_classes,)
        Classes.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.SummaryModel("moments", KNeighborsClassifier(5)).fit(D, y).predict_proba(D[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        statistics: str = "mean",
        model: Estimator | None = None,
        *,
        target: str = "classes",
        annotation: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.statistics = statistics
        self.model = model
        self.target = target
        self.annotation = annotation
        self.random_state = random_state

    def _fit(self, D: Distributions, target: Target, folds: np.ndarray) -> None:
        self.summary_ = Summary(self.statistics, annotation=self.annotation, random_state=self.random_state)
        x = self.summary_.fit(D).transform(D)
        model: Any = _Regression.tuned(x, target, folds) if self.model is None else clone(self.model)
        self.model_ = model if self.model is None else model.fit(x, _plain_labels(target))

    def _predict(self, D: Distributions) -> np.ndarray:
        x = self.summary_.transform(D)
        return self.model_.predict_proba(x) if self.target == "classes" else self.model_.predict(x)


def _plain_labels(target: Target) -> np.ndarray:
    """Return codes of classes, numbers, or a structured array of events and times."""
    if isinstance(target, Classes):
        return target.codes
    if not isinstance(target, Survival):
        return target.decode(target.values)
    assert target.times is not None
    y = np.empty(len(target), dtype=[("event", bool), ("time", np.float64)])
    y["event"], y["time"] = target.times.event, target.times.time
    return y


class _Regression:
    """Ridge-penalised logistic, linear or Cox regression on selected columns.

    Columns are standardised and ranked by the share of their variance that labels explain. A ridge penalty does not
    depend on rotations, so the model is fitted to the leading principal components of the selected columns. One model
    is fitted for each inverse penalty in `strengths`.
    """

    def __init__(self, x: np.ndarray, target: Target, n_selected: int | None, strengths: np.ndarray) -> None:
        centre, deviation = x.mean(axis=0), x.std(axis=0)
        # Rounding errors of a constant column must not be scaled up.
        scale = np.where(deviation > 1e-10 * np.abs(x).max(axis=0, initial=0.0), deviation, np.inf)
        z = (x - centre) / scale
        labels = target.regressors()
        basis, sizes, _ = svd(labels - labels.mean(axis=0), full_matrices=False)
        explained = np.square(basis[:, sizes > 1e-9 * max(sizes[0], 1e-300)].T @ z).sum(axis=0)
        self.columns = np.sort(np.argsort(-explained, kind="stable")[:n_selected])
        z, scale, self.centre = z[:, self.columns], scale[self.columns], centre[self.columns]
        axes = svd(z, full_matrices=False)[2][:_MAX_AXES] if z.shape[1] > min(len(z), _MAX_AXES) else np.eye(z.shape[1])
        self.axes = axes / scale / np.sqrt(max(int(np.isfinite(scale).sum()), 1))
        self.target = target.without_labels()
        coordinates = self._coordinates(x)
        if isinstance(target, Survival):
            y = _plain_labels(target)
            fits = [cox_coefficients(coordinates[:, :-1], y, 1.0 / strength) for strength in strengths]
            self.coefficients = np.array([[*coefficients, 0.0] for coefficients in fits])
        else:
            self.coefficients = target.fit(coordinates, np.ones((1, len(x)), dtype=bool), strengths)

    @classmethod
    def tuned(cls, x: np.ndarray, target: Target, folds: np.ndarray) -> _Regression:
        """Return the model with the best held-out score; of equal ones, the one with fewer columns, smaller weights."""
        if folds.max() == 0:
            return cls(x, target, None, np.array([_USUAL_STRENGTH]))
        counts = [count for count in N_SELECTED if count is None or count < x.shape[1]]
        scores = np.zeros((len(counts), STRENGTHS.size))
        for fold in np.unique(folds):  # columns are selected again: a selection by all labels would favour many columns
            rows = np.flatnonzero(folds != fold)
            part = target.subset(rows)
            for k, count in enumerate(counts):
                predictions = cls(x[rows], part, count, STRENGTHS).predict_all(x)
                scores[k] += [_held_out_score(target, values, rows) for values in predictions]
        best = np.unravel_index(int(scores.argmax()), scores.shape)
        return cls(x, target, counts[best[0]], STRENGTHS[[best[1]]])

    def _coordinates(self, x: np.ndarray) -> np.ndarray:
        return np.column_stack([(x[:, self.columns] - self.centre) @ self.axes.T, np.ones(len(x))])

    def predict_all(self, x: np.ndarray) -> np.ndarray:
        """Return predictions of all penalties, (n_strengths, n_distributions, ...)."""
        predictions = self.target.predict(self.coefficients, self._coordinates(x))
        return predictions if isinstance(self.target, Survival) else self.target.decode(predictions)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.predict_all(x)[0]

    predict_proba = predict


def _held_out_score(target: Target, predictions: np.ndarray, training: np.ndarray) -> float:
    """Return the sum of scores of the distributions outside the training set (row indices).

    Classes: log-probability, balanced. Numbers: negative squared error. Survival times: cross-validated partial
    log-likelihood.
    """
    if isinstance(target, Survival):  # Verweij & van Houwelingen (1993)
        y = _plain_labels(target)
        return _partial_likelihood(predictions, y) - _partial_likelihood(predictions[training], y[training])
    tested = np.setdiff1d(np.arange(len(target)), training)
    if isinstance(target, Classes):
        codes = target.codes[tested]
        probabilities = np.maximum(predictions[tested, codes], _LEAST_PROBABILITY)
        return float(np.sum(np.log(probabilities) / np.bincount(target.codes)[codes]))
    return -float(np.square(predictions[tested] - target.decode(target.values[tested])).sum())


def cox_coefficients(x: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Return the coefficients of Cox's proportional hazards model with a ridge penalty, for fields "event" and "time".

    They maximise the partial likelihood (Breslow's for ties) minus `alpha` times half their squared norm.
    """

    def penalised_loss(coefficients: np.ndarray) -> float:
        return 0.5 * alpha * float(coefficients @ coefficients) - _partial_likelihood(x @ coefficients, y)

    at_risk = y["time"][y["event"]][:, None] <= y["time"]  # (n_events, n_samples)
    coefficients = np.zeros(x.shape[1])
    loss = penalised_loss(coefficients)
    for _ in range(50):
        hazards = at_risk * np.exp(x @ coefficients - (x @ coefficients).max())
        shares = hazards / hazards.sum(axis=1, keepdims=True)
        means = shares @ x
        gradient = alpha * coefficients - (x[y["event"]] - means).sum(axis=0)
        hessian = (x.T * shares.sum(axis=0)) @ x - means.T @ means + alpha * np.eye(x.shape[1])
        step, length = np.linalg.solve(hessian, gradient), 1.0
        # The loss is convex, but a full step may overshoot far from the minimum.
        while (new := penalised_loss(coefficients - length * step)) > loss + 1e-12 and length > 1e-6:
            length /= 2.0
        coefficients, decrease, loss = coefficients - length * step, loss - new, new
        if decrease < 1e-9:
            break
    return coefficients


def _partial_likelihood(risk: np.ndarray, y: Any) -> float:
    at_risk = y["time"][y["event"]][:, None] <= y["time"]
    return float(np.sum(risk[y["event"]] - np.log(at_risk @ np.exp(risk - risk.max())) - risk.max()))


class TransportKernel(_Predictor):
    """Kernel logistic regression on Euclidean optimal transport distances, without a learned metric.

    The kernel is exp(-distance / median distance) between equal numbers of standardised points, on 50 principal
    components if the points have more features: the view "Euclidean" of an ensemble. Numbers and percentiles of
    survival times get kernel ridge regression.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    random_state : int, default=0
        Seed of the draws of points.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        Classes.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.TransportKernel().fit(D, y).predict_proba(D[:2]).shape
    (2, 3)
    """

    def __init__(self, *, target: str = "classes", random_state: int = 0) -> None:
        self.target = target
        self.random_state = random_state

    def _fit(self, D: Distributions, target: Target, folds: np.ndarray) -> None:
        geometry = Geometry(D, self.random_state, _TRANSPORT_POINTS)
        self._scaling, self._view, self._target = geometry.scaling, EuclideanView.fit(geometry), target.without_labels()
        self._model = KernelModel.fit(self._view.kernel(), target, folds, self._view.landmarks)[0]

    def _predict(self, D: Distributions) -> np.ndarray:
        kernel = self._view.kernel_to(self._scaling.describe(D))
        predictions = self._target.decode(self._model.predict(kernel, self._target))
        return -predictions if self.target == "survival" else predictions


def standard(target: str = "classes", *, annotation: str | None = None, random_state: int = 0) -> dict[str, Any]:
    """Return the baselines that a learned metric is compared with.

    Types of points, feature selection and penalties are fitted inside the training set.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation, random_state : as in `Summary`
        Annotation with the types of the points, and seed.

    Returns
    -------
    dict of str to estimator
        Regression on means ("pseudobulk"), means and standard deviations ("moments"), means of types ("type-means"),
        proportions of types ("composition") and mean embeddings ("embedding"); a kernel model on Euclidean transport
        ("transport-kernel"). For classes also distances for nearest neighbours: "pseudobulk-5-nn", "transport-5-nn".

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.standard("survival")["pseudobulk"]
    SummaryModel(target='survival')
    """
    plain: dict[str, Any] = {"target": target, "random_state": random_state}
    typed = {"annotation": annotation, **plain}
    methods: dict[str, Any] = {
        "pseudobulk": SummaryModel("mean", **plain),
        "moments": SummaryModel("moments", **plain),
        "type-means": SummaryModel("type_means", **typed),
        "composition": SummaryModel("composition", **typed),
        "embedding": SummaryModel("embedding", **plain),
        "transport-kernel": TransportKernel(**plain),
    }
    if target == "classes":
        methods |= {"pseudobulk-5-nn": Summary("mean"), "transport-5-nn": Euclidean(standardise=True)}
    return methods


def titles(target: str = "classes", *, annotation: str | None = None) -> dict[str, str]:
    """Return the names of the standard baselines in tables by their keys."""
    model = {"classes": "logistic regression", "ordered": "ridge regression", "survival": "Cox regression"}[target]
    types = "Cluster" if annotation is None else "Cell-type"
    kernel = "kernel logistic regression" if target == "classes" else "kernel ridge regression"
    return {
        "pseudobulk": f"Pseudobulk, {model}",
        "moments": f"Means and SDs, {model}",
        "type-means": f"{types} pseudobulk, {model}",
        "composition": f"{types} composition (CLR), {model}",
        "embedding": f"Mean embedding, {model}",
        "transport-kernel": f"Euclidean OT, {kernel}",
        "pseudobulk-5-nn": "Pseudobulk, 5-NN",
        "transport-5-nn": "Euclidean OT, 5-NN",
    }
