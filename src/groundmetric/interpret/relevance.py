"""Relevance of kinds of points (cell types): their shares of the excess distance between classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from .._internal.validation import check_number, group_list, unit_codes
from ..distributions import Distributions, as_distributions
from ..estimators.ensemble import GroundMetricEnsemble
from ..evaluation.intervals import containing, resample
from ._inputs import Annotation, annotation_of, check_confidence, classes_of, equalized_with_kinds, frame, metric_of
from .flows import Bag, PairCosts, costs_within_kinds

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AnnotationRelevance:
    """Relevance of each kind of points: its share of the excess distance between classes.

    The excess distance is the mean distance to distributions of other classes minus that to the own class.

    Parameters
    ----------
    values : list
        Kinds of points.
    mass : array of shape (n_values,)
        Mass of each kind, as a mean over distributions; sums to 1.
    relevance : array of shape (n_values,)
        Excess distance of a unit of mass of this kind to points of its kind, in units of the mean distance between
        classes; NaN for a kind that is not in all classes.
    share : array of shape (n_values,)
        Mass × relevance as a share of the sum over kinds.
    draws : array of shape (n_draws, n_values)
        Shares in bootstrap draws of the distributions; no rows if all are in one group.
    confidence : float
        Confidence level of the intervals.
    composition : float
        Share of the whole excess distance that is not within kinds: the cost of mass that must change its kind because
        distributions have unequal masses of the kinds. Near 1, classes differ in the frequencies of the kinds.
    composition_draws : array of shape (n_draws,)
        The same in the bootstrap draws.
    total : float
        Excess distance within kinds: sum over kinds of mass × relevance, in units of the mean distance between classes.
    total_draws : array of shape (n_draws,)
        The same in the bootstrap draws.
    out_of_bag : bool
        Whether every metric was trained on neither of the distributions that it compares.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> result = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> result.values, result.values[result.share.argmax()], result.interval.shape
    (['centre', 'high', 'low'], 'centre', (2, 3))
    """

    values: list[Any]
    mass: np.ndarray
    relevance: np.ndarray
    share: np.ndarray
    draws: np.ndarray
    confidence: float
    composition: float
    composition_draws: np.ndarray
    total: float
    total_draws: np.ndarray
    out_of_bag: bool

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of each share, (2, n_values): percentiles of the draws, extended to the share."""
        return containing(self.share, self.draws, self.confidence)

    @property
    def composition_interval(self) -> np.ndarray:
        """Lower and upper end of `composition`, (2,)."""
        return containing(np.array([self.composition]), self.composition_draws[:, None], self.confidence)[:, 0]

    @property
    def total_interval(self) -> np.ndarray:
        """Lower and upper end of `total`, (2,); if 0 is between them, shares have no meaning."""
        return containing(np.array([self.total]), self.total_draws[:, None], self.confidence)[:, 0]

    @property
    def first(self) -> np.ndarray:
        """Share of the draws in which each kind has the largest share."""
        best = np.argmax(np.nan_to_num(self.draws, nan=-np.inf), axis=1)
        return np.bincount(best, minlength=len(self.values)) / max(1, len(best))

    def table(self) -> DataFrame:
        """Return a row per kind, sorted by share.

        Returns
        -------
        pandas.DataFrame
            Columns value, share, low, high, first, relevance and mass.
        """
        low, high = self.interval
        columns = {
            "value": self.values, "share": self.share, "low": low, "high": high, "first": self.first,
            "relevance": self.relevance, "mass": self.mass,
        }  # fmt: skip
        return frame(columns, np.argsort(-np.nan_to_num(self.share, nan=-np.inf), kind="stable"))


