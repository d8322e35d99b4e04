"""Exact nearest neighbours among distributions: lower bounds exclude pairs, the remaining pairs are solved."""

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

# Number of principal axes for bounds on lines; further axes have too little variance to improve the bounds.
_LINES = 5
# Smaller distances may be 0 in a solve, because squares of coordinate differences underflow, but positive on a line.
_UNDERFLOW = 1e-150
# Entries of cost matrices per task of a thread.
_BATCH = 2e6
# Bounds of 4 candidates per requested neighbour are sharpened before the first solves.
_FIRST = 4

PairValues = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of the pairs (rows[k], cols[k])


def nearest(lower: np.ndarray, n_neighbors: int, solve: PairValues, sharpen: PairValues | None = None) -> np.ndarray:
    """Return exact distances of the nearest candidates of each query, solving only pairs that bounds do not exclude.

    `lower` (n_queries, n_candidates) has lower bounds of distances (infinite: not a candidate); ``solve(rows, cols)``
    returns exact distances, ``sharpen(rows, cols)`` better bounds at a higher cost, which never change the result.
    Unsolved pairs are infinite in the result.

    Invariants: `remaining` has a lower bound of every unsolved candidate, and infinity for all other pairs; `exact` has
    the distances of the solved ones. In every round, each open query solves its unsolved candidates with the lowest
    bounds. It is closed when its n-th smallest exact distance is below the bounds of all unsolved candidates.

    >>> exact = np.array([[3.0, 1.0, 9.0]])
    >>> nearest(np.array([[2.0, 0.5, 8.0]]), 1, lambda rows, cols: exact[rows, cols]).tolist()
    [[inf, 1.0, inf]]
    """
    exact = np.full(lower.shape, np.inf)
    remaining = lower.astype(np.float64, copy=True)
    if sharpen is not None:
        # Sharp bounds of `_FIRST` candidates per neighbour select the first solves better than cheap bounds of all.
        sharp = _lowest(remaining, _FIRST * n_neighbors)
        remaining[sharp] = np.maximum(remaining[sharp], sharpen(*np.nonzero(sharp)))
        first = _lowest(np.where(sharp, remaining, np.inf), n_neighbors)
        exact[first] = solve(*np.nonzero(first))
        remaining[first] = np.inf
        # Then sharpen the bounds of the pairs that these distances do not exclude.
        open_pairs = ~sharp & np.isfinite(remaining) & (remaining <= _nth_best(exact, n_neighbors)[:, None])
        remaining[open_pairs] = np.maximum(remaining[open_pairs], sharpen(*np.nonzero(open_pairs)))
    step = n_neighbors
    while True:
        ready = _nth_best(exact, n_neighbors)
        # Ties with the n-th best are solved too: otherwise the result would depend on the order of the solves.
        rows = np.flatnonzero((remaining.min(axis=1) <= ready) & np.isfinite(remaining.min(axis=1)))
        if rows.size == 0:
            return exact
        order = np.argsort(remaining[rows], axis=1, kind="stable")[:, :step]
        bounds = np.take_along_axis(remaining[rows], order, axis=1)
        wanted = np.isfinite(bounds) & (bounds <= ready[rows, None])
        r, c = np.repeat(rows, wanted.sum(axis=1)), order[wanted]
        exact[r, c] = solve(r, c)
        remaining[r, c] = np.inf
        step = 1 if step == n_neighbors else min(2 * step, 8)


def _nth_best(exact: np.ndarray, n: int) -> np.ndarray:
    return np.partition(exact, n - 1, axis=1)[:, n - 1]


