"""The network simplex over candidate arcs: the cheapest arcs of every source, priced from the points, no cost matrix.

Sinks stand in `groups.halving_order`, in blocks of 64. A ball around a block says how cheap its sinks can be at best; a
block that cannot beat what is known already is skipped. What is left is computed from the points, a block at a time.

Nodes, trees and potentials are those of `simplex`; z holds the points of all nodes but the root.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...metrics.base import Cost
from .compiled import behind, glued, inner, kernel, larger, pointer, smaller, vectorised
from .costs import EUCLIDEAN, MANHATTAN, SQUARED, fill_distances, fill_manhattan, step_cost
from .simplex import NOISE, ROWS, Entering, insert_arc, largest, pivot
from .tree import TREE_ROOM, plant, tree_at

_BLOCK = 64
# Balls are taken larger by this share, so that rounding skips no block.
_SLACK = 1e-12


class Blocks(NamedTuple):
    """Points in blocks, a column each, and the balls around the blocks."""

    columns: np.ndarray  # (n_blocks, k, 64); zeros behind the last point
    centres: np.ndarray  # (k, n_blocks)
    radius: np.ndarray  # (n_blocks,) in the norm that costs are made of
    n_points: int
    cost: int  # a `Cost`


class Candidates(NamedTuple):
    """Arcs that may enter the basis, by source."""

    sinks: np.ndarray  # (n, room) int32, as nodes
    prices: np.ndarray  # (n, room)
    number: np.ndarray  # (n,) of them


def no_candidates(n: int, room: int) -> Candidates:
    return Candidates(np.empty((n, room), np.int32), np.empty((n, room)), np.zeros(n, np.int64))


def in_blocks(points: np.ndarray, cost: int) -> Blocks:
    """Points in `halving_order` as Blocks."""
    n, k = points.shape
    n_blocks = -(-n // _BLOCK)
    columns = np.zeros((n_blocks * _BLOCK, k))
    columns[:n] = points
    starts = np.arange(0, n, _BLOCK)
    centres = 0.5 * (np.minimum.reduceat(points, starts) + np.maximum.reduceat(points, starts))
    away = Cost(cost).norm(points - np.repeat(centres, _BLOCK, axis=0)[:n])
    columns = np.ascontiguousarray(columns.reshape(n_blocks, _BLOCK, k).transpose(0, 2, 1))
    return Blocks(columns, np.ascontiguousarray(centres.T), np.maximum.reduceat(away, starts), n, cost)


@glued
def noise_of(potential, nodes):
    """How far rounding may move reduced costs.

    Potentials add costs up along the paths of the tree, which may lead through parts where they are far larger: what
    counts is the largest of all, and the length of the paths, which grows with the tree.
    """
    return 3.0 * NOISE * larger(nodes / 1000.0, 1.0) * largest(potential, nodes - 1)


@glued
def reduced_cost(price, potential, source, sink, noise):
    """The reduced cost of an arc of this price; 0 where it is not below 0 by more than noise."""
    reduced = price - potential[sink] + potential[source]
    return reduced if reduced < -noise else 0.0


@vectorised
def _fill_steps(x, columns, m, k, cost, out):
    """What the steps from the point x to columns (k, m) cost."""
    if cost == MANHATTAN:
        fill_manhattan(x, columns, 1, m, k, out)
    else:
        fill_distances(x, columns, 1, m, k, cost == SQUARED, out)


class _Search(NamedTuple):
    """Blocks of sinks with their potentials, and room for the cheapest sinks from one point: pointers and numbers."""

    columns: Any
    centres: Any
    radius: Any
    heights: Any  # (n_blocks, 64) potentials, minus infinity behind the last
    tops: Any  # (n_blocks,) the highest of each block
    floors: Any  # (n_blocks,) room, as the following
    row: Any  # (64,)
    places: Any  # (width,) int64
    values: Any
    width: int
    n_blocks: int
    k: int
    cost: int


class Heights(NamedTuple):
    """Potentials in blocks, and room; see `_Search`."""

    heights: np.ndarray
    tops: np.ndarray
    floors: np.ndarray
    row: np.ndarray
    places: np.ndarray
    values: np.ndarray


def _in_heights(v: np.ndarray, n_blocks: int, width: int) -> Heights:
    heights = np.full((n_blocks, _BLOCK), -np.inf)
    heights.ravel()[: v.size] = v
    room = np.empty(n_blocks), np.empty(_BLOCK), np.empty(width, np.int64), np.empty(width)
    return Heights(heights, heights.max(axis=1), *room)


@glued
def _search_of(blocks, room):
    return _Search(
        pointer(blocks.columns),
        pointer(blocks.centres),
        pointer(blocks.radius),
        pointer(room.heights),
        pointer(room.tops),
        pointer(room.floors),
        pointer(room.row),
        pointer(room.places),
        pointer(room.values),
        room.values.size,
        blocks.radius.size,
        blocks.columns.shape[1],
        blocks.cost,
    )


@vectorised
def _scan_block(x, search, block, limit, count):
    """Take what is below the limit in a block into the sorted list; returns its new length and the new limit."""
    less, heights = search.row, behind(search.heights, block * _BLOCK)
    places, values, width = search.places, search.values, search.width
    _fill_steps(x, behind(search.columns, block * _BLOCK * search.k), _BLOCK, search.k, search.cost, less)
    lowest = np.inf
    for j in range(_BLOCK):
        less[j] -= heights[j]
        lowest = smaller(less[j], lowest)
    if lowest >= limit:
        return count, limit
    for j in range(_BLOCK):
        if less[j] < limit:
            count = count + 1 if count < width else width
            k = count - 1
            while k > 0 and values[k - 1] > less[j]:
                places[k], values[k] = places[k - 1], values[k - 1]
                k -= 1
            places[k], values[k] = block * _BLOCK + j, less[j]
            if count == width and values[count - 1] < limit:
                limit = values[count - 1]
    return count, limit


@vectorised
def _cheapest_sinks(x, search, limit):
    """The cheapest sinks from x below the limit, sorted, as many as there is room for; returns their number.

    Floors say what a step from x to a sink of each block, less the sink's potential, costs at least. The most promising
    block comes first: what it holds rules most others out.
    """
    floors, cost = search.floors, search.cost
    _fill_steps(x, search.centres, search.n_blocks, search.k, cost if cost == MANHATTAN else EUCLIDEAN, floors)
    best = 0
    for block in range(search.n_blocks):
        way, radius = floors[block], search.radius[block]
        near = larger(way - radius - _SLACK * (way + radius), 0.0)
        floors[block] = (near * near if cost == SQUARED else near) - search.tops[block]
        best = block if floors[block] < floors[best] else best
    count = 0
    for turn in range(-1, search.n_blocks):
        block = best if turn < 0 else turn
        if floors[block] < limit and turn != best:
            count, limit = _scan_block(x, search, block, limit, count)
    return count


def add_candidates(
    z: np.ndarray,
    blocks: Blocks,
    potential: np.ndarray,
    width: int,
    only_gaining: bool,
    candidates: Candidates,
    least: np.ndarray,
) -> int:
    """Add the cheapest arcs of every source to its candidates: up to `width`, and only gaining ones if asked.

    z holds the points of all sources, then of all sinks. `least` becomes the largest potential that the sinks' allow
    each source (or its own, where that is not more). Returns the number of arcs added.
    """
    n = least.size
    heights = _in_heights(potential[n : n + blocks.n_points], blocks.radius.size, width)
    return fill_candidates(z, blocks, heights, potential, only_gaining, candidates, least)


@kernel
def fill_candidates(z, blocks, heights, potential, only_gaining, candidates, least):
    """`add_candidates`, with potentials in blocks. Without room for candidates, only `least` is set."""
    search, points, levels = _search_of(blocks, heights), pointer(z), pointer(potential)
    n, k, room = least.size, search.k, candidates.sinks.shape[1]
    added, noise = 0, noise_of(levels, potential.size)
    for i in range(n):
        x = behind(points, i * k)
        least[i] = -levels[i] if only_gaining else np.inf
        count = _cheapest_sinks(x, search, least[i])
        if count > 0:
            least[i] = search.values[0]
        if room == 0:
            continue
        sinks, prices = behind(pointer(candidates.sinks), i * room), behind(pointer(candidates.prices), i * room)
        number = _drop_dearest(sinks, prices, candidates.number[i], room - count, levels)
        for place in range(count):
            sink = n + search.places[place]
            # Computed anew, because what was found is less the potential, which may have drowned digits of it.
            price = step_cost(x, behind(points, sink * k), k, blocks.cost)
            if only_gaining and reduced_cost(price, levels, i, sink, noise) == 0.0:
                continue
            sinks[number], prices[number] = sink, price
            number += 1
            added += 1
        candidates.number[i] = number
    return added


@inner
def _drop_dearest(sinks, prices, number, most, potential):
    """Drop the dearest candidates of a source until there are so many at most; returns their number."""
    while number > most:
        worst, dearest = 0, -np.inf
        for k in range(number):
            if prices[k] - potential[sinks[k]] > dearest:
                worst, dearest = k, prices[k] - potential[sinks[k]]
        number -= 1
        sinks[worst], prices[worst] = sinks[number], prices[number]
    return number


def allowed_potentials(points: np.ndarray, blocks: Blocks, heights: np.ndarray) -> np.ndarray:
    """The largest potentials at other points that the heights of the points in blocks allow."""
    allowed = np.empty(points.shape[0])
    heights_in_blocks = _in_heights(heights, blocks.radius.size, 1)
    fill_candidates(points, blocks, heights_in_blocks, np.zeros(1), False, no_candidates(0, 0), allowed)
    return allowed


@inner
def _tighten(tree, n, z, k, cost, potential):
    """Potentials that make every arc of the tree tight; a component keeps its top source's level."""
    x = tree.next[tree.root]
    while x >= 0:
        p = tree.parent[x]
        if p != tree.root:
            length = step_cost(behind(z, x * k), behind(z, p * k), k, cost)
            potential[x] = potential[p] + length if x >= n else potential[p] - length
        x = tree.next[x]


