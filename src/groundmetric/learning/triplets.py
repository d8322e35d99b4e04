"""Triplets of distributions: random neighbours, shared by anchors of a mini-batch, or nearest ones; across strata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from .labels import Pool, Supervision, Target, holds


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
    batch : array of shape (n_triplets,) or None
        Mini-batch of each, where the triplets of a mini-batch were drawn to share distributions and pairs.
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    first: np.ndarray
    second: np.ndarray
    near: np.ndarray
    far: np.ndarray
    weight: np.ndarray | None = None
    batch: np.ndarray | None = None

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
        joined = cls.from_indices(i, j, k, n, weight * (i.size / weight.sum()))
        batches = [part.batch for part in parts if part.batch is not None]
        if not batches:
            return joined
        starts = np.cumsum([0, *(np.max(batch, initial=-1) + 1 for batch in batches)])
        return replace(joined, batch=np.concatenate([b + start for b, start in zip(batches, starts, strict=False)]))

    @property
    def weights(self) -> np.ndarray:
        """The weight of each, in any case."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def __len__(self) -> int:
        return self.i.size


Choose = Callable[[int, Pool], np.ndarray]


@dataclass(frozen=True)
class Candidates:
    """Whom an anchor's neighbours are chosen from, level by level; `near` and `far` are one list without strata."""

    anchor: int
    near: list[Pool]
    far: list[Pool]
    relaxed: bool = False  # whether the strata had to be ignored for want of others


def random_triplets(
    target: Target | np.ndarray | Supervision,
    n_neighbors: int,
    random: np.random.RandomState,
    *,
    batch_size: int = 128,
    held_out: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> Triplets:
    """For every anchor, `n_neighbors` (t) of every level of the label, in all combinations that hold.

    Of classes (an array of them may be given) that are t of its own × t of each other class, drawn without replacement.
    Distributions that are held out (a mask) are anchors, but nobody's neighbours.

    Anchors come in mini-batches of about `batch_size` triplets and are each other's neighbours, so that a mini-batch
    has few distributions and few pairs, however many there are in all.

    With strata (batches), the nearer ones are from other strata and the farther ones from the anchor's own, so that
    what sets the strata apart does not help; where an anchor has none such, they are from any.

    >>> len(random_triplets(np.array([0, 0, 1, 1]), 3, np.random.RandomState(0)))
    8
    """
    known, parts = _supervision(target, strata), []
    for one in known.targets:
        anchors = max(1.0, batch_size / (n_neighbors**2 * max(one.n_levels - 1, 1)))
        batch = _batches(one, anchors, held_out, known.strata, random)
        part = _build(one, _SharedNeighbors(batch, n_neighbors, random), held_out, known.strata)
        parts.append(replace(part, batch=batch[part.j]))
    return _joined(known, parts)


def _joined(known: Supervision, parts: list[Triplets]) -> Triplets:
    """Triplets of all labels."""
    return parts[0] if len(parts) == 1 else Triplets.joined(parts, known.shares, known.targets[0].labelled.size)


def _batches(
    target: Target, size: float, held_out: np.ndarray | None, strata: np.ndarray | None, random: np.random.RandomState
) -> np.ndarray:
    """Mini-batch of every anchor, -1 without a label: alike in their levels and strata, and held-out anchors apart."""
    n = target.labelled.size
    held_out = np.zeros(n, bool) if held_out is None else held_out
    kind = target.levels if strata is None else target.levels * (strata.max() + 1) + strata
    batch, start = np.full(n, -1), 0
    for anchors in (np.flatnonzero(target.labelled & ~held_out), np.flatnonzero(target.labelled & held_out)):
        n_batches = int(np.ceil(anchors.size / size))
        for part in np.array_split(_interleaved(kind[anchors], random), max(n_batches, 1)):
            batch[anchors[part]] = start
            start += 1
    return batch


def _interleaved(kind: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """A random order in which every kind is spread evenly.

    >>> kind = np.array([0, 0, 0, 0, 1, 1])
    >>> kind[_interleaved(kind, np.random.RandomState(0))].tolist()
    [0, 1, 0, 0, 1, 0]
    """
    order = random.permutation(kind.size)
    _, number, count = np.unique(kind[order], return_inverse=True, return_counts=True)
    by_kind = np.argsort(number, kind="stable")
    rank = np.empty(kind.size)
    rank[by_kind] = np.arange(kind.size) - np.repeat(np.cumsum(count) - count, count)
    return order[np.argsort((rank + 0.5) / count[number], kind="stable")]


# Pools of at most so many are shuffled whole, to take the first. From larger ones a few are drawn, as the time to
# shuffle a class for each mini-batch grows with the square of its size.
_SHUFFLED = 2000


class _SharedNeighbors:
    """Random neighbours from the anchors of the mini-batch; where these are too few of a pool, others join it."""

    def __init__(self, batch: np.ndarray, n_neighbors: int, random: np.random.RandomState) -> None:
        self._batch, self._n_neighbors, self._random = batch, n_neighbors, random
        order = np.argsort(batch, kind="stable")
        ends = np.searchsorted(batch[order], np.arange(batch.max() + 2))
        self._anchors = [order[low:high] for low, high in pairwise(ends)]
        self._joined = [order[:0]] * len(self._anchors)

    def __call__(self, anchor: int, pool: Pool) -> np.ndarray:
        batch = self._batch[anchor]
        # Anchors first: they are paired with each other from both sides.
        chosen = [self._random.permutation(pool.among(some[batch])) for some in (self._anchors, self._joined)]
        missing = min(self._n_neighbors, len(pool)) - sum(some.size for some in chosen)
        if missing > 0:
            members = np.concatenate([self._anchors[batch], self._joined[batch]])
            chosen.append(self._draw(pool, members, missing))
            self._joined[batch] = np.concatenate([self._joined[batch], chosen[-1]])
        return np.concatenate(chosen)[: self._n_neighbors]

    def _draw(self, pool: Pool, members: np.ndarray, count: int) -> np.ndarray:
        """So many of a pool that are no members."""
        many = count + members.size
        if len(pool) <= max(_SHUFFLED, 4 * many):
            some = self._random.permutation(pool.all())
        else:
            some = pool.at(_distinct(len(pool), many, self._random))
        return some[~np.isin(some, members)][:count]


def _distinct(n: int, count: int, random: np.random.RandomState) -> np.ndarray:
    """Some of the numbers below n in random order, each at most once: drawn again until they differ.

    They are a quarter of n at most, so that few are drawn twice.
    """
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn.update(dict.fromkeys(random.randint(n, size=count - len(drawn)).tolist()))
    return np.array(list(drawn))


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

    known = _supervision(target, strata)
    return _joined(known, [_build(one, choose, held_out, known.strata) for one in known.targets])


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
