"""Exact nearest neighbours among distributions, solving only the pairs that bounds cannot rule out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..parallel import Threads
from ..point_distances import Cost
from .bounds import LowerBounds
from .masses import Masses
from .pairs import pair_transport

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
        self._options = {"threads": threads, "memory": 0.0, "values_only": True, "max_pivots": max_pivots, "cost": cost}
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
            transport = pair_transport(self._masses, new[0], new[1], self._z.shape[1], **self._options)
            transport.move_all(self._z)
            self._known[new[0], new[1]] = transport.solve(np.arange(new.shape[1]))
            self.solves += new.shape[1]
            self.stopped_pivoting += int(np.sum(~transport.answers.optimal))
        return self._known[first, second]
