"""Triplets of distributions: random neighbours that anchors of a mini-batch share, or nearest ones; across strata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .labels import Pool, Supervision, Target

# Differences of labels that may be due to rounding, relative to the largest.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Triplets:
    """Triplets of distributions and their distinct unordered pairs, whose distances are computed once."""

    i: np.ndarray  # near distribution: of the anchor's class, or of a more similar label
    j: np.ndarray  # anchor
    k: np.ndarray  # far distribution
    first: np.ndarray  # (n_pairs,) distinct pairs of distributions, first < second
    second: np.ndarray
    near: np.ndarray  # positions of the pairs (i, j) and (j, k) among the distinct pairs
    far: np.ndarray
    weight: np.ndarray | None = None  # in the loss, of mean 1; None: all weights are 1
    batch: np.ndarray | None = None  # mini-batch, if the triplets of a mini-batch were drawn to share pairs

    @classmethod
    def from_indices(
        cls, i: np.ndarray, j: np.ndarray, k: np.ndarray, n: int, weight: np.ndarray | None = None
    ) -> Triplets:
        low = np.concatenate([np.minimum(i, j), np.minimum(j, k)])
        high = np.concatenate([np.maximum(i, j), np.maximum(j, k)])
        keys, positions = np.unique(low * np.int64(n) + high, return_inverse=True)
        return cls(i, j, k, keys // n, keys % n, positions[: i.size], positions[i.size :], weight)

    @property
    def weights(self) -> np.ndarray:
        return np.ones(len(self)) if self.weight is None else self.weight

    def __len__(self) -> int:
        return self.i.size


# Choice of neighbours of an anchor from a pool.
Choose = Callable[[int, Pool], np.ndarray]


class Candidates(NamedTuple):  # neighbours of an anchor by level; without strata, `near` and `far` are the same list
    anchor: int
    near: list[Pool]
    far: list[Pool]
    relaxed: bool = False  # strata were ignored, because no triplet respects them


def random_triplets(
    target: Target | np.ndarray | Supervision,
    n_neighbors: int,
    random: np.random.RandomState,
    *,
    batch_size: int = 128,
    held_out: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> Triplets:
    """Draw `n_neighbors` (t) neighbours per level of the label for each anchor, and form all triplets that hold.

    With classes (an array is taken for classes), these are t of the anchor's class × t of each other class. Held-out
    distributions (a mask) are anchors, but not neighbours. Anchors are divided into mini-batches of about `batch_size`
    triplets with similar shares of all levels and strata, and neighbours are drawn from the anchors of the same
    mini-batch first: its number of distributions and pairs does not grow with the cohort. With strata (batches), near
    neighbours are from other strata and far neighbours from the anchor's stratum, which makes differences between
    strata useless for reducing the loss; anchors without such neighbours get neighbours of any stratum.

    >>> len(random_triplets(np.array([0, 0, 1, 1]), 3, np.random.RandomState(0)))
    8
    """
    supervision, parts = Supervision.of(target, strata), []
    strata = supervision.strata
    for label in supervision.targets:
        n_anchors = max(1.0, batch_size / (n_neighbors**2 * max(label.n_levels - 1, 1)))
        groups = label.levels if strata is None else label.levels * (strata.max() + 1) + strata
        batch, start = np.full(label.labelled.size, -1), 0
        outside = np.zeros(batch.size, bool) if held_out is None else held_out
        # Held-out anchors are in separate mini-batches.
        for anchors in (np.flatnonzero(label.labelled & ~outside), np.flatnonzero(label.labelled & outside)):
            # A random order in which the members of each level and stratum are evenly spaced.
            order = random.permutation(anchors)
            _, number, count = np.unique(groups[order], return_inverse=True, return_counts=True)
            rank = np.empty(order.size)
            rank[np.argsort(number, kind="stable")] = np.arange(order.size) - np.repeat(np.cumsum(count) - count, count)
            order = order[np.argsort((rank + 0.5) / count[number], kind="stable")]
            for part_of_order in np.array_split(order, max(int(np.ceil(order.size / n_anchors)), 1)):
                batch[part_of_order] = start
                start += 1
        part = _form(label, _shared_neighbors(batch, n_neighbors, random), held_out, strata)
        parts.append(replace(part, batch=batch[part.j]))
    return _join(supervision, parts)


def nearest_triplets(
    target: Target | np.ndarray | Supervision,
    n_neighbors: int,
    distances: np.ndarray,
    *,
    held_out: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> Triplets:
    """Form triplets as `random_triplets`, with the nearest neighbours of each level by a matrix of distances."""

    def choose(anchor: int, pool: Pool) -> np.ndarray:
        members = pool.all()
        return members[np.argsort(distances[anchor, members], kind="stable")[:n_neighbors]]

    supervision = Supervision.of(target, strata)
    return _join(supervision, [_form(label, choose, held_out, supervision.strata) for label in supervision.targets])


def _join(supervision: Supervision, parts: list[Triplets]) -> Triplets:
    """Join the triplets of several labels, weighted to give each label its share of the loss."""
    if len(parts) == 1:
        return parts[0]
    i, j, k = (np.concatenate([getattr(part, name) for part in parts]) for name in "ijk")
    weights, batches, start = [], [], 0
    for part, share in zip(parts, supervision.shares, strict=True):
        weights.append(part.weights * share / max(len(part), 1))
        if part.batch is not None:
            batches.append(part.batch + start)
            start = np.max(batches[-1], initial=start - 1) + 1
    weight = np.concatenate(weights)
    n = supervision.targets[0].labelled.size
    joined = Triplets.from_indices(i, j, k, n, weight * (i.size / weight.sum()))
    return replace(joined, batch=np.concatenate(batches)) if batches else joined


# Pools up to this size are shuffled; from larger pools, single members are drawn. Shuffling a class for every
# mini-batch takes time that grows with the square of its size.
_SHUFFLED = 2000


def _shared_neighbors(batch: np.ndarray, n_neighbors: int, random: np.random.RandomState) -> Choose:
    """Return a choice of random neighbours: anchors of the mini-batch, then distributions that joined it earlier.

    If the mini-batch has fewer than `n_neighbors` members of a pool, further members are drawn and join it.
    """
    order = np.argsort(batch, kind="stable")
    ends = np.searchsorted(batch[order], np.arange(batch.max() + 2))
    anchors = [order[low:high] for low, high in pairwise(ends)]
    joined = [order[:0]] * len(anchors)

    def draw(pool: Pool, members: np.ndarray, count: int) -> np.ndarray:
        n_draws = count + members.size  # at least `count` remain even if all members are drawn
        if len(pool) <= max(_SHUFFLED, 4 * n_draws):
            drawn = random.permutation(pool.all())
        else:
            # Distinct positions by rejection. At most a quarter of the pool is drawn, so repetitions are rare.
            positions: dict[int, None] = {}
            while len(positions) < n_draws:
                size = n_draws - len(positions)
                positions.update(dict.fromkeys(random.randint(len(pool), size=size).tolist()))
            drawn = pool.at(np.array(list(positions)))
        return drawn[~np.isin(drawn, members)][:count]

    def choose(anchor: int, pool: Pool) -> np.ndarray:
        number = batch[anchor]
        # Anchors first: the triplets of both anchors use their pair.
        neighbors = [random.permutation(pool.among(part[number])) for part in (anchors, joined)]
        n_missing = min(n_neighbors, len(pool)) - sum(part.size for part in neighbors)
        if n_missing > 0:
            neighbors.append(draw(pool, np.concatenate([anchors[number], joined[number]]), n_missing))
            joined[number] = np.concatenate([joined[number], neighbors[-1]])
        return np.concatenate(neighbors)[:n_neighbors]

    return choose


def candidates(target: Target, held_out: np.ndarray | None, strata: np.ndarray | None) -> Iterator[Candidates]:
    """Yield the candidate neighbours of each labelled distribution.

    With strata, near candidates are from other strata and far candidates from the same stratum, if these form a
    triplet. Otherwise drop the restriction of the far candidates, then that of the near ones, then both.
    """
    for anchor, pools in target.pools(target.labelled if held_out is None else target.labelled & ~held_out):
        if strata is None:
            yield Candidates(anchor, pools, pools)
            continue
        same, levels = strata == strata[anchor], [pool.all() for pool in pools]
        members = np.concatenate(levels)
        in_stratum = same[members]
        for strict_near, strict_far in ((True, True), (True, False), (False, True)):
            near_ids, far_ids = members[~in_stratum | (not strict_near)], members[in_stratum | (not strict_far)]
            if near_ids.size and far_ids.size and _any_holds(target.cases(anchor, near_ids, far_ids), target.gap):
                near = [Pool(level[~same[level]] if strict_near else level) for level in levels]
                far = [Pool(level[same[level]] if strict_far else level) for level in levels]
                yield Candidates(anchor, near, far, relaxed=not (strict_near and strict_far))
                break
        else:
            # An uncertain label (censored early) may form no triplet even without strata: strata were not the reason.
            cases = target.cases(anchor, members, members)
            yield Candidates(anchor, pools, pools, relaxed=len(cases) == 1 or _any_holds(cases, target.gap))


def _any_holds(cases: list[tuple[np.ndarray, np.ndarray]], gap: float) -> bool:
    if len(cases) == 1:  # the nearest and the farthest candidates decide
        nearer, farther = cases[0]
        cases = [(nearer.min(keepdims=True), farther.max(keepdims=True))]
    return bool(_all_hold(cases, gap).any())


def _all_hold(cases: list[tuple[np.ndarray, np.ndarray]], gap: float) -> np.ndarray:
    """Return a mask of the triplets whose far distance exceeds the near one by more than the gap, (n_near, n_far)."""
    masks = []
    for nearer, farther in cases:
        rounding = _ROUNDING * np.nanmax(np.concatenate([nearer, farther, [0.0]]))
        masks.append(farther[None, :] - nearer[:, None] > gap + rounding)
    return np.logical_and.reduce(masks)


def _form(target: Target, choose: Choose, held_out: np.ndarray | None, strata: np.ndarray | None) -> Triplets:
    """Form all triplets of each anchor and its chosen neighbours that hold, with their weights."""

    def choose_all(anchor: int, pools: list[Pool]) -> tuple[np.ndarray, np.ndarray]:
        # With each neighbour, return the size of its level over the number chosen from it.
        chosen = [choose(anchor, pool) for pool in pools]
        factors = [len(pool) / max(part.size, 1) for part, pool in zip(chosen, pools, strict=True)]
        return np.concatenate(chosen), np.repeat(factors, [part.size for part in chosen])

    empty = np.empty(0, np.int64)
    parts, weights = [(empty, empty, empty)], [np.empty(0)]
    for anchor, near, far, _ in candidates(target, held_out, strata):
        near_ids, near_factor = choose_all(anchor, near)
        far_ids, far_factor = (near_ids, near_factor) if far is near else choose_all(anchor, far)
        cases = target.cases(anchor, near_ids, far_ids)
        i, k = np.nonzero(_all_hold(cases, target.gap))
        parts.append((near_ids[i], np.full(i.size, anchor), far_ids[k]))
        if target.counts_all:
            difference = np.min([farther[k] - nearer[i] for nearer, farther in cases], axis=0)
            weights.append(difference * near_factor[i] * far_factor[k])
    i, j, k = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    weight = np.concatenate(weights)
    if target.balanced:
        # Each class of anchors makes up the same share of the loss. Classes of equal size need no weights.
        _, level, counts = np.unique(target.levels[j], return_inverse=True, return_counts=True)
        weight = np.empty(0) if np.unique(counts).size < 2 else 1.0 / counts[level]
    return Triplets.from_indices(i, j, k, target.labelled.size, weight / weight.mean() if weight.size else None)
