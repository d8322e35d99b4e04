"""Predictions for new distributions from an ensemble: classes, numbers and survival, for one or more modalities."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from .._internal.files import Damaged, read_arrays, write_arrays
from .._internal.types import DistributionsLike, LabelsLike, ModalitiesLike, RandomState
from .._internal.validation import (
    ParameterError,
    align_by_name,
    group_list,
    label_array,
    real_array,
    refuse_points_of_learner,
)
from ..distances import GroundMetricMethod
from ..distributions import Distributions, SmallSampleWarning
from ..ensemble import Classes, Numbers, Predicted, Predictor, Survival
from ..ensemble.fit import FAR, Calibration, PredictionIntervals, PredictionSets
from ..ensemble.geometry import ArrayReader
from ..learning.survival import SurvivalTimes, check_comparable, concordance, kaplan_meier, read_survival
from ..metrics.base import GroundMetric
from ..modalities import Modalities
from .ensemble import GroundMetricEnsemble, ordered_values
from .learner import checked_distributions

FORMAT, VERSION = "groundmetric.Predictor", 5
_TITLE = "saved TransportClassifier, TransportRegressor or TransportSurvival"
# Name of the views that combine the features of all modalities, if these are measured on the same cells.
JOINT = "joint"
# Width of the kernel between risks, in standard deviations times n^(-1/5): Silverman's rule.
_WIDTH = 1.06

InputLike: TypeAlias = "DistributionsLike | ModalitiesLike"
# Validated distributions by modality, in the order of the input; a single modality has the name "".
Parts = dict[str, Distributions]


class UnfamiliarWarning(UserWarning):
    """A new distribution is farther from all training distributions than any training distribution."""


def _first(parts: Parts) -> Distributions:
    """Return the first modality: all have the same distributions in the same order."""
    return next(iter(parts.values()))


class BasePredictor(BaseEstimator):
    """Kernel models of all views of an ensemble, averaged by their stacking weights."""

    takes_groups = True
    target = "classes"  # kind of the labels, as in `GroundMetricEnsemble`

    def __init__(self, ensemble: GroundMetricEnsemble | None = None, *, random_state: RandomState = None) -> None:
        self.ensemble = ensemble
        self.random_state = random_state

    def fit(
        self, X: InputLike, y: LabelsLike, *, groups: LabelsLike | None = None, strata: LabelsLike | None = None
    ) -> Self:
        """Fit the ensemble, and the kernel models of its views.

        Parameters
        ----------
        X : Distributions, array of shape (n_points, n_features), Modalities or dict of str to Distributions
            Distributions; the rows of an array are distributions of one point each. Multimodal estimators take
            Modalities or a dict.
        y : array-like of shape (n_distributions,)
            Classes or numbers. Survival times are a structured array or table with the fields (columns) "event" (True
            if observed) and "time", as made by scikit-survival's `Surv`. Labels, groups, strata and weights are matched
            by name if they carry names (a Series, a dict, the index of a table).
        groups : array-like of shape (n_distributions,) or None, default=None
            Outer group of each distribution (the patient of a sample), never divided by a cross-validation fold.
        strata : array-like of shape (n_distributions,) or None, default=None
            Stratum (batch, site) of each distribution, within which labels are compared. Predictions do not use strata.
        """
        refuse_points_of_learner(X, y, f"leave it out, because {type(self).__name__} learns its metrics")
        if not isinstance(self.ensemble, GroundMetricEnsemble | None):
            raise TypeError(
                f"ensemble is {self.ensemble!r}: expected a GroundMetricEnsemble, or None for a default one"
            )
        ensemble = GroundMetricEnsemble() if self.ensemble is None else clone(self.ensemble)
        if ensemble.target not in ("classes", self.target):  # "classes" is the default of an unset parameter
            name = type(self).__name__
            raise ParameterError("target", ensemble.target, f", but {name} predicts {self.target!r}: leave it out")
        if self.random_state is not None:
            ensemble.set_params(random_state=self.random_state)
        parts = self._checked(X, reset=True)
        ensemble.set_params(target=self.target)
        self.ensemble_ = ensemble.fit(parts.get("", parts), y, groups=groups, strata=strata)
        self.predictor_ = Predictor.of(self.ensemble_.fitted_)
        D, target, held_out = _first(parts), self.ensemble_.fitted_.target, self.ensemble_.held_out_
        # The fitted ensemble is in the order of the names, held-out predictions in that of the input.
        rows = np.argsort(sorted(range(len(D)), key=lambda d: str(D.names[d])))
        if isinstance(target, Classes):
            codes = target.codes[rows]
            scores = 1.0 - held_out[np.arange(codes.size), codes]
        else:
            codes = np.zeros(len(rows), dtype=np.intp)
            scores = np.abs(target.decode(target.values[rows]) - held_out)
        outer = group_list(groups, D.name_index), group_list(strata, D.name_index)
        self.calibration_ = None if isinstance(target, Survival) else Calibration.of(scores, codes, *outer)
        self._keep(parts, y)
        return self

    def _checked(self, X: Any, *, reset: bool = False) -> Parts:
        """Return the validated input; `reset` in `fit`."""
        raise NotImplementedError

    def _keep(self, parts: Parts, y: Any) -> None:
        """Set the attributes of the fitted estimator."""
        raise NotImplementedError

    def typicality(self, X: InputLike) -> np.ndarray:
        """Return the share of distributions (training and new one) whose nearest neighbour is at least as far away.

        Distances are Euclidean transport distances between standardised features, which use no label. The smallest
        share, 1 / (n_training + 1), means that the new distribution is farther away than any training distribution.
        """
        return self.predict_all(X).typicality

    def predict_all(self, X: InputLike) -> Predicted:
        """Return predictions (`values`: probabilities of the classes, numbers or risks) without warnings.

        The result also has the `typicality` of each distribution, and masks of distributions that are unlike all
        training distributions (`far`) or have fewer points than these (`small`).
        """
        return self._predicted(self._checked(X))

    def _predicted(self, parts: Parts) -> Predicted:
        return self.predictor_.predict(parts)

    def _predict(self, parts: Parts) -> np.ndarray:
        """Return predictions, with warnings at the line that called the calling method."""
        names, predicted = _first(parts).names, self._predicted(parts)
        if predicted.far.any():
            name = names[int(np.argmax(predicted.far))]
            warnings.warn(
                f"{int(predicted.far.sum())} of {len(names)} distributions (e.g. {name!r}) are farther from all "
                f"training distributions than {FAR:g} times the farthest training distribution: predictions for "
                "them are extrapolations; check their scale and quality, or train on similar distributions",
                UnfamiliarWarning,
                stacklevel=3,
            )
        if predicted.small.any():
            n_points = min(scaling.n_points for scaling in self.predictor_.scalings.values())
            small = [names[d] for d in np.flatnonzero(predicted.small)]
            warnings.warn(SmallSampleWarning(small, n_points), stacklevel=3)
        return predicted.values


class _Classification(ClassifierMixin):
    """Methods of classifiers."""

    classes_: np.ndarray

    def predict_proba(self, X: InputLike, prior: LabelsLike | None = None) -> np.ndarray:
        """Return the probability of each class, shape (n_distributions, n_classes), in the order of `classes_`.

        `prior` is the frequency of each class among the distributions to classify, in the order of `classes_` or as a
        dict by class. None: all classes are equally frequent.
        """
        return self._adjusted(self._predict(self._checked(X)), prior)

    def predict(self, X: InputLike, prior: LabelsLike | None = None) -> np.ndarray:
        """Return the most probable class of each distribution, with `prior` as in `predict_proba`."""
        probabilities = self._adjusted(self._predict(self._checked(X)), prior)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_set(self, X: InputLike, coverage: float = 0.9, *, strata: LabelsLike | None = None) -> PredictionSets:
        """Return sets of classes that contain the true class with probability `coverage`, by conformal prediction.

        A set with one class is a prediction at this level; a set with several classes means that the data do not
        decide ("cannot say"). The coverage holds for each class separately if new patients resemble the training
        patients. Where a class has fewer than ``coverage / (1 - coverage)`` training patients (9 for 0.9), and for
        distributions unlike all training distributions, the set has all classes, with the reason. If the classifier was
        fitted with strata (batches), and those of the new distributions are given as `strata`, sets are calibrated by
        training patients of the same stratum, where these are enough.
        """
        parts = self._checked(X)
        D, new = _first(parts), self._predicted(parts)
        new_strata = group_list(strata, D.name_index, "strata")
        return self.calibration_.sets(new.values, new.far, D.names, self.classes_, float(coverage), new_strata)

    def score(self, X: InputLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of the distributions whose class is predicted correctly, weighted by `sample_weight`."""
        parts = self._checked(X)
        index = _first(parts).name_index
        labels, weights = label_array(y, index), align_by_name(sample_weight, index, "sample_weight")
        predicted = self.classes_[np.argmax(self._predict(parts), axis=1)]
        return float(accuracy_score(labels, predicted, sample_weight=weights))

    def _adjusted(self, probabilities: np.ndarray, prior: Any) -> np.ndarray:
        """Return probabilities for the class frequencies `prior`, by Bayes' rule."""
        if prior is None:
            return probabilities
        expected = f": expected frequencies of the classes {self.classes_.tolist()}, positive and finite"
        if hasattr(prior, "keys"):
            by_class = {str(label): value for label, value in prior.items()}
            if set(by_class) != {str(label) for label in self.classes_}:
                raise ParameterError("prior", dict(prior), expected)
            prior = [by_class[str(label)] for label in self.classes_]
        values = np.asarray(real_array(prior, "prior"), dtype=np.float64)
        if values.shape != self.classes_.shape or not (np.isfinite(values).all() and np.all(values > 0)):
            raise ParameterError("prior", prior, expected)
        weighted = probabilities * (values / values.sum())
        return weighted / weighted.sum(axis=1, keepdims=True)


