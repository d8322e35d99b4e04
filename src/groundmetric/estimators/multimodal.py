"""Predictions from several modalities: a metric is learned in each, and weights say how much each counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from .._internal.types import LabelsLike, ModalitiesLike, RandomState
from .._internal.validation import aligned, check_labels, label_array
from ..distances import pairwise_distances
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..modalities import Modalities
from ..supervision.splits import group_list, number_groups
from ._kernel import balanced_weights, log_likelihood
from .ensemble import GroundMetricEnsemble, ordered_values
from .predictor import TransportClassifier, TransportRegressor

JOINT = "joint"
# Distributions by which the weights of modalities are pulled to equal ones: that of few says little.
_PRIOR = 2.0
# Steps in which weights settle.
_STEPS = 200
# No held-out distribution counts as less likely than this, so that one surprise does not decide.
_FLOOR = 1e-3
# Distributions and points of each by which the unit of distances is estimated.
_SOME = 30
_POINTS = 100


def mixture_weights(likelihood: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights of sum 1 under which the mixture of columns is most likely, each row counting as given (by EM).

    They are those of the largest posterior under a Dirichlet prior, which pulls them to equal ones.

    >>> mixture_weights(np.array([[0.9, 0.1]] * 50), np.ones(50)).round(2).tolist()
    [0.98, 0.02]
    """
    n_columns = likelihood.shape[1]
    weights = np.full(n_columns, 1.0 / n_columns)
    for _ in range(_STEPS):
        shares = weights * likelihood
        shares *= (counts / shares.sum(axis=1))[:, None]
        weights = shares.sum(axis=0) + _PRIOR / n_columns
        weights /= weights.sum()
    return weights


class _MultimodalPredictor(BaseEstimator):
    """A predictor for each modality, averaged by how likely their held-out predictions make the labels."""

    takes_groups = True
    _predictor: type = TransportClassifier

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
        """Learn a metric and a predictor in each modality, and weight these by what they say about others.

        Parameters
        ----------
        X : Modalities or dict of str to Distributions
            Training distributions in each modality.
        y : array-like of shape (n_distributions,)
            Classes or numbers; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided between a part and the rest;
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
        views = self._views(X)
        roll = next(iter(X.parts.values())).roll
        labels, codes = self._read(y, next(iter(X.parts.values())))
        patients, batches = group_list(groups, roll), None if strata is None else label_array(strata, roll, "strata")
        self.predictors_ = {}
        for name, D in views.items():
            predictor = self._predictor(self.ensemble, random_state=self.random_state)
            self.predictors_[name] = clone(predictor).fit(D, labels, groups=patients, strata=batches)
        self.metrics_ = {name: predictor.metric_ for name, predictor in self.predictors_.items()}
        self.n_features_in_ = X.shape[1]
        numbers = number_groups(patients, len(X))
        self._blend(codes, np.arange(len(X)) if numbers is None else numbers)
        ensembles = [predictor.ensemble_ for predictor in self.predictors_.values()]
        self.distances_ = _weighted_sum(list(self.weights_.values()), [one.distances_ for one in ensembles])
        self._units = {name: _mean_distance(D, self.metrics_[name]) for name, D in views.items()}
        return self

    def _joins(self, X: Modalities) -> bool:
        """Whether features of a cell are also compared side by side."""
        if not isinstance(self.joint, bool | None):
            raise TypeError(f"joint is {self.joint!r}: expected True, False, or None to join modalities of equal cells")
        if JOINT in X.parts:
            raise ValueError(f"a modality is named {JOINT!r}, as all of them together are: give it another name")
        several = len(X.parts) > 1
        return several and X.matched if self.joint is None else self.joint

    def _views(self, X: Modalities) -> dict[str, Distributions]:
        return {**X.parts, JOINT: X.joint()} if self._joined else dict(X.parts)

    def _blend(self, codes: np.ndarray, groups: np.ndarray) -> None:
        """Weights from all held-out predictions; and held-out predictions by weights that have not seen the label."""
        held_out = [self._held_out(predictor) for predictor in self.predictors_.values()]
        likelihood, counts = self._likelihood(held_out, codes)
        weights = mixture_weights(likelihood, counts)
        self.weights_ = {name: float(weight) for name, weight in zip(self.predictors_, weights, strict=True)}
        found = np.empty_like(held_out[0])
        for group in np.unique(groups):
            left, rest = groups == group, groups != group
            own = mixture_weights(likelihood[rest], counts[rest]) if rest.any() else weights
            found[left] = _weighted_sum(own, [predicted[left] for predicted in held_out])
        self.score_ = log_likelihood(found, codes, counts if found.ndim == 2 else None) / codes.size
        self.held_out_ = self._in_units(found)

    def _read(self, y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
        """Labels in the order of the distributions, and as numbers."""
        raise NotImplementedError

    def _held_out(self, predictor: Any) -> np.ndarray:
        return predictor.ensemble_.held_out_

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        return values

    def _likelihood(self, held_out: list[np.ndarray], codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each label by each held-out prediction, and how much each label counts."""
        raise NotImplementedError

    def _average(self, X: Any, method: str) -> np.ndarray:
        """Predictions of all modalities, by their weights."""
        check_is_fitted(self, "weights_")
        views = self._views(self._checked(X))
        said = [getattr(predictor, method)(views[name]) for name, predictor in self.predictors_.items()]
        return _weighted_sum(list(self.weights_.values()), said)

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
        first = self._views(self._checked(A))
        second = None if B is None else self._views(self._checked(B))
        each = [
            pairwise_distances(first[name], second and second[name], metric, n_jobs=n_jobs) / self._units[name]
            for name, metric in self.metrics_.items()
        ]
        return _weighted_sum(list(self.weights_.values()), each)


