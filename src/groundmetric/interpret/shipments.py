"""What is shipped where: the plans behind the distances between distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .._internal.executor import Threads
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..transport import solve
from ..transport.cohort import clouds_of

Digest = TypeVar("Digest")


@dataclass(frozen=True)
class Shipments:
    """An optimal plan: `mass[k]` goes from point `rows[k]` to point `cols[k]` (places in `D.points`).

    `distance[k]` is what a unit of mass costs on that way under the metric: for squared costs, the squared distance.
    """

    rows: np.ndarray
    cols: np.ndarray
    mass: np.ndarray
    distance: np.ndarray

    @property
    def cost(self) -> np.ndarray:
        return self.mass * self.distance


def shipping(D: Distributions, metric: GroundMetric) -> Callable[[int, int], Shipments]:
    """A function of two places that finds the plan between these distributions, at the costs that distances have."""
    clouds, costs = clouds_of(metric, (D,), dense=False)

    def between(d: int, e: int) -> Shipments:
        cost = costs(clouds[d].points, clouds[e].points)
        plan = solve(cost, clouds[d].masses, clouds[e].masses)
        distance = cost[plan.rows, plan.cols]
        return Shipments(plan.rows + D.bounds[d], plan.cols + D.bounds[e], plan.mass, distance)

    return between


def for_each_pair(
    D: Distributions,
    pairs: np.ndarray,
    metric: GroundMetric,
    digest: Callable[[Shipments], Digest],
    n_jobs: int | None = None,
) -> list[Digest]:
    """What `digest` makes of the plan of every pair, in order."""
    between = shipping(D, metric)
    with Threads(n_jobs) as threads:
        return threads.map(lambda pair: digest(between(int(pair[0]), int(pair[1]))), list(pairs))


def partners(codes: np.ndarray, most: int, random: np.random.RandomState) -> np.ndarray:
    """Ordered pairs (distribution, partner): at most so many partners of every class for each, itself excluded."""
    pairs: list[tuple[int, int]] = []
    for d in range(codes.size):
        for c in np.unique(codes):
            others = np.setdiff1d(np.flatnonzero(codes == c), d)
            chosen = others if others.size <= most else np.sort(random.choice(others, most, replace=False))
            pairs += [(d, int(other)) for other in chosen]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


@dataclass(frozen=True)
class Ledger:
    """What it costs to turn each distribution into each of its partners.

    Attributes
    ----------
    pairs : (n_pairs, 2), ordered: distribution and partner
    costs : (n_pairs, n_values, n_axes), by what the points of the distribution are, and along which axis they move
    codes : class of each distribution
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


def ledger(
    D: Distributions,
    codes: np.ndarray,
    metric: GroundMetric,
    kinds: np.ndarray,
    n_values: int,
    *,
    by_axis: bool,
    max_partners: int,
    random: np.random.RandomState,
    n_jobs: int | None,
) -> Ledger:
    """Compare every distribution with at most `max_partners` of every class.

    Mass m over the step s costs m|s| = Σ m s_a² / |s| (for Manhattan costs Σ m |s_a|, for squared ones Σ m s_a²): so a
    cost is shared out among the axes a, without a rest.
    """
    pairs = partners(codes, max_partners, random)
    unordered = np.unique(np.sort(pairs, axis=1), axis=0)
    z = metric.project(D) if by_axis else None
    n_axes = 1 if z is None else z.shape[1]

    def digest(way: Shipments) -> tuple[np.ndarray, np.ndarray]:
        if z is None:
            parts = way.cost[:, None]
        else:
            step = z[way.rows] - z[way.cols]
            parts = step * metric.cost.slopes(step) * way.mass[:, None]
        return _by_kind(kinds[way.rows], parts, n_values), _by_kind(kinds[way.cols], parts, n_values)

    sides = for_each_pair(D, unordered, metric, digest, n_jobs)
    place = {(int(d), int(e)): k for k, (d, e) in enumerate(unordered)}
    costs = np.zeros((len(pairs), n_values, n_axes))
    for p, (d, e) in enumerate(pairs):
        costs[p] = sides[place[min(d, e), max(d, e)]][int(d > e)]
    return Ledger(pairs, costs, codes)


def _by_kind(kinds: np.ndarray, parts: np.ndarray, n_values: int) -> np.ndarray:
    return np.stack([np.bincount(kinds, column, n_values) for column in parts.T], axis=1)