class _Regression(RegressorMixin):
    """Methods of regressors."""

    target = "ordered"

    def predict(self, X: InputLike) -> np.ndarray:
        """Return the predicted number of each distribution."""
        return self._predict(self._checked(X))

    def predict_interval(self, X: InputLike, coverage: float = 0.9) -> PredictionIntervals:
        """Return intervals that contain the true number with probability `coverage`, by conformal prediction.

        The half-width is a quantile of the absolute errors of held-out predictions, so all intervals have the same
        width. They are infinite, with the reason, where there are fewer than ``coverage / (1 - coverage)`` training
        patients (9 for 0.9), and for distributions unlike all training distributions.
        """
        parts = self._checked(X)
        predicted = self._predicted(parts)
        return self.calibration_.intervals(predicted.values, predicted.far, _first(parts).names, float(coverage))

    def score(self, X: InputLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R² of the predicted numbers, with weights `sample_weight`: 0 if as good as the mean of `y`."""
        parts = self._checked(X)
        D = _first(parts)
        values, weights = ordered_values(y, D), align_by_name(sample_weight, D.name_index, "sample_weight")
        return float(r2_score(values, self._predict(parts), sample_weight=weights))


class EnsemblePredictor(GroundMetricMethod, BasePredictor):
    """Predictors of distributions of one modality, which can be saved."""

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any, *, reset: bool = False) -> Parts:
        if not reset:
            check_is_fitted(self, "predictor_")
        D = checked_distributions(self, X, reset=reset)
        if not reset:
            self.metric_.check_fit(D)
        return {"": D}

    def _keep(self, parts: Parts, y: Any) -> None:
        self.metric_ = self.ensemble_.metric_
        if self.target == "classes":
            self.classes_ = self.ensemble_.classes_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything that predictions need, also drawn training points, to the file `path`, without pickle.

        An existing predictor at this path is replaced by an atomic write; files of other kinds are never replaced.
        """
        write_arrays(path, FORMAT, VERSION, *self.pack(), compress=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the predictor that `save` wrote to the file `path`, without the fitted `ensemble_`."""
        loaded = load_predictor(path)
        if not isinstance(loaded, cls):
            name = type(loaded).__name__
            raise ValueError(f"{os.fspath(path)!r} holds a {name}: read it with {name}.load")
        return loaded

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the content of the file that `save` writes: JSON values, and arrays by name."""
        check_is_fitted(self, "metric_")
        description, arrays = self.predictor_.pack()
        arrays["metric"] = self.metric_.components
        if self.metric_.variances is not None:
            arrays["variances"] = self.metric_.variances
        if self.calibration_ is not None:
            self.calibration_.pack(arrays)
        arrays |= self._pack_more()
        ensemble = self.ensemble or GroundMetricEnsemble()
        plain = {name: value for name, value in ensemble.get_params().items() if isinstance(value, int | str | None)}
        return {
            "estimator": type(self).__name__,
            "features": self.metric_.features,
            "named": hasattr(self, "feature_names_in_"),
            "text": getattr(self, "classes_", np.empty(0)).dtype == object,
            "ensemble": {**plain, "kinds": list(ensemble.kinds)},
            "random_state": self.random_state if isinstance(self.random_state, int) else None,
            "predictor": description,
        }, arrays

    def _pack_more(self) -> dict[str, np.ndarray]:
        """Return additional arrays of a subclass."""
        return {}

    def _unpack_more(self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Load and validate these arrays."""


class TransportClassifier(_Classification, EnsemblePredictor):
    """Classifier of distributions by an ensemble of learned ground metrics, with probabilities.

    Kernel logistic regressions on the views of the ensemble are averaged by stacking weights. Classes have equal
    weight, independently of their size: probabilities assume that all classes are equally frequent among new
    distributions, unless `predict_proba` is called with their frequencies (`prior`).

    Parameters
    ----------
    ensemble : GroundMetricEnsemble or None, default=None
        Ensemble; a copy is fitted. None: one with default parameters.
    random_state : int, RandomState or None, default=None
        Seed of the ensemble; None keeps that of `ensemble`.

    Attributes
    ----------
    ensemble_ : GroundMetricEnsemble
        The fitted ensemble, with held-out probabilities of the training distributions; absent after `load`.
    metric_, n_features_in_ : GroundMetric, int
        Its metric, and the number of features of the points.
    classes_ : array of shape (n_classes,)
        Classes in sorted order.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    >>> classifier = gm.TransportClassifier(gm.GroundMetricEnsemble(2), random_state=0).fit(D[::2], y[::2])
    >>> classifier.predict_proba(D[1::2]).shape == (len(D) // 2, 3)
    True
    """

    def _pack_more(self) -> dict[str, np.ndarray]:
        classes = self.classes_
        text = classes.dtype == object and all(isinstance(label, str) for label in classes)
        if not text and classes.dtype.kind not in "biufSU":
            raise TypeError(
                f"classes are like {classes[0]!r}: only text and numbers can be saved, make all labels text"
            )
        return {"classes": classes.astype(str) if text else classes}

    def _unpack_more(self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        classes = arrays["classes"]
        if classes.shape != self.predictor_.target.empty().shape:  # predictions for one distribution
            raise Damaged(f"there are classes of shape {classes.shape}, which do not fit the models")
        self.classes_ = classes.astype(str).astype(object) if description["text"] else classes


class TransportRegressor(_Regression, EnsemblePredictor):
    """Regressor of distributions by an ensemble of learned ground metrics: ordered labels, ages, doses.

    As `TransportClassifier`, with kernel ridge regression. For ordered classes (0, 1, 2, …) the prediction is the
    expected rank.

    Parameters
    ----------
    ensemble, random_state : as in `TransportClassifier`
        The copy of the ensemble has ``target="ordered"``.

    Attributes
    ----------
    ensemble_, metric_, n_features_in_ : as in `TransportClassifier`
        Held-out predictions, `ensemble_.held_out_`, are numbers.

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


class TransportSurvival(EnsemblePredictor):
    """Predictor of the risk of an event (death, relapse) by an ensemble of learned ground metrics.

    Right-censored times become numbers: the percentile of survival of each patient by Kaplan–Meier, for a censored one
    the expected percentile (see `groundmetric.learning.survival_percentiles`). An ensemble is fitted to these; the
    percentiles for the prediction of a fold use the times of the other folds only. A survival curve is the Kaplan–Meier
    estimate among training patients of similar held-out risk.

    Parameters
    ----------
    ensemble, random_state : as in `TransportClassifier`
        The copy of the ensemble has ``target="survival"``.

    Attributes
    ----------
    ensemble_, metric_, n_features_in_ : as in `TransportClassifier`
        Held-out predictions, `ensemble_.held_out_`, are expected percentiles of survival.
    times_ : SurvivalTimes
        Times and events of the training distributions.
    held_out_risk_ : array of shape (n_distributions,)
        Held-out risk of each training distribution.
    concordance_ : float
        Harrell's C of `held_out_risk_` between patients of the same fold, an estimate for new patients. NaN if no
        two patients of a fold are comparable.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_survival(24, 20, 10, random_state=0)
    >>> model = gm.TransportSurvival(gm.GroundMetricEnsemble(2), random_state=0).fit(D[:20], y[:20])
    >>> model.predict(D[20:]).shape, model.predict_survival(D[20:], times=[0.5, 1.0]).shape
    ((4,), (4, 2))
    """

    target = "survival"

    def _keep(self, parts: Parts, y: Any) -> None:
        super()._keep(parts, y)
        self.times_ = read_survival(y, _first(parts).name_index)
        self.held_out_risk_ = 1.0 - self.ensemble_.held_out_
        self.concordance_ = concordance(self.times_, self.held_out_risk_, self.ensemble_.folds_)

    def _predicted(self, parts: Parts) -> Predicted:
        predicted = super()._predicted(parts)
        return replace(predicted, values=1.0 - predicted.values)  # risk is the share of patients who live longer

    def predict(self, X: DistributionsLike) -> np.ndarray:
        """Return the risk of each distribution: the expected share of patients who outlive it.

        A higher risk means an earlier event. As predicted numbers, risks may be below 0 or above 1.
        """
        return self._predict(self._checked(X))

    def predict_survival(self, X: DistributionsLike, times: ArrayLike) -> np.ndarray:
        """Return the probability of being event-free at `times`, shape (n_distributions, n_times).

        Times are in the unit of the training times; probabilities after the last training time are NaN.
        """
        risk = self._predict(self._checked(X))
        time_points = np.atleast_1d(np.asarray(real_array(times, "times"), dtype=np.float64))
        if time_points.ndim != 1 or not np.all(time_points >= 0):
            raise ValueError(f"times are {times!r}: expected a list of numbers of at least 0")
        training = self.held_out_risk_
        width = _WIDTH * float(training.std()) * training.size**-0.2 or 1.0
        squares = ((risk[:, None] - training) / width) ** 2
        # Relative to the nearest training risk: weights of an extreme risk would underflow otherwise.
        weights = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)))
        steps, alive = kaplan_meier(self.times_, weights)
        curve = np.hstack([np.ones((risk.size, 1)), alive])
        probabilities = curve[:, np.searchsorted(steps, time_points, side="right")]
        probabilities[:, time_points > self.times_.time.max()] = np.nan
        return probabilities

    def score(self, X: DistributionsLike, y: LabelsLike) -> float:
        """Return Harrell's C of the predicted risks: the share of comparable pairs in the correct order."""
        parts = self._checked(X)
        times = read_survival(y, _first(parts).name_index)
        check_comparable(times)
        return concordance(times, self._predict(parts))

    def _pack_more(self) -> dict[str, np.ndarray]:
        arrays = {"time": self.times_.time, "event": self.times_.event, "held_out_risk": self.held_out_risk_}
        return {**arrays, "concordance": np.array(self.concordance_)}

    def _unpack_more(self, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        time, event, risk = (arrays[name] for name in ("time", "event", "held_out_risk"))
        shape, kinds = (len(self.predictor_.names),), (time.dtype.kind, event.dtype.kind, risk.dtype.kind)
        if {time.shape, event.shape, risk.shape} != {shape} or kinds != ("f", "b", "f"):
            raise Damaged(f"there are survival times of shape {time.shape} for {shape[0]} distributions")
        if not np.all(time >= 0) or not np.isfinite(time + risk).all() or not event.any():
            raise Damaged("survival times or risks are negative, infinite or without an event")
        self.times_, self.held_out_risk_ = SurvivalTimes(time, event), risk
        self.concordance_ = float(arrays["concordance"])


class _Multimodal(BasePredictor):
    """Base of estimators with the views of several modalities."""

    def __init__(
        self, ensemble: GroundMetricEnsemble | None = None, *, joint: bool | None = None,
        random_state: RandomState = None,
    ) -> None:  # fmt: skip
        super().__init__(ensemble, random_state=random_state)
        self.joint = joint

    def _checked(self, X: Any, *, reset: bool = False) -> Parts:
        """Return the modalities, and with `joined_` also one with the features of all."""
        if not reset:
            check_is_fitted(self, "predictor_")
        if not isinstance(X, Modalities | Mapping):
            kind = type(X).__name__
            raise TypeError(f"X is a {kind}: expected Modalities, or Distributions by the name of their modality")
        X = X if isinstance(X, Modalities) else Modalities(X)
        if reset:
            if not isinstance(self.joint, bool | None):
                raise TypeError(
                    f"joint is {self.joint!r}: expected True, False, or None to join modalities of equal cells"
                )
            if JOINT in X.parts:
                raise ValueError(f"a modality is named {JOINT!r}, as all of them together are: give it another name")
            self.modalities_ = list(X)
            self.joined_ = (len(X.parts) > 1 and X.matched) if self.joint is None else self.joint
        elif set(X) != set(self.modalities_):
            raise ValueError(f"X has the modalities {list(X)}, but {self.modalities_} were learned from: give the same")
        X = Modalities({name: X[name] for name in self.modalities_})
        parts = {**X.parts, JOINT: X.joint()} if self.joined_ else X.parts
        return {name: D.with_mass() for name, D in parts.items()}

    def _keep(self, parts: Parts, y: Any) -> None:
        ensemble = self.ensemble_
        for name in ("held_out_", "score_", "chance_", "distances_", "folds_", "classes_"):
            setattr(self, name, getattr(ensemble, name))
        self.metrics_ = {name: ensemble.metrics_[name] for name in parts}
        self.view_weights_, self.weights_ = ensemble.weights_, dict.fromkeys(parts, 0.0)
        for (name, _), weight in zip(ensemble.fitted_.views, ensemble.fitted_.stack.weights, strict=True):
            self.weights_[name] += float(weight)
        self.n_features_in_ = sum(parts[name].shape[1] for name in self.modalities_)


class MultimodalClassifier(_Classification, _Multimodal):
    """Classifier of distributions in several modalities, with a learned metric for each modality.

    The views of all modalities are stacked in one ensemble, whose held-out predictions use no label of their fold. If
    all modalities are measured on the same cells, further views compare cells by the features of all modalities.

    Parameters
    ----------
    ensemble : as in `TransportClassifier`
        A copy is fitted to all modalities.
    joint : bool or None, default=None
        Whether to add views with the features of all modalities. None: if all have the same cells. True: use the cells
        that all modalities share.
    random_state : as in `TransportClassifier`
        Seed of the ensemble.

    Attributes
    ----------
    ensemble_, n_features_in_ : as in `TransportClassifier`
        The fitted ensemble, and the number of features of all modalities.
    weights_, view_weights_ : dict of str to float
        Sum of the stacking weights of each modality, and of "joint"; and the weight of each view.
    modalities_, metrics_ : list of str, dict of str to GroundMetric
        Names of the modalities, and their learned metrics.
    held_out_, score_, chance_, distances_, folds_, classes_ : as in `GroundMetricEnsemble`
        Held-out predictions and their score, out-of-bag distances, folds and classes of the training distributions.

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


class MultimodalRegressor(_Regression, _Multimodal):
    """Regressor of distributions in several modalities, with a learned metric for each modality.

    As `MultimodalClassifier`, with kernel ridge regression.

    Parameters
    ----------
    ensemble, joint, random_state : as in `MultimodalClassifier`
        The copy of the ensemble has ``target="ordered"``.

    Attributes
    ----------
    ensemble_, weights_, metrics_, view_weights_, modalities_, held_out_, score_ : as in `MultimodalClassifier`
        Held-out predictions are numbers.

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


def load_predictor(path: str | os.PathLike[str]) -> Any:
    """Load a file that `save` of any estimator wrote; invalid content raises a ValueError that names the file."""
    return unpack_predictor(*read_arrays(path, FORMAT, VERSION, title=_TITLE), os.fspath(path))


def unpack_predictor(description: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> Any:
    """Return the estimator from the result of `pack`; it has everything that predictions need."""
    try:
        kinds = {kind.__name__: kind for kind in (TransportClassifier, TransportRegressor, TransportSurvival)}
        ensemble = GroundMetricEnsemble(**description["ensemble"])
        loaded = kinds[description["estimator"]](ensemble, random_state=description["random_state"])
        metric = GroundMetric(arrays["metric"], description["features"], variances=arrays.get("variances"))
        loaded.predictor_ = Predictor.unpack(description["predictor"], arrays, metric.n_features)
        loaded.metric_, loaded.n_features_in_ = metric, metric.n_features
        if description["named"]:
            loaded.feature_names_in_ = np.array(metric.features, dtype=object)
        target = loaded.predictor_.target
        if type(target) is not {"classes": Classes, "ordered": Numbers, "survival": Survival}[loaded.target]:
            raise Damaged(f"a {description['estimator']} has a target of type {type(target).__name__}")
        loaded._unpack_more(description, arrays)
        n_classes = target.n_classes if isinstance(target, Classes) else 1
        is_survival = isinstance(target, Survival)
        loaded.calibration_ = None if is_survival else Calibration.unpack(ArrayReader(arrays), n_classes)
        return loaded
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError, MemoryError) as error:
        reason = error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise ValueError(f"{where!r} is damaged or not a {_TITLE}: {reason}") from error