@glued
def _cheapest_candidate(sinks, prices, number, potential):
    """Place of the cheapest candidate of a source, -1 where it has none."""
    lowest, best = np.inf, -1
    for k in range(number):
        less = prices[k] - potential[sinks[k]]
        if less < lowest:
            lowest, best = less, k
    return best


@vectorised
def _improve(tree, n, sinks, prices, number, room, potential, budget, entering):
    """Pivot until no candidate gains, as `simplex` does with all arcs; returns the number of pivots."""
    pivots, clean, i = 0, 0, 0
    noise = noise_of(potential, tree.root + 1)
    while clean < n and pivots < budget:
        count = 0
        for _ in range(ROWS):
            k = _cheapest_candidate(behind(sinks, i * room), behind(prices, i * room), number[i], potential)
            reduced = 0.0
            if k >= 0:
                reduced = reduced_cost(prices[i * room + k], potential, i, sinks[i * room + k], noise)
            if reduced < 0.0:
                insert_arc(entering, count, i, k, reduced)
                count += 1
            else:
                clean += 1
            i = i + 1 if i + 1 < n else 0
            if clean >= n:
                break
        for entry in range(count):
            source = entering.rows[entry]
            place = source * room + entering.cols[entry]
            reduced = reduced_cost(prices[place], potential, source, sinks[place], noise)
            if reduced < 0.0 and pivots < budget:
                pivot(tree, source, sinks[place], potential, reduced)
                pivots += 1
                clean = 0
    return pivots


