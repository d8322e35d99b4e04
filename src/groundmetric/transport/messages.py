"""Pairs and their bases as messages to workers.

Flows follow from the tree and the masses, all other potentials from the tree and the costs. A solve that starts from an
unpacked basis does what one from the packed basis would have done, bit for bit.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numba
import numpy as np

from ._kernels import pairs as kernels
from ._kernels.pairs import Bases, Points, pair_masses
from ._kernels.tree import plant
from .large import solve_large_pairs


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


# What a pair starts from: nothing, a basis in the message, or the basis that the worker kept.
COLD, SENT, KEPT = 0, 1, 2
# Bytes of bases that a worker keeps at most; those that were not asked for longest go first.
_MEMORY = 4e9


@dataclass(frozen=True)
class Batch:
    """Pairs to be solved, with the points of their distributions only."""

    pairs: np.ndarray  # their numbers where they come from
    first: np.ndarray  # places among the distributions of this batch
    second: np.ndarray
    z: np.ndarray  # as in pair_kernels.Points, and so on
    bounds: np.ndarray
    units: np.ndarray  # empty where all masses are equal
    shares: np.ndarray  # empty where all masses are equal, or no pair is large
    uniform: np.ndarray
    cost: int
    max_pivots: int
    start: np.ndarray  # (n_pairs,) COLD, SENT or KEPT
    bases: PackedBases  # of the pairs that are SENT one
    solved_at: np.ndarray  # (n_pairs,) step at which the kept basis must have been left
    step: int  # the present one
    session: str  # whose pairs these are; "": the worker keeps nothing
    with_bases: bool  # whether bases are part of the answer
    large: np.ndarray  # (n_pairs,) bool: to be solved without a matrix of costs, and without a basis

    @property
    def n_bytes(self) -> int:
        return _bytes_of(self)


@dataclass(frozen=True)
class BatchAnswer:
    """What came out, for the pairs whose basis was there."""

    solved: np.ndarray  # places in the batch
    missing: np.ndarray  # places whose kept basis is gone, or not the one that was asked for
    value: np.ndarray
    pivots: np.ndarray
    optimal: np.ndarray
    bases: PackedBases | None
    seconds: float

    @property
    def n_bytes(self) -> int:
        return _bytes_of(self)


def _bytes_of(message: Any) -> int:
    values = [getattr(message, field.name) for field in fields(message)]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray)) + sum(
        value.n_bytes for value in values if isinstance(value, PackedBases)
    )


class KeptBases:
    """Bases that a worker keeps from step to step, by the session and the number of the pair."""

    def __init__(self, memory: float) -> None:
        self._memory, self._used = memory, 0
        self._lock = threading.Lock()
        self._bases: OrderedDict[tuple[str, int], tuple[int, PackedBases]] = OrderedDict()

    def get(self, session: str, pair: int, step: int) -> PackedBases | None:
        """The basis that this step left; None if it is gone, or another step's."""
        with self._lock:
            kept = self._bases.get((session, pair))
        return kept[1] if kept is not None and kept[0] == step else None

    def put(self, session: str, pair: int, step: int, basis: PackedBases) -> None:
        with self._lock:
            old = self._bases.pop((session, pair), None)
            self._used += basis.n_bytes - (0 if old is None else old[1].n_bytes)
            self._bases[session, pair] = step, basis
            while self._used > self._memory and len(self._bases) > 1:
                _, (_, oldest) = self._bases.popitem(last=False)
                self._used -= oldest.n_bytes

    def forget(self, session: str) -> None:
        with self._lock:
            for key in [key for key in self._bases if key[0] == session]:
                self._used -= self._bases.pop(key)[1].n_bytes

    def __len__(self) -> int:
        return len(self._bases)


# A worker process has one; it outlives the single message, which is the point of it.
kept_here = KeptBases(_MEMORY)


def forget_session(session: str) -> None:
    kept_here.forget(session)


def solve_batch(batch: Batch) -> BatchAnswer:
    """Solve the pairs of a batch; the same bits come out wherever this runs."""
    started = time.perf_counter()
    sizes = np.diff(batch.bounds)
    nodes = sizes[batch.first] + sizes[batch.second] + 1
    first, second = _writable(batch.first), _writable(batch.second)
    points = kernels.Points(
        _writable(batch.z),
        _writable(batch.bounds),
        _writable(batch.units),
        _writable(batch.shares),
        _writable(batch.uniform),
        batch.cost,
    )
    room = int(nodes.sum())
    bases = kernels.Bases(
        np.cumsum(nodes) - nodes,
        np.empty(room, np.int32),
        np.empty(room, np.int64),
        np.empty(room),
        np.zeros(nodes.size, bool),
    )
    solved, missing = _start(batch, nodes, first, second, points, bases)
    answers = kernels.Answers(np.zeros(nodes.size), np.zeros(nodes.size, np.int64), np.ones(nodes.size, bool))
    usual = solved[~batch.large[solved]]
    if usual.size:
        buffer = np.empty(int((sizes[first[usual]] * sizes[second[usual]]).max()), np.float32)
        kernels.solve_pairs(usual, first, second, points, bases, batch.max_pivots, buffer, answers)
    solve_large_pairs(solved[batch.large[solved]], first, second, points, batch.max_pivots, answers)
    packed = pack_bases(solved, nodes, bases) if batch.with_bases else None
    if packed is not None and batch.session:
        for place, basis in zip(solved, split_bases(nodes[solved], packed), strict=True):
            kept_here.put(batch.session, int(batch.pairs[place]), batch.step, _owned(basis))
    value, pivots, optimal = (answer[solved] for answer in answers)
    return BatchAnswer(solved, missing, value, pivots, optimal, packed, time.perf_counter() - started)


def _start(
    batch: Batch,
    nodes: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    points: kernels.Points,
    bases: kernels.Bases,
) -> tuple[np.ndarray, np.ndarray]:
    """Put the bases to start from in place; which pairs can be solved, and which lack theirs."""
    sent = np.flatnonzero(batch.start == SENT)
    given = PackedBases(_writable(batch.bases.parent), _writable(batch.bases.level))
    unpack_bases(sent, nodes, given, first, second, points, bases)
    asked = np.flatnonzero(batch.start == KEPT)
    found = {
        int(place): basis
        for place in asked
        if (basis := kept_here.get(batch.session, int(batch.pairs[place]), int(batch.solved_at[place]))) is not None
    }
    there = np.array(list(found), dtype=np.int64)
    unpack_bases(there, nodes, join_bases(list(found.values())), first, second, points, bases)
    missing = np.setdiff1d(asked, there)
    return np.setdiff1d(np.arange(nodes.size), missing), missing


def _writable(array: np.ndarray) -> np.ndarray:
    """Kernels are compiled for writable arrays; what comes in a message may not be."""
    return array if array.flags.writeable else array.copy()


def _owned(basis: PackedBases) -> PackedBases:
    """A copy that does not hold the whole batch in memory."""
    return PackedBases(basis.parent.copy(), basis.level.copy())
