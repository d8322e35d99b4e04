"""Bases as they travel and as they are kept: the parent of every node, and the levels of the tops of components.

Flows follow from the tree and the masses, all other potentials from the tree and the costs. A solve that starts from an
unpacked basis does what one from the packed basis would have done, bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from .pair_kernels import Bases, Points, pair_masses
from .tree import plant


class PackedBases(NamedTuple):
    """The bases of some pairs, one behind the other."""

    parent: np.ndarray  # int32, all nodes of all pairs
    level: np.ndarray  # float64, one for every node whose parent is its pair's root

    @property
    def n_bytes(self) -> int:
        return self.parent.nbytes + self.level.nbytes


def pack_bases(which: np.ndarray, nodes: np.ndarray, bases: Bases) -> PackedBases:
    """The bases of these pairs, which must have one. `nodes` holds the size of every pair's basis."""
    size = int(nodes[which].sum())
    parent, level = np.empty(size, np.int32), np.empty(size)
    return PackedBases(parent, level[: _pack(which, nodes, bases, parent, level)].copy())


def unpack_bases(
    which: np.ndarray,
    nodes: np.ndarray,
    packed: PackedBases,
    first: np.ndarray,
    second: np.ndarray,
    points: Points,
    bases: Bases,
) -> None:
    """Put bases in their pairs' places."""
    _unpack(which, nodes, packed.parent, packed.level, first, second, points, bases)


def split_bases(sizes: np.ndarray, packed: PackedBases) -> list[PackedBases]:
    """Each pair's own; `sizes` are those of the packed pairs.

    >>> packed = PackedBases(np.array([2, 0, -1, 1, -1], np.int32), np.array([0.5, 7.0]))
    >>> [part.level.tolist() for part in split_bases(np.array([3, 2]), packed)]
    [[0.5], [7.0]]
    """
    ends = np.cumsum(sizes)
    root = np.repeat(sizes - 1, sizes)
    tops = np.cumsum(packed.parent == root)[ends - 1] if sizes.size else ends
    parents, levels = np.split(packed.parent, ends[:-1]), np.split(packed.level, tops[:-1])
    return [PackedBases(parent, level) for parent, level in zip(parents, levels, strict=True)][: sizes.size]


def join_bases(parts: list[PackedBases]) -> PackedBases:
    parents = [part.parent for part in parts] or [np.empty(0, np.int32)]
    levels = [part.level for part in parts] or [np.empty(0)]
    return PackedBases(np.concatenate(parents), np.concatenate(levels))


@numba.njit(nogil=True, cache=True)
def _pack(which, nodes, bases, parent, level):
    place, tops = 0, 0
    for p in which:
        start = bases.offset[p]
        for x in range(nodes[p]):
            parent[place] = bases.parent[start + x]
            if parent[place] == nodes[p] - 1:
                level[tops] = bases.potential[start + x]
                tops += 1
            place += 1
    return tops


@numba.njit(nogil=True, cache=True)
def _unpack(which, nodes, parent, level, first, second, points, bases):
    place, tops = 0, 0
    for p in which:
        start = bases.offset[p]
        for x in range(nodes[p]):
            bases.parent[start + x] = parent[place]
            bases.potential[start + x] = 0.0
            if parent[place] == nodes[p] - 1:
                bases.potential[start + x] = level[tops]
                tops += 1
            place += 1
        here = slice(start, start + nodes[p])
        a, b = pair_masses(points, first[p], second[p]), pair_masses(points, second[p], first[p])
        plant(bases.parent[here], bases.flow[here], a, b)
        bases.warm[p] = True
