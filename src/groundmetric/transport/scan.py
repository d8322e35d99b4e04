"""The inner loop of every exact solve: the lowest entry of a row of reduced costs, and where it is.

Rows are of float32, of which a vector holds twice as many as of float64 and the cache too. The lowest value comes
first, its place after, and only where the value is worth it: a loop that keeps both takes twice as long.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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
