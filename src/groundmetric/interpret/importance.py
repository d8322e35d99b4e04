"""Importance of features: in which class and kind of points they are higher, and how stable it is in refits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._internal.parallel import muted, progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, MetricLike, RandomState
from .._internal.validation import check_number, group_list, number_groups
from ..distributions import Distributions, as_distributions
from ..ensemble.members import importance_interval
from ..evaluation.intervals import resample
from ._inputs import (
    Annotation,
    annotation_of,
    check_confidence,
    classes_of,
    feature_names,
    frame,
    metric_of,
    spreads,
)

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class FeatureReading:
    """Importance of each feature in a metric, and how its values differ between classes.

    Parameters
    ----------
    features : list of str
        Names of the features.
    importance : array of shape (n_features,)
        Share of each feature in the metric, as `GroundMetric.importance`.
    classes : array of shape (n_classes,)
        Labels.
    means : array of shape (n_classes, n_features)
        Mean value in each class, every distribution counting the same.
    highest, lowest : array of shape (n_features,)
        Label of the class in which the feature's mean is highest, and lowest.
    difference : array of shape (n_features,)
        Highest less lowest mean, in standard deviations of the feature.
    values : list
        Kinds of points.
    differences : array of shape (n_values, n_features)
        The same difference (of the same two classes) among points of each kind only; NaN where a class has none.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0], [6.0, 1.0]], ["a", "b", "c", "d"])
    >>> reading = gm.interpret.read_features(gm.GroundMetric([[1.0, 0.1]]), D, ["well", "well", "ill", "ill"])
    >>> reading.top(1), reading.highest.tolist()[0], reading.lowest.tolist()[0], reading.importance.round(2).tolist()
    (['feature 0'], 'ill', 'well', [0.99, 0.01])
    """

    features: list[str]
    importance: np.ndarray
    classes: np.ndarray
    means: np.ndarray
    highest: np.ndarray
    lowest: np.ndarray
    difference: np.ndarray
    values: list[Any]
    differences: np.ndarray

    @property
    def where(self) -> np.ndarray:
        """For each feature, the kind of points in which it differs most."""
        size = np.nan_to_num(np.abs(self.differences), nan=-1.0)
        return np.array(self.values, dtype=object)[np.argmax(size, axis=0)]

    def top(self, n: int = 20) -> list[str]:
        """Return the names of the most important features.

        Parameters
        ----------
        n : int, default=20
            Number of features.

        Returns
        -------
        list of str
            Names, the most important first.
        """
        return [self.features[f] for f in np.argsort(-self.importance, kind="stable")[:n]]

    def table(self) -> DataFrame:
        """Return a row per feature, the most important first.

        Returns
        -------
        pandas.DataFrame
            Columns feature, importance, highest, lowest, difference, and differences by kind of points.
        """
        columns: dict[str, Any] = {
            "feature": self.features,
            "importance": self.importance,
            "highest": self.highest,
            "lowest": self.lowest,
            "difference": self.difference,
        }
        if len(self.values) > 1:
            columns["where"] = self.where
            columns |= {f"difference in {value}": self.differences[v] for v, value in enumerate(self.values)}
        return frame(columns, np.argsort(-self.importance, kind="stable"))


def read_features(
    metric: MetricLike, D: DistributionsLike, y: LabelsLike, *, annotation: str | LabelsLike | None = None
) -> FeatureReading:
    """Return the importance of every feature, and the class and kind of points in which its values are higher.

    The importance is unsigned; the direction is that of the class means of single features. The metric may use a
    feature only together with others.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
        The ground metric.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels.
    annotation : str, array of shape (n_points,) or None, default=None
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.

    Returns
    -------
    FeatureReading
        Importance, class means and their differences, of every feature.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0], [6.0, 1.0]], ["a", "b", "c", "d"])
    >>> reading = gm.interpret.read_features(gm.GroundMetric([[1.0, 0.1]]), D, ["well", "well", "ill", "ill"])
    >>> reading.top(1), str(reading.highest[0]), reading.means[:, 0].tolist()
    (['feature 0'], 'ill', [5.5, 0.5])
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    classes, codes = classes_of(y, D)
    kinds = annotation_of(D, annotation)
    overall = class_means(D, codes, annotation_of(D, None))[:, 0]
    by_kind = class_means(D, codes, kinds)
    high, low, columns = overall.argmax(axis=0), overall.argmin(axis=0), np.arange(D.shape[1])
    spread = spreads(metric, D)
    unit = np.where(spread > 0, spread, 1.0)
    return FeatureReading(
        features=feature_names(metric, D),
        importance=metric.importance(),
        classes=classes,
        means=overall,
        highest=classes[high],
        lowest=classes[low],
        difference=(overall[high, columns] - overall[low, columns]) / unit,
        values=kinds.values,
        differences=(by_kind[high, :, columns] - by_kind[low, :, columns]).T / unit,
    )


