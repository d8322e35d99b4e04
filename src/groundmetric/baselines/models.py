"""Prediction without a learned metric: regression on summaries, and a kernel model on Euclidean transport.

Labels are classes, numbers or survival times. Feature selection and penalties are chosen by cross-validation inside the
training set, with groups undivided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import svd
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from .._internal.types import DistributionsLike, Estimator, LabelsLike
from .._internal.validation import (
    group_list,
    keyed_uniform,
    unit_codes,
)
from ..distributions import Distributions
from ..ensemble import Classes, Geometry, Survival
from ..ensemble.members import EuclideanView
from ..ensemble.stacking import KernelModel, Target
from ..estimators.ensemble import read_target
from .distances import Baseline, Euclidean, Summary

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


class _Predictor(Baseline):
    """Reading of labels, division into folds, and prediction; subclasses give `_fit` and `_predict`."""

    takes_groups = True
    target: str

    def fit(self, D: DistributionsLike, y: LabelsLike, groups: LabelsLike | None = None) -> Any:
        """Fit the model, with its penalty chosen by cross-validation inside these distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Training distributions; the rows of an array are distributions of one point each.
        y : array-like of shape (n_distributions,)
            Classes, numbers or survival times, by `target`.
        groups : array-like of shape (n_distributions,) or None, default=None
            Group (patient) of each distribution, which folds do not divide.

        Returns
        -------
        self
            The fitted estimator.
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
        """Predict labels of distributions.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`.

        Returns
        -------
        array of shape (n_distributions,)
            Classes, numbers, or risks (the higher, the earlier the event).
        """
        predictions = self._predict(self._checked(D))
        return self.classes_[predictions.argmax(axis=1)] if self.target == "classes" else predictions

    @available_if(lambda self: self.target == "classes")
    def predict_proba(self, D: DistributionsLike) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        D : Distributions or array of shape (n_points, n_features)
            Distributions with the features of `fit`.

        Returns
        -------
        array of shape (n_distributions, n_classes)
            Probabilities in the order of `classes_`; each row sums to 1.
        """
        return self._predict(self._checked(D))

    def _fit(self, D: Distributions, target: Target, folds: np.ndarray) -> None:
        raise NotImplementedError

    def _predict(self, D: Distributions) -> np.ndarray:
        raise NotImplementedError


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
    survival times. The number of selected columns (20, 200 or all, by their association with the label) and the penalty
    are those with the best held-out likelihood in cross-validation inside the training set.

    Parameters
    ----------
    statistics : str, default="mean"
        Statistics of `Summary`: "mean", "moments", "type_means", "composition" or "embedding".
    model : estimator or None, default=None
        Estimator of scikit-learn that is fitted to the unscaled vectors; None: the default model.
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation : str or None, default=None
        Annotation of the points that holds their types; None: clusters.
    n_types : int, default=20
        Number of clusters; not used with an annotation.
    random_state : int, default=0
        Seed of the summary.

    Attributes
    ----------
    summary_ : Summary
        The fitted summary.
    model_ : estimator
        The fitted model.
    classes_ : array of shape (n_classes,)
        Classes.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> gm.baselines.SummaryModel("moments").fit(D, y).predict_proba(D[:2]).shape
    (2, 3)
    >>> gm.baselines.SummaryModel("moments", KNeighborsClassifier(5)).fit(D, y).predict(D[:2]).shape
    (2,)
    """

    def __init__(
        self,
        statistics: str = "mean",
        model: Estimator | None = None,
        *,
        target: str = "classes",
        annotation: str | None = None,
        n_types: int = 20,
        random_state: int = 0,
    ) -> None:
        self.statistics = statistics
        self.model = model
        self.target = target
        self.annotation = annotation
        self.n_types = n_types
        self.random_state = random_state

    def _fit(self, D: Distributions, target: Target, folds: np.ndarray) -> None:
        self.summary_ = Summary(
            self.statistics, annotation=self.annotation, n_types=self.n_types, random_state=self.random_state
        )
        x = self.summary_.fit(D).transform(D)
        self.model_: Any
        if self.model is None:
            self.model_ = _Regression.tuned(x, target, folds)
        else:
            self.model_ = clone(self.model).fit(x, _plain_labels(target))

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
    depend on rotations, so the model is fitted to the leading principal components of the selected columns: with more
    columns than rows, these span all rows. `n_selected` is the number of selected columns (None: all). One model is
    fitted for each inverse penalty in `strengths`.
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
        """Return the model with the best held-out score; of equal ones, that with fewer columns, then smaller weights.

        Columns are selected again in each fold: a selection by all labels would favour many columns.
        """
        if folds.max() == 0:
            return cls(x, target, None, np.array([_USUAL_STRENGTH]))
        counts = [count for count in N_SELECTED if count is None or count < x.shape[1]]
        scores = np.zeros((len(counts), STRENGTHS.size))
        for fold in np.unique(folds):
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
    """Return the score of the distributions outside the training set (row indices), summed.

    Classes: log-probability, balanced. Numbers: negative squared error. Survival times: partial log-likelihood of all
    minus that of the training set (Verweij & van Houwelingen 1993).
    """
    if isinstance(target, Survival):
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

    Newton's method maximises the partial likelihood, with Breslow's treatment of ties, minus `alpha` times half the
    squared norm of the coefficients.
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
    components if the points have more features. Numbers and percentiles of survival times get kernel ridge regression.
    This is the view "Euclidean" of an ensemble with its kernel model.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    random_state : int, default=0
        Seed of the draws of points.

    Attributes
    ----------
    model_ : KernelModel
        The fitted model.
    classes_ : array of shape (n_classes,)
        Classes.
    n_features_in_ : int
        Number of features.

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
        self.model_ = KernelModel.fit(self._view.kernel(), target, folds)[0]

    def _predict(self, D: Distributions) -> np.ndarray:
        kernel = self._view.kernel_to(self._scaling.describe(D))
        predictions = self._target.decode(self.model_.predict(kernel, self._target))
        return -predictions if self.target == "survival" else predictions