class TreeRoom(NamedTuple):
    """Room for a tree and for arcs that are to enter it."""

    nodes: np.ndarray
    arcs: np.ndarray
    values: np.ndarray

    @classmethod
    def for_nodes(cls, nodes: int) -> TreeRoom:
        return cls(np.empty(TREE_ROOM * nodes, np.int32), np.empty(2 * ROWS, np.int64), np.empty(ROWS))


@kernel
def optimise_candidates(z, cost, candidates, a, b, parent, flow, potential, max_pivots, room):
    """Take the basis in `parent` to the best that the candidates allow, in place; returns the number of pivots."""
    n, nodes, k, points, levels = a.size, parent.size, z.shape[1], pointer(z), pointer(potential)
    tree = tree_at(pointer(parent), pointer(flow), nodes, pointer(room.nodes))
    entering = Entering(pointer(room.arcs), behind(pointer(room.arcs), ROWS), pointer(room.values))
    sinks, prices, number = pointer(candidates.sinks), pointer(candidates.prices), pointer(candidates.number)
    plant(tree, n, pointer(a), pointer(b))
    pivots, done = 0, 1
    while done > 0 and pivots < max_pivots:
        # Pivots shift all levels a little, and rounding adds up: from time to time both begin anew.
        mean = 0.0
        for x in range(nodes - 1):
            mean += levels[x]
        mean /= nodes - 1
        for x in range(nodes - 1):
            levels[x] -= mean
        _tighten(tree, n, points, k, cost, levels)
        budget = max_pivots - pivots if max_pivots - pivots < 10 * nodes else 10 * nodes
        done = _improve(tree, n, sinks, prices, number, candidates.sinks.shape[1], levels, budget, entering)
        pivots += done
    _tighten(tree, n, points, k, cost, levels)
    return pivots


def paid_costs(z: np.ndarray, cost: int, parent: np.ndarray, flow: np.ndarray) -> tuple[float, float]:
    """Flow times cost summed over the arcs of the tree in node order, and the dearest arc that carries flow."""
    nodes = np.flatnonzero(flow[:-1] > 0)
    steps = z[nodes] - z[parent[nodes]]
    if cost == MANHATTAN:
        lengths = in_turn(np.abs(steps))
    else:
        lengths = in_turn(steps * steps)
        lengths = lengths if cost == SQUARED else np.sqrt(lengths)
    return float(np.cumsum(flow[nodes] * lengths)[-1]), float(lengths.max())


def in_turn(terms: np.ndarray) -> np.ndarray:
    """The sum of each row, one after the other, as kernels add them."""
    return np.cumsum(terms, axis=1)[:, -1]


def drop_idle_arcs(n: int, parent: np.ndarray, flow: np.ndarray, potential: np.ndarray, dearest: float) -> bool:
    """`simplex.cut_idle_arcs` for the basis in `parent`, of n sources, with the dearest cost that is paid."""
    if np.abs(potential).max() <= 100.0 * dearest:
        return False
    idle = np.flatnonzero(flow[:n] == 0)
    parent[idle], potential[idle] = parent.size - 1, 0.0
    return True
