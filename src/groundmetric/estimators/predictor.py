"""Predictions for new distributions from an ensemble: a classifier with probabilities, and a regressor."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._internal.files import Damaged
from .._internal.types import DistributionsLike, LabelsLike, RandomState
from .._internal.validation import ParameterError, align_by_name, label_array, real_array
from ..distributions import Distributions, SmallSampleWarning
from ..ensemble import io
from ..ensemble.fit import Predictor
from ..ensemble.targets import Classes
from ..metrics.base import GroundMetric
from ._base import GroundMetricMethod
from .ensemble import GroundMetricEnsemble, checked_distributions, ordered_values

# A new distribution is unfamiliar if its nearest training distribution is more than this many times as far as the
# nearest neighbour of any training distribution.
_FAR = 1.5


class UnfamiliarWarning(UserWarning):
    """A new distribution is farther from all training distributions than they are from each other."""


@dataclass(frozen=True)
class Predicted:
    """Predictions for new distributions.

    Attributes
    ----------
    values : array of shape (n_distributions, n_classes) or (n_distributions,)
        Probabilities of the classes, numbers or risks.
    typicality : array of shape (n_distributions,)
        Share of training distributions that are as far from their nearest neighbour; see `typicality` of the
        estimators.
    far : array of bool of shape (n_distributions,)
        Whether the distribution is unlike all training distributions.
    small : array of bool of shape (n_distributions,)
        Whether the distribution has fewer points than training distributions were compared by.
    """

    values: np.ndarray
    typicality: np.ndarray
    far: np.ndarray
    small: np.ndarray


class EnsemblePredictor(GroundMetricMethod, BaseEstimator):
    """Kernel models of all views of an ensemble, averaged by their stacking weights."""

    takes_groups = True
    target = "classes"  # kind of the labels, as in `GroundMetricEnsemble`

    def __init__(self, ensemble: GroundMetricEnsemble | None = None, *, random_state: RandomState = None) -> None:
        self.ensemble = ensemble
        self.random_state = random_state

    def fit(
        self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> Self:
        """Fit the ensemble, and the kernel models of its views.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Training distributions. The rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes or numbers; matched by name where they carry names (a Series, a dict).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided by a cross-validation fold;
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
        D = checked_distributions(self, X, reset=True)
        self.ensemble_ = ensemble.set_params(target=self.target).fit(D, _one_column(y), groups=groups, strata=strata)
        self.predictor_ = Predictor.of(ensemble.fitted_)
        self.metric_ = ensemble.metric_
        return self

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def typicality(self, X: DistributionsLike) -> np.ndarray:
        """Return how common it is among training distributions to be as far from the nearest one.

        Distances are Euclidean transport distances between standardised features, which use no label.

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
        check_is_fitted(self, "metric_")
        predictor = self.predictor_
        descriptions = predictor.describe({"": self._checked(X)})
        return _typicality(*predictor.remoteness(predictor.euclidean_distances(descriptions)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what predictions need to one file, by an atomic write and without pickle; `load` reads it.

        The file holds the models, the members, and the drawn training points with the features that members use. An
        older predictor at this path is replaced; a file of any other kind is an error.

        Parameters
        ----------
        path : path-like
            File to write.
        """
        io.write_file(path, *self.pack())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path : path-like
            File to read.

        Returns
        -------
        estimator
            It predicts what the saved one does. The fitted ensemble is not in the file: there is no `ensemble_`.
        """
        found = load_predictor(path)
        if not isinstance(found, cls):
            name = type(found).__name__
            raise ValueError(f"{os.fspath(path)!r} holds a {name}: read it with {name}.load")
        return found

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What `save` writes, as JSON and arrays; `unpack_predictor` reads it.

        Returns
        -------
        description : dict
            All that is no array.
        arrays : dict of str to array
            Numbers, and text.
        """
        check_is_fitted(self, "metric_")
        description, arrays = io.pack_predictor(self.predictor_)
        arrays["metric"] = self.metric_.components
        if self.metric_.variances is not None:
            arrays["variances"] = self.metric_.variances
        classes, kept = getattr(self, "classes_", None), self.ensemble or GroundMetricEnsemble()
        arrays |= self._pack_more()
        if classes is not None:
            arrays["classes"] = _storable(classes)
        names = getattr(self, "feature_names_in_", None)
        given = {name: value for name, value in kept.get_params().items() if isinstance(value, int | str | None)}
        return {
            "estimator": type(self).__name__,
            "features": self.metric_.features,
            "named": names is not None,
            "text": classes is not None and classes.dtype == object,
            "ensemble": {**given, "kinds": list(kept.kinds)},
            "random_state": self.random_state if isinstance(self.random_state, int) else None,
            "predictor": description,
        }, arrays

    def _pack_more(self) -> dict[str, np.ndarray]:
        """Return arrays that a kind of predictor needs beside those of all."""
        return {}

    def _unpack_more(self, arrays: dict[str, np.ndarray]) -> None:
        """Load and validate the additional arrays."""

    def _predict(self, X: Any) -> np.ndarray:
        """Return predictions, with warnings at the line that called the calling method."""
        predicted, D = self._predict_all(X)
        if predicted.far.any():
            name = D.names[int(np.argmax(predicted.far))]
            warnings.warn(
                f"{int(predicted.far.sum())} of {len(D)} distributions (e.g. {name!r}) are farther from all training "
                f"distributions than {_FAR:g} times the farthest of these: predictions for them are extrapolations; "
                "check their scale and quality, or train on similar ones",
                UnfamiliarWarning,
                stacklevel=3,
            )
        if predicted.small.any():
            names = [D.names[d] for d in np.flatnonzero(predicted.small)]
            warnings.warn(SmallSampleWarning(names, self.predictor_.scalings[""].n_points), stacklevel=3)
        return predicted.values

    def _predict_all(self, X: Any) -> tuple[Predicted, Distributions]:
        check_is_fitted(self, "metric_")
        D, predictor = self._checked(X), self.predictor_
        descriptions = predictor.describe({"": D})
        euclidean = predictor.euclidean_distances(descriptions)
        new, training = predictor.remoteness(euclidean)
        small = np.isin(np.arange(len(D)), descriptions[""].small)
        values = predictor.predict(descriptions, euclidean)
        return Predicted(values, _typicality(new, training), new > _FAR * training.max(), small), D

    def predict_all(self, X: DistributionsLike) -> Predicted:
        """Return predictions with typicality and flags instead of warnings.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            New distributions.

        Returns
        -------
        Predicted
            Probabilities of the classes, or numbers; typicality; which are far from all, and which are small.
        """
        return self._predict_all(X)[0]

    def _checked(self, X: Any) -> Distributions:
        D = checked_distributions(self, X, reset=False)
        self.metric_.check_fit(D)
        return D


