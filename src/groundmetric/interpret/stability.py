"""Stability: how much of what was learned would be learned again, and how much from labels that say nothing.

Everything rests on one fact: where labels say nothing, the data's own arrangement of labels is one among equals, so
that all rows (own and exchanged) of the table of importances could as well stand in any other order. Whatever is
computed from the table in the same way for every row has ranks that are uniform.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import DistributionsLike, Estimator, LabelsLike, RandomState
from .._internal.validation import check_number
from ..distributions import as_distributions
from ..ensemble.members import importance_interval
from ..learning.splits import group_list, restricted_permutations
from ._inputs import classes_of, feature_names, frame
from ._refits import (
    Reference,
    Refitter,
    bootstrap_indices,
    canonical,
    fit_all,
    fitted_metric,
    refit_parameters,
)

if TYPE_CHECKING:
    from pandas import DataFrame

# The leading axes that are compared carry so much of the variance of the projected points.
_SHARE = 0.9


@dataclass(frozen=True)
class Stability:
    """Stability of a learned metric: its importances and axes on bootstrap samples, and with labels exchanged.

    Parameters
    ----------
    features : list of str
        Names of the features.
    importance : array of shape (n_features,)
        Importances of the learner as fitted.
    refits : array of shape (n_refits, n_features)
        Importances from bootstrap samples of the distributions.
    angles : array of shape (n_refits, n_axes)
        Principal angles, in degrees, between the leading axes as fitted and those of each refit.
    observed : array of shape (n_features,)
        Importances with the data's own labels, by the same shorter training as those with labels exchanged.
    null : array of shape (n_permutations, n_features)
        Importances with labels exchanged.
    null_angles : array of shape (n_permutations, n_axes)
        The same angles with labels exchanged: the agreement of axes that comes about by chance.
    exchanged : str
        Units among which labels were exchanged, in words; "nothing" without permutations.
    partitions : int
        Number of arrangements of labels that differ by more than the names of the classes (of more than six classes, an
        upper bound); 1 without permutations.
    epochs : int or None
        Largest number of epochs of a refit; None where the method has no epochs.
    n_top : int
        Number of most important features that count as selected in a refit.
    confidence : float
        Confidence level of the intervals.
    seconds : float
        Elapsed time of the whole analysis.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.LinearDiscriminant(random_state=0)
    >>> found = gm.interpret.stability(learner, D, y, n_refits=3, n_permutations=0, n_top=1)
    >>> found.selected.tolist(), found.agreement, found.discoveries is None
    ([1.0, 0.0], 1.0, True)
    """

    features: list[str]
    importance: np.ndarray
    refits: np.ndarray
    angles: np.ndarray
    observed: np.ndarray
    null: np.ndarray
    null_angles: np.ndarray
    exchanged: str
    partitions: int
    epochs: int | None
    n_top: int
    confidence: float
    seconds: float

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of each importance, (2, n_features), as `importance_interval` has them."""
        return importance_interval(self.importance, self.refits, self.confidence)

    @property
    def selected(self) -> np.ndarray:
        """Share of the refits in which each feature is among the `n_top` most important."""
        ranks = np.argsort(np.argsort(-self.refits, axis=1, kind="stable"), axis=1)
        return np.mean(ranks < self.n_top, axis=0)

    @property
    def agreement(self) -> float:
        """Share of the `n_top` features as fitted that the shorter training finds as well."""
        return len(set(_top(self.importance, self.n_top)) & set(_top(self.observed, self.n_top))) / self.n_top

    @property
    def discoveries(self) -> Discoveries | None:
        """p- and q-values; None without permutations."""
        return discoveries(self.observed, self.null) if len(self.null) else None

    @property
    def smallest_p(self) -> float:
        """Smallest p- or q-value to expect, about: 1 / (permutations + 1), or 1 / partitions where that is larger."""
        return max(1.0 / (1 + len(self.null)), 1.0 / self.partitions)

    def table(self) -> DataFrame:
        """The features as a table.

        Returns
        -------
        pandas.DataFrame
            A row per feature, the most important first.
        """
        columns: dict[str, Any] = {"feature": self.features, "importance": self.importance}
        if len(self.refits):
            low, high = self.interval
            columns |= {"low": low, "high": high, "selected": self.selected}
        found = self.discoveries
        if found is not None:
            columns |= {"p": found.p, "q": found.q, "family p": found.family_p}
        return frame(columns, np.argsort(-self.importance, kind="stable"))

    def __repr__(self) -> str:
        called = "" if self.discoveries is None else f", {int(np.sum(self.discoveries.q < 0.05))} with q < 0.05"
        return (
            f"Stability({len(self.features)} features{called}; {len(self.refits)} refits, {len(self.null)} "
            f"permutations of {self.exchanged}, smallest q about {self.smallest_p:.2g})"
        )


