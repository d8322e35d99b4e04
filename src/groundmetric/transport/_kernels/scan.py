"""Reduced costs: rough ones in float32 for all arcs, exact ones for those that may enter the basis.

Rows are of float32, of which a vector holds twice as many as of float64 and the cache too. They are filled up to whole
pieces of 64 numbers, and begin where a cache line does.

To look for an arc that gains is half of the work. It is done on rough costs, in float32, in a third of the time that
it would take on exact ones. What an arc costs that was found is then looked up, or computed from its two points, where
there are points: then there is no other matrix than the rough one. Rounding may hide an arc that gains a little; before
a plan is called optimal, every arc that it may have hidden is priced too, so nothing is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from .compiled import behind, glued, inner, instruction, larger, smaller, vectorised
from .costs import EUCLIDEAN, fill_distances, reach_of, step_cost

_LANES = 16
# Numbers of a row that are looked at together.
PIECE = 64
_VALUES = ir.VectorType(ir.FloatType(), _LANES)
_LANE, _LONG = ir.IntType(32), ir.IntType(64)
_PLACES = ir.VectorType(_LANE, _LANES)
_NO_NAN = ("nnan", "nsz")
ROUNDING = 2.0**-24  # of float32
_LARGEST = 2.0**126  # half of what float32 can hold
# Beside the kinds of `Cost`: costs are those of a matrix.
MATRIX = -1


class Prices(NamedTuple):
    """What the arcs of a problem of n sources and m sinks cost; all that is no number is a pointer."""

    rough: Any  # (n, width) costs in float32, times `scale`; infinite behind the m sinks
    levels: Any  # (width,) room for the potentials of the sinks in float32, times `scale`; 0 behind the m sinks
    spare: Any  # (n + width,) room
    scale: float
    error: float  # of any rough cost, beside its rounding
    kind: int  # a `Cost` of the step between points, or MATRIX
    exact: Any  # (n, m) costs, if kind is MATRIX
    x: Any  # (n, k) points otherwise
    y: Any  # (m, k)
    n: int
    m: int
    k: int
    width: int  # `width_of(m)`


@glued
def price(prices, i, j):
    """What the arc from source i to sink j costs."""
    if prices.kind == MATRIX:
        return prices.exact[i * prices.m + j]
    k = prices.k
    return step_cost(behind(prices.x, i * k), behind(prices.y, j * k), k, prices.kind)


@vectorised
def fill_rough_matrix(exact, scale, n, m, width, rough):
    """Rough costs from exact ones (n, m); returns their error."""
    for i in range(n):
        row, costs = behind(rough, i * width), behind(exact, i * m)
        for j in range(m):
            row[j] = clipped(costs[j] * scale)
        for j in range(m, width):
            row[j] = np.inf
    return 2.0**-140


@glued
def clipped(number):
    return np.float32(smaller(-smaller(-number, _LARGEST), _LARGEST))


@vectorised
def fill_rough_steps(x, y, n, m, k, squared, width, room, rough):
    """Rough costs of the steps from points x (n, k) to y (m, k), few components; returns their scale.

    Steps are the same around any centre. Within a unit ball nothing overflows, and what underflows is less than
    rounding. Room for the points in float32: (n + width) k.
    """
    reach = larger(reach_of(x, x, n, k, EUCLIDEAN) + reach_of(y, x, m, k, EUCLIDEAN), 1e-140)
    columns = behind(room, n * k)
    for i in range(n):
        for c in range(k):
            room[i * k + c] = (x[i * k + c] - x[c]) / reach
    for c in range(k):
        for j in range(m):
            columns[c * width + j] = (y[j * k + c] - x[c]) / reach
        for j in range(m, width):
            columns[c * width + j] = np.inf
    fill_distances(room, columns, n, width, k, squared, rough)
    return 1.0 / (reach * reach if squared else reach)


@glued
def width_of(m):
    """Room that a row of m numbers takes: whole pieces."""
    return (m + PIECE - 1) // PIECE * PIECE


@instruction
def lowest_piece(typing_context, costs, levels, width):  # type: ignore[no-untyped-def]
    """The smallest of `costs[j] - levels[j]`, for j below the width, and where the first piece begins that it is in.

    Numbers of a piece are compared lane by lane, and a piece is remembered, not a place: so there is hardly more to do
    than to read the numbers.
    """

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        costs, levels, width = arguments
        before, loop, end = builder.basic_block, *(builder.append_basic_block() for _ in range(2))
        builder.branch(loop)
        builder.position_at_end(loop)
        piece, lowest, at = builder.phi(_LONG), builder.phi(_VALUES), builder.phi(_PLACES)
        places = [builder.add(piece, _LONG(k)) for k in range(0, PIECE, _LANES)]
        less = [builder.fsub(_load(builder, costs, j), _load(builder, levels, j)) for j in places]
        low = _lower(builder, _lower(builder, *less[:2]), _lower(builder, *less[2:]))
        is_lower = builder.fcmp_ordered("<", low, lowest, flags=_NO_NAN)
        new_at = builder.select(is_lower, _spread(builder, builder.trunc(piece, _LANE), _PLACES), at)
        new_lowest = builder.select(is_lower, low, lowest, flags=_NO_NAN)
        following = builder.add(piece, _LONG(PIECE))
        for phi, start, new in (
            (piece, _LONG(0), following),
            (lowest, ir.Constant(_VALUES, [float("inf")] * _LANES), new_lowest),
            (at, ir.Constant(_PLACES, [0] * _LANES), new_at),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, width), loop, end)
        builder.position_at_end(end)
        value = _fold(builder, new_lowest, lambda a, b: _lower(builder, a, b))
        is_lowest = builder.fcmp_ordered("==", new_lowest, _spread(builder, value, _VALUES))
        none = ir.Constant(_PLACES, [2**31 - 1] * _LANES)
        first = _fold(
            builder,
            builder.select(is_lowest, new_at, none),
            lambda a, b: builder.select(builder.icmp_signed("<", a, b), a, b),
        )
        return context.make_tuple(builder, signature.return_type, [value, builder.sext(first, _LONG)])

    floats = types.CPointer(types.float32)
    return types.Tuple((types.float32, types.int64))(floats, floats, types.int64), codegen


def _lower(builder: ir.IRBuilder, a: Any, b: Any) -> Any:
    """Lane by lane."""
    return builder.select(builder.fcmp_ordered("<", a, b, flags=_NO_NAN), a, b, flags=_NO_NAN)


def _fold(builder: ir.IRBuilder, vector: Any, choose: Any) -> Any:
    """One number of all lanes: the upper half meets the lower one, until there is one."""
    half = _LANES // 2
    while half:
        order = [k + half if k < half else k for k in range(_LANES)]
        swapped = builder.shuffle_vector(vector, vector, ir.Constant(_PLACES, order))
        vector, half = choose(vector, swapped), half // 2
    return builder.extract_element(vector, ir.Constant(_LANE, 0))


@glued
def next_at_most(costs, levels, m, limit, start):
    """The first j from `start` on with `costs[j] - levels[j]` at most the limit; m or more if there is none.

    What is behind the m numbers is read, too.
    """
    j = start
    while j < m:
        bits = _at_most(costs, levels, j, limit)
        if bits:
            return j + _trailing_zeros(bits)
        j += _LANES
    return j


@glued
def cheapest(costs, levels, m):
    """The first j of the smallest `costs[j] - levels[j]`; behind the m numbers, `costs` are infinite."""
    lowest, start = lowest_piece(costs, levels, width_of(m))
    return next_at_most(costs, levels, m, lowest, start)


@instruction
def _trailing_zeros(typing_context, bits):  # type: ignore[no-untyped-def]
    """The number of the lowest bit that is set."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@instruction
