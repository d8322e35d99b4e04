"""Which kinds of points carry the difference between classes, and how sure that is over distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.validation import check_number, real_array
from ..distributions import as_distributions
from ..evaluation.statistics import resample
from ..supervision.splits import group_list, number_groups
from ._inputs import annotation_of, classes_of, frame, metric_of, point_array
from .shipments import ledger

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AnnotationRelevance:
    """How much each kind of points takes part in telling the classes apart.

    Attributes
    ----------
    values : the kinds
    mass : (n_values,) mean share of the points
    relevance : (n_values,) mean over the points of a kind, in units of the mean distance between classes (or of the
        values that were given)
    share : (n_values,) mass × relevance as a share of the sum over kinds: who carries the difference
    draws : (n_draws, n_values) the share in bootstrap draws of distributions; without rows where there is only one
    confidence : of the interval
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
        """In which share of the draws each kind carries most."""
        best = np.argmax(np.nan_to_num(self.draws, nan=-np.inf), axis=1)
        return np.bincount(best, minlength=len(self.values)) / max(1, len(best))

    def table(self) -> DataFrame:
        """A row per kind, those first that carry most of the difference."""
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
    interval is over distributions: they are drawn anew within each class (whole groups, where given), as the ones
    compared and as the ones compared with. It holds the metric fixed.

    Parameters
    ----------
    metric : GroundMetric or fitted learner
    D : Distributions
    y : labels, one per distribution
    annotation : what kind each point is of: name of an annotation of D, or an array in the order of `D.points`
    groups : outer group of each distribution (the patient of a sample), optional: drawn together
    n_draws, confidence : of the bootstrap
    max_partners : each distribution is compared with at most so many of every class, drawn at random
    n_jobs : threads
    """
    D = as_distributions(D)
    metric = metric_of(metric, D)
    _, codes = classes_of(y, D)
    groups = group_list(groups, D.roll)
    kinds, random = annotation_of(D, annotation), check_random_state(random_state)
    book = ledger(
        D, codes, metric, kinds.codes, len(kinds.values), by_axis=False, max_partners=max_partners, random=random,
        n_jobs=n_jobs,
    )  # fmt: skip
    between, _ = book.means()
    if np.isnan(between).any():
        raise ValueError(
            "no class has two distributions: there is nothing to compare the distance between classes with"
        )

    def carried(weights: np.ndarray) -> np.ndarray:
        between, within = book.means(weights)
        return (between - within)[:, 0]

    mass = kinds.masses(D).mean(axis=0)
    draws = _draws(carried, codes, groups, n_draws, random)
    return _summary(kinds.values, mass, carried(np.ones(len(D))), float(between.sum()), draws, confidence)


def summarise_points(
    values: Any,
    D: Any,
    y: Any,
    annotation: Any,
    *,
    groups: Any = None,
    n_draws: int = 1000,
    confidence: float = 0.95,
    random_state: Any = 0,
) -> AnnotationRelevance:
    """Any number per point (a relevance, say), summarised by the kind of the points, with uncertainty over
    distributions.

    Parameters
    ----------
    values : array in the order of `D.points` (from an array in the order that D was made from: ``values[D.order]``);
        points where it is missing (NaN) do not count
    D, y, annotation, groups, n_draws, confidence : as in `annotation_relevance`
    """
    D = as_distributions(D)
    _, codes = classes_of(y, D)
    groups = group_list(groups, D.roll)
    kinds = annotation_of(D, annotation)
    values = real_array(point_array(values, D, "values"), "values").astype(np.float64)
    known = np.isfinite(values)
    if not known.any():
        raise ValueError("values are missing for all points")
    owner = np.repeat(np.arange(len(D)), D.sizes)
    cell, n_cells = owner * len(kinds.values) + kinds.codes, len(D) * len(kinds.values)
    mass = np.bincount(cell[known], D.weights[known], n_cells).reshape(len(D), -1)
    total = np.bincount(cell[known], (D.weights * values)[known], n_cells).reshape(len(D), -1)
    whole = mass.sum(axis=1)
    has = whole > 0
    unit = np.where(has, whole, 1.0)[:, None]

    def carried(weights: np.ndarray) -> np.ndarray:
        counting = weights * has
        return counting @ (total / unit) / counting.sum() if counting.any() else np.full(total.shape[1], np.nan)

    draws = _draws(carried, codes, groups, n_draws, check_random_state(random_state))
    return _summary(kinds.values, (mass / unit)[has].mean(axis=0), carried(np.ones(len(D))), 1.0, draws, confidence)


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
