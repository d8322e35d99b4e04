"""Exact nearest neighbours among distributions: lower bounds rule pairs out, the rest is solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal.parallel import Threads, in_batches
from ..metrics.base import Cost
from . import _core
from . import pairs as pairs_module
from .pairs import pair_transport
from .problem import Masses

# Lines that the points are projected to; further ones carry too little of the spread to pay.
_LINES = 5
# Distances below this may be 0 in a solve, because squares of their steps underflow, but not on a line.
_UNDERFLOW = 1e-150
# A hand-over to a thread should be worth about this many entries of a cost matrix.
_BATCH = 2e6


class LowerBounds:
    """Lower bounds of the transport values between distributions that lie still.

    Both kinds are safe from rounding: no bound is above the value that a solve gives.

    Parameters
    ----------
    masses : Masses of n distributions
    z : array (n_points, n_components), their points
    threads : Threads
    cost : Cost, what a step costs
    """

    def __init__(self, masses: Masses, z: np.ndarray, threads: Threads, cost: Cost = Cost.EUCLIDEAN) -> None:
        self._masses, self._threads, self._cost = masses, threads, cost
        self._z = np.require(z, np.float64, ["C", "A"])
        self._weights, self._bounds = masses.weights, masses.bounds
        self._means = self._means_of(self._z)

    def _means_of(self, z: np.ndarray) -> np.ndarray:
        return np.add.reduceat(self._weights[:, None] * z, self._bounds[:-1], axis=0)

    def by_lines(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """From the distance between means, and from transport along the principal axes of all points.

        A projection to a line makes no step longer, so what is shipped along the line costs no more.
        """
        # Around the median of the means, because one distribution that is far away would draw their mean after it.
        centre = np.median(self._means, axis=0)
        z = self._z - centre
        means, reach = self._means_of(z), np.maximum.reduceat(np.abs(z).max(axis=1), self._bounds[:-1])
        apart = self._cost.norm(means[rows] - means[cols])
        unit = z / (reach.max() or 1.0)
        _, axes = np.linalg.eigh(unit.T @ unit)
        z = z @ axes[:, ::-1][:, :_LINES]
        pairs = np.arange(rows.size)
        for axis in range(z.shape[1]):
            line = pair_transport(self._masses, rows, cols, 1, threads=self._threads, cost=self._cost)
            line.move_all(np.ascontiguousarray(z[:, axis : axis + 1]))
            values = line.solve(pairs)
            np.maximum(apart, np.sqrt(values) if self._cost is Cost.SQUARED else values, out=apart)
        # Points that rounding moves a little move a distance (of squared costs, its root) by no more.
        terms = 64 + int(np.diff(self._bounds).max()) + z.shape[1]
        moved = terms * np.finfo(float).eps * (reach[rows] + reach[cols] + np.abs(centre).max())
        bound = np.maximum(apart * (1.0 - 1e-12) - moved - _UNDERFLOW, 0.0)
        return bound**2 if self._cost is Cost.SQUARED else bound

    def by_potentials(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """From potentials that the costs allow, without a plan: tight where points are far apart in many dimensions.

        Any u, v with u_i + v_j ≤ cost_ij prove that transport costs at least their mean. Here v begins as a slope
        between the two means; then u is the largest that v allows, and v the largest that u allows. The same is done
        from the other side, and the better of the two counts.
        """
        values = np.empty(rows.size)
        rows, cols = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(cols, np.int64)
        sizes = np.diff(self._bounds)
        work = (sizes[rows] * sizes[cols]).astype(np.float64)

        def one_batch(which: np.ndarray) -> None:
            _core.bound_pairs(
                which, rows, cols, self._z, self._bounds, self._weights, self._means, int(self._cost), values
            )

        self._threads.map(one_batch, in_batches(work, self._threads.n_jobs, _BATCH))
        return values


# Of so many times the neighbours that are wanted, the bounds are sharpened before the first solves.
_FIRST = 4

PairValues = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of the pairs (rows[k], cols[k])


def nearest(lower: np.ndarray, n_neighbors: int, solve: PairValues, sharpen: PairValues | None = None) -> np.ndarray:
    """Distances of each query's nearest candidates, found with as few solves as the lower bounds allow.

    `lower` (n_queries, n_candidates) bounds the distances from below (infinite: not a candidate); ``solve(rows, cols)``
    gives exact ones, ``sharpen(rows, cols)`` better bounds that cost more. In every round each open query solves its
    most promising unsolved candidates; a query is closed when its n-th best exact distance is no larger than every
    bound left. Returns the matrix of exact distances, infinite where a pair did not need to be solved.

    >>> exact = np.array([[3.0, 1.0, 9.0]])
    >>> nearest(np.array([[2.0, 0.5, 8.0]]), 1, lambda rows, cols: exact[rows, cols]).tolist()
    [[inf, 1.0, inf]]
    """
    exact = np.full(lower.shape, np.inf)
    left = lower.astype(np.float64, copy=True)
    if sharpen is not None:
        _begin_with_the_sharpest(exact, left, n_neighbors, solve, sharpen)
    step = n_neighbors
    while True:
        ready = _nth_best(exact, n_neighbors)
        # Ties with the n-th best are solved too, so that the answer does not depend on the order of the solves.
        rows = np.flatnonzero((left.min(axis=1) <= ready) & np.isfinite(left.min(axis=1)))
        if rows.size == 0:
            return exact
        order = np.argsort(left[rows], axis=1, kind="stable")[:, :step]
        bounds = np.take_along_axis(left[rows], order, axis=1)
        wanted = np.isfinite(bounds) & (bounds <= ready[rows, None])
        r, c = np.repeat(rows, wanted.sum(axis=1)), order[wanted]
        exact[r, c] = solve(r, c)
        left[r, c] = np.inf
        step = 1 if step == n_neighbors else min(2 * step, 8)


def _begin_with_the_sharpest(
    exact: np.ndarray, left: np.ndarray, n_neighbors: int, solve: PairValues, sharpen: PairValues
) -> None:
    """Solve the most promising pairs, and sharpen all bounds that these do not rule out; in place.

    Which pairs are the most promising, a few sharp bounds tell better than all of the others.
    """
    sharp = _lowest(left, _FIRST * n_neighbors)
    left[sharp] = np.maximum(left[sharp], sharpen(*np.nonzero(sharp)))
    first = _lowest(np.where(sharp, left, np.inf), n_neighbors)
    exact[first] = solve(*np.nonzero(first))
    left[first] = np.inf
    rest = ~sharp & np.isfinite(left) & (left <= _nth_best(exact, n_neighbors)[:, None])
    left[rest] = np.maximum(left[rest], sharpen(*np.nonzero(rest)))


def _nth_best(exact: np.ndarray, n: int) -> np.ndarray:
    return np.partition(exact, n - 1, axis=1)[:, n - 1]


def _lowest(values: np.ndarray, count: int) -> np.ndarray:
    """Mask of the lowest `count` entries of every row, without infinite ones."""
    order = np.argsort(values, axis=1, kind="stable")[:, :count]
    mask = np.zeros(values.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask & np.isfinite(values)


class Finder:
    """Exact distances and their lower bounds between distributions that lie still; no pair is solved twice.

    Parameters
    ----------
    masses : Masses of n distributions
    z : array (n_points, n_components), their points
    threads : Threads
    max_pivots : int or None
    cost : Cost, what a step costs
    """

    def __init__(
        self,
        masses: Masses,
        z: np.ndarray,
        threads: Threads,
        max_pivots: int | None = None,
        cost: Cost = Cost.EUCLIDEAN,
    ) -> None:
        self._masses, self._z = masses, z
        self._options: dict[str, Any] = {"threads": threads, "memory": 0.0, "max_pivots": max_pivots, "cost": cost}
        self._bounds = LowerBounds(masses, z, threads, cost)
        self._known = np.full((len(masses), len(masses)), np.nan)
        self.stopped_pivoting = 0
        self.solves = 0

    def lower(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Bounds that are nearly free: the distance between means, and transport along a few lines."""
        return self._bounds.by_lines(rows, cols)

    def sharpen(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Bounds from potentials, which cost about a tenth of a solve."""
        if self._z.shape[1] == 1:  # `lower` is exact on a line
            return np.zeros(rows.size)
        n = len(self._masses)
        pairs, places = np.unique(np.minimum(rows, cols) * n + np.maximum(rows, cols), return_inverse=True)
        return self._bounds.by_potentials(*np.divmod(pairs, n))[places]

    def solve(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Exact distances."""
        first, second = np.minimum(rows, cols), np.maximum(rows, cols)
        new = np.unique(np.stack([first, second])[:, np.isnan(self._known[first, second])], axis=1)
        if new.size:
            options = {**self._options, "dense_limit": pairs_module.DENSE_LIMIT}
            transport = pair_transport(self._masses, new[0], new[1], self._z.shape[1], **options)
            transport.move_all(self._z)
            self._known[new[0], new[1]] = transport.solve(np.arange(new.shape[1]))
            self.solves += new.shape[1]
            self.stopped_pivoting += int(np.sum(~transport.answers.optimal))
        return self._known[first, second]


def pruned_distances(
    masses: Masses, z: np.ndarray, n_rows: int, n_neighbors: int, **options: Any
) -> tuple[np.ndarray, int, int]:
    """Distances from the first `n_rows` distributions to all others, infinite where bounds rule a neighbour out.

    The others are the rest; or, where there is no rest, the same distributions. `options` are those of `Finder`. Also
    returns the number of solves, and of those that stopped at the pivot limit.
    """
    finder = Finder(masses, z, **options)
    shift = n_rows if len(masses) > n_rows else 0
    shape = n_rows, len(masses) - shift
    rows, cols = (grid.ravel() for grid in np.indices(shape))
    lower = finder.lower(rows, cols + shift).reshape(shape)
    if not shift:
        np.fill_diagonal(lower, np.inf)
    exact = nearest(
        lower,
        n_neighbors,
        lambda rows, cols: finder.solve(rows, cols + shift),
        lambda rows, cols: finder.sharpen(rows, cols + shift),
    )
    return exact, finder.solves, finder.stopped_pivoting