class MultimodalClassifier(ClassifierMixin, _MultimodalPredictor):
    """Probabilities of classes from several modalities, each with a learned metric of its own.

    A `TransportClassifier` is fitted in each modality. Where all are measured on the same cells, another one compares
    cells by all features at once. Probabilities are averaged by weights under which held-out probabilities make the
    true classes most likely: a modality that says nothing counts little.

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
        Weight of each modality, and of "joint"; they sum to 1.
    metrics_ : dict of str to GroundMetric
        The learned metrics.
    predictors_ : dict of str to TransportClassifier
        The fitted classifiers.
    modalities_ : list of str
        Names of the modalities.
    held_out_ : array of shape (n_distributions, n_classes)
        Probabilities predicted for each training distribution while it was left out, with weights chosen by others.
    score_ : float
        Mean log-probability of the true class in `held_out_`, classes counting the same.
    distances_ : array of shape (n_distributions, n_distributions)
        Weighted sum of the out-of-bag distances of the modalities, each in units of its mean.
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

    def _read(self, y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
        labels = check_labels(y, D.roll)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return labels, codes

    def _likelihood(self, held_out: list[np.ndarray], codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each = [predicted[np.arange(codes.size), codes] for predicted in held_out]
        return np.clip(np.column_stack(each), _FLOOR, 1.0), balanced_weights(codes)

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
        return self._average(X, "predict_proba")

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
        roll = next(iter(X.parts.values())).roll
        return super().score(X, label_array(y, roll), aligned(sample_weight, roll, "sample_weight"))


class MultimodalRegressor(RegressorMixin, _MultimodalPredictor):
    """Numbers from several modalities, each with a learned metric of its own.

    As `MultimodalClassifier`, with a `TransportRegressor` in each modality.

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
        Weight of each modality, and of "joint"; they sum to 1.
    metrics_ : dict of str to GroundMetric
        The learned metrics.
    predictors_ : dict of str to TransportRegressor
        The fitted regressors.
    modalities_ : list of str
        Names of the modalities.
    held_out_ : array of shape (n_distributions,)
        Numbers predicted for each training distribution while it was left out, with weights chosen by others.
    score_ : float
        Log-likelihood of the numbers per distribution, in units of their standard deviation.
    distances_ : array of shape (n_distributions, n_distributions)
        Weighted sum of the out-of-bag distances of the modalities, each in units of its mean.
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

    _predictor = TransportRegressor

    def _read(self, y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
        values = ordered_values(y, D)
        self._mean, self._spread = float(values.mean()), float(values.std()) or 1.0
        return values, (values - self._mean) / self._spread

    def _held_out(self, predictor: Any) -> np.ndarray:
        return (predictor.ensemble_.held_out_ - self._mean) / self._spread

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        return self._mean + self._spread * values

    def _likelihood(self, held_out: list[np.ndarray], codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normal around each prediction, of the variance that the best of them leaves."""
        squares = np.column_stack([np.square(predicted - codes) for predicted in held_out])
        variance = max(float(squares.mean(axis=0).min()), _FLOOR)
        densities = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)) / variance)
        return np.clip(densities, _FLOOR, 1.0), np.ones(codes.size)

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
        return self._average(X, "predict")

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
        return super().score(X, ordered_values(y, D), aligned(sample_weight, D.roll, "sample_weight"))


def _modalities(X: Any) -> Modalities:
    if isinstance(X, Modalities):
        return X
    if isinstance(X, Mapping):
        return Modalities(X)
    raise TypeError(f"X is a {type(X).__name__}: expected Modalities, or Distributions by the name of their modality")


def _weighted_sum(weights: Any, values: list[np.ndarray]) -> np.ndarray:
    return np.sum([weight * one for weight, one in zip(weights, values, strict=True)], axis=0)


def _mean_distance(D: Distributions, metric: GroundMetric) -> float:
    """Of some distributions and points: the unit in which distances of modalities can be added."""
    some = D[np.unique(np.linspace(0, len(D) - 1, _SOME).astype(int))].subsample(_POINTS, random_state=0)
    distances = pairwise_distances(some, metric=metric)
    return float(distances.sum()) / max(len(some) * (len(some) - 1), 1) or 1.0
