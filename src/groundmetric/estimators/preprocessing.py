"""Preprocessing as part of a fit: transformers of points in a pipeline, and methods on selected features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._internal.types import DistributionsLike, LabelsLike, Transformer
from .._internal.validation import check_number
from ..distributions import Distributions, as_distributions
from ..metrics.forms import fit_map, image


class PointwiseTransformer(TransformerMixin, BaseEstimator):
    """Transformer of points, for pipelines of Distributions: scaling, principal components.

    Parameters
    ----------
    transformer : transformer
        Transformer of scikit-learn; a copy is fitted to all points, without their weights.

    Attributes
    ----------
    transformer_ : transformer
        The fitted transformer.
    n_features_in_ : int
        Number of features of the points.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> PointwiseTransformer(StandardScaler()).fit_transform(D).points.std(axis=0).round(3).tolist()
    [1.0, 1.0]
    >>> pipeline = make_pipeline(PointwiseTransformer(StandardScaler()), gm.TransportKNeighborsClassifier(3))
    >>> pipeline.fit(D, y).predict(D).shape == y.shape
    True
    """

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer

    def fit(self, X: DistributionsLike, y: LabelsLike | None = None) -> PointwiseTransformer:
        """Fit a copy of the transformer to all points.

        Parameters
        ----------
        X : Distributions, array or sequence of arrays
            Distributions; the rows of an array are distributions of one point each.
        y : Any, default=None
            Not used.

        Returns
        -------
        PointwiseTransformer
            The estimator itself.
        """
        D = as_distributions(X)
        self.transformer_ = fit_map(self.transformer, D)
        self.n_features_in_ = D.shape[1]
        return self

    def transform(self, X: DistributionsLike) -> Distributions:
        """Transform the points of distributions.

        Parameters
        ----------
        X : Distributions, array or sequence of arrays
            Distributions; the rows of an array are distributions of one point each.

        Returns
        -------
        Distributions
            Distributions with the same names, masses and annotations.
        """
        check_is_fitted(self, "transformer_")
        D = as_distributions(X)
        if D.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {D.shape[1]} features, but the transformer was fitted to {self.n_features_in_}")
        points = image(self.transformer_, D.points)
        return D.with_points(points, self._names_out(D.features, points.shape[1]))

    def _names_out(self, features: list[str] | None, n_features: int) -> list[str] | None:
        """Return the names of the transformed features, or None if the transformer or the features have no names."""
        if features is None or not hasattr(self.transformer_, "get_feature_names_out"):
            return None
        names = [str(name) for name in self.transformer_.get_feature_names_out(np.array(features, dtype=object))]
        return names if len(names) == n_features else None

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Prepared(BaseEstimator):
    """Base of methods on prepared features.

    The preparation is part of the fit, and an evaluation repeats it in every split: prepared beforehand, it would use
    the test distributions. Subclasses learn the preparation from the training set (`_prepare`) and apply it (`_show`).
    """

    method: Any

    @property
    def takes_groups(self) -> bool:
        return getattr(self.method, "takes_groups", False)

    @property
    def uses_labels(self) -> bool:
        return getattr(self.method, "uses_labels", True)

    def fit(self, D: Any, y: Any = None, *, groups: Any = None) -> Any:
        """Learn the preparation, then fit the method on prepared features."""
        D = as_distributions(D)
        self._prepare(D)
        more = {} if groups is None else {"groups": groups}
        self.method_ = clone(self.method).fit(self._shown(D), y, **more)
        if hasattr(self.method_, "classes_"):
            self.classes_ = self.method_.classes_
        self.n_features_in_ = D.shape[1]
        return self

    @available_if(lambda self: hasattr(self.method, "distances"))
    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """Return the method's distances between distributions."""
        check_is_fitted(self, "method_")
        return self.method_.distances(self._shown(A), None if B is None else self._shown(B), n_jobs=n_jobs)

    @available_if(lambda self: hasattr(self.method, "point_distances"))
    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        """Return the method's distances between points."""
        check_is_fitted(self, "method_")
        return self.method_.point_distances(self._show(x), None if y is None else self._show(y))

    @available_if(lambda self: hasattr(self.method, "predict_proba"))
    def predict_proba(self, D: Any) -> np.ndarray:
        """Return the method's probabilities."""
        check_is_fitted(self, "method_")
        return self.method_.predict_proba(self._shown(D))

    @available_if(lambda self: hasattr(self.method, "predict"))
    def predict(self, D: Any) -> np.ndarray:
        """Return the method's predictions."""
        check_is_fitted(self, "method_")
        return self.method_.predict(self._shown(D))

    def _shown(self, D: Any) -> Distributions:
        D = as_distributions(D)
        return D.with_points(self._show(D.points), self._names(D.features))

    def _prepare(self, D: Distributions) -> None:
        raise NotImplementedError

    def _show(self, points: Any) -> Any:
        raise NotImplementedError

    def _names(self, features: list[str] | None) -> list[str] | None:
        return None


class SelectedFeatures(Prepared):
    """Method on the features with the largest variance over the training points.

    The rule "variance" selects the features whose variance is above the average (the paper's rule); an int, this number
    of features with the largest variance.

    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> SelectedFeatures(gm.baselines.Euclidean(), 1).fit(D, y).places_.tolist()  # the noise varies most
    [1]
    """

    def __init__(self, method: Any, rule: Any = "variance") -> None:
        self.method = method
        self.rule = rule

    def _prepare(self, D: Distributions) -> None:
        self.places_ = self.choose(D)

    def choose(self, D: Distributions) -> np.ndarray:
        """Return the columns of the features that the rule selects in these distributions."""
        variance = D.with_mass().moments(weighted=False)[1]
        if self.rule == "variance":
            chosen = np.flatnonzero(variance > variance.mean())
            return chosen if chosen.size else np.arange(variance.size)  # all variances are equal
        check_number("rule", self.rule, low=1, whole=True)
        return np.sort(np.argsort(-variance, kind="stable")[: int(self.rule)])

    def _show(self, points: Any) -> Any:
        # Fancy indexing would return a Fortran-ordered copy.
        return points[:, self.places_] if sparse.issparse(points) else points.take(self.places_, axis=1)

    def _names(self, features: list[str] | None) -> list[str] | None:
        return None if features is None else [features[column] for column in self.places_]


def with_features(D: Distributions, columns: np.ndarray) -> Distributions:
    """Return the distributions with selected features."""
    features = None if D.features is None else [D.features[column] for column in columns]
    return D.with_points(D.points[:, columns], features)
