"""Flows of mass between distributions, and transport costs of pairs by kind of points and by axis."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state
from tqdm import tqdm

from .._internal.parallel import Threads, progress_bar
from .._internal.tables import visible
from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from .._internal.validation import check_labels, check_number
from ..distributions import Distributions, as_distributions
from ..metrics.base import GroundMetric
from ..transport import solve
from ..transport.cohort import clouds_of
from ._inputs import annotation_of, frame, metric_of

if TYPE_CHECKING:
    from pandas import DataFrame


Digest = TypeVar("Digest")
MOST_BAGS = 4  # metrics under which a pair is compared; more take longer and hardly add precision


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
    >>> result = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> result.source, result.target, result.kept, result.distance.tolist()
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
        """Return a row for every two kinds between which mass is moved, sorted by cost.

        Returns
        -------
        pandas.DataFrame
            Columns from, to, mass, distance and share of cost.
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
    """Return the mass that optimal transport from i to j moves between kinds of points.

    Parameters
    ----------
    D : Distributions
        The cohort.
    i, j : str, int or list of str or int
        A distribution by its name or its index, or several of them; with `y`, the label of a class each (the same label
        twice: pairs within the class). Of several, the flow is the mean over all pairs.
    metric : GroundMetric or fitted learner
        The ground metric.
    annotation : str or array of shape (n_points,)
        Kind of each point: name of an annotation of D, or an array in the order of `D.points`.
    y : array-like of shape (n_distributions,) or None, default=None
        Labels, where `i` and `j` are classes.
    max_pairs : int or None, default=100
        Largest number of pairs, drawn at random; None: all.
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
    >>> result = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> result.values, result.mass.tolist(), result.value
    (['B', 'T'], [[0.5, 0.0], [0.0, 0.5]], 0.75)
    """
    D = as_distributions(D)
    metric, kinds = metric_of(metric, D), annotation_of(D, annotation)
    if y is None:
        first, second = (_indices_of(D, side) for side in (i, j))
        source, target = (
            visible(D.names[side[0]]) if side.size == 1 else f"{side.size} distributions" for side in (first, second)
        )
    else:
        labels = check_labels(y, D.name_index)
        first, second = (np.flatnonzero(labels == label) for label in (i, j))
        source, target = visible(i), visible(j)
        if not first.size or not second.size:
            missing = source if not first.size else target
            raise ValueError(f"no distribution has the label {missing!r}: there are {np.unique(labels).tolist()}")
    pairs = np.stack([side.ravel() for side in np.meshgrid(first, second, indexing="ij")], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not len(pairs):
        raise ValueError(f"{source} and {target} are the same single distribution: there is nothing to move")
    if max_pairs is not None:
        check_number("max_pairs", max_pairs, low=1, whole=True)
        if len(pairs) > max_pairs:
            random = check_random_state(random_state)
            pairs = pairs[np.sort(random.choice(len(pairs), max_pairs, replace=False))]
    n = len(kinds.values)

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray]:
        cell = kinds.codes[plan.rows] * n + kinds.codes[plan.cols]
        return np.bincount(cell, plan.mass, n * n), np.bincount(cell, plan.cost, n * n)

    mass, cost = np.mean(for_each_pair(D, pairs, metric, digest, n_jobs), axis=0)
    return Flow(source, target, kinds.values, mass.reshape(n, n), cost.reshape(n, n), len(pairs))


def _indices_of(D: Distributions, entries: Any) -> np.ndarray:
    """Return indices of distributions that are given by name (text) or index, one or several."""
    several = [entries] if isinstance(entries, str | numbers.Integral) else list(entries)
    if not several:
        raise ValueError("no distribution is given: at least one is needed on each side")
    indices = []
    for entry in several:
        if isinstance(entry, str) and entry in D.names:
            indices.append(D.names.index(entry))
        elif isinstance(entry, numbers.Integral) and 0 <= int(entry) < len(D):
            indices.append(int(entry))
        else:
            raise ValueError(f"there is no distribution {entry!r}: expected a name, or an index from 0 to {len(D) - 1}")
    return np.array(indices, dtype=np.intp)


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
    """Return a function from the indices of two distributions to the optimal plan between them.

    With the kind of each point, the plan is the best one among those that keep as much mass as possible in its kind.
    """
    clouds, costs = clouds_of(metric, (D,), dense=False)

    def between(d: int, e: int) -> Shipments:
        cost = costs(clouds[d].points, clouds[e].points)
        priced = cost
        if kinds is not None:
            # Exchanging a shipment out of a kind and one into it, with one of them staying, raises the cost by less
            # than twice the largest cost. A surcharge above that is paid only if the masses of kinds differ.
            kinds_differ = kinds[D.bounds[d] : D.bounds[d + 1], None] != kinds[D.bounds[e] : D.bounds[e + 1]]
            priced = cost + 3.0 * cost.max() * kinds_differ
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
    *,
    bar: tqdm | None = None,
) -> list[Digest]:
    """Return `digest` of the optimal plan of every pair, in order; `bar` counts the solved pairs."""
    between = shipping(D, metric, kinds)

    def solve(pair: np.ndarray) -> Digest:
        result = digest(between(int(pair[0]), int(pair[1])))
        if bar is not None:
            bar.update()
        return result

    with Threads(n_jobs) as threads:
        return threads.map(solve, list(pairs))


