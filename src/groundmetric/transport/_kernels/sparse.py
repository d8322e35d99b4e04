"""The network simplex over candidate arcs: the cheapest arcs of every source, priced from the points, no cost matrix.

Points are halved along their widest axis, the halves again, and so on (`halving_order`). Cuts fall on multiples of the
largest group that fits, so that every run of 8, of 64, of 512 … points is compact: the groups of every level are plain
ranges. A plan between groups is refined to a first basis between points.

Sinks stand in `halving_order`, in blocks of 64. A ball around a block says how cheap its sinks can be at best; a block
that cannot beat what is known already is skipped. What is left is computed from the points, a block at a time.

Nodes, trees and potentials are those of `simplex`; z holds the points of all nodes but the root.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from .costs import MANHATTAN, SQUARED, fill_distances, fill_manhattan, step_cost
from .scan import smaller
from .simplex import NOISE, ROWS, cut_idle_arcs, insert_arc, pivot
from .tree import hung_forest, lent, plant

_BLOCK = 64
GROUP = 8
# So few points are not grouped: nothing would be left of them.
FEW = 64
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


@numba.njit(nogil=True, cache=True)
def noise_of(potential):
    """How far rounding may move reduced costs.

    Potentials add costs up along the paths of the tree, which may lead through parts where they are far larger: what
    counts is the largest of all, and the length of the paths, which grows with the tree.
    """
    return 3.0 * NOISE * max(1.0, potential.size / 1000.0) * np.abs(potential[:-1]).max()


@numba.njit(nogil=True, cache=True)
def reduced_cost(price, potential, source, sink, noise):
    """The reduced cost of an arc of this price; 0 where it is not below 0 by more than noise."""
    reduced = price - potential[sink] + potential[source]
    return reduced if reduced < -noise else 0.0


@numba.njit(nogil=True, cache=True)
def in_blocks(points, cost):
    """Points in `halving_order` as Blocks."""
    n, k = points.shape
    n_blocks = (n + _BLOCK - 1) // _BLOCK
    columns, centres = np.zeros((n_blocks, k, _BLOCK)), np.zeros((k, n_blocks))
    radius, away = np.zeros(n_blocks), np.empty((1, _BLOCK))
    for block in range(n_blocks):
        some = points[block * _BLOCK : (block + 1) * _BLOCK]
        columns[block, :, : some.shape[0]] = some.T
        for c in range(k):
            centres[c, block] = 0.5 * (some[:, c].min() + some[:, c].max())
        _fill_norms(np.ascontiguousarray(centres[:, block]).reshape(1, k), columns[block], cost, away)
        radius[block] = away[0, : some.shape[0]].max()
    return Blocks(columns, centres, radius, n, cost)


@numba.njit(nogil=True, cache=True)
def _fill_norms(x, columns, cost, out):
    """The norm that costs are made of, between the row x (1, k) and columns."""
    if cost == MANHATTAN:
        fill_manhattan(x, columns, out)
    else:
        fill_distances(x, columns, False, out)


@numba.njit(nogil=True, cache=True)
def _fill_floors(x, blocks, tops, norms, floors):
    """What a step from x to a sink of each block, less the sink's potential, costs at least."""
    _fill_norms(x, blocks.centres, blocks.cost, norms)
    for block in range(floors.size):
        way, radius = norms[0, block], blocks.radius[block]
        near = max(way - radius - _SLACK * (way + radius), 0.0)
        floors[block] = (near * near if blocks.cost == SQUARED else near) - tops[block]


@numba.njit(nogil=True, cache=True)
def _padded(v, n_blocks):
    """Potentials in blocks, minus infinity behind the last, and the highest of each block."""
    heights = np.full((n_blocks, _BLOCK), -np.inf)
    tops = np.empty(n_blocks)
    for block in range(n_blocks):
        some = v[block * _BLOCK : (block + 1) * _BLOCK]
        heights[block, : some.size] = some
        tops[block] = some.max()
    return heights, tops


@numba.njit(nogil=True, cache=True)
def _scan_block(x, blocks, block, heights, limit, places, values, count, row):
    """Take what is below the limit in a block into the sorted list; returns its new length and the new limit."""
    if blocks.cost == MANHATTAN:
        fill_manhattan(x, blocks.columns[block], row)
    else:
        fill_distances(x, blocks.columns[block], blocks.cost == SQUARED, row)
    less, lowest = row[0], np.inf
    for j in range(_BLOCK):
        less[j] -= heights[j]
        lowest = smaller(less[j], lowest)  # type: ignore[call-arg]
    if lowest >= limit:
        return count, limit
    for j in range(_BLOCK):
        if less[j] < limit:
            count = min(count + 1, values.size)
            k = count - 1
            while k > 0 and values[k - 1] > less[j]:
                places[k], values[k] = places[k - 1], values[k - 1]
                k -= 1
            places[k], values[k] = block * _BLOCK + j, less[j]
            if count == values.size:
                limit = min(limit, values[count - 1])
    return count, limit


