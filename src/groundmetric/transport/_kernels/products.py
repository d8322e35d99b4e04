"""Products of many rows with few components, which take no longer than reading the rows does.

BLAS is made for square matrices: with five components it takes more than twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from .compiled import behind, instruction, kernel, pointer

# Up to so many components; with more, BLAS is as fast.
_FEW = 8
_LANES = 4
_DOUBLES = ir.VectorType(ir.DoubleType(), _LANES)
_LANE, _LONG = ir.IntType(32), ir.IntType(64)


def project(points: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Rows of dense points (n, n_features), of float32 or float64, times components, (n, n_components)."""
    n_features, whole = points.shape[1], points.shape[1] // _LANES * _LANES
    # The kernel is compiled for arrays that could be written to.
    if components.shape[0] > _FEW or not whole or not points.flags.carray or points.dtype.char not in "fd":
        # A wide product from the left is faster than a narrow one from the right, by half.
        return np.ascontiguousarray((components @ points.astype(np.float64, copy=False).T).T)
    z = np.empty((points.shape[0], components.shape[0]))
    fill_products(points, np.ascontiguousarray(components), whole, z)
    if whole < n_features:
        z += points[:, whole:] @ components[:, whole:].T
    return z


@kernel
def fill_products(points, components, size, z):
    """Products over the first features, a multiple of 4. Two rows at a time share what is read of the components."""
    n, stride, k = points.shape[0], points.shape[1], components.shape[0]
    for i in range(0, n, 2):
        j = i + 1 if i + 1 < n else i
        x, y = behind(pointer(points), i * stride), behind(pointer(points), j * stride)
        c = 0
        while c < k:
            some = behind(pointer(components), c * stride)
            u, v = behind(pointer(z), i * k + c), behind(pointer(z), j * k + c)
            if k - c >= 5:
                _five(x, y, some, stride, size, u, v)
                c += 5
            else:
                _one(x, y, some, stride, size, u, v)
                c += 1


def _products(count: int) -> Any:
    """Sums of products of two rows with so many components, of which each begins `stride` behind the one before."""

    @instruction
    def products(typing_context, x, y, components, stride, size, u, v):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            x, y, first, stride, size, u, v = arguments
            components = [builder.gep(first, [builder.mul(stride, _LONG(c))]) for c in range(count)]
            before, loop, end = builder.basic_block, builder.append_basic_block(), builder.append_basic_block()
            builder.branch(loop)
            builder.position_at_end(loop)
            place = builder.phi(_LONG)
            sums = [builder.phi(_DOUBLES) for _ in range(2 * count)]
            rows, added = [_load(builder, row, place) for row in (x, y)], []
            for c, component in enumerate(components):
                some = _load(builder, component, place)
                for row, total in zip(rows, sums[2 * c : 2 * c + 2], strict=True):
                    added.append(builder.fadd(total, builder.fmul(row, some, flags=("contract",)), flags=("contract",)))
            following = builder.add(place, _LONG(_LANES))
            for phi, start, new in zip(
                [place, *sums],
                [_LONG(0)] + [ir.Constant(_DOUBLES, [0.0] * _LANES)] * (2 * count),
                [following, *added],
                strict=True,
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(new, loop)
            builder.cbranch(builder.icmp_signed("<", following, size), loop, end)
            builder.position_at_end(end)
            for c in range(count):
                for out, total in zip((u, v), added[2 * c : 2 * c + 2], strict=True):
                    builder.store(_sum(builder, total), builder.gep(out, [_LONG(c)]))

        doubles = types.CPointer(types.float64)
        return types.void(x, x, doubles, types.int64, types.int64, doubles, doubles), codegen

    return products


def _load(builder: ir.IRBuilder, numbers: Any, at: Any) -> Any:
    place, kind = builder.gep(numbers, [at]), numbers.type.pointee
    loaded = builder.load(builder.bitcast(place, ir.VectorType(kind, _LANES).as_pointer()))
    loaded.align = 8 if kind == ir.DoubleType() else 4
    return loaded if kind == ir.DoubleType() else builder.fpext(loaded, _DOUBLES)


def _sum(builder: ir.IRBuilder, vector: Any) -> Any:
    lanes = [builder.extract_element(vector, _LANE(k)) for k in range(_LANES)]
    return builder.fadd(builder.fadd(lanes[0], lanes[1]), builder.fadd(lanes[2], lanes[3]))


_one, _five = _products(1), _products(5)