def plans_bar(n_pairs: int, verbose: int) -> tqdm:
    """Return a progress bar of optimal plans for `for_each_pair`."""
    return progress_bar(n_pairs, "transport plans", "pair", show=bool(verbose))


def partners(codes: np.ndarray, most: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
    """Return ordered pairs (distribution, partner), with at most `most` partners of every class for each."""
    pairs: list[tuple[int, int]] = []
    for d in range(codes.size):
        for c in np.unique(codes):
            candidates = np.setdiff1d(np.flatnonzero(codes == c), d)
            chosen = candidates if candidates.size <= most else np.sort(random.choice(candidates, most, replace=False))
            pairs += [(d, int(partner)) for partner in chosen]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


@dataclass(frozen=True)
class PairCosts:
    """Transport costs of each distribution to each of its partners.

    `pairs` has shape (n_pairs, 2), `codes` (n_distributions,) has the class of each distribution. `costs` has shape
    (n_pairs, n_values, n_axes): by the kind of the distribution's points, and by the axis along which they move.
    """

    pairs: np.ndarray
    costs: np.ndarray
    codes: np.ndarray

    def means(self, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean costs to partners of other classes and of the own, (n_values, n_axes) each.

        The mean is first over the partners of a distribution, then over distributions that have partners in both. With
        weights (of a bootstrap draw), each distribution has the same weight in the two means.
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

    def checked_means(self) -> tuple[np.ndarray, np.ndarray]:
        between, within = self.means()
        if np.isnan(between).any():
            raise ValueError("no class has two distributions: distances within classes are needed for comparison")
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
    verbose: int = 0,
) -> PairCosts:
    """Compare every distribution with at most `max_partners` of every class, by kind of points and by axis.

    With several kinds, points are compared with points of their own kind as far as masses allow. The cost of
    mass m over the step s is divided among the axes a: m|s| = Σ m s_a² / |s| (Manhattan Σ m |s_a|, squared Σ m s_a²).
    """
    z = metric.project(D)

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray]:
        step = z[plan.rows] - z[plan.cols]
        parts = step * metric.cost.slopes(step) * plan.mass[:, None]
        return _by_kind(kinds[plan.rows], parts, n_values), _by_kind(kinds[plan.cols], parts, n_values)

    pairs = partners(codes, max_partners, random)
    # One plan serves both directions of a pair, and `digest` gives the parts of both.
    unordered, position = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    with plans_bar(len(unordered), verbose) as bar:
        sides = for_each_pair(D, unordered, metric, digest, n_jobs, kinds if n_values > 1 else None, bar=bar)
    costs = [sides[k][int(d > e)] for k, (d, e) in zip(position.ravel(), pairs.tolist(), strict=True)]
    return PairCosts(pairs, np.array(costs), codes)


@dataclass(frozen=True)
class Bag:
    """All distributions (with all or some of their points) under one metric.

    `kinds` has the kind of each point as a number, `trained_on` is True for distributions that the metric was trained
    on.
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
    verbose: int = 0,
) -> PairCosts:
    """Compare every distribution with others, points with points of their own kind as far as masses allow.

    Costs of a pair are averaged over at most `MOST_BAGS` bags whose metric was trained on neither distribution; pairs
    without such a bag are left out. The last dimension of the costs has cost and mass instead of axes; an additional
    kind at the end has the mass that must change its kind.
    """
    pairs = partners(codes, max_partners, random)
    unordered, position = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    eligible = np.array([~bag.trained_on[unordered].any(axis=1) for bag in bags])  # (n_bags, n_unordered)
    if len(bags) > MOST_BAGS:
        order = np.where(eligible, random.random_sample(eligible.shape), 2.0).argsort(axis=0).argsort(axis=0)
        eligible &= order < MOST_BAGS
    total = np.zeros((len(unordered), n_values + 1, 2))
    with plans_bar(int(eligible.sum()), verbose) as bar:
        for bag, chosen in zip(bags, eligible, strict=True):

            def digest(plan: Shipments, kinds: np.ndarray = bag.kinds) -> np.ndarray:
                kind = np.where(kinds[plan.rows] == kinds[plan.cols], kinds[plan.rows], n_values)
                return _by_kind(kind, np.column_stack([plan.cost, plan.mass]), n_values + 1)

            pairs_of_bag = unordered[chosen]
            total[chosen] += for_each_pair(bag.D, pairs_of_bag, bag.metric, digest, n_jobs, bag.kinds, bar=bar) or 0.0
    count = eligible.sum(axis=0)
    costs = total / np.maximum(count, 1)[:, None, None]
    compared = (count > 0)[position.ravel()]
    return PairCosts(pairs[compared], costs[position.ravel()][compared], codes)


def _by_kind(kinds: np.ndarray, parts: np.ndarray, n_values: int) -> np.ndarray:
    return np.stack([np.bincount(kinds, column, n_values) for column in parts.T], axis=1)
