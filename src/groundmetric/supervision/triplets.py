"""What labels ask for, and triplets of distributions: random or nearest neighbours of every level, across strata.

Every kind of label is a distance between labels. A triplet (i, j, k) holds where the label of k is farther from that of
the anchor j than the label of i is, by more than a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        return cls(values, GAP * float(np.nanstd(values)) if gap is None else gap)

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
        return _indicators(self.levels) if self.few_levels else (self.values / np.nanstd(self.values))[:, None]

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
        return cls(matrix, GAP * float(np.nanstd(others)) if gap is None else gap)

    @cached_property
    def labelled(self) -> np.ndarray:
        """Those of which the distance to any other is known."""
        known = ~np.isnan(self.matrix)
        np.fill_diagonal(known, False)
        return known.any(axis=1)

    @property
    def levels(self) -> np.ndarray:
        return np.where(self.labelled, 0, -1)

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


@dataclass(frozen=True)
class Triplets:
    """Triplets of distributions, and the unordered pairs behind them.

    Each pair is listed once, however many triplets share it, because its distance has to be found only once.

    Attributes
    ----------
    i, j, k : array of shape (n_triplets,)
        Distribution of the anchor's class (or nearer to it), the anchor, and one farther away.
    first, second : array of shape (n_pairs,)
        Distinct pairs of distributions, first < second.
    near, far : array of shape (n_triplets,)
        Positions of the pairs (i, j) and (j, k) among the distinct pairs.
    weight : array of shape (n_triplets,) or None
        Weights in the loss, of mean 1. None: all count the same.
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    first: np.ndarray
    second: np.ndarray
    near: np.ndarray
    far: np.ndarray
    weight: np.ndarray | None = None

    @classmethod
    def from_indices(
        cls, i: np.ndarray, j: np.ndarray, k: np.ndarray, n: int, weight: np.ndarray | None = None
    ) -> Triplets:
        """Triplets of n distributions, with their pairs worked out."""
        low = np.concatenate([np.minimum(i, j), np.minimum(j, k)])
        high = np.concatenate([np.maximum(i, j), np.maximum(j, k)])
        keys, places = np.unique(low * np.int64(n) + high, return_inverse=True)
        return cls(i, j, k, keys // n, keys % n, places[: i.size], places[i.size :], weight)

    @classmethod
    def joined(cls, parts: list[Triplets], shares: np.ndarray, n: int) -> Triplets:
        """Triplets of several labels at once. Each label makes up its share of the loss, however many it has."""
        i, j, k = (np.concatenate([getattr(part, name) for part in parts]) for name in "ijk")
        weight = np.concatenate(
            [part.weights * share / max(len(part), 1) for part, share in zip(parts, shares, strict=True)]
        )
        return cls.from_indices(i, j, k, n, weight * (i.size / weight.sum()))

    @property
    def weights(self) -> np.ndarray:
        """The weight of each, in any case."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def __len__(self) -> int:
        return self.i.size


# Pools of at most so many are shuffled whole, to take the first. From larger ones a few are drawn, as the time to
# shuffle a class for each of its members grows with the square of its size.
_SHUFFLED = 2000

Choose = Callable[[int, Pool], np.ndarray]


@dataclass(frozen=True)
class Candidates:
    """Whom an anchor's neighbours are chosen from, level by level; `near` and `far` are one list without strata."""

    anchor: int
    near: list[Pool]
    far: list[Pool]
    relaxed: bool = False  # whether the strata had to be ignored for want of others


@dataclass(frozen=True)
class Supervision:
    """Labels of n distributions, their shares of the loss, and strata.

    Attributes
    ----------
    targets : tuple of Target
        One for each label.
    shares : array of shape (n_labels,)
        Share of the loss of each label, up to a common factor.
    strata : array of shape (n,) or None
        Batches as numbers, where there are any.
    """

    targets: tuple[Target, ...]
    shares: np.ndarray
    strata: np.ndarray | None = None

    @classmethod
    def of(cls, target: Target | np.ndarray, strata: np.ndarray | None = None) -> Supervision:
        """One label; an array means classes."""
        return cls((ClassTarget(target) if isinstance(target, np.ndarray) else target,), np.ones(1), strata)

    def at(self, places: np.ndarray) -> Supervision:
        """What is known about some of the distributions."""
        strata = None if self.strata is None else self.strata[places]
        return Supervision(tuple(target.at(places) for target in self.targets), self.shares, strata)

    def triplets(self, choose: Choose, held_out: np.ndarray | None = None) -> Triplets:
        """Triplets of all labels."""
        parts = [_build(target, choose, held_out, self.strata) for target in self.targets]
        return parts[0] if len(parts) == 1 else Triplets.joined(parts, self.shares, self.targets[0].labelled.size)


def random_triplets(
    target: Target | np.ndarray | Supervision,
    n_neighbors: int,
    random: np.random.RandomState,
    *,
    held_out: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> Triplets:
    """For every anchor, `n_neighbors` (t) of every level of the label, in all combinations that hold.

    Of classes (an array of them may be given) that are t of its own × t of each other class, drawn without replacement.
    Distributions that are held out (a mask) are anchors, but nobody's neighbours.

    With strata (batches), the nearer ones are from other strata and the farther ones from the anchor's own, so that
    what sets the strata apart does not help; where an anchor has none such, they are from any.

    >>> len(random_triplets(np.array([0, 0, 1, 1]), 3, np.random.RandomState(0)))
    8
    """

    def choose(anchor: int, pool: Pool) -> np.ndarray:
        if len(pool) <= max(_SHUFFLED, 4 * n_neighbors):
            return random.permutation(pool.all())[:n_neighbors]
        return pool.at(_distinct(len(pool), n_neighbors, random))

    return _supervision(target, strata).triplets(choose, held_out)


def nearest_triplets(
    target: Target | np.ndarray | Supervision,
    n_neighbors: int,
    distances: np.ndarray,
    *,
    held_out: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> Triplets:
    """As `random_triplets`, with the t nearest of every level.

    `distances` is a matrix between the distributions; entries that need not be looked at may be infinite.
    """

    def choose(anchor: int, pool: Pool) -> np.ndarray:
        some = pool.all()
        return some[np.argsort(distances[anchor, some], kind="stable")[:n_neighbors]]

    return _supervision(target, strata).triplets(choose, held_out)


def _distinct(n: int, count: int, random: np.random.RandomState) -> np.ndarray:
    """Some of the numbers below n in random order, each at most once: drawn again until they differ.

    They are a quarter of n at most, so that few are drawn twice.
    """
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn.update(dict.fromkeys(random.randint(n, size=count - len(drawn)).tolist()))
    return np.array(list(drawn))


def _supervision(target: Any, strata: np.ndarray | None) -> Supervision:
    return target if isinstance(target, Supervision) else Supervision.of(target, strata)


def candidates(target: Target, held_out: np.ndarray | None, strata: np.ndarray | None) -> Iterator[Candidates]:
    """Whom every labelled distribution may have as neighbours."""
    free = target.labelled if held_out is None else target.labelled & ~held_out
    pools = target.pools(free)
    for anchor in np.flatnonzero(target.labelled).tolist():
        levels = pools(anchor)
        if strata is None:
            yield Candidates(anchor, levels, levels)
        else:
            yield _across(target, anchor, levels, strata == strata[anchor])


def _across(target: Target, anchor: int, pools: list[Pool], same: np.ndarray) -> Candidates:
    """Nearer ones from other strata, farther ones from the same; the one or the other from any if there is no triplet.

    A class that is not in the anchor's stratum is left out rather than taken from elsewhere, as long as another is.
    """
    levels = [pool.all() for pool in pools]
    others = np.concatenate(levels)
    here = same[others]
    for strict_near, strict_far in ((True, True), (True, False), (False, True)):
        near, far = others[~here | (not strict_near)], others[here | (not strict_far)]
        if near.size and far.size and _any_holds(target.cases(anchor, near, far), target.gap):
            return Candidates(
                anchor,
                [Pool(level[~same[level]] if strict_near else level) for level in levels],
                [Pool(level[same[level]] if strict_far else level) for level in levels],
                relaxed=not (strict_near and strict_far),
            )
    # Of a label that is not known for certain (censored early), there may be no triplet even without strata.
    cases = target.cases(anchor, others, others)
    return Candidates(anchor, pools, pools, relaxed=len(cases) == 1 or _any_holds(cases, target.gap))


def _any_holds(cases: list[tuple[np.ndarray, np.ndarray]], gap: float) -> bool:
    """Whether any triplet holds: of a single case, that of the nearest and the farthest."""
    if len(cases) == 1:
        nearer, farther = cases[0]
        cases = [(nearer.min(keepdims=True), farther.max(keepdims=True))]
    return bool(_all_hold(cases, gap).any())


def _all_hold(cases: list[tuple[np.ndarray, np.ndarray]], gap: float) -> np.ndarray:
    """Which triplets hold in every case, (nearer, farther)."""
    return np.logical_and.reduce([holds(nearer, farther, gap) for nearer, farther in cases])


def _build(target: Target, choose: Choose, held_out: np.ndarray | None, strata: np.ndarray | None) -> Triplets:
    """All combinations of an anchor's chosen neighbours that hold. A level smaller than t gives what it has."""
    nobody = np.empty(0, np.int64)
    parts, weights = [(nobody, nobody, nobody)], [np.empty(0)]
    for some in candidates(target, held_out, strata):
        near, near_for = _chosen(some.anchor, some.near, choose)
        far, far_for = (near, near_for) if some.far is some.near else _chosen(some.anchor, some.far, choose)
        cases = target.cases(some.anchor, near, far)
        i, k = np.nonzero(_all_hold(cases, target.gap))
        parts.append((near[i], np.full(i.size, some.anchor), far[k]))
        if target.counts_all:
            certain = np.min([farther[k] - nearer[i] for nearer, farther in cases], axis=0)
            weights.append(certain * near_for[i] * far_for[k])
    i, j, k = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    weight = np.concatenate(weights)
    if target.balanced:
        weight = _same_shares(target.levels[j])
    return Triplets.from_indices(i, j, k, target.labelled.size, weight / weight.mean() if weight.size else None)


def _same_shares(levels: np.ndarray) -> np.ndarray:
    """Weights with which the triplets of every class of anchors count as much; none where they do without."""
    _, places, counts = np.unique(levels, return_inverse=True, return_counts=True)
    return np.empty(0) if np.unique(counts).size < 2 else 1.0 / counts[places]


def _chosen(anchor: int, pools: list[Pool], choose: Choose) -> tuple[np.ndarray, np.ndarray]:
    """The chosen of all levels, and how many of its level each stands for."""
    chosen = [choose(anchor, pool) for pool in pools]
    stands_for = [np.full(some.size, len(pool) / max(some.size, 1)) for some, pool in zip(chosen, pools, strict=True)]
    return np.concatenate(chosen), np.concatenate(stands_for)