def _typicality(new: np.ndarray, training: np.ndarray) -> np.ndarray:
    return (1 + np.sum(training >= new[:, None], axis=1)) / (1 + training.size)


def _one_column(y: Any) -> Any:
    """Return labels of a table with a single column as a vector, with scikit-learn's warning."""
    return column_or_1d(y, warn=True) if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 else y


class TransportClassifier(ClassifierMixin, EnsemblePredictor):
    """Probabilities of classes from an ensemble of learned ground metrics.

    Kernel logistic regressions on the views of the ensemble are averaged by stacking weights. Classes have equal
    weight, whatever their size: probabilities assume that all classes are equally frequent among new distributions,
    unless `predict_proba` is given their frequencies (`prior`).

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble, a copy of which is fitted. None: one with default parameters.
    random_state : int, RandomState or None, default=None
        Seed of the ensemble; None keeps that of `ensemble`.

    Attributes
    ----------
    ensemble_ : GroundMetricEnsemble
        The fitted ensemble, with held-out probabilities of the training distributions in `held_out_`; absent after
        `load`.
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

    def fit(
        self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> TransportClassifier:
        super().fit(X, y, groups, strata)
        self.classes_ = self.ensemble_.classes_
        return self

    def predict_proba(self, X: DistributionsLike, prior: LabelsLike | None = None) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.
        prior : array-like of shape (n_classes,), dict or None, default=None
            Frequency of each class among the distributions to classify, in the order of `classes_` or by class. None:
            all classes are equally frequent.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Probabilities in the order of `classes_`; each row sums to 1.
        """
        return self._adjusted(self._predict(X), prior)

    def _adjusted(self, probabilities: np.ndarray, prior: Any) -> np.ndarray:
        """Return probabilities for classes of these frequencies, by Bayes' rule."""
        if prior is None:
            return probabilities
        weighted = probabilities * self._check_prior(prior)
        return weighted / weighted.sum(axis=1, keepdims=True)

    def _check_prior(self, prior: Any) -> np.ndarray:
        expected = f": expected frequencies of the classes {self.classes_.tolist()}, positive and finite"
        if hasattr(prior, "keys"):
            if {str(label) for label in prior.keys()} != {str(label) for label in self.classes_}:  # noqa: SIM118
                raise ParameterError("prior", dict(prior), expected)
            by_class = {str(label): value for label, value in prior.items()}
            prior = [by_class[str(label)] for label in self.classes_]
        values = np.asarray(real_array(prior, "prior"), dtype=np.float64)
        if values.shape != self.classes_.shape or not (np.isfinite(values).all() and np.all(values > 0)):
            raise ParameterError("prior", prior, expected)
        return values / values.sum()

    def predict(self, X: DistributionsLike, prior: LabelsLike | None = None) -> np.ndarray:
        """Return the most probable class of each distribution.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            Distributions to classify. The rows of an array are distributions of one point each.
        prior : array-like of shape (n_classes,), dict or None, default=None
            Frequency of each class, as in `predict_proba`.

        Returns
        -------
        array of shape (n_distributions,)
            Predicted classes.
        """
        check_is_fitted(self, "metric_")
        return self.classes_[np.argmax(self._adjusted(self._predict(X), prior), axis=1)]

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
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
        check_is_fitted(self, "metric_")
        D = self._checked(X)
        return super().score(
            D, label_array(y, D.name_index), align_by_name(sample_weight, D.name_index, "sample_weight")
        )


