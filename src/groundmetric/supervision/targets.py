"""Targets: what labels ask for. Every kind of label is a distance between labels.

A triplet (i, j, k) holds where the label of k is farther from that of the anchor j than the label of i is, by more than
a gap. `triplets` draws them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Pool:
    """Distributions to draw from: the members, in order, without the one at the place `hole` (-1: all).

    An anchor is not its own neighbour. To copy its class without it for each would take the square of the time.

    >>> pool = Pool(np.array([2, 5, 7]), hole=1)
    >>> len(pool), pool.all().tolist(), pool.at(np.array([1])).tolist()
    (2, [2, 7], [7])
    """

    members: np.ndarray
    hole: int = -1

    @classmethod
    def without(cls, members: np.ndarray, anchor: int) -> Pool:
        place = int(np.searchsorted(members, anchor))
        return cls(members, place if place < members.size and members[place] == anchor else -1)

    def __len__(self) -> int:
        return self.members.size - (self.hole >= 0)

    def all(self) -> np.ndarray:
        return self.members if self.hole < 0 else np.delete(self.members, self.hole)

    def at(self, places: np.ndarray) -> np.ndarray:
        return self.members[places if self.hole < 0 else places + (places >= self.hole)]

    def among(self, some: np.ndarray) -> np.ndarray:
        """Those of some distributions that are in the pool."""
        if not self.members.size:
            return some[:0]
        places = np.minimum(np.searchsorted(self.members, some), self.members.size - 1)
        return some[(self.members[places] == some) & (places != self.hole)]


# Neighbours are drawn from every level of a label, so that rare values are seen. More values than so many are cut into
# as many levels, at quantiles.
MOST_LEVELS = 5
# A gap that is not given, in standard deviations of the label.
GAP = 0.25
# Differences of labels that rounding alone may have made, relative to the largest.
_ROUNDING = 1e-9

Pools = Callable[[int], list[Pool]]


class Target:
    """A label of n distributions as distances between labels, from which triplets are formed.

    Attributes
    ----------
    gap : float
        Difference that two label distances must exceed to form a triplet.
    labelled : array of bool of shape (n,)
        Distributions that have the label.
    levels : array of int of shape (n,)
        Level of each distribution: equal or similar labels have the same level; -1 without a label.
    few_levels : bool
        Whether all labels of a level are equal.
    counts_all : bool
        True: a drawn triplet counts for all those of its levels, times the difference of its label distances, so that
        the loss estimates that of all triplets. False: each counts as one, so that neighbours from small classes count
        as much as those from large ones.
    balanced : bool
        Whether each level of anchors makes up the same share of the loss, however many distributions it has.
    """

    gap: float
    labelled: Any
    levels: Any
    few_levels: Any = False
    counts_all = True
    balanced: bool = False

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        """Label distances of others from an anchor."""
        raise NotImplementedError

    def cases(self, anchor: int, near: np.ndarray, far: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Label distances from an anchor to nearer and to farther ones, for each case of what its label may be.

        A triplet holds where it does in every case. Labels that are known have one.
        """
        return [(self.apart(anchor, near), self.apart(anchor, far))]

    def pools(self, free: np.ndarray) -> Pools:
        """For an anchor, those of the free distributions (a mask) to draw from, by level, the nearest level first."""
        return _pools_by_level(self.levels, free)

    @property
    def n_levels(self) -> int:
        """Pools that an anchor has."""
        return np.unique(self.levels[self.levels >= 0]).size

    def response(self) -> np.ndarray:
        """Numbers of shape (n, q), on which the means of distributions can be regressed: which level, or values."""
        return _indicators(self.levels)

    def at(self, places: np.ndarray) -> Target:
        """The label of some of the distributions."""
        raise NotImplementedError


@dataclass(frozen=True)
class ClassTarget(Target):
    """Distributions of one class should be nearer to each other than to those of any other class."""

    levels: np.ndarray  # classes as numbers; -1 where there is no label
    balanced: bool = False
    gap: float = 0.0
    few_levels = True
    counts_all = False

    @property
    def labelled(self) -> np.ndarray:
        return self.levels >= 0

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return (self.levels[others] != self.levels[anchor]).astype(np.float64)

    def at(self, places: np.ndarray) -> ClassTarget:
        return ClassTarget(self.levels[places], self.balanced)


@dataclass(frozen=True)
class OrderedTarget(Target):
    """The farther apart two values are, the farther apart should their distributions be."""

    values: np.ndarray  # NaN where there is no label
    gap: float

    @classmethod
    def of(cls, values: np.ndarray, gap: float | None = None) -> OrderedTarget:
        """Without a gap, a quarter of the standard deviation of the values."""
        return cls(values, GAP * _deviation(values) if gap is None else gap)

    @property
    def labelled(self) -> np.ndarray:
        return ~np.isnan(self.values)

    @cached_property
    def levels(self) -> np.ndarray:
        return cut(self.values)

    @property
    def few_levels(self) -> bool:
        return np.unique(self.values[self.labelled]).size <= MOST_LEVELS

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return np.abs(self.values[others] - self.values[anchor])

    def response(self) -> np.ndarray:
        return _indicators(self.levels) if self.few_levels else (self.values / _deviation(self.values))[:, None]

    def at(self, places: np.ndarray) -> OrderedTarget:
        return OrderedTarget(self.values[places], self.gap)


