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
from .._internal.validation import aligned, label_array
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ._base import GroundMetricMethod
from ._pool import Pool, read_file, unreadable, write_file
from .ensemble import GroundMetricEnsemble, checked_distributions, ordered_values

# A new distribution is far from all when its nearest one is so many times as far as any training distribution's.
_FAR = 1.5


class UnfamiliarWarning(UserWarning):
    """A new distribution is farther from all training distributions than they are from each other."""


@dataclass(frozen=True)
class Predicted:
    """What is predicted for new distributions.

    Attributes
    ----------
    values : array of shape (n_distributions, n_classes) or (n_distributions,)
        Probabilities of the classes, or numbers.
    typicality : array of shape (n_distributions,)
        How usual it is to be as far from the nearest training distribution; see `typicality` of the estimators.
    far : array of bool of shape (n_distributions,)
        Whether it is so far from all training distributions that what is predicted is a guess.
    """

    values: np.ndarray
    typicality: np.ndarray
    far: np.ndarray


class EnsemblePredictor(GroundMetricMethod, BaseEstimator):
    """Kernel models of all views of an ensemble, pooled by their weights."""

    takes_groups = True
    _target = "classes"

    def __init__(self, ensemble: GroundMetricEnsemble | None = None, *, random_state: RandomState = None) -> None:
        self.ensemble = ensemble
        self.random_state = random_state

    def fit(
        self, X: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> Self:
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
        D = checked_distributions(self, X, reset=True)
        self.ensemble_ = ensemble.set_params(target=self._target).fit(D, _one_column(y), groups=groups, strata=strata)
        self._pool = Pool.of(ensemble)
        self.metric_ = ensemble.metric_
        return self

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def typicality(self, X: DistributionsLike) -> np.ndarray:
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
        check_is_fitted(self, "metric_")
        return self._typicality(self._pool.euclidean_distances(self._checked(X)).min(axis=1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what predictions need to one file, whole or not at all; `load` reads it. No pickle is involved.

        It holds the models, the members that have a share in predictions, and of the training points those that members
        have drawn, with the features that these use: a few megabytes where the data have hundreds. An older predictor
        at this path is replaced; a file of any other kind is an error.

        Parameters
        ----------
        path : path-like
            File to write.
        """
        write_file(path, *self.pack())

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
        description, arrays = self._pool.pack()
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
            "pool": description,
        }, arrays

    def _pack_more(self) -> dict[str, np.ndarray]:
        """Arrays that a kind of predictor needs beside those of all."""
        return {}

    def _unpack_more(self, arrays: dict[str, np.ndarray]) -> None:
        """Take them from a file, which is not believed."""

    def _typicality(self, nearest: np.ndarray) -> np.ndarray:
        known = self._pool.nearest
        return (1 + np.sum(known >= nearest[:, None], axis=1)) / (1 + known.size)

    def _predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "metric_")
        D = self._checked(X)
        distances = self._pool.euclidean_distances(D)
        self._warn_of_far(distances.min(axis=1), D)
        return self._pool.predict(D, distances)

    def predict_all(self, X: DistributionsLike) -> Predicted:
        """Predictions of new distributions, with how usual these are and which are far from all; without a warning.

        Parameters
        ----------
        X : Distributions or array of shape (n_points, n_features)
            New distributions.

        Returns
        -------
        Predicted
            Probabilities of the classes, or numbers; typicality; and which are far.
        """
        check_is_fitted(self, "metric_")
        D, pool = self._checked(X), self._pool
        distances = pool.euclidean_distances(D)
        nearest, found = distances.min(axis=1), pool.predict(D, distances)
        values = found if pool.n_classes else pool.mean + pool.spread * found
        return Predicted(values, self._typicality(nearest), nearest > _FAR * pool.nearest.max())

    def _checked(self, X: Any) -> Distributions:
        D = checked_distributions(self, X, reset=False)
        self.metric_.check_fit(D)
        return D

    def _warn_of_far(self, nearest: np.ndarray, D: Distributions) -> None:
        far = np.flatnonzero(nearest > _FAR * self._pool.nearest.max())
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


class TransportClassifier(ClassifierMixin, EnsemblePredictor):
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
        The fitted ensemble, with held-out probabilities of the training distributions in `held_out_`; not of one that
        was loaded.
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

    def predict_proba(self, X: DistributionsLike) -> np.ndarray:
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

    def predict(self, X: DistributionsLike) -> np.ndarray:
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
        check_is_fitted(self, "metric_")
        return self.classes_[np.argmax(self._predict(X), axis=1)]

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
        return super().score(D, label_array(y, D.roll), aligned(sample_weight, D.roll, "sample_weight"))


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

    _target = "ordered"

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
        standardised = self._predict(X)
        return self._pool.mean + self._pool.spread * standardised

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
        return super().score(D, ordered_values(y, D), aligned(sample_weight, D.roll, "sample_weight"))


def load_predictor(path: str | os.PathLike[str]) -> Any:
    """Read a file that `save` of any of these estimators wrote.

    A file may come from anybody, so nothing in it is believed; whatever is wrong is a ValueError that names the file.
    """
    return unpack_predictor(*read_file(path), os.fspath(path))


def unpack_predictor(description: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> Any:
    """The estimator that `pack` was called on, as far as predictions need it."""
    try:
        return _unpack(description, arrays)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError, MemoryError) as error:
        raise unreadable(
            where, error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        ) from error


def _unpack(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    kind = {kind.__name__: kind for kind in EnsemblePredictor.__subclasses__()}[description["estimator"]]
    found = kind(GroundMetricEnsemble(**description["ensemble"]), random_state=description["random_state"])
    metric = GroundMetric(arrays["metric"], description["features"], variances=arrays.get("variances"))
    pool = Pool.unpack(description["pool"], arrays, metric.n_features)
    if isinstance(found, TransportClassifier):
        classes = arrays["classes"]
        if classes.shape != (pool.n_classes,) or pool.n_classes < 2:
            raise Damaged(f"there are classes of shape {classes.shape} for {pool.n_classes} of them")
        found.classes_ = classes.astype(str).astype(object) if description["text"] else classes
    elif pool.n_classes:
        raise Damaged("a regressor has classes")
    found._pool, found.metric_, found.n_features_in_ = pool, metric, metric.n_features
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
