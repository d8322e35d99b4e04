"""Exact transport between many pairs of distributions with moving points, for learning and distance matrices."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np

from .._internal.parallel import Threads, in_batches
from ..metrics.base import Cost
from . import _core
from .large import solve_large_pair
from .problem import (
    Bases,
    Masses,
    Pairs,
    Points,
    balancing_factors,
    is_tall,
    no_answers,
    rounded_masses,
    smallest_masses,
)

# Entries of cost matrices (about 5 ms of work) or points on a line per task of a thread.
_BATCH = 2e6
_LINE_BATCH = 1e6
# Pairs with more entries (100 MB of rough costs) are solved without a cost matrix if only values are needed.
DENSE_LIMIT = 25e6
# If plans are needed, pairs with more entries (1.6 GB per thread) raise an error.
_MOST = 4e8
# A pivot may shift most potentials: a pair of 100,000 and 60 points takes a minute at every step of learning.
_MOST_POINTS = 60_000
# Coefficients of `follow_plans` for values without a gradient.
_NO_COEFFICIENTS = np.empty(0)


class PairTransport:
    """Exact transport values, and their gradients, for a fixed list of pairs of distributions.

    Set the projected points with `move`, then call `solve`. Every pair starts warm from the basis of its last solve, so
    solves after small moves are fast. `upper` and `lower` bound the current values without a solve. Results do not
    depend on the number of threads: a pair is solved by one thread, and sums over pairs are taken in order.

    Stored bases take at most `memory` bytes; pairs beyond that start cold every time. Pairs with a cost matrix above
    `dense_limit` entries are solved without a matrix: `solve` returns their values, but `pull` and `upper` are not
    available.
    """

    def __init__(
        self,
        masses: Masses,
        first: np.ndarray,
        second: np.ndarray,
        n_components: int,
        *,
        cost: Cost = Cost.EUCLIDEAN,
        threads: Threads,
        memory: float = 2e9,
        max_pivots: int | None = None,
        dense_limit: float = np.inf,
    ) -> None:
        self.first, self.second = _short_side_first(masses, np.asarray(first, np.int64), np.asarray(second, np.int64))
        self._threads = threads
        self._max_pivots = -1 if max_pivots is None else int(max_pivots)
        self._points, self._pairs = _at_origin(masses, self.first, self.second, n_components, cost)
        self._cost = cost
        self._allocate_bases(memory)
        n_pairs, n_distributions = self.first.size, len(masses)
        self.answers = no_answers(n_pairs)
        # Sum of the movements of each distribution until now, and of both distributions at the last solve of each pair.
        self._travel = np.zeros(n_distributions)
        self._means = np.zeros((n_distributions, n_components))
        self._travel_at_solve = np.full(n_pairs, np.inf)
        self._local = threading.local()
        self._large = self._work > dense_limit
        self._check_memory()
        if np.isinf(dense_limit):  # learning, which solves every pair repeatedly
            self._check_points()

    def _allocate_bases(self, memory: float) -> None:
        """Allocate the bases: those of the first pairs are stored, the others are overwritten after a move."""
        sizes = np.diff(self._points.bounds)
        self._nodes = sizes[self.first] + sizes[self.second] + 1
        ends = np.cumsum(self._nodes)
        bytes_per_node = 4 + 8 + 8
        self._stored = ends * bytes_per_node <= memory
        self._stored_nodes = int(ends[self._stored][-1]) if self._stored.any() else 0
        self._used_nodes, self._moved = self._stored_nodes, False
        offset = np.where(self._stored, ends - self._nodes, -1)
        self._bases = Bases(offset, *_node_arrays(self._stored_nodes), np.zeros(self.first.size, bool))
        self._work = (sizes[self.first] * sizes[self.second]).astype(np.float64)

    def _check_memory(self) -> None:
        """Raise before any work if a pair needs more than `_MOST` costs."""
        sizes = np.diff(self._points.bounds)
        work = np.where(self._large, 0.0, self._work)
        if not np.max(work, initial=0.0) > _MOST:
            return
        pair = int(np.argmax(work))
        n, m = (int(sizes[side[pair]]) for side in (self.first, self.second))
        raise ValueError(
            f"distributions {self.first[pair]} and {self.second[pair]} have {n:,} and {m:,} points: a matrix of "
            f"{n * m:.1e} costs is needed to learn from them, and the limit is {_MOST:.0e}; subsample the "
            "points, for example `D.subsample(1000)`"
        )

    def _check_points(self) -> None:
        """Raise if a distribution has more than `_MOST_POINTS` points, because a solve would take a minute."""
        sizes, used = np.diff(self._points.bounds), np.union1d(self.first, self.second)
        if np.max(sizes[used], initial=0) > _MOST_POINTS:
            largest = used[np.argmax(sizes[used])]
            raise ValueError(
                f"distribution {largest} has {sizes[largest]:,} points, and learning takes up to {_MOST_POINTS:,}; "
                "subsample the points, for example `D.subsample(1000)`"
            )

    def move(self, distribution: int, z: np.ndarray) -> None:
        """Set new coordinates of the points of one distribution, of shape (its size, n_components)."""
        z = np.require(z, np.float64, ["C", "A"])
        self._moved = True
        self._travel[distribution] += _core.move_points(distribution, z, self._points, self._means)

    def move_all(self, z: np.ndarray) -> None:
        """Set new coordinates of all points, of shape (n_points, n_components)."""
        for d, (low, high) in enumerate(pairwise(self._points.bounds)):
            self.move(d, z[low:high])

    def upper(self, selected: np.ndarray) -> np.ndarray:
        """Return upper bounds of the current values: costs of the last plans at the current points."""
        return self._follow_plans(selected, _NO_COEFFICIENTS, self._points.z)

    def lower(self, selected: np.ndarray) -> np.ndarray:
        """Return lower bounds of the current values: distances of means, or last values minus the movements since.

        Squared costs violate the triangle inequality, but roots of their values obey it: bound the roots, then square.
        """
        d, e = self.first[selected], self.second[selected]
        between_means = self._cost.norm(self._means[d] - self._means[e])
        travelled = self._travel[d] + self._travel[e] - self._travel_at_solve[selected]
        values = self.answers.value[selected]
        last = np.sqrt(values) if self._cost is Cost.SQUARED else values
        solved = self._bases.warm[selected] & self.answers.optimal[selected]
        bound = np.maximum(between_means, np.where(solved, last - travelled, 0.0))
        return bound**2 if self._cost is Cost.SQUARED else bound

    def solve(self, selected: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        """Return exact values of the selected pairs; infinite if the value is proved to be at least `enough`.

        The proof uses the potentials of the last solve, or those after every third round of pivots.
        """
        selected = np.ascontiguousarray(selected, np.int64)
        large = self._large[selected]
        self._threads.map(self._solve_large, selected[large])
        enough = np.full(selected.size, np.inf) if enough is None else enough
        self._solve_dense(selected[~large], enough[~large])
        self._travel_at_solve[selected] = self._travel[self.first[selected]] + self._travel[self.second[selected]]
        return np.where(self.answers.bound[selected], np.inf, self.answers.value[selected])

    def _solve_dense(self, selected: np.ndarray, enough: np.ndarray) -> None:
        if not selected.size:
            return
        self._allocate_unstored(selected)
        batches = in_batches(self._work[selected], self._threads.n_jobs, _BATCH)
        self._threads.map(self._solve_batch, [(selected[batch], enough[batch]) for batch in batches])

    def _solve_large(self, pair: int) -> None:
        limit = None if self._max_pivots < 0 else self._max_pivots
        solve_large_pair(pair, self.first[pair], self.second[pair], self._points, limit, self.answers)

    def pull(self, selected: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        """Return the gradient of ``coefficient @ solve(selected)`` for every point, of shape (n_points, n_components).

        The pairs must have been solved after the last move.
        """
        pull = np.zeros_like(self._points.z)
        self._follow_plans(selected, coefficient, pull)
        return pull

    def _follow_plans(self, selected: np.ndarray, coefficient: np.ndarray, pull: np.ndarray) -> np.ndarray:
        values = np.empty(selected.size)
        selected, coefficient = np.ascontiguousarray(selected, np.int64), np.ascontiguousarray(coefficient, np.float64)
        _core.follow_plans(selected, coefficient, self._points, self._pairs, self._bases, values, pull)
        return values

    def state(self) -> dict[str, np.ndarray]:
        """Return points, movements, results and bases, for `restore` on a transport of the same pairs."""
        warm = np.flatnonzero(self._bases.warm)
        nodes = self._nodes_of(warm)
        moved = {"travel": self._travel, "means": self._means, "travel_at_solve": self._travel_at_solve}
        bases = {"parent": self._bases.parent[nodes], "potential": self._bases.potential[nodes]}
        return {"z": self._points.z, "warm": warm, **moved, **self.answers._asdict(), **bases}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        moved = {"travel": self._travel, "means": self._means, "travel_at_solve": self._travel_at_solve}
        arrays = {"z": self._points.z, **moved, **self.answers._asdict()}
        for name, array in arrays.items():
            array[...] = state[name]
        warm = state["warm"]
        self._allocate_unstored(warm)
        nodes = self._nodes_of(warm)
        self._bases.parent[nodes], self._bases.potential[nodes] = state["parent"], state["potential"]
        _core.fill_flows(warm, self._points, self._pairs, self._bases)

    def _nodes_of(self, selected: np.ndarray) -> np.ndarray:
        """Return the positions of the nodes of the selected pairs, concatenated."""
        starts = zip(self._bases.offset[selected], self._nodes[selected], strict=True)
        return np.concatenate([np.empty(0, np.int64), *(np.arange(start, start + count) for start, count in starts)])

    def discard_bases(self) -> None:
        """Discard bases that are not stored; the next solve uses their memory for its pairs."""
        self._moved = True

    def _allocate_unstored(self, selected: np.ndarray) -> None:
        """Allocate the bases of pairs that are not stored, until points move or `discard_bases` is called."""
        if self._moved:
            self._bases.warm[~self._stored] = False
            self._used_nodes, self._moved = self._stored_nodes, False
        unstored = selected[~self._stored[selected] & ~self._bases.warm[selected]]
        if not unstored.size:
            return
        ends = self._used_nodes + np.cumsum(self._nodes[unstored])
        self._bases.offset[unstored] = ends - self._nodes[unstored]
        if ends[-1] > self._bases.parent.size:
            longer = _node_arrays(int(ends[-1]))
            for new, old in zip(longer, self._bases[1:4], strict=True):
                new[: self._used_nodes] = old[: self._used_nodes]
            self._bases = self._bases._replace(parent=longer[0], flow=longer[1], potential=longer[2])
        self._used_nodes = int(ends[-1])

    def _solve_batch(self, batch: tuple[np.ndarray, np.ndarray]) -> None:
        selected, enough = batch
        _core.solve_pairs(
            self._workspace(), selected, enough, self._points, self._pairs, self._bases, self._max_pivots, self.answers
        )

    def _workspace(self) -> _core.Workspace:
        """Return this thread's scratch buffers: allocating them for every pair would cost as much as filling them."""
        if not hasattr(self._local, "workspace"):
            self._local.workspace = _core.Workspace()
        return self._local.workspace


