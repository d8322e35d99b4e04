"""Transport by kind of points (cell types): plans, flows of mass, costs of pairs, and shares of kinds in the costs.

Also the arguments that functions of this package share: metric, labels and kinds of points.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from sklearn.utils import check_random_state
from tqdm import tqdm

from .._internal.parallel import Threads, progress_bar
from .._internal.tables import visible
from .._internal.types import DistributionsLike, LabelsLike, MetricLike, RandomState
from .._internal.validation import (
    carries_names,
    check_labels,
    check_number,
    group_list,
    is_missing,
    need,
    refuse_mask,
    unit_codes,
)
from ..distributions import Distributions, as_distributions
from ..estimators.ensemble import GroundMetricEnsemble
from ..evaluation.scores import containing, resample
from ..metrics.base import GroundMetric
from ..transport.cohort import clouds_of
from ..transport.solvers.exact import solve_exact

if TYPE_CHECKING:
    from pandas import DataFrame

Digest = TypeVar("Digest")
MOST_BAGS = 4  # metrics under which a pair is compared; more take longer and hardly add precision


class Tabular:
    """Result with a table: `_table` returns its columns and the order of its rows."""

    def table(self) -> DataFrame:
        """Return a data frame with a row per feature, kind of points, axis, …, the most important rows first."""
        need("pandas", "a table")
        import pandas as pd

        columns, order = self._table()
        return pd.DataFrame(columns).iloc[order].reset_index(drop=True)

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        raise NotImplementedError


def metric_of(source: Any, D: Distributions) -> GroundMetric:
    """Return a ground metric, or that of a fitted learner; its features must be those of D."""
    metric = getattr(source, "metric_", source)
    if not isinstance(metric, GroundMetric):
        raise TypeError(f"metric is {type(source).__name__}: expected a GroundMetric or a fitted learner")
    metric.check_fit(D)
    return metric


def classes_of(y: Any, D: Distributions) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes, and the index of each distribution's class among them."""
    classes, codes = np.unique(check_labels(y, D.name_index), return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"all distributions have one class ({classes.tolist()[0]!r}): at least two are needed")
    return classes, codes


def feature_names(D: Distributions, metric: GroundMetric | None = None) -> list[str]:
    """Return the names of the features, by the metric if it has them; else "feature 0", "feature 1", …."""
    names = (metric.features if metric is not None else None) or D.features
    return [str(name) for name in names] if names is not None else [f"feature {k}" for k in range(D.shape[1])]


def annotation_of(D: Distributions, annotation: Any) -> tuple[list[Any], np.ndarray]:
    """Return the kinds of points, and the index of each point's kind among them; None: one kind."""
    # An annotation is named, or an array in the order of `D.points`. Distributions do not know the names of their
    # points, and sort points whose distributions are interleaved. A Series that is indexed by points is then in another
    # order than `D.points`, and is refused.
    if annotation is None:
        return ["all"], np.zeros(D.points.shape[0], np.intp)
    name = annotation if isinstance(annotation, str) else "annotation"
    if isinstance(annotation, str):
        if annotation not in D.annotations:
            raise ValueError(f"D has no annotation {annotation!r}: it has {sorted(D.annotations)}")
        annotation = D.annotations[annotation]
    refuse_mask(annotation, name)
    if carries_names(annotation) and np.any(np.diff(D.order) != 1):
        raise ValueError(
            f"{name} is named by points, whose order is not that of D.points: give it when making the Distributions "
            f"(annotations=…), or as an array in that order (of all points, {name}.to_numpy()[D.order])"
        )
    array = np.asarray(annotation)
    if array.shape != D.weights.shape:
        raise ValueError(f"{name} has shape {array.shape}: expected ({D.weights.size},), a value for each point")
    n_missing = sum(map(is_missing, array)) if array.dtype.kind in "fO" else 0
    if n_missing:
        raise ValueError(f"{name} is missing for {n_missing} points: give them a value of their own, e.g. 'unknown'")
    values, codes = np.unique(array, return_inverse=True)
    return values.tolist(), codes