def stability(
    learner: Estimator,
    D: DistributionsLike,
    y: LabelsLike,
    *,
    groups: LabelsLike | None = None,
    strata: LabelsLike | None = None,
    n_refits: int = 100,
    n_permutations: int = 99,
    epochs: int | None = None,
    max_points: int | None = None,
    n_top: int = 20,
    confidence: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> Stability:
    """Learn again from bootstrap samples of the distributions, and with labels exchanged.

    Refits give intervals, selection frequencies and the agreement of axes. Distributions are drawn with replacement
    within their class (whole groups, where given; those that hold several classes, without regard to class), triplets
    anew. A distribution that is drawn twice is its own neighbour, which teaches little.

    Permutations give the null, hence p- and q-values (`Discoveries`). The data's own labels go through exactly the same
    as exchanged ones: the same seed, start, epochs and points. So under the null hypothesis they are one arrangement
    among equals. What is tested is whether the labels have anything to do with a feature's weight in the metric; a
    feature with a small q may owe it to another one that it goes along with. Settings of the learner that were chosen
    by looking at these labels favour them a little.

    A learner whose `init` is "discriminant" starts every refit at a discriminant of the refit's own sample, and trains
    shorter than the first fit. To start at the W of the first would save no more time, and hide variation: where that
    separates the classes already, its gradient on a new sample is small too, and intervals come out up to three times
    too narrow.

    Parameters
    ----------
    learner : GroundMetricLearner or another method with `metric_`
        Fitted on D and y or not yet.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels; these, groups and strata go by name where they carry names.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): drawn together; labels are exchanged among groups,
        or within them where they hold several.
    strata : array-like of shape (n_distributions,) or None, default=None
        Labels are exchanged only within these (centre, batch, sex).
    n_refits : int, default=100
        Number of bootstrap samples; may be 0.
    n_permutations : int, default=99
        Number of exchanges of the labels; may be 0.
    epochs : int or None, default=None
        Epochs of each refit, at most the learner's `max_epochs`. None: a fifth of these and at least 10, or all of them
        where the learner's `init` is not "discriminant".
    max_points : int or None, default=None
        Points per distribution that refits use at most, drawn anew each time; the permutations share a draw. None: all.
        Fewer are faster, and give wider intervals.
    n_top : int, default=20
        Number of most important features that count as selected.
    confidence : float, default=0.95
        Confidence level of the intervals.
    n_jobs : int or None, default=None
        Fits at the same time, by joblib.
    random_state : int, RandomState or None, default=0
        Seed of the draws.
    verbose : int, default=0
        1 shows a progress bar where there is a terminal.

    Returns
    -------
    Stability
        Intervals, selection frequencies, angles between axes, p- and q-values.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.LinearDiscriminant(random_state=0)
    >>> found = gm.interpret.stability(learner, D, y, n_refits=5, n_permutations=0, n_top=1)
    >>> found.interval.shape, found.refits.shape
    ((2, 2), (5, 2))
    """
    start = time.perf_counter()
    D = as_distributions(D)
    classes, codes = classes_of(y, D)
    groups, strata = group_list(groups, D.name_index), group_list(strata, D.name_index, "strata")
    _check_numbers(n_refits, n_permutations, n_top, max_points, confidence)
    random = check_random_state(random_state)
    method = learner
    metric = fitted_metric(method, D, classes[codes])
    refitter = Refitter(method, refit_parameters(method, epochs), D, max_points, Reference.of(metric, D, _SHARE))

    samples = bootstrap_indices(codes, groups, n_refits, random) if n_refits else []
    refits = fit_all(
        refitter, [(indices, codes[indices], _seed(random)) for indices in samples], n_jobs, "refits", verbose
    )

    exchange = restricted_permutations(codes, groups, strata, names=D.name_index.names) if n_permutations else None
    drawn = codes[None] if exchange is None else np.vstack([codes, exchange.draws(n_permutations, random)])
    distinct, inverse = np.unique([canonical(row) for row in drawn], axis=0, return_inverse=True)
    every, seed = np.arange(len(D)), _seed(random)
    done = fit_all(refitter, [(every, labels, seed) for labels in distinct], n_jobs, "permuting", verbose)
    arranged = [done[k] for k in inverse.ravel()]

    n_axes = refitter.reference.basis.shape[1]
    result = Stability(
        features=feature_names(metric, D),
        importance=metric.importance(),
        refits=_stack([refit.importance for refit in refits], D.shape[1]),
        angles=_stack([refit.angles for refit in refits], n_axes),
        observed=arranged[0].importance,
        null=_stack([refit.importance for refit in arranged[1:]], D.shape[1]),
        null_angles=_stack([refit.angles for refit in arranged[1:]], n_axes),
        exchanged="nothing" if exchange is None else exchange.among,
        partitions=1 if exchange is None else exchange.partitions,
        epochs=refitter.parameters.get("max_epochs"),
        n_top=min(n_top, D.shape[1]),
        confidence=confidence,
        seconds=time.perf_counter() - start,
    )
    _warn(result)
    return result


@dataclass(frozen=True)
class Discoveries:
    """p- and q-values of features, from importances with labels exchanged.

    An arrangement is the data's own labels or an exchange of them. A feature stands out by its importance over its mean
    importance in all arrangements.

    Parameters
    ----------
    p : array of shape (n_features,)
        Share of arrangements in which the feature is as important or more; not adjusted for the number of features.
    q : array of shape (n_features,)
        Estimated share of false discoveries among the features that stand out as much or more; never below `overall`.
    family_p : array of shape (n_features,)
        Share of arrangements in which *any* feature stands out as much: the chance of one false discovery or more
        (Westfall & Young 1993).
    overall : float
        p-value of the hypothesis that labels say nothing about any feature.
    smallest : float
        Lowest value that p and q can have: one over the number of permutations plus one.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    >>> learner = gm.baselines.LinearDiscriminant(random_state=0)
    >>> found = gm.interpret.stability(learner, D, y, n_refits=0, n_permutations=29, n_top=1).discoveries
    >>> found.p.shape, round(found.smallest, 4), bool(found.q.min() >= found.overall)
    ((2,), 0.0333, True)
    """

    p: np.ndarray
    q: np.ndarray
    family_p: np.ndarray
    overall: float
    smallest: float


def discoveries(observed: Any, null: Any, *, relative: bool = True) -> Discoveries:
    """p- and q-values of features from few permutations.

    A feature stands out by how many times more important it is than on average over all arrangements: some features
    (of high variance, say) get weight with any labels, and importance alone would not tell. The q-value is, for those
    that stand out by as much or more, the mean number of such features over all arrangements, by their number with
    the data's labels (Tusher, Tibshirani & Chu 2001). It takes all features together, so that it needs no thousands of
    permutations; the features may have different and dependent nulls, because only numbers of them are averaged.

    That ratio is an estimate, which may be small by luck. So it counts only as far as the labels say something at all:
    its smallest value is ranked among the smallest values that the other arrangements get when treated the same, and
    no q is below that rank (`overall`). If labels say nothing, a q below 0.05 comes up with probability 0.05 at most.

    Parameters
    ----------
    observed : array of shape (n_features,)
        Importances with the data's labels.
    null : array of shape (n_permutations, n_features)
        Importances with labels exchanged, found in exactly the same way.
    relative : bool, default=True
        Whether a feature stands out by its value over its mean in all arrangements; False: by the value itself, which
        must then be in the same units for all features (a t statistic).

    Returns
    -------
    Discoveries
        p- and q-values of all features.
    """
    observed, null = np.asarray(observed, dtype=np.float64), np.atleast_2d(np.asarray(null, dtype=np.float64))
    table = np.vstack([observed, null])  # (arrangements, n_features)
    mean = table.mean(axis=0)
    excess = np.divide(table, mean, out=np.ones_like(table), where=mean > 0) if relative else table
    pool = np.sort(excess, axis=None)
    tails = [_tail_ratios(row, pool, len(table)) for row in excess]
    smallest = np.array([ratios.min() for ratios in tails])
    overall = float(np.mean(smallest <= smallest[0]))
    return Discoveries(
        p=np.mean(table >= observed, axis=0),
        q=np.maximum(np.minimum(tails[0], 1.0), overall),
        family_p=np.mean(excess.max(axis=1)[:, None] >= excess[0], axis=0),
        overall=overall,
        smallest=1.0 / len(table),
    )


def _tail_ratios(row: np.ndarray, pool: np.ndarray, n_rows: int) -> np.ndarray:
    """Return, for each value, the mean number of values as high in a row of the pool over their number in this row.

    The ratio of a value is not above that of a lower value, because all values down to a threshold are selected
    together.
    """
    order = np.argsort(row, kind="stable")
    ascending = row[order]  # searches for ascending values are four times as fast as for others
    expected = (pool.size - np.searchsorted(pool, ascending, side="left")) / n_rows
    selected = row.size - np.searchsorted(ascending, ascending, side="left")
    ratios = np.empty(row.size)
    ratios[order] = np.minimum.accumulate(expected / selected)
    return ratios


def _check_numbers(n_refits: Any, n_permutations: Any, n_top: Any, max_points: Any, confidence: Any) -> None:
    check_number("n_refits", n_refits, low=0, whole=True)
    check_number("n_permutations", n_permutations, low=0, whole=True)
    check_number("n_top", n_top, low=1, whole=True)
    if max_points is not None:
        check_number("max_points", max_points, low=2, whole=True)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}: expected a share between 0 and 1")


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))


def _stack(rows: list[np.ndarray], width: int) -> np.ndarray:
    return np.array(rows).reshape(len(rows), width)


def _top(importance: np.ndarray, n: int) -> list[int]:
    return np.argsort(-importance, kind="stable")[:n].tolist()


def _warn(result: Stability) -> None:
    if result.agreement < 0.5:
        length = "" if result.epochs is None else f" of {result.epochs} epochs"
        warnings.warn(
            f"a fit{length} to the same distributions finds only {result.agreement:.0%} of the {result.n_top} features "
            "that the learner has found: raise `epochs`, or, if it was trained no longer, take their order for chance",
            UserWarning,
            stacklevel=3,
        )
    if len(result.null) and result.smallest_p >= 0.05:
        warnings.warn(
            f"the smallest q-value to expect is about {result.smallest_p:.2g}, with {len(result.null)} permutations of "
            f"labels that have {result.partitions} different arrangements: a smaller one is luck of the draw; raise "
            "`n_permutations`, or give more distributions",
            UserWarning,
            stacklevel=3,
        )
