"""Predictions for new distributions from an ensemble: a classifier with probabilities, and a regressor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._internal.validation import aligned, label_array
from ..distances import pairwise_distances
from ..distributions import Distributions, gathered
from ..metrics.base import GroundMetric
from ._base import GroundMetricMethod
from ._kernel import KernelModel, similarities, votes
from .ensemble import EUCLIDEAN, VOTES, GroundMetricEnsemble, checked_distributions, ordered_values

# A new distribution is far from all when its nearest one is so many times as far as any training distribution's.
_FAR = 1.5


class UnfamiliarWarning(UserWarning):
    """A new distribution is farther from all training distributions than they are from each other."""


class _EnsemblePredictor(GroundMetricMethod, BaseEstimator):
    """Kernel models of all views of an ensemble, pooled by their weights."""

    takes_groups = True
    _target = "classes"

    def __init__(self, ensemble: GroundMetricEnsemble | None = None, *, random_state: Any = None) -> None:
        self.ensemble = ensemble
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, strata: Any = None) -> Any:
        """Fit the ensemble, and a kernel model to each way in which it compares distributions.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes or numbers; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided between a part and the rest;
            matched by name where they carry names.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution, within which labels are compared; matched by name where they
            carry names. New distributions need none.

        Returns
        -------
        estimator
            The estimator itself.
        """
        if not isinstance(self.ensemble, GroundMetricEnsemble | None):
            raise TypeError(
                f"ensemble is {self.ensemble!r}: expected a GroundMetricEnsemble, or None for a default one"
            )
        ensemble = GroundMetricEnsemble() if self.ensemble is None else clone(self.ensemble)
        if self.random_state is not None:
            ensemble.set_params(random_state=self.random_state)
        D = checked_distributions(self, gathered(X), reset=True)
        self.ensemble_ = ensemble.set_params(target=self._target).fit(D, _one_column(y), groups=groups, strata=strata)
        codes, strata, n_classes = ensemble._codes, ensemble._strata, ensemble.classes_.size
        self._models = [
            None if view.name == VOTES else KernelModel(view.kernel, codes, view.reading.strength, n_classes, strata)
            for view in ensemble._views
        ]
        nearest = ensemble._geometry.euclidean_distances + np.diag(np.full(ensemble._codes.size, np.inf))
        self._nearest = nearest.min(axis=1)
        self.metric_ = ensemble.metric_
        return self

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def typicality(self, X: Any) -> np.ndarray:
        """How usual it is to be as far from the nearest training distribution as a new one is.

        The distances are Euclidean ones between standardised features, which no label has a part in.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            New distributions.

        Returns
        -------
        array of shape (n_distributions,)
            Share of training distributions, the new one included, whose nearest other one is as far away or farther: 1
            over their number plus one for a distribution that is farther from all than any of them.
        """
        check_is_fitted(self, "ensemble_")
        nearest = self._distances(self._checked(X), EUCLIDEAN).min(axis=1)
        return (1 + np.sum(self._nearest >= nearest[:, None], axis=1)) / (1 + self._nearest.size)

    def _predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "ensemble_")
        D = self._checked(X)
        ensemble, found = self.ensemble_, []
        distances = {name: self._distances(D, name) for name in self._needed()}
        self._warn_of_far(distances[EUCLIDEAN].min(axis=1), D)
        for view, model in zip(ensemble._views, self._models, strict=True):
            if view.weight == 0.0:
                continue
            if model is None:
                predicted = votes(distances[ensemble.kinds[-1]], ensemble._codes, ensemble.classes_.size)
            elif view.name == "means":
                geometry = ensemble._geometry
                predicted = model.predict(geometry.standardised_means(D) @ geometry.standardised_means(geometry.D).T)
            else:
                predicted = model.predict(similarities(distances[view.name], view.unit))
            found.append(view.weight * predicted)
        return np.sum(found, axis=0)

    def _needed(self) -> list[str]:
        """Kinds whose distances have a part in predictions, and Euclidean ones, which tell who is far."""
        ensemble = self.ensemble_
        used = {ensemble.kinds[-1] if view.name == VOTES else view.name for view in ensemble._views if view.weight > 0}
        return [EUCLIDEAN, *(kind for kind in ensemble.kinds if kind in used)]

    def _checked(self, X: Any) -> Distributions:
        D = checked_distributions(self, gathered(X), reset=False)
        self.metric_.check_fit(D)
        return D

    def _distances(self, D: Distributions, name: str) -> np.ndarray:
        """Distances to the training distributions, averaged over the members of a kind, each by its own draw."""
        geometry = self.ensemble_._geometry
        metrics: list[tuple[int, GroundMetric]] = [(0, geometry.euclidean)]
        if name != EUCLIDEAN:
            metrics = list(enumerate(m.metric for m in self.ensemble_.members_ if m.kind == name))
        found = np.zeros((len(D), len(geometry.D)))
        for draw, metric in metrics:
            few = (
                D
                if D.sizes.max() <= geometry.max_points
                else D.subsample(geometry.max_points, random_state=int(geometry.seeds[draw]))
            )
            found += pairwise_distances(few, geometry.draws[draw], metric=metric)
        return found / len(metrics)

    def _warn_of_far(self, nearest: np.ndarray, D: Distributions) -> None:
        far = np.flatnonzero(nearest > _FAR * self._nearest.max())
        if far.size:
            warnings.warn(
                f"{far.size} of {len(D)} distributions (e.g. {D.names[far[0]]!r}) are farther from all training "
                f"distributions than {_FAR:g} times the farthest among these: what is predicted for them is a guess; "
                "look at their scale and quality, or train on some like them",
                UnfamiliarWarning,
                stacklevel=4,
            )


def _one_column(y: Any) -> Any:
    """Labels in a table of a single column, as scikit-learn takes them: with a warning."""
    return column_or_1d(y, warn=True) if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 else y


class TransportClassifier(ClassifierMixin, _EnsemblePredictor):
    """Probabilities of classes from an ensemble of learned ground metrics.

    A kernel logistic regression reads the out-of-bag distances of each kind of member; two more read Euclidean
    distances and the means alone, and the nearest under the learned members vote. Their probabilities are averaged by
    how much better than chance each predicts training distributions that are left out. Classes count the same, whatever
    their size.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted. None: one with default parameters.
    random_state : int, RandomState or None, default=None
        Seed of the ensemble; None keeps that of `ensemble`.

    Attributes
    ----------
    ensemble_ : GroundMetricEnsemble
        The fitted ensemble, with held-out probabilities of the training distributions in `held_out_`.
    metric_ : GroundMetric
        Its metric.
    classes_ : array of shape (n_classes,)
        Classes in sorted order.
    n_features_in_ : int
        Number of features of the points.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> classifier = gm.TransportClassifier(gm.GroundMetricEnsemble(2), random_state=0).fit(D[::2], y[::2])
    >>> classifier.predict_proba(D[1::2]).shape == (len(D) // 2, 3)
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None, strata: Any = None) -> TransportClassifier:
        super().fit(X, y, groups, strata)
        self.classes_ = self.ensemble_.classes_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Probabilities in the order of `classes_`; each row sums to 1.
        """
        return self._predict(X)

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each distribution.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted classes.
        """
        check_is_fitted(self, "ensemble_")
        return self.classes_[np.argmax(self._predict(X), axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the predicted classes.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            True classes; matched by name where they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name where they carry names.

        Returns
        -------
        float
            Share of the distributions whose class is predicted correctly.
        """
        check_is_fitted(self, "ensemble_")
        D = self._checked(X)
        return super().score(D, label_array(y, D.roll), aligned(sample_weight, D.roll, "sample_weight"))


class TransportRegressor(RegressorMixin, _EnsemblePredictor):
    """Numbers from an ensemble of learned ground metrics: ordered labels, ages, doses.

    As `TransportClassifier`, with kernel ridge regression. Of ordered classes (0, 1, 2, …) the prediction is the
    expected rank.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted with ``target="ordered"``. None: one with default parameters.
    random_state : int, RandomState or None, default=None
        Seed of the ensemble; None keeps that of `ensemble`.

    Attributes
    ----------
    ensemble_ : GroundMetricEnsemble
        The fitted ensemble.
    metric_ : GroundMetric
        Its metric.
    n_features_in_ : int
        Number of features of the points.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> points = np.random.RandomState(0).normal(np.repeat(np.arange(12.0), 5))[:, None]
    >>> D = gm.Distributions(points, np.repeat(range(12), 5))
    >>> regressor = gm.TransportRegressor(gm.GroundMetricEnsemble(2), random_state=0).fit(D, np.arange(12.0))
    >>> bool(regressor.score(D, np.arange(12.0)) > 0.8)
    True
    """

    _target = "ordered"

    def predict(self, X: Any) -> np.ndarray:
        """Number of each distribution.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted numbers.
        """
        standardised = self._predict(X)
        return self.ensemble_._mean + self.ensemble_._spread * standardised

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination, R², of the predicted numbers.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to predict for. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            True numbers; matched by name where they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name where they carry names.

        Returns
        -------
        float
            R²: 1 for perfect predictions, 0 for those as good as the mean of `y`.
        """
        check_is_fitted(self, "ensemble_")
        D = self._checked(X)
        return super().score(D, ordered_values(y, D), aligned(sample_weight, D.roll, "sample_weight"))
