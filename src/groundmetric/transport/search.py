"""Exact nearest neighbours among distributions, solving only the pairs that bounds cannot rule out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..parallel import Threads
from .masses import Masses
from .pairs import pair_transport


def nearest(lower: np.ndarray, n_neighbors: int, solve: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Distances of each query's nearest candidates, found with as few solves as the lower bounds allow.

    `lower` (n_queries, n_candidates) bounds the distances from below (infinite: not a candidate); ``solve(rows, cols)``
    gives exact ones. In every round each open query solves its most promising unsolved candidates; a query is closed
    when its n-th best exact distance is no larger than every bound left. Returns the matrix of exact distances,
    infinite where a pair did not need to be solved.

    >>> exact = np.array([[3.0, 1.0, 9.0]])
    >>> nearest(np.array([[2.0, 0.5, 8.0]]), 1, lambda rows, cols: exact[rows, cols]).tolist()
    [[inf, 1.0, inf]]
    """
    exact = np.full(lower.shape, np.inf)
    left = lower.astype(np.float64, copy=True)
    step = n_neighbors
    while True:
        ready = np.partition(exact, n_neighbors - 1, axis=1)[:, n_neighbors - 1]
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


class Finder:
    """Exact distances and their lower bounds between distributions that lie still; no pair is solved twice.

    Parameters
    ----------
    masses : Masses of n distributions
    z : array (n_points, n_components), their points
    """

    # Lines that the points are projected to for bounds; further ones carry too little of the spread to pay.
    _LINES = 5

    def __init__(self, masses: Masses, z: np.ndarray, threads: Threads, max_pivots: int | None = None) -> None:
        self._masses, self._z, self._threads, self._max_pivots = masses, z, threads, max_pivots
        n = len(masses)
        self._known = np.full((n, n), np.nan)
        self.stopped_pivoting = 0
        self.solves = 0

    def lower(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Bounds from the distance between means and from transport along the principal axes of the points."""
        z = self._z - self._z.mean(axis=0)
        _, axes = np.linalg.eigh(z.T @ z)
        z = z @ axes[:, ::-1][:, : self._LINES]
        bound = np.zeros(rows.size)
        pairs = np.arange(rows.size)
        for axis in range(z.shape[1]):
            line = pair_transport(self._masses, rows, cols, 1, threads=self._threads)
            line.move_all(np.ascontiguousarray(z[:, axis : axis + 1]))
            np.maximum(bound, line.solve(pairs), out=bound)
        weighted = self._masses.weights[:, None] * self._z
        means = np.add.reduceat(weighted, self._masses.bounds[:-1], axis=0)
        apart = np.linalg.norm(means[rows] - means[cols], axis=1)
        # A bound that rounding has lifted above the exact value would rule out a true neighbour.
        rounding = 64 * np.finfo(float).eps * np.abs(z).max(initial=0.0)
        return np.maximum(np.maximum(bound, apart) * (1.0 - 1e-12) - rounding, 0.0)

    def solve(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Exact distances."""
        first, second = np.minimum(rows, cols), np.maximum(rows, cols)
        new = np.unique(np.stack([first, second])[:, np.isnan(self._known[first, second])], axis=1)
        if new.size:
            k = self._z.shape[1]
            options = {"threads": self._threads, "memory": 0.0, "max_pivots": self._max_pivots}
            transport = pair_transport(self._masses, new[0], new[1], k, **options)
            transport.move_all(self._z)
            self._known[new[0], new[1]] = transport.solve(np.arange(new.shape[1]))
            self.solves += new.shape[1]
            self.stopped_pivoting += int(np.sum(~transport.answers.optimal))
        return self._known[first, second]


def nearest_in_classes(
    masses: Masses, z: np.ndarray, labels: np.ndarray, held_out: np.ndarray, n_neighbors: int, threads: Threads
) -> np.ndarray:
    """Distances of every distribution to its nearest others in each class, infinite where they were not needed.

    Distributions that are held out are not looked for.
    """
    finder = Finder(masses, z, threads)
    n = labels.size
    rows, cols = np.triu_indices(n, 1)
    lower = np.full((n, n), np.inf)
    lower[rows, cols] = lower[cols, rows] = finder.lower(rows, cols)
    distances = np.full((n, n), np.inf)
    for c in np.unique(labels):
        members = np.flatnonzero((labels == c) & ~held_out)
        solve = partial(_solve_among, finder, members)
        distances[:, members] = nearest(lower[:, members], min(n_neighbors, members.size), solve)
    return distances


def _solve_among(finder: Finder, members: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    return finder.solve(rows, members[cols])
