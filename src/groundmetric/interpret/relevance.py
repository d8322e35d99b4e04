"""Relevance of kinds of points (cell types): their shares of how much farther other classes are than the own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from .._internal.validation import check_number
from ..distributions import Distributions, as_distributions
from ..estimators.ensemble import GroundMetricEnsemble
from ..evaluation.intervals import containing, resample
from ..learning.splits import group_list, number_groups
from ._inputs import Annotation, annotation_of, check_confidence, classes_of, frame, metric_of
from .flows import Bag, PairCosts, costs_within_kinds

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
        How much farther a unit of mass of this kind is from points of its kind in other classes than in the own, in
        units of the mean distance between classes; NaN for a kind that not all classes have.
    share : array of shape (n_values,)
        Mass × relevance as a share of the sum over kinds: the part of the difference that each kind carries.
    draws : array of shape (n_draws, n_values)
        Shares in bootstrap draws of the distributions; without rows where all are in one outer group.
    confidence : float
        Confidence level of the interval.
    composition : float
        Part of the whole difference that is not within kinds: what mass costs that must change its kind, because
        distributions have unequal masses of the kinds. Near 1, classes differ in how many points are of each kind.
    composition_draws : array of shape (n_draws,)
        The same in the bootstrap draws.
    total : float
        Sum over kinds of mass × relevance, of which `share` are the shares: by how much points of their own kind are
        farther in other classes, in units of the mean distance between classes.
    total_draws : array of shape (n_draws,)
        The same in the bootstrap draws.
    out_of_bag : bool
        Whether every metric was trained on neither of the distributions that it compares.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> found = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> found.values, found.values[found.share.argmax()], found.interval.shape
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
        """Lower and upper ends of each share, (2, n_values): percentiles of the draws; the share is between them."""
        return containing(self.share, self.draws, self.confidence)

    @property
    def composition_interval(self) -> np.ndarray:
        """Lower and upper end of `composition`, (2,)."""
        return containing(np.array([self.composition]), self.composition_draws[:, None], self.confidence)[:, 0]

    @property
    def total_interval(self) -> np.ndarray:
        """Lower and upper end of `total`, (2,); where 0 is between them, there is nothing to share out."""
        return containing(np.array([self.total]), self.total_draws[:, None], self.confidence)[:, 0]

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
) -> AnnotationRelevance:
    """Share out how much farther other classes are than the own among the kinds of points.

    Points are compared with points of their kind: of all plans between two distributions, the best is taken in which
    as much mass as possible stays with its kind. How far the mass of a kind travels in other classes, less how far it
    travels in the own, is what the kind carries. Without that restriction, points that have changed push their costs
    onto other kinds: some must be their partners, and it matters little which. A kind that is the same in all classes
    carries nothing but noise, and its interval contains 0; shares sum to 1, and one may be negative.

    Under a metric that was learned from the labels of these distributions, every kind is farther in other classes, by
    what the metric has fitted of its noise. With an ensemble, each pair is compared under members (at most 4) that were
    trained on neither distribution (out of bag). Then a kind without effect is as often nearer as farther, so that no
    comparison with permuted labels is needed. All distributions are compared by equal numbers of points.

    The interval is over distributions: they are drawn anew within each class (whole groups, where given; those that
    hold several classes, without regard to class), as the ones compared and as the ones compared with. It holds the
    metric fixed.

    Parameters
    ----------
    metric : GroundMetric, fitted learner or ensemble
        The ground metric; of an ensemble that was fitted to D, or what predicts by one, its members.
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
    check_number("n_draws", n_draws, low=1, whole=True)
    check_confidence(confidence)
    D = as_distributions(D)
    _, codes = classes_of(y, D)
    kinds = annotation_of(D, annotation)
    coded = D.with_points(D.points, D.features)
    coded.annotations = {"kind": kinds.codes}
    coded = coded.equalize()
    bags, out_of_bag = _bags(metric, coded, coded.annotations["kind"])
    return relevance_in_bags(
        bags, codes, kinds.values, out_of_bag=out_of_bag, groups=group_list(groups, D.name_index), n_draws=n_draws,
        confidence=confidence, max_partners=max_partners, random=check_random_state(random_state), n_jobs=n_jobs,
    )  # fmt: skip


def _bags(source: Any, D: Distributions, kinds: np.ndarray) -> tuple[list[Bag], bool]:
    """The members of an ensemble that was fitted to these distributions, else its metric; and whether they are."""
    metric = metric_of(source, D)
    ensemble = getattr(source, "ensemble_", source)
    if not isinstance(ensemble, GroundMetricEnsemble):
        return [Bag(D, kinds, metric, np.zeros(len(D), dtype=bool))], False
    names = ensemble.fitted_.geometries[""].names
    if sorted(map(str, names)) != sorted(map(str, D.names)) or not ensemble.fitted_.design:
        return [Bag(D, kinds, metric, np.zeros(len(D), dtype=bool))], False
    position = {name: d for d, name in enumerate(names)}
    order = [position[name] for name in D.names]
    bags = [
        Bag(D, kinds, ensemble.member_metric(member), member.trained_on[order])
        for member in ensemble.fitted_.members[""]
    ]
    return bags, True


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
) -> AnnotationRelevance:
    """`annotation_relevance` of distributions that each bag has, under its metric."""
    costs = costs_within_kinds(bags, codes, len(values), max_partners=max_partners, random=random, n_jobs=n_jobs)
    between, _ = costs.checked_means()
    unit = float(between[:, 0].sum())
    mass = np.mean([Annotation(values, bag.kinds).masses(bag.D).mean(axis=0) for bag in bags], axis=0)
    farther = _farther(costs, np.ones(codes.size))
    units = number_groups(groups, codes.size)
    drawn_weights = resample(np.arange(codes.size) if units is None else units, codes, n_draws, random)
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
    """By how much farther a unit of mass of each kind travels to other classes; last, what change of kinds costs more.

    NaN where no mass of a kind stays with it, between classes or within.
    """
    between, within = costs.means(weights)  # (n_values + 1, 2): cost and mass
    with np.errstate(invalid="ignore", divide="ignore"):
        per_mass = [part[:-1, 0] / part[:-1, 1] for part in (between, within)]
    return np.append(per_mass[0] - per_mass[1], between[-1, 0] - within[-1, 0])


def _shares(farther: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of the kinds in what they carry together, that, and the share of composition in the whole.

    Rows of draws likewise.
    """
    carried = np.nan_to_num(farther[..., :-1]) * mass
    total = carried.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):  # of draws in which nothing is left to compare
        return carried / total[..., None], total, farther[..., -1] / (total + farther[..., -1])
