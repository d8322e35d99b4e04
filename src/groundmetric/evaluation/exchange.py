"""Which labels could as well have been others': what a permutation test may exchange."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .feasibility import number_groups


@dataclass(frozen=True)
class Exchange:
    """Labels that are exchangeable if there is nothing to learn.

    Attributes
    ----------
    units : unit of each distribution; the distributions of a unit share its label
    labels : class of each unit, as a number
    alike : lists of blocks of units, as arrays of places
        Labels are exchanged within each block, and all labels of a block with those of another in the same list, which
        has the same size.
    what : in words
    """

    units: np.ndarray
    labels: np.ndarray
    alike: list[list[np.ndarray]]
    what: str

    def draw(self, random: np.random.RandomState) -> np.ndarray:
        """Classes of the distributions after a random exchange."""
        labels = self.labels.copy()
        for blocks in self.alike:
            for block, source in zip(blocks, random.permutation(len(blocks)), strict=True):
                labels[block] = random.permutation(self.labels[blocks[source]])
        return labels[self.units]

    @property
    def arrangements(self) -> int:
        """How many different ones there are, that of the data included."""
        total = 1
        for blocks in self.alike:
            contents = [tuple(sorted(self.labels[block].tolist())) for block in blocks]
            total *= _orders(contents) * math.prod(_orders(content) for content in contents)
        return total


def exchangeable(codes: np.ndarray, groups: Any = None, strata: Any = None) -> Exchange:
    """What may be exchanged, from outer groups and strata.

    - Without groups: labels of distributions.
    - Every group has one label (a patient with several samples): labels of whole groups.
    - Groups hold several labels (a donor, treated or not): labels of distributions within their group; and where
      groups differ in what they hold (some patients have changed, others not), also all labels of a group with those
      of another of the same size.

    All of this within strata where given.
    """
    members, layers = number_groups(groups, codes.size), _number_strata(strata, codes.size)
    within = "" if strata is None else " within strata"
    each = np.arange(codes.size)
    if members is None:
        return _checked(Exchange(each, codes, [[block] for block in _blocks(layers)], f"distributions{within}"))
    first = np.array([block[0] for block in _blocks(members)])
    divided = np.flatnonzero(layers != layers[first][members])
    if divided.size:
        name = list(groups)[divided[0]]
        raise ValueError(
            f"group {name!r} is in several strata: labels are exchanged group by group, give it one stratum"
        )
    if np.all(codes == codes[first][members]):
        alike = [[block] for block in _blocks(layers[first])]
        return _checked(Exchange(members, codes[first], alike, f"groups{within}"))
    by_size: dict[tuple, list[np.ndarray]] = {}
    for block in _blocks(members):
        by_size.setdefault((block.size, layers[block[0]]), []).append(block)
    differ = any(len({tuple(sorted(codes[block])) for block in blocks}) > 1 for blocks in by_size.values())
    what = "distributions within groups" + (" and groups of one size" if differ else "")
    return _checked(Exchange(each, codes, list(by_size.values()), what + within))


def _blocks(numbers: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _orders(items: Iterable[Hashable]) -> int:
    """In how many different orders these can stand."""
    total, left = 1, 0
    for count in Counter(items).values():
        left += count
        total *= math.comb(left, count)
    return total


def _number_strata(strata: Any, size: int) -> np.ndarray:
    try:
        numbered = number_groups(strata, size)
    except ValueError as error:
        raise ValueError(str(error).replace("groups", "strata", 1)) from None
    return np.zeros(size, np.intp) if numbered is None else numbered


def _checked(exchange: Exchange) -> Exchange:
    if exchange.arrangements < 2:
        raise ValueError(
            f"there is nothing to exchange: labels would be permuted among {exchange.what}, and each of these sets has "
            "one class; leave out or coarsen the strata or groups"
        )
    return exchange
