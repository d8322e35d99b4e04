"""The inner loop of every exact solve: the smallest entry of a row of reduced costs, and where it is.

A loop that keeps value and index together does not vectorise by itself, and to look for the index afterwards takes as
long again. So the loop is written in vectors of LLVM, from bare addresses: twice as fast at 300 columns. At 1000 it
reads costs as fast as the cache gives them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_LANES = 8
_VALUES = ir.VectorType(ir.DoubleType(), _LANES)
_PLACES = ir.VectorType(ir.IntType(64), _LANES)
_INT = ir.IntType(64)
# Entries that a round of the loop looks at: two vectors, so that one need not wait for the other.
_ROUND = 2 * _LANES


@intrinsic
def smaller(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The smaller of two floats that are not NaN.

    numba's own `min` heeds NaN and signed zeros, which keeps LLVM from vectorising a minimum over an array; here the
    comparison and the choice both carry the flags that allow it.
    """
    flags = ("nnan", "nsz")

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        a, b = arguments
        return builder.select(builder.fcmp_ordered("<", a, b, flags=flags), a, b, flags=flags)

    return types.float64(types.float64, types.float64), codegen


@numba.njit(nogil=True, cache=True)
def lowest_difference(x, y):
    lowest = np.inf
    for j in range(x.size):
        lowest = smaller(x[j] - y[j], lowest)  # type: ignore[call-arg]
    return lowest


@numba.njit(nogil=True, cache=True)
def cheapest(cost, i, v, first):
    """Smallest `cost[i, j] - v[first + j]` and its j (the first, where several are equal)."""
    size = cost.shape[1]
    if size >= _ROUND:
        return _lowest_in_row(cost, i, v, first)  # type: ignore[call-arg]
    best, at = np.inf, 0
    for j in range(size):
        less = cost[i, j] - v[first + j]
        if less < best:
            best, at = less, j
    return best, at


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


class _Lowest(NamedTuple):
    """Per lane, the lowest value so far and its place: LLVM vectors."""

    values: Any
    places: Any


@intrinsic
def _lowest_in_row(typing_context, cost, i, v, first):  # type: ignore[no-untyped-def]
    """`cheapest` for rows of at least a round, of matrices and vectors in C order."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        matrix = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = context.make_array(signature.args[2])(context, builder, arguments[2])
        size = cgutils.unpack_tuple(builder, matrix.shape, 2)[1]
        row = builder.gep(matrix.data, [builder.mul(arguments[1], size)])
        levels = builder.gep(vector.data, [arguments[3]])
        value, place = _reduce(builder, _scan(builder, row, levels, size))
        return context.make_tuple(builder, signature.return_type, (value, place))

    ok = cost.layout == v.layout == "C"
    return (types.Tuple((types.float64, types.int64))(cost, types.int64, v, types.int64), codegen) if ok else None


def _scan(builder: ir.IRBuilder, row: ir.Value, levels: ir.Value, size: ir.Value) -> list[_Lowest]:
    """Code for the loop: rounds from the start, and a last one that ends with the row and may look at some again."""
    entry, loop = builder.basic_block, builder.append_basic_block("rounds")
    done = builder.append_basic_block("last")
    last = builder.sub(size, _number(_ROUND))
    builder.branch(loop)
    builder.position_at_end(loop)
    start = builder.phi(_INT)
    start.add_incoming(_number(0), entry)
    lanes = [_Lowest(builder.phi(_VALUES), builder.phi(_PLACES)) for _ in range(_ROUND // _LANES)]
    found = _look(builder, row, levels, start, lanes)
    following = builder.add(start, _number(_ROUND))
    start.add_incoming(following, loop)
    for lane, new in zip(lanes, found, strict=True):
        lane.values.add_incoming(ir.Constant(_VALUES, [float("inf")] * _LANES), entry)
        lane.values.add_incoming(new.values, loop)
        lane.places.add_incoming(ir.Constant(_PLACES, [0] * _LANES), entry)
        lane.places.add_incoming(new.places, loop)
    builder.cbranch(builder.icmp_signed("<=", following, last), loop, done)
    builder.position_at_end(done)
    return _look(builder, row, levels, last, found)


def _look(
    builder: ir.IRBuilder, row: ir.Value, levels: ir.Value, start: ir.Value, lanes: list[_Lowest]
) -> list[_Lowest]:
    """Code for one round: what is lowest when the entries from `start` on are seen too."""
    found = []
    for k, lane in enumerate(lanes):
        at = builder.add(start, _number(k * _LANES))
        less = builder.fsub(_load(builder, row, at), _load(builder, levels, at))
        lower = builder.fcmp_ordered("<", less, lane.values)
        places = builder.add(_spread(builder, at), ir.Constant(_PLACES, list(range(_LANES))))
        found.append(_Lowest(builder.select(lower, less, lane.values), builder.select(lower, places, lane.places)))
    return found


def _reduce(builder: ir.IRBuilder, lanes: list[_Lowest]) -> tuple[ir.Value, ir.Value]:
    """Code for the lowest of all lanes and its place, the first of those that are equal."""
    best = lanes[0]
    for lane in lanes[1:]:
        best = _lower(builder, best, lane)
    half = _LANES // 2
    while half:
        turn = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [(k + half) % _LANES for k in range(_LANES)])
        best = _lower(builder, best, _Lowest(*(builder.shuffle_vector(part, part, turn) for part in best)))
        half //= 2
    zero = ir.Constant(ir.IntType(32), 0)
    return builder.extract_element(best.values, zero), builder.extract_element(best.places, zero)


def _lower(builder: ir.IRBuilder, x: _Lowest, y: _Lowest) -> _Lowest:
    ties = builder.and_(builder.fcmp_ordered("==", y.values, x.values), builder.icmp_signed("<", y.places, x.places))
    better = builder.or_(builder.fcmp_ordered("<", y.values, x.values), ties)
    return _Lowest(*(builder.select(better, b, a) for a, b in zip(x, y, strict=True)))


def _load(builder: ir.IRBuilder, numbers: ir.Value, at: ir.Value) -> ir.Value:
    loaded = builder.load(builder.bitcast(builder.gep(numbers, [at]), _VALUES.as_pointer()))
    loaded.align = 8  # of a single number: rows begin anywhere
    return loaded


def _spread(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """The same number in every lane."""
    one = builder.insert_element(ir.Constant(_PLACES, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES))


def _number(value: int) -> ir.Constant:
    return ir.Constant(_INT, value)