def class_means(D: Distributions, codes: np.ndarray, kinds: Annotation) -> np.ndarray:
    """Return class means of points of each kind, (n_classes, n_values, n_features); NaN without points.

    Distributions that have such points have equal weights.
    """
    n_classes, n_values = int(codes.max()) + 1, len(kinds.values)
    masses = kinds.masses(D)  # (n_distributions, n_values)
    members = np.stack([np.sum(masses[codes == c] > 0, axis=0) for c in range(n_classes)])  # (n_classes, n_values)
    owner = np.repeat(np.arange(len(D)), D.sizes)
    counts = D.weights > 0
    share = np.zeros(owner.size)
    share[counts] = D.weights[counts] / (masses * members[codes])[owner[counts], kinds.codes[counts]]
    rows = codes[owner] * n_values + kinds.codes
    averaging = sparse.csr_matrix((share, (rows, np.arange(owner.size))), (n_classes * n_values, owner.size))
    means = averaging @ D.points
    means = np.asarray(means.todense() if sparse.issparse(means) else means, dtype=np.float64)
    means[members.ravel() == 0] = np.nan
    return means.reshape(n_classes, n_values, -1)


@dataclass(frozen=True)
class Stability:
    """Importances of features in refits on bootstrap samples of the distributions.

    Parameters
    ----------
    features : list of str
        Names of the features.
    importance : array of shape (n_features,)
        Importances of the learner as fitted.
    refits : array of shape (n_refits, n_features)
        Importances from bootstrap samples of the distributions.
    n_top : int
        Number of most important features that are called selected in a refit.
    confidence : float
        Confidence level of the intervals.

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.PointTransport(LinearDiscriminantAnalysis())
    >>> result = gm.interpret.stability(learner, D, y, n_refits=3, n_top=1)
    >>> result.selected.tolist()
    [1.0, 0.0]
    """

    features: list[str]
    importance: np.ndarray
    refits: np.ndarray
    n_top: int
    confidence: float

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of each importance, (2, n_features), as `pl.importance` draws them."""
        return importance_interval(self.importance, self.refits, self.confidence)

    @property
    def selected(self) -> np.ndarray:
        """Share of the refits in which each feature is among the `n_top` most important."""
        ranks = np.argsort(np.argsort(-self.refits, axis=1, kind="stable"), axis=1)
        return np.mean(ranks < self.n_top, axis=0)

    def table(self) -> DataFrame:
        """Return a row per feature, the most important first.

        Returns
        -------
        pandas.DataFrame
            Columns feature, importance, low, high and selected.
        """
        low, high = self.interval
        columns = {
            "feature": self.features, "importance": self.importance, "low": low, "high": high,
            "selected": self.selected,
        }  # fmt: skip
        return frame(columns, np.argsort(-self.importance, kind="stable"))


def stability(
    learner: Estimator,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_refits: int = 100,
    n_top: int = 20,
    confidence: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> Stability:
    """Refit a learner on bootstrap samples of the distributions, for intervals and selection frequencies.

    Distributions are drawn with replacement within their class (whole groups if given; groups with several classes,
    regardless of class). A learner whose `init` is "discriminant" starts every refit at a discriminant of the refit's
    own sample and trains for a fifth of its epochs (at least 10). A start at the fitted W would hide variation: if that
    separates the classes already, its gradient on a new sample is small too, and intervals are up to three times too
    narrow. For error rates of single features use `feature_significance`; an ensemble has intervals without refits.

    Parameters
    ----------
    learner : GroundMetricLearner or another method with `metric_`
        Fitted on D and y, or not fitted.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; `y` and `groups` are aligned by name if they have names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution: distributions of a patient are drawn together.
    n_refits : int, default=100
        Number of bootstrap samples.
    n_top : int, default=20
        Number of most important features that are called selected.
    confidence : float, default=0.95
        Confidence level of the intervals.
    n_jobs : int or None, default=None
        Number of parallel fits (joblib).
    random_state : int, RandomState or None, default=0
        Seed of the draws.
    verbose : int, default=0
        1 shows a progress bar if stderr is a terminal.

    Returns
    -------
    Stability
        Importances of all refits, intervals and selection frequencies.

    Examples
    --------
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.PointTransport(LinearDiscriminantAnalysis())
    >>> result = gm.interpret.stability(learner, D, y, n_refits=5, n_top=1)
    >>> result.interval.shape, result.refits.shape
    ((2, 2), (5, 2))
    """
    D = as_distributions(D)
    classes, codes = classes_of(y, D)
    check_number("n_refits", n_refits, low=1, whole=True)
    check_number("n_top", n_top, low=1, whole=True)
    check_confidence(confidence)
    random = check_random_state(random_state)
    metric = metric_of(learner if hasattr(learner, "metric_") else clone(learner).fit(D, classes[codes]), D)
    parameters = _refit_parameters(learner)
    draws = bootstrap_indices(codes, group_list(groups, D.name_index), n_refits, random)
    jobs = [(indices, int(random.randint(2**31 - 1))) for indices in draws]

    def refit(job: tuple[np.ndarray, int]) -> np.ndarray:
        indices, seed = job
        fresh = clone(learner).set_params(**parameters)
        if "random_state" in fresh.get_params():
            fresh.set_params(random_state=seed)
        with muted(UserWarning):  # a refit has fewer different distributions than the cohort, and may warn of that
            importance: np.ndarray = fresh.fit(D[indices], codes[indices]).metric_.importance()
        return importance

    refits = np.empty((n_refits, D.shape[1]))
    with progress_bar(n_refits, "refits", "fit", show=bool(verbose)) as bar:
        for number, importance in run_tasks(refit, jobs, n_jobs):
            refits[number] = importance
            bar.update()
    return Stability(feature_names(metric, D), metric.importance(), refits, min(n_top, D.shape[1]), confidence)


def _refit_parameters(learner: Any) -> dict[str, Any]:
    """Return parameters of a refit: one thread, no output, and short training after a discriminant start."""
    settings = learner.get_params()
    parameters: dict[str, Any] = {name: value for name, value in (("n_jobs", None), ("verbose", 0)) if name in settings}
    init = settings.get("init", "discriminant")  # may be an array
    if "max_epochs" in settings and isinstance(init, str) and init == "discriminant":
        parameters["max_epochs"] = min(max(10, settings["max_epochs"] // 5), settings["max_epochs"])
    return parameters


def bootstrap_indices(codes: np.ndarray, groups: Any, n_draws: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Return bootstrap draws of distributions, each as indices.

    A draw has at least two different distributions of each class (of a class of one, this one): nothing can be learned
    about a class from one distribution or copies of it.
    """
    members = number_groups(groups, codes.size)
    units = np.arange(codes.size) if members is None else members
    least = np.minimum(np.bincount(codes), 2)
    draws: list[np.ndarray] = []
    for _ in range(200 * n_draws):
        if len(draws) == n_draws:
            return draws
        counts = resample(units, codes, 1, random)
        if len(counts) and np.all(np.bincount(codes[counts[0] > 0], minlength=least.size) >= least):
            draws.append(np.repeat(np.arange(codes.size), counts[0].astype(int)))
    raise ValueError("too few groups for bootstrap draws: most draws leave a class with a single distribution")


def training_summary(history: Mapping[str, Any]) -> str:
    """Describe the training of a learner: loss of held-out triplets if available, else active triplets.

    >>> training_summary({"active": [0.9, 0.34]})
    '34% of the triplets are active (within the margin), 90% in the first epoch'
    >>> training_summary({"active": [0.0]})
    'no triplet was ever active (within the margin): there was nothing to learn beyond the start'
    """
    held_out = np.asarray(history.get("validation_loss", []), dtype=float)
    if np.isfinite(held_out).any():
        best = int(np.nanargmin(held_out))
        return f"held-out loss {held_out[0]:.3g} in the first epoch, {held_out[best]:.3g} at best (epoch {best + 1})"
    first, last = history["active"][0], history["active"][-1]
    if not np.any(history["active"]):
        return "no triplet was ever active (within the margin): there was nothing to learn beyond the start"
    if last == 0.0:
        return f"no triplet is active any more: nothing is left to learn ({first:.0%} in the first epoch)"
    return f"{last:.0%} of the triplets are active (within the margin), {first:.0%} in the first epoch"