def _at_most(typing_context, costs, levels, j, limit):  # type: ignore[no-untyped-def]
    """Which of `costs[j + k] - levels[j + k]` are at most the limit, as bits k of a number."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        less = builder.fsub(*(_load(builder, numbers, arguments[2]) for numbers in arguments[:2]))
        found = builder.fcmp_ordered("<=", less, _spread(builder, arguments[3], _VALUES))
        return builder.zext(builder.bitcast(found, ir.IntType(_LANES)), ir.IntType(64))

    floats = types.CPointer(types.float32)
    return types.int64(floats, floats, types.int64, types.float32), codegen


def _load(builder: ir.IRBuilder, numbers: Any, at: Any) -> Any:
    loaded = builder.load(builder.bitcast(builder.gep(numbers, [at]), _VALUES.as_pointer()))
    loaded.align = 4  # of a single number: rows begin anywhere
    return loaded


def _spread(builder: ir.IRBuilder, number: Any, kind: ir.VectorType) -> Any:
    """The same number in every lane."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(one, one, ir.Constant(_PLACES, [0] * _LANES))


@vectorised
def set_levels(prices, potential):
    """Take over the potentials of the sinks; returns the size of the largest of them, scaled."""
    sinks, levels, scale = behind(potential, prices.n), prices.levels, prices.scale
    lowest, highest = 0.0, 0.0
    for j in range(prices.m):
        levels[j] = clipped(sinks[j] * scale)
        lowest = smaller(sinks[j], lowest)
        highest = smaller(-sinks[j], highest)
    return -smaller(lowest, highest) * scale