@dataclass(frozen=True)
class DistanceTarget(Target):
    """The larger the target distance of two distributions (the paper's W*), the farther apart should they be."""

    matrix: np.ndarray  # symmetric; NaN where a distance is not known
    gap: float

    @classmethod
    def of(cls, matrix: np.ndarray, gap: float | None = None) -> DistanceTarget:
        """Without a gap, a quarter of the standard deviation of the distances."""
        others = matrix[~np.eye(len(matrix), dtype=bool)]
        return cls(matrix, GAP * _deviation(others) if gap is None else gap)

    @cached_property
    def labelled(self) -> np.ndarray:
        """Those of which the distance to any other is known."""
        known = ~np.isnan(self.matrix)
        np.fill_diagonal(known, False)
        return known.any(axis=1)

    @property
    def levels(self) -> np.ndarray:
        return np.where(self.labelled, 0, -1)

    @property
    def n_levels(self) -> int:
        return MOST_LEVELS

    def apart(self, anchor: int, others: np.ndarray) -> np.ndarray:
        return self.matrix[anchor, others]

    def pools(self, free: np.ndarray) -> Pools:
        def by_distance(anchor: int) -> list[Pool]:
            others = free.copy()
            others[anchor] = False
            levels = cut(np.where(others, self.matrix[anchor], np.nan))
            return [Pool(np.flatnonzero(levels == level)) for level in range(max(levels.max(), 0) + 1)]

        return by_distance

    def response(self) -> np.ndarray:
        """Coordinates whose distances are near to the targets (classical scaling), the widest first."""
        squares = self.matrix**2
        np.fill_diagonal(squares, 0.0)
        squares = np.where(np.isnan(squares), np.nanmean(squares), squares)
        centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
        strength, axes = np.linalg.eigh(-0.5 * centred)
        widest = np.argsort(-strength)[:MOST_LEVELS]
        widest = widest[strength[widest] > strength.max() * 1e-8]
        return axes[:, widest] * np.sqrt(strength[widest])

    def at(self, places: np.ndarray) -> DistanceTarget:
        return DistanceTarget(self.matrix[np.ix_(places, places)], self.gap)


def holds(nearer: np.ndarray, farther: np.ndarray, gap: float) -> np.ndarray:
    """Which label distances `farther` exceed which of `nearer` by more than the gap, (nearer, farther).

    >>> holds(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).tolist()
    [[True, True], [False, True]]
    """
    largest = np.nanmax(np.concatenate([nearer, farther, [0.0]]))
    return farther[None, :] - nearer[:, None] > gap + _ROUNDING * largest


def _indicators(levels: np.ndarray) -> np.ndarray:
    """A column of 0 and 1 for each level."""
    return (levels[:, None] == np.unique(levels[levels >= 0])).astype(np.float64)


def _pools_by_level(levels: np.ndarray, free: np.ndarray) -> Pools:
    members = {level: np.flatnonzero((levels == level) & free) for level in np.unique(levels[levels >= 0])}

    def own_level_first(anchor: int) -> list[Pool]:
        own = levels[anchor]
        return [Pool.without(members[own], anchor), *(Pool(members[level]) for level in members if level != own)]

    return own_level_first


def cut(values: np.ndarray) -> np.ndarray:
    """Levels of values: each distinct one, or fifths where there are many; -1 for NaN.

    >>> cut(np.array([7.0, 3.0, np.nan, 7.0])).tolist()
    [1, 0, -1, 1]
    """
    levels, known = np.full(values.size, -1), ~np.isnan(values)
    distinct, places = np.unique(values[known], return_inverse=True)
    if distinct.size > MOST_LEVELS:
        edges = np.unique(np.quantile(values[known], np.arange(1, MOST_LEVELS) / MOST_LEVELS))
        places = np.unique(np.searchsorted(edges, values[known], side="right"), return_inverse=True)[1]
    levels[known] = places
    return levels


def binary_unit(values: np.ndarray) -> float:
    """Return the power of two in whose units the largest absolute value is in [1, 2); 1 if all are 0 or missing.

    Squares of values in this unit do not overflow, and scaling by a power of two is exact.

    >>> binary_unit(np.array([3.0, -20.0])), binary_unit(np.array([1e300])) > 5e299
    (16.0, True)
    """
    largest = float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1] - 1)) if largest > 0 else 1.0


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation of the values that are not missing."""
    unit = binary_unit(values)
    return unit * float(np.nanstd(values / unit))