def equalized_with_kinds(D: Distributions, kinds: np.ndarray) -> tuple[Distributions, np.ndarray]:
    """Return the distributions with equal numbers of points, and the kind of each of these points."""
    coded = D.with_points(D.points, D.features)
    coded.annotations = {"kind": kinds}
    coded = coded.equalize()
    return coded, coded.annotations["kind"]


@dataclass(frozen=True)
class Flow(Tabular):
    """Mass that is moved between kinds of points, as a mean over pairs of distributions.

    Parameters
    ----------
    source, target : str
        Names of the distribution or class that mass leaves, and of the one that it goes to.
    values : list
        Kinds of points.
    mass, cost : array of shape (n_values, n_values)
        Mass from each kind (rows) to each kind (columns), which sums to 1, and mass × distance (that of
        `metric.distances`), which sums to the mean transport cost of the pairs.
    n_pairs : int
        Number of pairs of distributions that the mean is over.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> result = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> result.kept, result.distance.tolist()
    (1.0, [[0.5, nan], [nan, 1.0]])
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

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        rows, cols = np.nonzero(self.mass)
        columns = {
            "from": [self.values[r] for r in rows],
            "to": [self.values[c] for c in cols],
            "mass": self.mass[rows, cols],
            "distance": self.distance[rows, cols],
            "share of cost": self.cost[rows, cols] / (self.value or 1.0),
        }
        return columns, np.argsort(-self.cost[rows, cols], kind="stable")


def flow(
    D: DistributionsLike,
    i: Hashable,
    j: Hashable,
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
    i, j : str or int
        A distribution by its name or its index; with `y`, the label of a class each (the same label twice: pairs within
        the class), and the flow is the mean over all pairs.
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

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [9.0], [1.0], [9.5]], ["ann", "ann", "bob", "bob"])
    >>> result = gm.interpret.flow(D, "ann", "bob", gm.GroundMetric([[1.0]]), ["T", "B", "T", "B"])
    >>> result.values, result.mass.tolist(), result.value
    (['B', 'T'], [[0.5, 0.0], [0.0, 0.5]], 0.75)
    """
    D = as_distributions(D)
    metric, (values, kinds) = metric_of(metric, D), annotation_of(D, annotation)
    if y is None:
        ends = []
        for entry in (i, j):
            if isinstance(entry, str) and entry in D.names:
                ends.append(D.names.index(entry))
            elif isinstance(entry, numbers.Integral) and 0 <= int(entry) < len(D):
                ends.append(int(entry))
            else:
                raise ValueError(
                    f"there is no distribution {entry!r}: expected a name, or an index from 0 to {len(D) - 1}"
                )
        first, second = np.array(ends[:1]), np.array(ends[1:])
        source, target = (visible(D.names[end]) for end in ends)
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
    n = len(values)

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray]:
        cell = kinds[plan.rows] * n + kinds[plan.cols]
        return np.bincount(cell, plan.mass, n * n), np.bincount(cell, plan.cost, n * n)

    mass, cost = np.mean(for_each_pair(D, pairs, metric, digest, n_jobs), axis=0)
    return Flow(source, target, values, mass.reshape(n, n), cost.reshape(n, n), len(pairs))


class Shipments(NamedTuple):
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
        plan = solve_exact(priced, clouds[d].masses, clouds[e].masses)
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