@numba.njit(nogil=True, cache=True)
def _cheapest_sinks(x, blocks, heights, limit, places, values, floors, row):
    """The cheapest sinks from x below the limit, sorted, as many as there is room for; returns their number.

    The most promising block comes first: what it holds rules most others out.
    """
    count, best = 0, np.argmin(floors)
    if floors[best] < limit:
        count, limit = _scan_block(x, blocks, best, heights[best], limit, places, values, count, row)
    for block in range(floors.size):
        if floors[block] < limit and block != best:
            count, limit = _scan_block(x, blocks, block, heights[block], limit, places, values, count, row)
    return count


@numba.njit(nogil=True, cache=True)
def add_candidates(z, blocks, potential, width, only_gaining, candidates, least):
    """Add the cheapest arcs of every source to its candidates: up to `width`, and only gaining ones if asked.

    z holds the points of all sources, then of all sinks. `least` becomes the largest potential that the sinks' allow
    each source (or its own, where that is not more). Returns the number of arcs added.
    """
    n, n_blocks = least.size, blocks.radius.size
    heights, tops = _padded(potential[n : n + blocks.n_points], n_blocks)
    places, values, row = np.empty(width, np.int64), np.empty(width), np.empty((1, _BLOCK))
    norms, floors = np.empty((1, n_blocks)), np.empty(n_blocks)
    added, noise = 0, noise_of(potential)
    for i in range(n):
        x = z[i : i + 1]
        _fill_floors(x, blocks, tops, norms, floors)
        least[i] = -potential[i] if only_gaining else np.inf
        count = _cheapest_sinks(x, blocks, heights, least[i], places, values, floors, row)
        if count > 0:
            least[i] = values[0]
        _make_room(candidates, i, count, potential)
        for k in range(count):
            sink = n + places[k]
            price = step_cost(z, i, sink, blocks.cost)  # what the potentials have drowned of it, it needs again
            if only_gaining and reduced_cost(price, potential, i, sink, noise) == 0.0:
                continue
            candidates.sinks[i, candidates.number[i]] = sink
            candidates.prices[i, candidates.number[i]] = price
            candidates.number[i] += 1
            added += 1
    return added


@numba.njit(nogil=True, cache=True)
def _make_room(candidates, i, wanted, potential):
    """Drop the dearest candidates of a source until there is room for so many."""
    sinks, prices = candidates.sinks[i], candidates.prices[i]
    while candidates.number[i] + wanted > sinks.size:
        worst, dearest = 0, -np.inf
        for k in range(candidates.number[i]):
            if prices[k] - potential[sinks[k]] > dearest:
                worst, dearest = k, prices[k] - potential[sinks[k]]
        candidates.number[i] -= 1
        last = candidates.number[i]
        sinks[worst], prices[worst] = sinks[last], prices[last]


@numba.njit(nogil=True, cache=True)
def allowed_potentials(points, blocks, heights):
    """The largest potentials at other points that the heights of the points in blocks allow."""
    n_blocks = blocks.radius.size
    padded, tops = _padded(heights, n_blocks)
    places, values, row = np.empty(1, np.int64), np.empty(1), np.empty((1, _BLOCK))
    norms, floors = np.empty((1, n_blocks)), np.empty(n_blocks)
    allowed = np.empty(points.shape[0])
    for i in range(points.shape[0]):
        x = points[i : i + 1]
        _fill_floors(x, blocks, tops, norms, floors)
        _cheapest_sinks(x, blocks, padded, np.inf, places, values, floors, row)
        allowed[i] = values[0]
    return allowed


@numba.njit(nogil=True, cache=True)
def _price(tree, n, z, cost, potential):
    """Potentials that make every arc of the tree tight; a component keeps its top source's level."""
    root = tree.parent.size - 1
    x = tree.next[root]
    while x >= 0:
        p = tree.parent[x]
        if p != root:
            length = step_cost(z, x, p, cost)
            potential[x] = potential[p] + length if x >= n else potential[p] - length
        x = tree.next[x]


@numba.njit(nogil=True, cache=True)
def _cheapest_candidate(candidates, i, potential):
    """Place of the cheapest candidate of a source, -1 where it has none."""
    lowest, best = np.inf, -1
    for k in range(candidates.number[i]):
        less = candidates.prices[i, k] - potential[candidates.sinks[i, k]]
        if less < lowest:
            lowest, best = less, k
    return best