def annotation_relevance(
    metric: MetricLike,
    D: DistributionsLike,
    y: LabelsLike,
    annotation: str | LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_draws: int = 1000,
    confidence: float = 0.95,
    max_partners: int = 10,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> AnnotationRelevance:
    """Divide the excess distance between classes among the kinds of points, with confidence intervals.

    Points are compared with points of their kind: the transport plan is the best one among those that keep as much mass
    as possible in its kind. The excess of a kind is the distance of its mass to other classes minus that to the own
    class. Without the restriction, points that have changed raise the costs of other kinds, which must be their
    partners. A kind that is the same in all classes has an excess of 0 up to noise, and its interval contains 0. Shares
    sum to 1, and may be negative.

    Under a metric that was learned from the labels of the distributions, every kind is farther in other classes,
    because the metric has fitted its noise. With an ensemble, each pair is compared under members (at most 4) that were
    trained on neither distribution (out of bag); then no comparison with permuted labels is needed. All distributions
    are compared by equal numbers of points.

    Intervals are by bootstrap of the distributions within each class (whole groups if given; groups with several
    classes, regardless of class), on both sides of a comparison. The metric is held fixed.

    Parameters
    ----------
    metric : GroundMetric, fitted learner or ensemble
        The ground metric; for an ensemble (or predictor) that was fitted to D, its members.
    D : Distributions
        The cohort.
    y : array-like of shape (n_distributions,)
        Labels.
    annotation : str or array of shape (n_points,)
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.
    groups : array-like of shape (n_distributions,) or None, default=None
        Patient of each distribution: distributions of a patient are drawn together.
    n_draws : int, default=1000
        Bootstrap draws.
    confidence : float, default=0.95
        Confidence level of the interval.
    max_partners : int, default=10
        Largest number of distributions of each class with which a distribution is compared, drawn at random.
    random_state : int, RandomState or None, default=0
        Seed of the draws, of partners and of the bootstrap.
    n_jobs : int or None, default=None
        Threads; None means one.
    verbose : int, default=0
        1 shows a progress bar of the transport plans on a terminal.

    Returns
    -------
    AnnotationRelevance
        Share of each kind, with its interval.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> result = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> round(float(result.share.sum()), 6)
    1.0
    """
    check_number("n_draws", n_draws, low=1, whole=True)
    check_confidence(confidence)
    D = as_distributions(D)
    _, codes = classes_of(y, D)
    kinds = annotation_of(D, annotation)
    bags, out_of_bag = _bags(metric, *equalized_with_kinds(D, kinds))
    return relevance_in_bags(
        bags, codes, kinds.values, out_of_bag=out_of_bag, groups=group_list(groups, D.name_index), n_draws=n_draws,
        confidence=confidence, max_partners=max_partners, random=check_random_state(random_state), n_jobs=n_jobs,
        verbose=verbose,
    )  # fmt: skip


def _bags(source: Any, D: Distributions, kinds: np.ndarray) -> tuple[list[Bag], bool]:
    """Return the members of an ensemble that was fitted to these distributions, and True; else the metric and False."""
    metric = metric_of(source, D)
    ensemble = getattr(source, "ensemble_", source)
    if not isinstance(ensemble, GroundMetricEnsemble):
        return [Bag(D, kinds, metric, np.zeros(len(D), dtype=bool))], False
    fitted, geometry = ensemble.fitted_, ensemble.fitted_.geometries[""]
    if sorted(map(str, geometry.names)) != sorted(map(str, D.names)) or not fitted.design:
        return [Bag(D, kinds, metric, np.zeros(len(D), dtype=bool))], False
    position = {name: d for d, name in enumerate(geometry.names)}
    order = [position[name] for name in D.names]
    return [Bag(D, kinds, m.metric(geometry), m.trained_on[order]) for m in fitted.members[""]], True


def relevance_in_bags(
    bags: Sequence[Bag],
    codes: np.ndarray,
    values: list[Any],
    *,
    out_of_bag: bool,
    groups: Any,
    n_draws: int,
    confidence: float,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
    verbose: int,
) -> AnnotationRelevance:
    """Return `annotation_relevance` of the distributions of all bags, each under its metric."""
    costs = costs_within_kinds(
        bags, codes, len(values), max_partners=max_partners, random=random, n_jobs=n_jobs, verbose=verbose
    )
    between, _ = costs.checked_means()
    unit = float(between[:, 0].sum())
    mass = np.mean([Annotation(values, bag.kinds).masses(bag.D).mean(axis=0) for bag in bags], axis=0)
    farther = _farther(costs, np.ones(codes.size))
    drawn_weights = resample(unit_codes(groups, codes.size), codes, n_draws, random)
    draws = np.array([_farther(costs, weights) for weights in drawn_weights]).reshape(len(drawn_weights), mass.size + 1)
    (shares, total, composition), drawn = _shares(farther, mass), _shares(draws, mass)
    return AnnotationRelevance(
        values=values,
        mass=mass,
        relevance=farther[:-1] / unit,
        share=shares,
        draws=drawn[0],
        confidence=confidence,
        composition=float(composition),
        composition_draws=drawn[2],
        total=float(total) / unit,
        total_draws=drawn[1] / unit,
        out_of_bag=out_of_bag,
    )


def _farther(costs: PairCosts, weights: np.ndarray) -> np.ndarray:
    """Return the excess distance of a unit of mass of each kind; last, the excess cost of mass that changes its kind.

    NaN if no mass of a kind stays with it, between classes or within.
    """
    between, within = costs.means(weights)  # (n_values + 1, 2): cost and mass
    with np.errstate(invalid="ignore", divide="ignore"):
        per_mass = [part[:-1, 0] / part[:-1, 1] for part in (between, within)]
    return np.append(per_mass[0] - per_mass[1], between[-1, 0] - within[-1, 0])


def _shares(farther: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares of the kinds, their total, and the share of composition; also for rows of draws."""
    carried = np.nan_to_num(farther[..., :-1]) * mass
    total = carried.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):  # of draws in which nothing is left to compare
        return carried / total[..., None], total, farther[..., -1] / (total + farther[..., -1])
