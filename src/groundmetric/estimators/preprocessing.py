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
    transformer_, n_features_in_ : transformer, int
        The fitted transformer, and the number of features of the points.

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
        """Fit a copy of the transformer to all points of `X`; `y` is not used."""
        D = as_distributions(X)
        self.transformer_ = fit_map(self.transformer, D)
        self.n_features_in_ = D.shape[1]
        return self

    def transform(self, X: DistributionsLike) -> Distributions:
        """Return Distributions of the transformed points of `X`, with the same names, masses and annotations."""
        check_is_fitted(self, "transformer_")
        D = as_distributions(X)
        if D.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {D.shape[1]} features, but the transformer was fitted to {self.n_features_in_}")
        points, names = image(self.transformer_, D.points), None
        if D.features is not None and hasattr(self.transformer_, "get_feature_names_out"):
            names = [str(name) for name in self.transformer_.get_feature_names_out(np.array(D.features, dtype=object))]
            names = names if len(names) == points.shape[1] else None
        return D.with_points(points, names)

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class SelectedFeatures(BaseEstimator):
    """Method on the features with the largest variance over the training points, selected anew in every fit.

    The rule "variance" selects the features whose variance is above the average (the paper's rule); an int, this number
    of features with the largest variance.
    """

    def __init__(self, method: Any, rule: Any = "variance") -> None:
        self.method = method
        self.rule = rule

    @property
    def takes_groups(self) -> bool:
        return getattr(self.method, "takes_groups", False)

    @property
    def uses_labels(self) -> bool:
        return getattr(self.method, "uses_labels", True)

    def choose(self, D: Distributions) -> np.ndarray:
        """Return the columns of the features that the rule selects in these distributions."""
        variance = D.with_mass().moments(weighted=False)[1]
        if self.rule == "variance":
            chosen = np.flatnonzero(variance > variance.mean())
            return chosen if chosen.size else np.arange(variance.size)  # all variances are equal
        check_number("rule", self.rule, low=1, whole=True)
        return np.sort(np.argsort(-variance, kind="stable")[: int(self.rule)])

    def fit(self, D: Any, y: Any = None, *, groups: Any = None) -> Any:
        """Select features of the training distributions, then fit the method on them."""
        D = as_distributions(D)
        self.places_ = self.choose(D)
        more = {} if groups is None else {"groups": groups}
        self.method_ = clone(self.method).fit(with_features(D, self.places_), y, **more)
        if hasattr(self.method_, "classes_"):
            self.classes_ = self.method_.classes_
        self.n_features_in_ = D.shape[1]
        return self

    @available_if(lambda self: hasattr(self.method, "distances"))
    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        return self._fitted().distances(self._selected(A), self._selected(B), n_jobs=n_jobs)

    @available_if(lambda self: hasattr(self.method, "point_distances"))
    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        return self._fitted().point_distances(*(None if z is None else _columns(z, self.places_) for z in (x, y)))

    @available_if(lambda self: hasattr(self.method, "predict_proba"))
    def predict_proba(self, D: Any) -> np.ndarray:
        return self._fitted().predict_proba(self._selected(D))

    @available_if(lambda self: hasattr(self.method, "predict"))
    def predict(self, D: Any) -> np.ndarray:
        return self._fitted().predict(self._selected(D))

    def _fitted(self) -> Any:
        check_is_fitted(self, "method_")
        return self.method_

    def _selected(self, D: Any) -> Distributions | None:
        return None if D is None else with_features(as_distributions(D), self.places_)


def with_features(D: Distributions, columns: np.ndarray) -> Distributions:
    """Return the distributions with selected features."""
    features = None if D.features is None else [D.features[column] for column in columns]
    return D.with_points(_columns(D.points, columns), features)


def _columns(points: Any, columns: np.ndarray) -> Any:
    # Fancy indexing would return a Fortran-ordered copy.
    return points[:, columns] if sparse.issparse(points) else points.take(columns, axis=1)
