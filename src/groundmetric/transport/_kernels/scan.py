"""Reduced costs: rough ones in float32 for all arcs, exact ones for those that may enter the basis.

Rows are of float32, of which a vector holds twice as many as of float64 and the cache too. The lowest value comes
first, its place after, and only where the value is worth it: a loop that keeps both takes twice as long.

To look for an arc that gains is half of the work. It is done on rough costs, in float32, in a third of the time that
it would take on exact ones. What an arc costs that was found is then looked up, or computed from its two points, where
there are points: then there is no other matrix than the rough one. Rounding may hide an arc that gains a little; before
a plan is called optimal, every arc that it may have hidden is priced too, so nothing is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from .costs import FEW_COMPONENTS, MANHATTAN, SQUARED, fill_costs, step_between, used_components

_LANES = 16
_VALUES = ir.VectorType(ir.FloatType(), _LANES)
_LANE = ir.IntType(32)


@intrinsic
def smaller(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The smaller of two floats of one kind that are not NaN.

    numba's own `min` heeds NaN and signed zeros, which keeps LLVM from vectorising a minimum over an array; here the
    comparison and the choice both carry the flags that allow it.
    """
    flags = ("nnan", "nsz")

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        a, b = arguments
        return builder.select(builder.fcmp_ordered("<", a, b, flags=flags), a, b, flags=flags)

    return x(x, x), codegen


@numba.njit(nogil=True, cache=True)
def lowest_difference(x, y):
    lowest = np.inf
    for j in range(x.size):
        lowest = smaller(x[j] - y[j], lowest)  # type: ignore[call-arg]
    return lowest


@numba.njit(nogil=True, cache=True, inline="always")
def lowest_in_row(costs, i, levels):
    """The smallest `costs[i, j] - levels[j]`."""
    lowest = np.float32(np.inf)
    for j in range(costs.shape[1]):
        lowest = smaller(costs[i, j] - levels[j], lowest)  # type: ignore[call-arg]
    return lowest


@numba.njit(nogil=True, cache=True, inline="always")
def next_at_most(costs, i, levels, limit, start):
    """The first j from `start` on with `costs[i, j] - levels[j]` at most the limit; the number of columns if none."""
    m = costs.shape[1]
    j = start
    while j <= m - _LANES:
        bits = _at_most(costs, i, levels, j, limit)  # type: ignore[call-arg, var-annotated]
        if bits:
            while not bits & 1:
                bits >>= 1
                j += 1
            return j
        j += _LANES
    while j < m and not costs[i, j] - levels[j] <= limit:
        j += 1
    return j


@numba.njit(nogil=True, cache=True)
def cheapest(costs, i, levels):
    """The first j of the smallest `costs[i, j] - levels[j]`."""
    return next_at_most(costs, i, levels, lowest_in_row(costs, i, levels), 0)


