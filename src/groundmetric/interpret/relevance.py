"""Relevance of kinds of points: who carries the difference between classes, with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.validation import check_number
from ..distributions import as_distributions
from ..evaluation.statistics import resample
from ..supervision.splits import group_list, number_groups
from ._inputs import annotation_of, classes_of, frame, metric_of
from .flows import pair_costs

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AnnotationRelevance:
    """Relevance of each kind of points: its part in how much farther other classes are than the own.

    Parameters
    ----------
    values : list
        Kinds of points.
    mass : array of shape (n_values,)
        Mass of each kind, as a mean over distributions; sums to 1.
    relevance : array of shape (n_values,)
        How much farther a unit of mass of this kind travels to other classes than to the own, in units of the mean
        distance between classes; NaN for a kind without mass.
    share : array of shape (n_values,)
        Mass × relevance as a share of the sum over kinds: the part of the difference that each kind carries.
    draws : array of shape (n_draws, n_values)
        Shares in bootstrap draws of the distributions; without rows where all are in one outer group.
    confidence : float
        Confidence level of the interval.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> found = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> found.values, found.values[found.share.argmax()], found.interval.shape
    (['centre', 'high', 'low'], 'centre', (2, 3))
    """

    values: list
    mass: np.ndarray
    relevance: np.ndarray
    share: np.ndarray
    draws: np.ndarray
    confidence: float

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of each share, (2, n_values): percentiles of the draws."""
        if not len(self.draws):
            return np.full((2, len(self.values)), np.nan)
        return np.nanquantile(self.draws, [0.5 - self.confidence / 2, 0.5 + self.confidence / 2], axis=0)

    @property
    def first(self) -> np.ndarray:
        """Share of the draws in which each kind carries most of the difference."""
        best = np.argmax(np.nan_to_num(self.draws, nan=-np.inf), axis=1)
        return np.bincount(best, minlength=len(self.values)) / max(1, len(best))

    def table(self) -> DataFrame:
        """The relevances as a table.

        Returns
        -------
        pandas.DataFrame
            A row per kind, those first that carry most of the difference.
        """
        low, high = self.interval
        columns = {
            "value": self.values, "share": self.share, "low": low, "high": high, "first": self.first,
            "relevance": self.relevance, "mass": self.mass,
        }  # fmt: skip
        return frame(columns, np.argsort(-np.nan_to_num(self.share, nan=-np.inf), kind="stable"))


def annotation_relevance(
    metric: Any,
    D: Any,
    y: Any,
    annotation: Any,
    *,
    groups: Any = None,
    n_draws: int = 1000,
    confidence: float = 0.95,
    max_partners: int = 10,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> AnnotationRelevance:
    """Share out how much farther other classes are than the own among the kinds of points.

    How far the mass of a kind travels to distributions of other classes, less how far it travels to those of its own:
    the sum over kinds is the difference of the mean distances, so the shares sum to 1 (one may be negative). The
    interval is over distributions: they are drawn anew within each class (whole groups, where given; those that hold
    several classes, without regard to class), as the ones compared and as the ones compared with. It holds the metric
    fixed.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
        The ground metric.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels.
    annotation : str or array of shape (n_points,)
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.
    groups : array-like of shape (n_distributions,) or None, default=None
        Outer group of each distribution (the patient of a sample): drawn together.
    n_draws : int, default=1000
        Bootstrap draws.
    confidence : float, default=0.95
        Confidence level of the interval.
    max_partners : int, default=10
        Each distribution is compared with at most so many of every class, drawn at random.
    random_state : int, RandomState or None, default=0
        Seed of the draws, of partners and of the bootstrap.
    n_jobs : int or None, default=None
        Threads; None means one.

    Returns
    -------
    AnnotationRelevance
        Share of each kind, with its interval.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> found = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> round(float(found.share.sum()), 6)
    1.0
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    _, codes = classes_of(y, D)
    groups = group_list(groups, D.roll)
    kinds, random = annotation_of(D, annotation), check_random_state(random_state)
    costs = pair_costs(
        D, codes, metric, kinds.codes, len(kinds.values), by_axis=False, max_partners=max_partners, random=random,
        n_jobs=n_jobs,
    )  # fmt: skip
    between, _ = costs.means()
    if np.isnan(between).any():
        raise ValueError(
            "no class has two distributions: there is nothing to compare the distance between classes with"
        )

    def carried(weights: np.ndarray) -> np.ndarray:
        between, within = costs.means(weights)
        return (between - within)[:, 0]

    mass = kinds.masses(D).mean(axis=0)
    draws = _draws(carried, codes, groups, n_draws, random)
    return _summary(kinds.values, mass, carried(np.ones(len(D))), float(between.sum()), draws, confidence)


def _draws(
    carried: Callable[[np.ndarray], np.ndarray], codes: np.ndarray, groups: Any, n_draws: int, random: Any
) -> np.ndarray:
    """What each kind carries in bootstrap draws of distributions, or of whole groups."""
    check_number("n_draws", n_draws, low=1, whole=True)
    units = number_groups(groups, codes.size)
    drawn = resample(np.arange(codes.size) if units is None else units, codes, n_draws, random)
    return np.array([carried(weights) for weights in drawn])


def _summary(
    values: list, mass: np.ndarray, carried: np.ndarray, unit: float, draws: np.ndarray, confidence: float
) -> AnnotationRelevance:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}: expected a share between 0 and 1")
    return AnnotationRelevance(
        values=values,
        mass=mass,
        relevance=carried / np.where(mass > 0, mass, np.nan) / unit,
        share=carried / carried.sum(),
        draws=draws.reshape(len(draws), len(values))
        / draws.reshape(len(draws), len(values)).sum(axis=1, keepdims=True),
        confidence=confidence,
    )
