"""Stability of the importance of features in refits, and a summary of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._internal.parallel import muted, progress_bar, run_tasks
from .._internal.types import DistributionsLike, Estimator, LabelsLike, RandomState
from .._internal.validation import check_number, group_list, unit_codes
from ..distributions import as_distributions
from ..ensemble.members import importance_interval
from ..evaluation.intervals import resample
from ._inputs import check_confidence, classes_of, feature_names, frame, metric_of

if TYPE_CHECKING:
    from pandas import DataFrame


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
    return Stability(feature_names(D, metric), metric.importance(), refits, min(n_top, D.shape[1]), confidence)


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
    units = unit_codes(groups, codes.size)
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
