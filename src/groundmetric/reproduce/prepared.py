"""A step before any method, made anew from each training part: what the method is shown of the features."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..distributions import Distributions, as_distributions


class Prepared(BaseEstimator):
    """A method that is shown something else than the features as they are.

    Prepared beforehand from everybody, that would have seen the distributions that are tested. Here it is part of the
    fit, so that an evaluation repeats it in every split. A kind of preparation says what it learns from the training
    part (`_prepare`), and what it then shows of any (`_show`).
    """

    method: Any

    @property
    def takes_groups(self) -> bool:
        return getattr(self.method, "takes_groups", False)

    @property
    def uses_labels(self) -> bool:
        return getattr(self.method, "uses_labels", True)

    def fit(self, D: Any, y: Any = None, groups: Any = None) -> Any:
        """Prepare, then fit the method on what it is shown."""
        D = as_distributions(D)
        self._prepare(D)
        more = {} if groups is None else {"groups": groups}
        self.method_ = clone(self.method).fit(self._shown(D), y, **more)
        if hasattr(self.method_, "classes_"):
            self.classes_ = self.method_.classes_
        self.n_features_in_ = D.shape[1]
        return self

    def distances(self, A: Any, B: Any = None, *, n_jobs: int | None = None) -> np.ndarray:
        """The method's distances between distributions."""
        check_is_fitted(self, "method_")
        return self.method_.distances(self._shown(A), None if B is None else self._shown(B), n_jobs=n_jobs)

    @available_if(lambda self: hasattr(self.method, "point_distances"))
    def point_distances(self, x: Any, y: Any = None) -> np.ndarray:
        """The method's distances between points."""
        check_is_fitted(self, "method_")
        return self.method_.point_distances(self._show(x), None if y is None else self._show(y))

    @available_if(lambda self: hasattr(self.method, "predict_proba"))
    def predict_proba(self, D: Any) -> np.ndarray:
        """The method's own probabilities."""
        check_is_fitted(self, "method_")
        return self.method_.predict_proba(self._shown(D))

    def _shown(self, D: Any) -> Distributions:
        D = as_distributions(D)
        return with_points(D, self._show(D.points), self._names(D.features))

    def _prepare(self, D: Distributions) -> None:
        raise NotImplementedError

    def _show(self, points: Any) -> Any:
        raise NotImplementedError

    def _names(self, features: list | None) -> list | None:
        return None


def with_points(D: Distributions, points: Any, features: list | None) -> Distributions:
    """The same distributions with other features of their points."""
    other = D[:]
    other.points, other.features = points, features
    return other