def _lowest(values: np.ndarray, count: int) -> np.ndarray:  # mask of the lowest finite entries of every row
    order = np.argsort(values, axis=1, kind="stable")[:, :count]
    mask = np.zeros(values.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask & np.isfinite(values)


class Finder:
    """Exact distances, which are stored, and lower bounds, which never exceed them, between fixed distributions."""

    def __init__(
        self,
        masses: Masses,
        z: np.ndarray,
        threads: Threads,
        max_pivots: int | None = None,
        cost: Cost = Cost.EUCLIDEAN,
    ) -> None:
        self._masses, self._threads, self._cost = masses, threads, cost
        self._z = np.require(z, np.float64, ["C", "A"])
        self._weights, self._bounds = masses.weights, masses.bounds
        self._means = self._means_of(self._z)
        self._options: dict[str, Any] = {"threads": threads, "memory": 0.0, "max_pivots": max_pivots, "cost": cost}
        self._distances = np.full((len(masses), len(masses)), np.nan)
        self.stopped_pivoting = 0
        self.solves = 0

    def _means_of(self, z: np.ndarray) -> np.ndarray:
        return np.add.reduceat(self._weights[:, None] * z, self._bounds[:-1], axis=0)

    def lower_bounds(self) -> np.ndarray:
        """Return the matrix of bounds by `by_lines` between all distributions, with an infinite diagonal."""
        rows, cols = np.triu_indices(len(self._masses), 1)
        lower = np.full((len(self._masses),) * 2, np.inf)
        lower[rows, cols] = lower[cols, rows] = self.by_lines(rows, cols)
        return lower

    def by_lines(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return bounds from the distance between means and from transport along the principal axes of all points."""
        # A projection to a line does not increase distances: transport along the line costs at most the exact value.
        # The median of the means is robust against a single distant distribution.
        centre = np.median(self._means, axis=0)
        z = self._z - centre
        means, reach = self._means_of(z), np.maximum.reduceat(np.abs(z).max(axis=1), self._bounds[:-1])
        bounds = self._cost.norm(means[rows] - means[cols])  # by Jensen's inequality, for the mean step of any plan
        unit = z / (reach.max() or 1.0)
        _, axes = np.linalg.eigh(unit.T @ unit)
        z = z @ axes[:, ::-1][:, :_LINES]
        pairs = np.arange(rows.size)
        for axis in range(z.shape[1]):
            transport = pair_transport(self._masses, rows, cols, 1, threads=self._threads, cost=self._cost)
            transport.move_all(np.ascontiguousarray(z[:, axis : axis + 1]))
            values = transport.solve(pairs)
            np.maximum(bounds, np.sqrt(values) if self._cost is Cost.SQUARED else values, out=bounds)
        # Rounding errors of the points change a distance (for squared costs, its root) by at most their size.
        terms = 64 + int(np.diff(self._bounds).max()) + z.shape[1]
        moved = terms * np.finfo(float).eps * (reach[rows] + reach[cols] + np.abs(centre).max())
        bound = np.maximum(bounds * (1.0 - 1e-12) - moved - _UNDERFLOW, 0.0)
        return bound**2 if self._cost is Cost.SQUARED else bound

    def by_potentials(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return bounds from feasible potentials, which are tight for distant points in many dimensions.

        Both start as a linear function along the difference of the means; then v becomes the largest feasible potential
        for u, and u the largest for v.
        """
        values = np.empty(rows.size)
        rows, cols = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(cols, np.int64)
        sizes, points = np.diff(self._bounds), (self._z, self._bounds, self._weights, self._means, int(self._cost))
        work = (sizes[rows] * sizes[cols]).astype(np.float64)
        batches = in_batches(work, self._threads.n_jobs, _BATCH)
        self._threads.map(lambda selected: _core.bound_pairs(selected, rows, cols, *points, values), batches)
        return values

    def sharpen(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return bounds from potentials, which take about a tenth of the time of a solve."""
        if self._z.shape[1] == 1:  # `by_lines` is exact on a line
            return np.zeros(rows.size)
        n = len(self._masses)
        pairs, inverse = np.unique(np.minimum(rows, cols) * n + np.maximum(rows, cols), return_inverse=True)
        return self.by_potentials(*np.divmod(pairs, n))[inverse]

    def solve(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        first, second = np.minimum(rows, cols), np.maximum(rows, cols)
        new = np.unique(np.stack([first, second])[:, np.isnan(self._distances[first, second])], axis=1)
        if new.size:
            options = {**self._options, "dense_limit": pairs_module.DENSE_LIMIT}
            transport = pair_transport(self._masses, new[0], new[1], self._z.shape[1], **options)
            transport.move_all(self._z)
            self._distances[new[0], new[1]] = transport.solve(np.arange(new.shape[1]))
            self.solves += new.shape[1]
            self.stopped_pivoting += int(np.sum(~transport.answers.optimal))
        return self._distances[first, second]


def pruned_distances(
    masses: Masses, z: np.ndarray, n_rows: int, n_neighbors: int, **options: Any
) -> tuple[np.ndarray, int, int]:
    """Return distances from the first `n_rows` distributions to the remaining ones, infinite for excluded pairs.

    Without remaining ones, the candidates are the same distributions. Also returns the number of solves, and the number
    of solves that stopped at the pivot limit.
    """
    finder = Finder(masses, z, **options)
    shift = n_rows if len(masses) > n_rows else 0
    shape = n_rows, len(masses) - shift
    rows, cols = (grid.ravel() for grid in np.indices(shape))
    lower = finder.by_lines(rows, cols + shift).reshape(shape)
    if not shift:
        np.fill_diagonal(lower, np.inf)
    exact = nearest(
        lower,
        n_neighbors,
        lambda rows, cols: finder.solve(rows, cols + shift),
        lambda rows, cols: finder.sharpen(rows, cols + shift),
    )
    return exact, finder.solves, finder.stopped_pivoting
