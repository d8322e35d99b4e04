"""Restricted permutations of labels: patients with several samples, paired designs, strata, and mixtures.

A permutation test is valid if, under the null hypothesis, every arrangement of the labels that it draws is as
probable as the observed one. Patients are exchangeable with each other, samples with other samples of the same
patient, and both only within a stratum. All permutation tests of the package draw from the arrangements defined here:

- Without groups, labels are permuted among samples of a stratum.
- If every group (patient) has one label, labels are permuted among groups that occur in the same strata.
- If labels differ within some groups, labels are permuted among samples of the same group and stratum, and all labels
  of a group are exchanged with those of another group that has the same number of samples in each stratum.

The last rule contains the exceptions of real cohorts: one sample with another label, groups of different sizes, and
groups that span several strata.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .splits import number_groups

# A block is the units of a group (or all units of a stratum), as one array of units per stratum.
Block = tuple[np.ndarray, ...]
# Number of classes up to which all renamings of the classes are tried (720).
_MAX_CLASSES = 6


@dataclass(frozen=True)
class RestrictedPermutations:
    """Arrangements of labels that have the same probability under the null hypothesis.

    Attributes
    ----------
    units : array of int of shape (n_distributions,)
        Unit of each distribution; all distributions of a unit have the same label in every arrangement.
    labels : array of shape (n_units,)
        Label of each unit: class codes or numbers.
    blocks : list of list of tuple of array
        Lists of blocks of units. The blocks of a list have the same number of units in each stratum, and exchange their
        labels stratum by stratum; labels are also permuted among the units of a block and stratum.
    among : str
        Description of the units that exchange labels, e.g. "groups within strata".
    """

    units: np.ndarray
    labels: np.ndarray
    blocks: list[list[Block]]
    among: str

    def draw(self, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return the labels of the distributions in one random arrangement."""
        return self.draws(1, random)[0]

    def draws(self, count: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return `count` random arrangements of the labels, shape (count, n_distributions)."""
        drawn = np.tile(self.labels, (count, 1))
        for blocks in self.blocks:
            source = np.argsort(random.random((count, len(blocks))), axis=1)
            for parts in zip(*blocks, strict=True):
                members = np.stack(parts)  # (blocks, units of a block in this stratum)
                contents = self.labels[members][source]
                order = np.argsort(random.random(contents.shape), axis=2)
                drawn[:, members] = np.take_along_axis(contents, order, axis=2)
        return drawn[:, self.units]

    def sample(self, count: int, random: np.random.RandomState | np.random.Generator) -> np.ndarray:
        """Return the observed arrangement and others, shape (n_arrangements, n_distributions), observed first.

        A design with at most ``count + 1`` different arrangements gives each of them once, and the test is exact.
        Otherwise the result has `count` random arrangements.
        """
        if self.arrangements > count + 1:
            return np.vstack([self.labels[self.units][None], self.draws(count, random)])
        every = self.enumerate()
        observed = np.all(every == self.labels, axis=1)
        return np.vstack([every[observed], every[~observed]])[:, self.units]

    def enumerate(self) -> np.ndarray:
        """Return every different arrangement of the labels of the units once, shape (n_arrangements, n_units)."""
        choices = [self._orders_of(blocks) for blocks in self.blocks]
        rows = np.indices([len(orders) for _, orders in choices]).reshape(len(choices), -1)
        every = np.tile(self.labels, (rows.shape[1], 1))
        for (members, orders), row in zip(choices, rows, strict=True):
            every[:, members] = orders[row]
        return every

    def _orders_of(self, blocks: list[Block]) -> tuple[np.ndarray, np.ndarray]:
        """Return the units of a list of blocks and their different labels, shapes (n,) and (n_orders, n)."""
        inner = {values: list(_distinct_orders(values)) for block in blocks for values in self._content(block)}
        orders = [
            list(itertools.chain.from_iterable(choice))
            for contents in _distinct_orders([self._content(block) for block in blocks])
            for choice in itertools.product(*(inner[values] for content in contents for values in content))
        ]
        return np.concatenate([members for block in blocks for members in block]), np.array(orders)

    def _content(self, block: Block) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(np.sort(self.labels[members]).tolist()) for members in block)

    @property
    def arrangements(self) -> int:
        """Number of different arrangements of the labels, including the observed one."""
        total = 1
        for blocks in self.blocks:
            contents = [self._content(block) for block in blocks]
            total *= _count_orders(contents)
            total *= math.prod(_count_orders(values) for content in contents for values in content)
        return total

    @property
    def partitions(self) -> int:
        """Number of arrangements of classes that differ by more than the names of the classes.

        A statistic that treats all classes alike has the same value in the arrangements that a renaming of the classes
        makes equal: the smallest p-value of 6 pairs is 2 / 64. Of more than six classes, an upper bound.
        """
        classes = np.unique(self.labels)
        if classes.size > _MAX_CLASSES:
            return self.arrangements
        codes = np.searchsorted(classes, self.labels)
        contents = self._contents(codes)
        same = [self._contents(np.array(names)[codes]) for names in itertools.permutations(range(classes.size))]
        return self.arrangements // same.count(contents)

    def _contents(self, codes: np.ndarray) -> list[Counter[Any]]:
        return [
            Counter(tuple(tuple(np.sort(codes[members])) for members in block) for block in blocks)
            for blocks in self.blocks
        ]


def restricted_permutations(
    labels: np.ndarray,
    groups: Any = None,
    strata: Any = None,
    *,
    names: Sequence[Hashable] | None = None,
    equal_sizes: bool = False,
) -> RestrictedPermutations:
    """Return the arrangements of labels that groups and strata allow; see the description of this module.

    Parameters
    ----------
    labels : array of shape (n_distributions,)
        Class codes or numbers.
    groups : sequence of length n_distributions or None, default=None
        Group (patient) of each distribution.
    strata : sequence of length n_distributions or None, default=None
        Labels are exchanged only within these.
    names : sequence of length n_distributions or None, default=None
        Names of the distributions, by which arrangements are drawn: the same distributions in another order have the
        same arrangements in that order. None: arrangements are drawn by position.
    equal_sizes : bool, default=False
        Whether groups with one label each exchange it only with groups of the same number of distributions. Needed if
        the statistic treats distributions, not groups, as units, and the number of distributions may depend on the
        label.

    Returns
    -------
    RestrictedPermutations
        The arrangements.

    Examples
    --------
    >>> pairs = restricted_permutations(np.array([0, 1, 0, 1]), groups=["ann", "ann", "bob", "bob"])
    >>> pairs.among, pairs.arrangements, pairs.partitions
    ('distributions within groups', 4, 2)
    """
    n = labels.size
    order = canonical_order(names, n)
    stratum = number_groups(strata, n, "strata")
    stratum = np.zeros(n, np.intp) if stratum is None else _renumber(stratum, order)
    within = "" if strata is None else " within strata"
    group = number_groups(groups, n)
    if group is None:
        units = np.empty(n, np.intp)
        units[order] = np.arange(n)
        blocks: list[list[Block]] = [[(block,)] for block in _members(stratum[order])]
        return _checked(RestrictedPermutations(units, labels[order], blocks, f"distributions{within}"))
    group = _renumber(group, order)
    members = [order[rows] for rows in _members(group[order])]  # distributions of each group, in the order of names
    if all(np.all(labels[rows] == labels[rows[0]]) for rows in members):
        by_profile: dict[Any, list[int]] = {}
        for unit, rows in enumerate(members):
            profile = _counts(stratum[rows]) if equal_sizes else tuple(np.unique(stratum[rows]).tolist())
            by_profile.setdefault(profile, []).append(unit)
        blocks = [[(np.array(units),)] for units in by_profile.values()]
        among = "groups" + (" of one size" if equal_sizes else "") + within
        return _checked(RestrictedPermutations(group, np.array([labels[rows[0]] for rows in members]), blocks, among))
    units = np.empty(n, np.intp)
    units[np.concatenate(members)] = np.arange(n)
    by_counts: dict[Any, list[Block]] = {}
    for rows in members:
        parts = tuple(units[rows[stratum[rows] == s]] for s in np.unique(stratum[rows]))
        by_counts.setdefault(_counts(stratum[rows]), []).append(parts)
    by_unit = labels[np.concatenate(members)]
    exchange = RestrictedPermutations(units, by_unit, list(by_counts.values()), "")
    differ = any(len({exchange._content(block) for block in blocks}) > 1 for blocks in exchange.blocks)
    among = "distributions within groups" + (" and groups of one size" if differ else "") + within
    return _checked(RestrictedPermutations(units, by_unit, exchange.blocks, among))


def canonical_order(names: Sequence[Hashable] | None, n: int) -> np.ndarray:
    """Return the order of distributions by their names (as text), or by position without names.

    >>> canonical_order(["b", "c", "a"], 3).tolist()
    [2, 0, 1]
    """
    return np.arange(n) if names is None else np.argsort([str(name) for name in names], kind="stable")


def profiles(codes: np.ndarray, units: np.ndarray) -> list[tuple[tuple[int, Fraction], ...]]:
    """Return for each unit the values of its distributions and their shares, which do not depend on its size.

    >>> profiles(np.array([0, 1, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 1, 2]))[0]
    ((0, Fraction(1, 2)), (1, Fraction(1, 2)))
    """
    shares = []
    for unit in range(int(units.max()) + 1):
        values, counts = np.unique(codes[units == unit], return_counts=True)
        shares.append(tuple((int(v), Fraction(int(c), int(counts.sum()))) for v, c in zip(values, counts, strict=True)))
    return shares


def _members(numbers: np.ndarray) -> list[np.ndarray]:
    """Return the positions of each number, from 0 to the largest."""
    return [np.flatnonzero(numbers == number) for number in range(int(numbers.max(initial=-1)) + 1)]


def _renumber(numbers: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Number groups in the order of names in which they first occur."""
    _, first, inverse = np.unique(numbers[order], return_index=True, return_inverse=True)
    renumbered = np.empty_like(numbers)
    renumbered[order] = np.argsort(np.argsort(first))[inverse]
    return renumbered


def _counts(strata: np.ndarray) -> tuple[tuple[int, int], ...]:
    values, counts = np.unique(strata, return_counts=True)
    return tuple(zip(values.tolist(), counts.tolist(), strict=True))


def _count_orders(items: Iterable[Hashable]) -> int:
    """Return the number of different orders of the items."""
    total, n = 1, 0
    for count in Counter(items).values():
        n += count
        total *= math.comb(n, count)
    return total


def _distinct_orders(items: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield every different order of the items once.

    >>> list(_distinct_orders("aab"))
    [('a', 'a', 'b'), ('a', 'b', 'a'), ('b', 'a', 'a')]
    """
    counts = Counter(items)
    distinct, n = list(counts), counts.total()

    def extend(start: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if len(start) == n:
            yield start
            return
        for item in distinct:
            if counts[item]:
                counts[item] -= 1
                yield from extend((*start, item))
                counts[item] += 1

    return extend(())


def _checked(exchange: RestrictedPermutations) -> RestrictedPermutations:
    if exchange.arrangements < 2:
        raise ValueError(
            f"there is nothing to exchange: labels would be permuted among {exchange.among}, and each of these sets "
            "has one label; leave out or coarsen the strata or groups"
        )
    return exchange