@intrinsic
def _at_most(typing_context, costs, i, levels, j, limit):  # type: ignore[no-untyped-def]
    """Which of `costs[i, j + k] - levels[j + k]` are at most the limit, as bits k of a number."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        matrix = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = context.make_array(signature.args[2])(context, builder, arguments[2])
        size = cgutils.unpack_tuple(builder, matrix.shape, 2)[1]
        place = builder.add(builder.mul(arguments[1], size), arguments[3])
        less = builder.fsub(_load(builder, matrix.data, place), _load(builder, vector.data, arguments[3]))
        found = builder.fcmp_ordered("<=", less, _spread(builder, arguments[4]))
        return builder.zext(builder.bitcast(found, ir.IntType(_LANES)), ir.IntType(64))

    whole = types.int64
    ok = costs.layout == levels.layout == "C" and costs.dtype == levels.dtype == types.float32
    return (whole(costs, whole, levels, whole, types.float32), codegen) if ok else None


def _load(builder: ir.IRBuilder, numbers: Any, at: Any) -> Any:
    loaded = builder.load(builder.bitcast(builder.gep(numbers, [at]), _VALUES.as_pointer()))
    loaded.align = 4  # of a single number: rows begin anywhere
    return loaded


def _spread(builder: ir.IRBuilder, number: Any) -> Any:
    """The same number in every lane."""
    one = builder.insert_element(ir.Constant(_VALUES, ir.Undefined), number, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_LANE, _LANES), [0] * _LANES))


@numba.njit(nogil=True, cache=True, inline="always")
def borrowed(array):
    """The same array, its references not counted: whoever calls the present function holds it until that returns.

    Counting them at every call, in a way that is safe among threads, would take a fifth of the time of a solve.
    """
    return _uncounted(array)  # type: ignore[call-arg]


@intrinsic
def _uncounted(typing_context, array):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lent = context.make_array(signature.args[0])(context, builder, arguments[0])
        lent.meminfo = cgutils.get_null_value(lent.meminfo.type)
        return lent._getvalue()

    return array(array), codegen


_ROUNDING = 2.0**-24  # of float32
_LARGEST = 2.0**126  # half of what float32 can hold
_SAMPLE = 100  # entries of a matrix that tell what is typical


class Rough(NamedTuple):
    """Costs in float32, and room for the potentials of the sinks; both are multiplied by `scale`."""

    costs: np.ndarray  # (n, m)
    levels: np.ndarray  # (m,)
    scale: float
    error: float  # of any cost, beside its rounding


class Matrix(NamedTuple):
    """Costs from a matrix."""

    rough: Rough
    exact: np.ndarray  # (n, m)


class Steps(NamedTuple):
    """Costs of steps between points."""

    rough: Rough
    x: np.ndarray  # (n, k)
    y: np.ndarray  # (m, k)
    kind: int  # a `Cost`


@numba.njit(nogil=True, cache=True)
def matrix_prices(exact):
    """Prices of the arcs from a matrix of finite costs."""
    n, m = exact.shape
    scale = 1.0 / _typical(exact)
    costs = np.empty((n, m), np.float32)
    for i in range(n):
        for j in range(m):
            costs[i, j] = _clipped(exact[i, j] * scale)
    return Matrix(Rough(costs, np.empty(m, np.float32), scale, 2.0**-140), exact)


@numba.njit(nogil=True, cache=True)
def _typical(exact):
    """A middling cost of those that are not 0; what is far larger or far smaller may leave the range of float32."""
    stride = max(1, exact.size // _SAMPLE)
    sample = np.abs(exact.ravel()[::stride])
    sample = sample[sample > 0.0]
    return max(np.median(sample), 1e-290) if sample.size else 1.0


@numba.njit(nogil=True, cache=True, inline="always")
def _clipped(number):
    return np.float32(smaller(-smaller(-number, _LARGEST), _LARGEST))  # type: ignore[call-arg]


@numba.njit(nogil=True, cache=True)
def step_prices(x, y, kind, costs):
    """Prices of the steps from the rows of x (n, k) to those of y (m, k); room for the rough ones: costs (n, m)."""
    if x.shape[1] > FEW_COMPONENTS:
        used = used_components(x, y)
        x, y = x[:, used], y[:, used]
    centre = x[0].copy()
    near_x, near_y = x - centre, y - centre
    reach = max(_reach(near_x, kind) + _reach(near_y, kind), 1e-140)
    # Within a unit ball nothing overflows, and what underflows is less than rounding.
    fill_costs((near_x / reach).astype(np.float32), (near_y / reach).astype(np.float32), kind, costs)
    scale = 1.0 / (reach * reach if kind == SQUARED else reach)
    # Coordinates are rounded, then their differences, squares, sums and the root; no step is longer than 1.
    error = _ROUNDING * (6.0 + x.shape[1])
    return Steps(Rough(costs, np.empty(y.shape[0], np.float32), scale, error), x, y, kind)


@numba.njit(nogil=True, cache=True)
def _reach(x, kind):
    """The largest distance from 0."""
    reach = 0.0
    for i in range(x.shape[0]):
        total = 0.0
        for c in range(x.shape[1]):
            total += abs(x[i, c]) if kind == MANHATTAN else x[i, c] * x[i, c]
        reach = max(reach, total)
    return reach if kind == MANHATTAN else np.sqrt(reach)


def price(prices, i, j):  # type: ignore[no-untyped-def]
    """What the arc from source i to sink j costs (compiled code only)."""
    raise NotImplementedError


@overload(price)
def _price(prices, i, j):  # type: ignore[no-untyped-def]
    if "exact" in prices.fields:
        return lambda prices, i, j: prices.exact[i, j]
    return lambda prices, i, j: step_between(prices.x, i, prices.y, j, prices.kind)


def lent_prices(prices):  # type: ignore[no-untyped-def]
    """The same prices, references to their arrays not counted; see `borrowed` (compiled code only)."""
    raise NotImplementedError


@overload(lent_prices)
def _lent_prices(prices):  # type: ignore[no-untyped-def]
    if "exact" in prices.fields:
        return lambda prices: Matrix(_lent_rough(prices.rough), borrowed(prices.exact))
    return lambda prices: Steps(_lent_rough(prices.rough), borrowed(prices.x), borrowed(prices.y), prices.kind)


@numba.njit(nogil=True, cache=True, inline="always")
def _lent_rough(rough):
    return Rough(borrowed(rough.costs), borrowed(rough.levels), rough.scale, rough.error)


@numba.njit(nogil=True, cache=True)
def set_levels(rough, potential):
    """Take over the potentials of the sinks; returns the size of the largest of them, scaled."""
    sinks = potential[rough.costs.shape[0] : -1]
    lowest, highest = 0.0, 0.0
    for j in range(sinks.size):
        rough.levels[j] = _clipped(sinks[j] * rough.scale)
        lowest = smaller(sinks[j], lowest)  # type: ignore[call-arg]
        highest = smaller(-sinks[j], highest)  # type: ignore[call-arg]
    return -smaller(lowest, highest) * rough.scale  # type: ignore[call-arg]


@numba.njit(nogil=True, cache=True, inline="always")
def _slack(rough, level, highest):
    """How much a rough reduced cost may be wrong, of arcs that may gain.

    These cost at most what their potentials allow, so that rounding is in proportion to potentials: of the cost, the
    sink's level, their difference, and what it is compared with. Infinite where these are too large for float32.
    """
    size = highest + abs(level)
    return rough.error + 4.0 * _ROUNDING * size if size < _LARGEST else np.inf


@numba.njit(nogil=True, cache=True, inline="always")
def gaining_arc(rough, i, potential, highest):
    """About the lowest reduced cost of source i's arcs, scaled, and its sink; 0 where it may be due to rounding."""
    level = -potential[i] * rough.scale
    lowest = lowest_in_row(rough.costs, i, rough.levels)
    if not lowest < level - _slack(rough, level, highest):
        return 0.0, 0
    return lowest - level, next_at_most(rough.costs, i, rough.levels, lowest, 0)


@numba.njit(nogil=True, cache=True)
def best_of_near(prices, i, potential, highest):
    """The sink to which source i gains most, exactly: every arc is priced that may gain when rounding is allowed for.

    An arc of the tree has the reduced cost 0, so that there is at least one.
    """
    rough = prices.rough
    n, m = rough.costs.shape
    level = -potential[i] * rough.scale
    limit = np.float32(level + _slack(rough, level, highest))
    best, at = np.inf, 0
    j = next_at_most(rough.costs, i, rough.levels, limit, 0)
    while j < m:
        less = price(prices, i, j) - potential[n + j]
        if less < best:
            best, at = less, j
        j = next_at_most(rough.costs, i, rough.levels, limit, j + 1)
    return at