class LineTransport(PairTransport):
    """`PairTransport` for one component: pairs are solved by sorting, without bases and bounds."""

    def _allocate_bases(self, memory: float) -> None:
        super()._allocate_bases(0.0)

    def _check_memory(self) -> None:
        """Sorting needs no matrix of costs."""

    def _check_points(self) -> None:
        """Sorting is fast for any number of points."""

    def solve(self, selected: np.ndarray, enough: np.ndarray | None = None) -> np.ndarray:
        self._sort()
        selected = np.ascontiguousarray(selected, np.int64)
        batches = in_batches(self._nodes[selected].astype(np.float64), self._threads.n_jobs, _LINE_BATCH)
        self._threads.map(self._solve_lines, [selected[batch] for batch in batches])
        return self.answers.value[selected]

    def _solve_lines(self, selected: np.ndarray) -> None:
        values = self._follow_lines(selected, _NO_COEFFICIENTS, self._sorted.z)
        self.answers.value[selected], self.answers.optimal[selected] = values, ~np.isnan(values)

    def pull(self, selected: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
        in_order, pull = np.zeros_like(self._sorted.z), np.empty_like(self._sorted.z)
        self._follow_lines(np.ascontiguousarray(selected, np.int64), coefficient, in_order)
        pull[self._order] = in_order
        return pull

    def _follow_lines(self, selected: np.ndarray, coefficient: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        values = np.empty(selected.size)
        coefficient = np.ascontiguousarray(coefficient, np.float64)
        _core.follow_lines(selected, coefficient, self._sorted, self._pairs, values, gradient)
        return values

    def _sort(self) -> None:
        points = self._points
        owner = np.repeat(np.arange(points.bounds.size - 1), np.diff(points.bounds))
        self._order = np.lexsort((points.z[:, 0], owner))
        rounded = points.rounded[self._order] if points.rounded.size else points.rounded
        self._sorted = points._replace(z=points.z[self._order], units=points.units[self._order], rounded=rounded)


def pair_transport(
    masses: Masses, first: np.ndarray, second: np.ndarray, n_components: int, **options: Any
) -> PairTransport:
    """Return the transport for points of `n_components` components; one component is solved by sorting."""
    kind = LineTransport if n_components == 1 else PairTransport
    return kind(masses, first, second, n_components, **options)


def _short_side_first(masses: Masses, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs with the sides of tall pairs (see `is_tall`) exchanged, which is faster to solve."""
    sizes = np.diff(masses.bounds)
    turn = is_tall(sizes[first], sizes[second])
    return np.where(turn, second, first), np.where(turn, first, second)


def _at_origin(
    masses: Masses, first: np.ndarray, second: np.ndarray, n_components: int, cost: Cost
) -> tuple[Points, Pairs]:
    """Return points at the origin, and pairs with the factors that make their masses balance."""
    units = [smallest_masses(masses.weights[low:high]) for low, high in pairwise(masses.bounds)]
    totals = np.array([integers.sum() for integers in units], np.int64)
    times = balancing_factors(totals[first], totals[second])
    rounded = [rounded_masses(integers) for integers in units] if np.any(times[0] == 0) else [np.empty(0, np.int64)]
    masses_of_all = np.concatenate(units), np.concatenate(rounded)
    z = np.zeros((masses_of_all[0].size, n_components))
    points = Points(z, masses.bounds, *masses_of_all, masses.weights, masses.uniform, int(cost))
    return points, Pairs(first, second, *times)


def _node_arrays(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size)


# With more components, BLAS is as fast.
_FEW = 8


def project(points: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Multiply dense points (n, n_features), of float32 or float64, by components; returns (n, n_components).

    BLAS is optimised for square matrices: for five components, it takes more than twice the time of reading the points.
    """
    if (
        components.shape[0] > _FEW
        or not (points.flags.c_contiguous and points.flags.aligned)
        or points.dtype.char not in "fd"
    ):
        # A wide product from the left is faster than a narrow one from the right, by half.
        return np.ascontiguousarray((components @ points.astype(np.float64, copy=False).T).T)
    z = np.empty((points.shape[0], components.shape[0]))
    _core.project(points, np.ascontiguousarray(components, np.float64), z)
    return z
