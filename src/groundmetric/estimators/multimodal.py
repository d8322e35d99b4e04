"""Predictions from several modalities: the views of all modalities are stacked in one ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .._internal.keyed import resolve_seed
from .._internal.types import LabelsLike, ModalitiesLike, RandomState
from .._internal.validation import align_by_name, label_array
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..ensemble import Geometry
from ..ensemble.fit import Predictor
from ..metrics.base import GroundMetric
from ..modalities import Modalities
from .ensemble import Cohort, GroundMetricEnsemble, fit_cohort, ordered_values

JOINT = "joint"
# Distributions and points of each from which the unit of distances is estimated.
_MAX_DISTRIBUTIONS, _MAX_POINTS = 30, 100


class _MultimodalPredictor(BaseEstimator):
    """An ensemble with the views of several modalities."""

    takes_groups = True
    _target = "classes"

    def __init__(
        self,
        ensemble: GroundMetricEnsemble | None = None,
        *,
        joint: bool | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.ensemble = ensemble
        self.joint = joint
        self.random_state = random_state

    def fit(
        self, X: ModalitiesLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> Self:
        """Train members in each modality, and stack the views of all modalities.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Training distributions in each modality.
        y : array-like of shape (n_distributions,)
            Classes or numbers; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided by a cross-validation fold;
            matched by name where they carry names.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution, within which labels are compared; matched by name where they
            carry names.

        Returns
        -------
        estimator
            The estimator itself.
        """
        X = _modalities(X)
        self.modalities_, self._joined = list(X), self._joins(X)
        parts = self._parts(X)
        ensemble = GroundMetricEnsemble() if self.ensemble is None else self.ensemble
        seed = resolve_seed(ensemble.random_state if self.random_state is None else self.random_state)
        cohort = Cohort(next(iter(X.parts.values())), y, self._target, groups, strata, ensemble.cv)
        geometries = {
            name: Geometry(parts[name].with_mass()[cohort.order], seed, ensemble.max_points, cohort.strata)
            for name in sorted(parts)
        }
        fitted = fit_cohort(geometries, cohort, replace(ensemble.settings(), seed=seed))
        back = cohort.inverse
        self.fitted_, self.classes_, self.folds_ = fitted, cohort.classes, fitted.folds[back]
        self.predictor_ = Predictor.of(fitted)
        self.held_out_ = fitted.target.decode(fitted.held_out.predictions[back])
        self.score_, self.chance_, self.view_weights_ = fitted.score, fitted.chance, fitted.weights
        self.distances_ = fitted.distances[np.ix_(back, back)]
        self.metrics_ = {name: fitted.metric(name) for name in parts}
        shares = dict.fromkeys(parts, 0.0)
        for (name, _), weight in zip(fitted.views, fitted.stack.weights, strict=True):
            shares[name] += float(weight)
        self.weights_ = shares
        self.n_features_in_ = X.shape[1]
        self._units = {name: _mean_distance(D, self.metrics_[name]) for name, D in parts.items()}
        return self

    def _joins(self, X: Modalities) -> bool:
        """Return whether the features of all modalities are also compared side by side."""
        if not isinstance(self.joint, bool | None):
            raise TypeError(f"joint is {self.joint!r}: expected True, False, or None to join modalities of equal cells")
        if JOINT in X.parts:
            raise ValueError(f"a modality is named {JOINT!r}, as all of them together are: give it another name")
        several = len(X.parts) > 1
        return several and X.matched if self.joint is None else self.joint

    def _parts(self, X: Modalities) -> dict[str, Distributions]:
        return {**X.parts, JOINT: X.joint()} if self._joined else dict(X.parts)

    def _predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "weights_")
        parts = {name: D.with_mass() for name, D in self._parts(self._checked(X)).items()}
        descriptions = self.predictor_.describe(parts)
        return self.predictor_.predict(descriptions, self.predictor_.euclidean_distances(descriptions))

    def _checked(self, X: Any) -> Modalities:
        X = _modalities(X)
        if set(X) != set(self.modalities_):
            raise ValueError(f"X has the modalities {list(X)}, but {self.modalities_} were learned from: give the same")
        return Modalities({name: X[name] for name in self.modalities_})

    def distances(self, A: ModalitiesLike, B: ModalitiesLike | None = None, *, n_jobs: int | None = None) -> np.ndarray:
        """Distances between distributions, averaged over modalities by their weights.

        In each modality they are exact Wasserstein distances under its metric, in units of their mean between training
        distributions.

        Parameters
        ----------
        A : Modalities or dict of str to Distributions
            First cohort.
        B : Modalities, dict of str to Distributions or None, default=None
            Second cohort. None compares the distributions of `A` with each other.
        n_jobs : int or None, default=None
            Number of threads; None means one, -1 one per core.

        Returns
        -------
        array of shape (len(A), len(B))
            Distances.
        """
        check_is_fitted(self, "weights_")
        first = self._parts(self._checked(A))
        second = None if B is None else self._parts(self._checked(B))
        each = [
            pairwise_distances(first[name], second and second[name], metric, n_jobs=n_jobs) / self._units[name]
            for name, metric in self.metrics_.items()
        ]
        return _weighted_sum(list(self.weights_.values()), each)


class MultimodalClassifier(ClassifierMixin, _MultimodalPredictor):
    """Probabilities of classes from several modalities, each with a learned metric of its own.

    The views of all modalities are stacked in one ensemble, so that held-out predictions use no label of their fold.
    Where all modalities are measured on the same cells, further views compare cells by all features at once.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted in each modality. None: one with default parameters.
    joint : bool or None, default=None
        Whether to compare cells by all modalities at once as well. None: where all have the same cells. True: by the
        cells that all have.
    random_state : int, RandomState or None, default=None
        Seed of the ensembles; None keeps that of `ensemble`.

    Attributes
    ----------
    weights_ : dict of str to float
        Sum of the stacking weights of each modality, and of "joint"; they sum to 1.
    metrics_ : dict of str to GroundMetric
        The learned metrics.
    view_weights_ : dict of str to float
        Stacking weight of each view of each modality.
    folds_ : array of int of shape (n_distributions,)
        Cross-validation fold of each distribution.
    modalities_ : list of str
        Names of the modalities.
    held_out_ : array of shape (n_distributions, n_classes)
        Held-out probabilities of each training distribution.
    score_ : float
        Mean log-probability of the true class in `held_out_`, classes counting the same.
    distances_ : array of shape (n_distributions, n_distributions)
        Out-of-bag distances, averaged over the views of all modalities.
    classes_ : array of shape (n_classes,)
        Classes in sorted order.
    n_features_in_ : int
        Number of features of all modalities.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> noise = gm.datasets.make_modes(points_per_mode=10, random_state=1)[0]
    >>> both = gm.Modalities({"signal": D.with_points(D.points[:, :1]), "noise": D.with_points(noise.points[:, 1:])})
    >>> model = gm.MultimodalClassifier(gm.GroundMetricEnsemble(2), random_state=0).fit(both, y)
    >>> model.weights_["signal"] > model.weights_["noise"]
    True
    """

    def predict_proba(self, X: ModalitiesLike) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Distributions to classify, in all modalities.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Probabilities in the order of `classes_`; each row sums to 1.
        """
        return self._predict(X)

    def predict(self, X: ModalitiesLike) -> np.ndarray:
        """Most probable class of each distribution.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Distributions to classify, in all modalities.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted classes.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def score(self, X: ModalitiesLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of the predicted classes.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Distributions to classify, in all modalities.
        y : array-like of shape (n_distributions,)
            True classes; matched by name where they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name where they carry names.

        Returns
        -------
        float
            Share of the distributions whose class is predicted correctly.
        """
        X = _modalities(X)
        name_index = next(iter(X.parts.values())).name_index
        return super().score(X, label_array(y, name_index), align_by_name(sample_weight, name_index, "sample_weight"))


