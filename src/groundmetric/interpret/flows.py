"""Flows of mass between distributions, and transport costs of pairs by kind of points and by axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .._internal.parallel import Threads
from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric
from ..transport import solve
from ..transport.cohort import clouds_of
from ._inputs import annotation_of, choose_pairs, frame, metric_of

if TYPE_CHECKING:
    from pandas import DataFrame


Digest = TypeVar("Digest")
MOST_BAGS = 4  # metrics that a pair is compared under: more add time, and hardly any precision


@dataclass(frozen=True)
class Flow:
    """Mass that is moved between kinds of points, as a mean over pairs of distributions.

    Parameters
    ----------
    source, target : str
        Names of the distribution or class that mass leaves, and of the one that it goes to; of several distributions,
        their number, e.g. "3 distributions".
    values : list
        Kinds of points.
    mass : array of shape (n_values, n_values)
        Mass from each kind (rows) to each kind (columns); sums to 1.
    cost : array of shape (n_values, n_values)
        Mass × distance (that of `metric.distances`); sums to the mean transport cost of the pairs.
    n_pairs : int
        Number of pairs of distributions that the mean is over.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> found = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> found.source, found.target, found.kept, found.distance.tolist()
    ('ann', 'bob', 1.0, [[0.5, nan], [nan, 1.0]])
    """

    source: str
    target: str
    values: list[Any]
    mass: np.ndarray
    cost: np.ndarray
    n_pairs: int

    @property
    def value(self) -> float:
        """Mean transport cost of the pairs: their distance under the metric, for squared costs its square."""
        return float(self.cost.sum())

    @property
    def distance(self) -> np.ndarray:
        """Mean distance that the mass travels from each kind to each; NaN where none is moved."""
        return np.divide(self.cost, self.mass, out=np.full_like(self.cost, np.nan), where=self.mass > 0)

    @property
    def kept(self) -> float:
        """Share of the mass that stays with its kind."""
        return float(np.trace(self.mass))

    def table(self) -> DataFrame:
        """The flow as a table.

        Returns
        -------
        pandas.DataFrame
            A row for every two kinds between which mass is moved, the costliest first.
        """
        rows, cols = np.nonzero(self.mass)
        columns = {
            "from": [self.values[r] for r in rows],
            "to": [self.values[c] for c in cols],
            "mass": self.mass[rows, cols],
            "distance": self.distance[rows, cols],
            "share of cost": self.cost[rows, cols] / (self.value or 1.0),
        }
        return frame(columns, np.argsort(-self.cost[rows, cols], kind="stable"))


def flow(
    D: DistributionsLike,
    i: Hashable | Sequence[Hashable],
    j: Hashable | Sequence[Hashable],
    metric: MetricLike,
    annotation: str | LabelsLike,
    *,
    y: LabelsLike | None = None,
    max_pairs: int | None = 100,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
) -> Flow:
    """Mass between kinds of points in the optimal transport from i to j.

    Parameters
    ----------
    D : Distributions
        The cohort.
    i, j : str, int or list of these
        A distribution by its name or its index, or several of them; with `y`, the label of a class each (the same label
        twice: pairs within the class). Of several, the flow is the mean over all pairs.
    metric : GroundMetric or fitted learner
        The ground metric.
    annotation : str or array of shape (n_points,)
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.
    y : array-like of shape (n_distributions,) or None, default=None
        Labels, where `i` and `j` are classes.
    max_pairs : int or None, default=100
        Of more pairs, so many are drawn at random; None: all.
    random_state : int, RandomState or None, default=0
        Seed of the draw.
    n_jobs : int or None, default=None
        Threads; None means one.

    Returns
    -------
    Flow
        Mass and cost between kinds.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> found = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> found.values, found.mass.tolist(), found.value
    (['B', 'T'], [[0.5, 0.0], [0.0, 0.5]], 0.75)
    """
    D = as_distributions(D)
    metric, kinds = metric_of(metric, D), annotation_of(D, annotation)
    chosen = choose_pairs(D, i, j, y, max_pairs, random_state)
    n = len(kinds.values)

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray]:
        cell = kinds.codes[plan.rows] * n + kinds.codes[plan.cols]
        return np.bincount(cell, plan.mass, n * n), np.bincount(cell, plan.cost, n * n)

    mass, cost = np.mean(for_each_pair(D, chosen.pairs, metric, digest, n_jobs), axis=0)
    sides = chosen.source, chosen.target
    return Flow(*sides, kinds.values, mass.reshape(n, n), cost.reshape(n, n), len(chosen.pairs))


@dataclass(frozen=True)
class Shipments:
    """An optimal plan: `mass[k]` goes from point `rows[k]` to point `cols[k]` (rows of `D.points`).

    `distance[k]` is the cost of a unit of mass under the metric: for squared costs, the squared distance.
    """

    rows: np.ndarray
    cols: np.ndarray
    mass: np.ndarray
    distance: np.ndarray

    @property
    def cost(self) -> np.ndarray:
        return self.mass * self.distance


def shipping(
    D: Distributions, metric: GroundMetric, kinds: np.ndarray | None = None
) -> Callable[[int, int], Shipments]:
    """A function of the indices of two distributions to the optimal plan between them.

    With the kind of each point, the best plan among those in which as much mass as possible stays with its kind.
    """
    clouds, costs = clouds_of(metric, (D,), dense=False)

    def between(d: int, e: int) -> Shipments:
        cost = costs(clouds[d].points, clouds[e].points)
        priced = cost
        if kinds is not None:
            # Two shipments, out of a kind and into it, cost less than twice the largest cost when they are exchanged
            # so that one stays: a toll above that is paid only where masses leave no choice.
            apart = kinds[D.bounds[d] : D.bounds[d + 1], None] != kinds[D.bounds[e] : D.bounds[e + 1]]
            priced = cost + 3.0 * cost.max() * apart
        plan = solve(priced, clouds[d].masses, clouds[e].masses)
        distance = cost[plan.rows, plan.cols]
        return Shipments(plan.rows + D.bounds[d], plan.cols + D.bounds[e], plan.mass, distance)

    return between


def for_each_pair(
    D: Distributions,
    pairs: np.ndarray,
    metric: GroundMetric,
    digest: Callable[[Shipments], Digest],
    n_jobs: int | None = None,
    kinds: np.ndarray | None = None,
) -> list[Digest]:
    """`digest` of the plan of every pair (by `shipping`), in order."""
    between = shipping(D, metric, kinds)
    with Threads(n_jobs) as threads:
        return threads.map(lambda pair: digest(between(int(pair[0]), int(pair[1]))), list(pairs))


def partners(codes: np.ndarray, most: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
    """Ordered pairs (distribution, partner): at most so many partners of every class for each, itself excluded."""
    pairs: list[tuple[int, int]] = []
    for d in range(codes.size):
        for c in np.unique(codes):
            others = np.setdiff1d(np.flatnonzero(codes == c), d)
            chosen = others if others.size <= most else np.sort(random.choice(others, most, replace=False))
            pairs += [(d, int(other)) for other in chosen]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


@dataclass(frozen=True)
class PairCosts:
    """Transport costs of each distribution to each of its partners.

    Attributes
    ----------
    pairs : array of shape (n_pairs, 2)
        Distribution and partner, ordered.
    costs : array of shape (n_pairs, n_values, n_axes)
        By the kind of the distribution's points, and by the axis along which they move.
    codes : array of shape (n_distributions,)
        Class of each distribution.
    """

    pairs: np.ndarray
    costs: np.ndarray
    codes: np.ndarray

    def means(self, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean costs to partners of other classes and of the own, (n_values, n_axes) each.

        First over the partners of a distribution, then over distributions; one that is alone in its class has nothing
        to be compared with and does not count. With weights, each distribution counts so often, on both sides.
        """
        weights = np.ones(self.codes.size) if weights is None else np.asarray(weights, dtype=np.float64)
        d, e = self.pairs.T
        same = self.codes[d] == self.codes[e]
        totals = np.stack([np.bincount(d, weights[e] * kind, weights.size) for kind in (~same, same)])
        counting = weights * (totals > 0).all(axis=0)
        if not counting.any():
            return np.full(self.costs.shape[1:], np.nan), np.full(self.costs.shape[1:], np.nan)
        share = counting[d] * weights[e] / np.maximum(totals[same.astype(int), d], 1e-300) / counting.sum()
        between, within = (np.einsum("p,pva->va", share * kind, self.costs) for kind in (~same, same))
        return between, within