@glued
def slack(error, level, highest):
    """How much a rough reduced cost may be wrong, of arcs that may gain.

    These cost at most what their potentials allow, so that rounding is in proportion to potentials: of the cost, the
    sink's level, their difference, and what it is compared with. Infinite where these are too large for float32.
    """
    size = highest + abs(level)
    return error + 4.0 * ROUNDING * size if size < _LARGEST else np.inf


@glued
def gaining_arc(prices, i, potential, highest):
    """About the lowest reduced cost of source i's arcs, scaled, and its sink; 0 where it may be due to rounding."""
    row = behind(prices.rough, i * prices.width)
    level = -potential[i] * prices.scale
    lowest, start = lowest_piece(row, prices.levels, prices.width)
    if not lowest < level - slack(prices.error, level, highest):
        return 0.0, 0
    return lowest - level, next_at_most(row, prices.levels, prices.m, lowest, start)


@inner
def best_of_near(prices, i, potential, highest):
    """The sink to which source i gains most, exactly: every arc is priced that may gain when rounding is allowed for.

    An arc of the tree has the reduced cost 0, so that there is at least one.
    """
    row, m = behind(prices.rough, i * prices.width), prices.m
    level = -potential[i] * prices.scale
    limit = np.float32(level + slack(prices.error, level, highest))
    best, at = np.inf, 0
    j = next_at_most(row, prices.levels, m, limit, 0)
    while j < m:
        less = price(prices, i, j) - potential[prices.n + j]
        if less < best:
            best, at = less, j
        j = next_at_most(row, prices.levels, m, limit, j + 1)
    return at


@vectorised
def lift_potentials(prices, a, b, total, potential):
    """Make potentials of earlier costs feasible for the present ones, as high as each side allows; returns their value.

    The value of a problem is at least what feasible potentials pay (weak duality). Where an arc has become too cheap
    for its potentials, its source gives way by half; then the sinks take what the sources leave them, and the sources
    what the sinks leave. If one side gave way alone, the bound would be twice as loose. Rounding is allowed for.
    """
    n, m, width, levels, raised = prices.n, prices.m, prices.width, prices.levels, prices.spare
    set_levels(prices, potential)
    for j in range(width):
        raised[j] = np.inf if j < m else 0.0
    for i in range(n):
        row, level = behind(prices.rough, i * width), clipped(-potential[i] * prices.scale)
        _lower_to(raised, row, np.float32(0.5) * (level + smaller(lowest_piece(row, levels, width)[0], level)), m)
    paid, lowest, highest = 0.0, 0.0, 0.0
    for i in range(n):
        level = np.float64(lowest_piece(behind(prices.rough, i * width), raised, width)[0])
        potential[i] = -level / prices.scale
        paid += a[i] * level
        lowest = larger(lowest, abs(level))
    for j in range(m):
        level = np.float64(raised[j])
        potential[n + j] = level / prices.scale
        paid += b[j] * level
        highest = larger(highest, abs(level))
    return (paid / total - slack(2.0 * prices.error, 2.0 * lowest, 2.0 * highest)) / prices.scale


@vectorised
def _lower_to(levels, row, level, m):
    """Lower the levels of sinks to what a source of this level leaves them."""
    for j in range(m):
        levels[j] = smaller(row[j] - level, levels[j])