class MultimodalRegressor(RegressorMixin, _MultimodalPredictor):
    """Numbers from several modalities, each with a learned metric of its own.

    As `MultimodalClassifier`, with kernel ridge regression.

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted in each modality. None: one with default parameters.
    joint : bool or None, default=None
        Whether to compare cells by all modalities at once as well. None: where all have the same cells. True: by the
        cells that all have.
    random_state : int, RandomState or None, default=None
        Seed of the ensembles; None keeps that of `ensemble`.

    Attributes
    ----------
    weights_ : dict of str to float
        Sum of the stacking weights of each modality, and of "joint"; they sum to 1.
    metrics_ : dict of str to GroundMetric
        The learned metrics.
    view_weights_ : dict of str to float
        Stacking weight of each view of each modality.
    folds_ : array of int of shape (n_distributions,)
        Cross-validation fold of each distribution.
    modalities_ : list of str
        Names of the modalities.
    held_out_ : array of shape (n_distributions,)
        Held-out numbers of each training distribution.
    score_ : float
        -log of the held-out error in standard deviations of the numbers.
    distances_ : array of shape (n_distributions, n_distributions)
        Out-of-bag distances, averaged over the views of all modalities.
    n_features_in_ : int
        Number of features of all modalities.

    Examples
    --------
    >>> import numpy as np
    >>> import groundmetric as gm
    >>> random = np.random.RandomState(0)
    >>> samples, y = np.repeat(range(12), 5), np.arange(12.0)
    >>> dose = gm.Distributions(random.normal(y.repeat(5))[:, None], samples)
    >>> noise = gm.Distributions(random.normal(size=(60, 1)), samples)
    >>> model = gm.MultimodalRegressor(gm.GroundMetricEnsemble(2), random_state=0)
    >>> model.fit({"dose": dose, "noise": noise}, y).weights_["dose"] > 0.8
    True
    """

    _target = "ordered"

    def predict(self, X: ModalitiesLike) -> np.ndarray:
        """Number of each distribution.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Distributions to predict for, in all modalities.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted numbers.
        """
        return self._predict(X)

    def score(self, X: ModalitiesLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination, R², of the predicted numbers.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Distributions to predict for, in all modalities.
        y : array-like of shape (n_distributions,)
            True numbers; matched by name where they carry names.
        sample_weight : array-like of shape (n_distributions,) or None, default=None
            Weight of each distribution; matched by name where they carry names.

        Returns
        -------
        float
            R²: 1 for perfect predictions, 0 for those as good as the mean of `y`.
        """
        X = _modalities(X)
        D = next(iter(X.parts.values()))
        return super().score(X, ordered_values(y, D), align_by_name(sample_weight, D.name_index, "sample_weight"))


def _modalities(X: Any) -> Modalities:
    if isinstance(X, Modalities):
        return X
    if isinstance(X, Mapping):
        return Modalities(X)
    raise TypeError(f"X is a {type(X).__name__}: expected Modalities, or Distributions by the name of their modality")


def _weighted_sum(weights: Any, values: list[np.ndarray]) -> np.ndarray:
    return np.sum([weight * one for weight, one in zip(weights, values, strict=True)], axis=0)


def _mean_distance(D: Distributions, metric: GroundMetric) -> float:
    """Return the mean distance between some distributions, in which distances of modalities can be added."""
    rows = np.unique(np.linspace(0, len(D) - 1, _MAX_DISTRIBUTIONS).astype(int))
    distances = pairwise_distances(D[rows].subsample(_MAX_POINTS, random_state=0), metric=metric)
    return float(distances.sum()) / max(len(rows) * (len(rows) - 1), 1) or 1.0