def pair_costs(
    D: Distributions,
    codes: np.ndarray,
    metric: GroundMetric,
    kinds: np.ndarray,
    n_values: int,
    *,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
) -> PairCosts:
    """Compare every distribution with at most `max_partners` of every class, by kind of points and by axis.

    Where there are several kinds, points are compared with those of their own as far as masses allow. Mass m over the
    step s costs m|s| = Σ m s_a² / |s| (for Manhattan costs Σ m |s_a|, for squared ones Σ m s_a²): so a cost is shared
    out among the axes a, without a rest.
    """
    z = metric.project(D)

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray]:
        step = z[plan.rows] - z[plan.cols]
        parts = step * metric.cost.slopes(step) * plan.mass[:, None]
        return _by_kind(kinds[plan.rows], parts, n_values), _by_kind(kinds[plan.cols], parts, n_values)

    pairs = partners(codes, max_partners, random)
    # One plan serves both directions of a pair, and `digest` gives the parts of both.
    unordered, place = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    sides = for_each_pair(D, unordered, metric, digest, n_jobs, kinds if n_values > 1 else None)
    found = [sides[k][int(d > e)] for k, (d, e) in zip(place.ravel(), pairs.tolist(), strict=True)]
    return PairCosts(pairs, np.array(found), codes)