@numba.njit(nogil=True, cache=True)
def _improve(tree, n, candidates, potential, budget):
    """Pivot until no candidate gains, as `simplex` does with all arcs; returns the number of pivots."""
    tree = lent(tree)
    rows, places, values = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64), np.empty(ROWS)
    pivots, clean, i = 0, 0, 0
    noise = noise_of(potential)
    while clean < n and pivots < budget:
        count = 0
        for _ in range(ROWS):
            k = _cheapest_candidate(candidates, i, potential)
            reduced = 0.0
            if k >= 0:
                reduced = reduced_cost(candidates.prices[i, k], potential, i, candidates.sinks[i, k], noise)
            if reduced < 0.0:
                insert_arc(rows, places, values, count, i, k, reduced)
                count += 1
            else:
                clean += 1
            i = i + 1 if i + 1 < n else 0
            if clean >= n:
                break
        for entry in range(count):
            source, k = rows[entry], places[entry]
            sink = candidates.sinks[source, k]
            reduced = reduced_cost(candidates.prices[source, k], potential, source, sink, noise)
            if reduced < 0.0 and pivots < budget:
                pivot(tree, source, sink, potential, reduced)
                pivots += 1
                clean = 0
    return pivots


@numba.njit(nogil=True, cache=True)
def optimise_candidates(z, cost, candidates, a, b, parent, flow, potential, max_pivots):
    """Take the basis in `parent` to the best that the candidates allow, in place; returns the number of pivots."""
    tree, _ = plant(parent, flow, a, b)
    pivots, done = 0, 1
    while done > 0 and pivots < max_pivots:
        # Pivots shift all levels a little, and rounding adds up: from time to time both begin anew.
        potential[:-1] -= potential[:-1].mean()
        _price(tree, a.size, z, cost, potential)
        done = _improve(tree, a.size, candidates, potential, min(max_pivots - pivots, 10 * potential.size))
        pivots += done
    _price(tree, a.size, z, cost, potential)
    return pivots


@numba.njit(nogil=True, cache=True)
def paid_costs(z, cost, parent, flow):
    """Flow times cost summed over the arcs of the tree, and the dearest arc that carries flow."""
    total, dearest = 0.0, 0.0
    for x in range(parent.size - 1):
        if flow[x] > 0:
            length = step_cost(z, x, parent[x], cost)
            total += flow[x] * length
            dearest = max(dearest, length)
    return total, dearest


@numba.njit(nogil=True, cache=True)
def drop_idle_arcs(a, b, parent, flow, potential, paid):
    """`simplex.cut_idle_arcs` for the basis in `parent`."""
    tree, _ = plant(parent, flow, a, b)
    return cut_idle_arcs(tree, a.size, potential, paid)


def group_size(n_points: int) -> int:
    return GROUP if n_points > FEW else 1


@numba.njit(nogil=True, cache=True)
def halving_order(points):
    """The order itself: the points' places, one behind the other."""
    order = np.arange(points.shape[0])
    todo = [(0, points.shape[0])]
    while len(todo) > 0:
        low, high = todo.pop()
        if high - low <= GROUP:
            continue
        unit = GROUP
        while unit * GROUP < high - low:
            unit *= GROUP
        here = order[low:high].copy()
        order[low:high] = here[np.argsort(points[here, _widest_axis(points, here)])]
        pieces = (high - low + unit - 1) // unit
        middle = low + unit * ((pieces + 1) // 2)
        todo.append((low, middle))
        todo.append((middle, high))
    return order


@numba.njit(nogil=True, cache=True)
def _widest_axis(points, here):
    widest, axis = -1.0, 0
    for c in range(points.shape[1]):
        lowest, highest = np.inf, -np.inf
        for i in here:
            lowest, highest = min(lowest, points[i, c]), max(highest, points[i, c])
        if highest - lowest > widest:
            widest, axis = highest - lowest, c
    return axis


def grouped(points: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and masses of the groups of points that stand in `halving_order`."""
    size = group_size(units.size)
    starts = np.arange(0, units.size, size)
    sums = np.add.reduceat(units, starts)
    shares = units / np.repeat(sums, size)[: units.size]
    return np.add.reduceat(points * shares[:, None], starts, axis=0), sums


@numba.njit(nogil=True, cache=True)
def refined_basis(parent, flow, a, b, size_a, size_b):
    """A basis for sources of mass a and sinks of mass b from the basis of their groups, runs of size_a and of size_b.

    What one group ships to another, its points ship in order. The arcs of a basis form a forest, and so do these: the
    shipments of one arc are a chain, and two chains share at most a point, where their arcs share a group.
    """
    n_groups = (a.size + size_a - 1) // size_a
    left, room = a.copy(), b.copy()
    front_a = np.arange(n_groups) * size_a
    front_b = np.arange((b.size + size_b - 1) // size_b) * size_b
    arcs = np.empty((a.size + b.size + parent.size, 2), np.int64)
    count = 0
    for node in range(parent.size - 1):
        amount, above = flow[node], parent[node]
        tail, head = (node, above - n_groups) if node < n_groups else (above, node - n_groups)
        while amount > 0:
            while left[front_a[tail]] == 0:
                front_a[tail] += 1
            while room[front_b[head]] == 0:
                front_b[head] += 1
            i, j = front_a[tail], front_b[head]
            shipped = min(amount, left[i], room[j])
            amount -= shipped
            left[i] -= shipped
            room[j] -= shipped
            arcs[count] = i, a.size + j
            count += 1
    return hung_forest(arcs[:count], a.size, b.size)