# Name of the default model of each target in tables.
_NAMES = {"classes": "logistic regression", "ordered": "ridge regression", "survival": "Cox regression"}


def standard(target: str = "classes", *, annotation: str | None = None, random_state: int = 0) -> dict[str, Any]:
    """Return the baselines that a learned metric is compared with, each with its standard practice.

    Everything is fitted inside the training set: types, feature selection and penalties.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation : str or None, default=None
        Annotation of the points that holds their types, e.g. "cell_type"; None: clusters.
    random_state : int, default=0
        Seed of draws of points, clusters and random features.

    Returns
    -------
    dict of str to estimator
        Regression on means ("pseudobulk"), means and standard deviations ("moments"), means of types ("type-means"),
        proportions of types ("composition") and mean embeddings ("embedding"); a kernel model on Euclidean transport
        ("transport-kernel"). For classes also distances for nearest neighbours: between means ("pseudobulk-5-nn") and
        by Euclidean transport ("transport-5-nn").

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.standard("survival")["pseudobulk"]
    SummaryModel(target='survival')
    """
    typed: dict[str, Any] = {"annotation": annotation, "target": target, "random_state": random_state}
    plain: dict[str, Any] = {"target": target, "random_state": random_state}
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
    """Return the names of the standard baselines in tables.

    Parameters
    ----------
    target : {"classes", "ordered", "survival"}, default="classes"
        Kind of the labels.
    annotation : str or None, default=None
        As in `standard`.

    Returns
    -------
    dict of str to str
        Key of `standard` to the name.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.baselines.titles("ordered")["pseudobulk"]
    'Pseudobulk, ridge regression'
    """
    model, types = _NAMES[target], "Cluster" if annotation is None else "Cell-type"
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