@dataclass(frozen=True)
class Bag:
    """Distributions under one metric, and which of them the metric was trained on.

    Attributes
    ----------
    D : Distributions
        All distributions, with all or some of their points.
    kinds : array of shape (n_points,)
        Kind of each point as a number.
    metric : GroundMetric
        The metric.
    trained_on : array of bool of shape (n_distributions,)
        Distributions that the metric was trained on.
    """

    D: Distributions
    kinds: np.ndarray
    metric: GroundMetric
    trained_on: np.ndarray


def costs_within_kinds(
    bags: Sequence[Bag],
    codes: np.ndarray,
    n_values: int,
    *,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
) -> PairCosts:
    """Compare every distribution with others, points with those of their own kind as far as masses allow.

    Costs of a pair are averaged over at most `MOST_BAGS` bags whose metric was trained on neither distribution; pairs
    without such a bag are left out. Instead of axes, the last dimension has cost and mass; a further kind at the end
    has the mass that must change its kind.
    """
    pairs = partners(codes, max_partners, random)
    unordered, place = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    outside = np.array([~bag.trained_on[unordered].any(axis=1) for bag in bags])  # (n_bags, n_unordered)
    if len(bags) > MOST_BAGS:
        order = np.where(outside, random.random_sample(outside.shape), 2.0).argsort(axis=0).argsort(axis=0)
        outside &= order < MOST_BAGS
    total = np.zeros((len(unordered), n_values + 1, 2))
    for bag, chosen in zip(bags, outside, strict=True):
        digest = partial(_kept, bag.kinds, n_values)
        total[chosen] += for_each_pair(bag.D, unordered[chosen], bag.metric, digest, n_jobs, bag.kinds) or 0.0
    count = outside.sum(axis=0)
    costs = total / np.maximum(count, 1)[:, None, None]
    known = (count > 0)[place.ravel()]
    return PairCosts(pairs[known], costs[place.ravel()][known], codes)


def _kept(kinds: np.ndarray, n_values: int, plan: Shipments) -> np.ndarray:
    """Cost and mass by kind of what stays with it; last, of what does not."""
    kept = np.where(kinds[plan.rows] == kinds[plan.cols], kinds[plan.rows], n_values)
    return _by_kind(kept, np.column_stack([plan.cost, plan.mass]), n_values + 1)


def _by_kind(kinds: np.ndarray, parts: np.ndarray, n_values: int) -> np.ndarray:
    return np.stack([np.bincount(kinds, column, n_values) for column in parts.T], axis=1)