def partners(codes: np.ndarray, most: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
    """Return ordered pairs (distribution, partner), with at most `most` partners of every class for each."""
    pairs: list[tuple[int, int]] = []
    for d in range(codes.size):
        for c in np.unique(codes):
            candidates = np.setdiff1d(np.flatnonzero(codes == c), d)
            chosen = candidates if candidates.size <= most else np.sort(random.choice(candidates, most, replace=False))
            pairs += [(d, int(partner)) for partner in chosen]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _unordered(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted unordered pairs, the position of each pair among them, and whether it is reversed (0 or 1)."""
    # One plan serves both directions of a pair.
    unordered, position = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
    return unordered, position.ravel(), (pairs[:, 0] > pairs[:, 1]).astype(int)


@dataclass(frozen=True)
class Bag:
    """All distributions (with all or some of their points) under one metric."""

    D: Distributions
    kinds: np.ndarray  # of each point, as a number
    metric: GroundMetric
    trained_on: np.ndarray  # whether the metric was trained on the labels of each distribution


@dataclass(frozen=True)
class PairCosts:
    """Transport costs of each distribution to each of its partners."""

    pairs: np.ndarray  # (n_pairs, 2)
    costs: np.ndarray  # (n_pairs, n_values, n_columns), by kind of the points, and by axis or another division
    codes: np.ndarray  # (n_distributions,) class of each distribution

    def means(self, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean costs to partners of other classes and of the own, (n_values, n_columns) each."""
        # The mean is first over the partners of a distribution, then over distributions that have partners in both.
        # With weights (of a bootstrap draw), each distribution has the same weight in the two means.
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
    bags: Sequence[Bag],
    codes: np.ndarray,
    digest: Callable[[Bag, Shipments], np.ndarray],
    *,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
    verbose: int,
) -> PairCosts:
    """Compare every distribution with at most `max_partners` of every class, and points with points of their kind.

    Mass stays in its kind as far as masses allow. `digest` returns the costs of a plan for its source and its target,
    (2, n_values, n_columns). Costs are averaged over at most `MOST_BAGS` bags whose metric was trained on neither
    distribution; pairs without such a bag are left out.
    """
    pairs = partners(codes, max_partners, random)
    unordered, position, reverse = _unordered(pairs)
    eligible = np.array([~bag.trained_on[unordered].any(axis=1) for bag in bags])  # (n_bags, n_unordered)
    if len(bags) > MOST_BAGS:
        order = np.where(eligible, random.random_sample(eligible.shape), 2.0).argsort(axis=0).argsort(axis=0)
        eligible &= order < MOST_BAGS
    totals: list[Any] = [0.0] * len(unordered)
    with progress_bar(int(eligible.sum()), "transport plans", "pair", show=bool(verbose)) as bar:
        for bag, chosen in zip(bags, eligible, strict=True):
            costs = for_each_pair(
                bag.D, unordered[chosen], bag.metric, partial(digest, bag), n_jobs, bag.kinds, bar=bar
            )
            for k, cost in zip(np.flatnonzero(chosen), costs, strict=True):
                totals[k] = totals[k] + cost
    count = eligible.sum(axis=0)
    compared = count[position] > 0
    means = [totals[k][side] / count[k] for k, side in zip(position[compared], reverse[compared], strict=True)]
    result = PairCosts(pairs[compared], np.array(means), codes)
    if not means or np.isnan(result.means()[0]).any():
        raise ValueError("no class has two distributions: distances within classes are needed for comparison")
    return result


class Travel(NamedTuple):
    """Mean distance of the mass of each cell to samples of other classes and of its own class."""

    between: np.ndarray
    within: np.ndarray
    unit: float  # mean distance between samples of different classes


def travel_of_cells(
    cells: Distributions,
    codes: np.ndarray,
    pairs: np.ndarray,
    kinds: np.ndarray | None,
    n_jobs: int | None,
    verbose: int = 0,
) -> Travel:
    """Solve one plan per unordered pair of samples and average the costs of each cell; `kinds` are cell types."""
    unordered, position, reverse = _unordered(pairs)

    def cost_per_mass(ends: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """Return the cost per unit of mass of each cell of a sample, whose cells in a plan are `ends`."""
        d = int(np.searchsorted(cells.bounds, ends[0], side="right")) - 1
        start, stop = cells.bounds[d], cells.bounds[d + 1]
        return np.bincount(ends - start, cost, stop - start) / cells.weights[start:stop]

    def digest(plan: Shipments) -> tuple[np.ndarray, np.ndarray, float]:
        return cost_per_mass(plan.rows, plan.cost), cost_per_mass(plan.cols, plan.cost), float(plan.cost.sum())

    space = GroundMetric(np.eye(cells.points.shape[1]))
    with progress_bar(len(unordered), "transport plans", "pair", show=bool(verbose)) as bar:
        solved = for_each_pair(cells, unordered, space, digest, n_jobs, kinds, bar=bar)
    same = (codes[pairs[:, 0]] == codes[pairs[:, 1]]).astype(int)
    sums = np.zeros((2, cells.points.shape[0]))  # rows: other classes, same class
    counts = np.zeros((2, len(cells)))
    for k in np.argsort(position, kind="stable"):  # costs are added in the same order for any order of the pairs
        sample = pairs[k, 0]
        sums[same[k], cells.bounds[sample] : cells.bounds[sample + 1]] += solved[position[k]][reverse[k]]
        counts[same[k], sample] += 1
    with np.errstate(invalid="ignore"):  # NaN for a sample alone in its class
        means = sums / np.repeat(counts, cells.sizes, axis=1)
    distances = [distance for (d, e), (*_, distance) in zip(unordered, solved, strict=True) if codes[d] != codes[e]]
    return Travel(means[0], means[1], float(np.mean(distances)))


def by_kind(kinds: np.ndarray, parts: np.ndarray, n_values: int) -> np.ndarray:
    """Return the sum of the rows of each kind, (n_values, n_columns)."""
    return np.stack([np.bincount(kinds, column, n_values) for column in parts.T], axis=1)


@dataclass(frozen=True)
class AnnotationRelevance(Tabular):
    """Relevance of each kind of points: its share of the excess distance between classes.

    The excess distance is the mean distance to distributions of other classes minus that to the own class.

    Parameters
    ----------
    values : list
        Kinds of points.
    mass, relevance : array of shape (n_values,)
        Mass of each kind, as a mean over distributions, which sums to 1; and excess distance of a unit of this mass, in
        units of the mean distance between classes (NaN for a kind that is not in all classes).
    share, draws : array of shape (n_values,) and (n_draws, n_values)
        Mass × relevance as a share of the sum over kinds; the same in bootstrap draws of the distributions, without
        rows if all are in one group.
    composition : float
        Share of the whole excess distance that is due to mass that must change its kind. Near 1, classes differ in the
        frequencies of the kinds.
    total, total_draws : float and array of shape (n_draws,)
        Excess distance within kinds: sum over kinds of mass × relevance; the same in the bootstrap draws.
    out_of_bag : bool
        Whether every metric was trained on neither of the distributions that it compares.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10).values
    ['centre', 'high', 'low']
    """

    values: list[Any]
    mass: np.ndarray
    relevance: np.ndarray
    share: np.ndarray
    draws: np.ndarray
    composition: float
    total: float
    total_draws: np.ndarray
    out_of_bag: bool

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of each share, (2, n_values): percentiles of the draws, extended to the share."""
        return containing(self.share, self.draws)

    @property
    def total_interval(self) -> np.ndarray:
        """Lower and upper end of `total`, (2,); if 0 is between them, shares have no meaning."""
        return containing(np.array([self.total]), self.total_draws[:, None])[:, 0]

    @property
    def first(self) -> np.ndarray:
        """Share of the draws in which each kind has the largest share."""
        best = np.argmax(np.nan_to_num(self.draws, nan=-np.inf), axis=1)
        return np.bincount(best, minlength=len(self.values)) / max(1, len(best))

    def _table(self) -> tuple[dict[str, Any], np.ndarray]:
        low, high = self.interval
        columns = {
            "value": self.values, "share": self.share, "low": low, "high": high, "first": self.first,
            "relevance": self.relevance, "mass": self.mass,
        }  # fmt: skip
        return columns, np.argsort(-np.nan_to_num(self.share, nan=-np.inf), kind="stable")


def annotation_relevance(
    metric: MetricLike,
    D: DistributionsLike,
    y: LabelsLike,
    annotation: str | LabelsLike,
    *,
    groups: LabelsLike | None = None,
    n_draws: int = 1000,
    max_partners: int = 10,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> AnnotationRelevance:
    """Divide the excess distance between classes among the kinds of points, with confidence intervals.

    The transport plan is the best one among those that keep as much mass as possible in its kind; otherwise, points
    that have changed would raise the costs of other kinds, which must be their partners. The excess of a kind is 0 up
    to noise if it is the same in all classes; shares may be negative. All distributions have equal numbers of points.

    Under a metric that was learned from these labels, every kind is farther in other classes, because the metric has
    fitted its noise. With an ensemble, each pair is compared under members (at most 4) that were trained on neither
    distribution (out of bag). The 95 % intervals are by bootstrap of the distributions within each class (whole groups
    if given; groups with several classes, regardless of class), on both sides of a comparison, for a fixed metric.

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

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
    >>> metric = gm.GroundMetric([[1.0, 0.0]], D.features)
    >>> result = gm.interpret.annotation_relevance(metric, D, y, "mode", n_draws=10)
    >>> result.values[result.share.argmax()]
    'centre'
    """
    check_number("n_draws", n_draws, low=1, whole=True)
    D = as_distributions(D)
    codes = classes_of(y, D)[1]
    values, kinds = annotation_of(D, annotation)
    D, kinds = equalized_with_kinds(D, kinds)
    bags = [Bag(D, kinds, metric_of(metric, D), np.zeros(len(D), dtype=bool))]
    ensemble: Any = getattr(metric, "ensemble_", metric)
    out_of_bag = False
    if isinstance(ensemble, GroundMetricEnsemble):
        geometry = ensemble.fitted_.geometries[""]
        out_of_bag = sorted(map(str, geometry.names)) == sorted(map(str, D.names)) and bool(ensemble.fitted_.design)
    if out_of_bag:
        position = {name: d for d, name in enumerate(geometry.names)}
        order = [position[name] for name in D.names]
        members = ensemble.fitted_.members[""]
        bags = [Bag(D, kinds, member.metric(geometry), member.trained_on[order]) for member in members]
    return relevance_in_bags(
        bags, codes, values, out_of_bag=out_of_bag, groups=group_list(groups, D.name_index), n_draws=n_draws,
        max_partners=max_partners, random=check_random_state(random_state), n_jobs=n_jobs, verbose=verbose,
    )  # fmt: skip


def relevance_in_bags(
    bags: Sequence[Bag],
    codes: np.ndarray,
    values: list[Any],
    *,
    out_of_bag: bool,
    groups: Any,
    n_draws: int,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
    verbose: int,
) -> AnnotationRelevance:
    """Return `annotation_relevance` of the distributions of all bags, each under its metric."""
    n_values = len(values)

    def digest(bag: Bag, plan: Shipments) -> np.ndarray:
        """Return cost and mass by kind, the same in both directions; last, of the mass that must change its kind."""
        kind = np.where(bag.kinds[plan.rows] == bag.kinds[plan.cols], bag.kinds[plan.rows], n_values)
        parts = by_kind(kind, np.column_stack([plan.cost, plan.mass]), n_values + 1)
        return np.stack([parts, parts])

    costs = pair_costs(bags, codes, digest, max_partners=max_partners, random=random, n_jobs=n_jobs, verbose=verbose)
    unit = float(costs.means()[0][:, 0].sum())
    masses = []
    for bag in bags:  # mass of each kind in each distribution
        cell = np.repeat(np.arange(len(bag.D)), bag.D.sizes) * n_values + bag.kinds
        masses.append(np.bincount(cell, bag.D.weights, len(bag.D) * n_values).reshape(-1, n_values).mean(axis=0))
    mass = np.mean(masses, axis=0)
    # The bootstrap draws distributions with their labels, and keeps the metric and its training labels.
    drawn_weights = resample(unit_codes(groups, codes.size), codes, n_draws, random)
    farther = _farther(costs, np.ones(codes.size))
    draws = np.array([_farther(costs, weights) for weights in drawn_weights]).reshape(len(drawn_weights), n_values + 1)
    (shares, total, composition), drawn = _shares(farther, mass), _shares(draws, mass)
    return AnnotationRelevance(
        values, mass, relevance=farther[:-1] / unit, share=shares, draws=drawn[0], composition=float(composition),
        total=float(total) / unit, total_draws=drawn[1] / unit, out_of_bag=out_of_bag,
    )  # fmt: skip


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