class TransportRegressor(RegressorMixin, EnsemblePredictor):
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
        The fitted ensemble; not of one that was loaded.
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

    target = "ordered"

    def predict(self, X: DistributionsLike) -> np.ndarray:
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
        return self._predict(X)

    def score(self, X: DistributionsLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
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
        check_is_fitted(self, "metric_")
        D = self._checked(X)
        return super().score(D, ordered_values(y, D), align_by_name(sample_weight, D.name_index, "sample_weight"))


def load_predictor(path: str | os.PathLike[str]) -> Any:
    """Read a file that `save` of any of these estimators wrote.

    A file may come from anybody, so nothing in it is believed; whatever is wrong is a ValueError that names the file.
    """
    return unpack_predictor(*io.read_file(path), os.fspath(path))


def unpack_predictor(description: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> Any:
    """The estimator that `pack` was called on, as far as predictions need it."""
    try:
        return _unpack(description, arrays)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError, MemoryError) as error:
        raise io.unreadable(
            where, error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        ) from error


def _unpack(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    kind = {kind.__name__: kind for kind in EnsemblePredictor.__subclasses__()}[description["estimator"]]
    found = kind(GroundMetricEnsemble(**description["ensemble"]), random_state=description["random_state"])
    metric = GroundMetric(arrays["metric"], description["features"], variances=arrays.get("variances"))
    predictor = io.unpack_predictor(description["predictor"], arrays, metric.n_features)
    if isinstance(found, TransportClassifier):
        classes = arrays["classes"]
        if not isinstance(predictor.target, Classes) or classes.shape != (predictor.target.n_classes,):
            raise Damaged(f"there are classes of shape {classes.shape}, which do not fit the models")
        found.classes_ = classes.astype(str).astype(object) if description["text"] else classes
    elif isinstance(predictor.target, Classes):
        raise Damaged("a regressor has classes")
    found.predictor_, found.metric_, found.n_features_in_ = predictor, metric, metric.n_features
    if description["named"]:
        found.feature_names_in_ = np.array(metric.features, dtype=object)
    found._unpack_more(arrays)
    return found


def _storable(classes: np.ndarray) -> np.ndarray:
    """Classes as an array that needs no pickle."""
    if classes.dtype == object and all(isinstance(label, str) for label in classes):
        return classes.astype(str)
    if classes.dtype.kind not in "biufSU":
        raise TypeError(f"classes are like {classes[0]!r}: only text and numbers can be saved, make all labels text")
    return classes
