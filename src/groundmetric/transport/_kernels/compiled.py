"""How kernels are compiled, and the pointers that they work on.

A first call waits for the compiler, so kernels are written for it. Numba takes the longer, the more operations on
arrays there are: an array carries a shape, strides and a count of references with it, and a function of NumPy drags a
dozen others along. So a `kernel`, which is what Python calls, takes arrays and hands pointers to the functions that do
the work; to read an entry of a pointer is one instruction. Room for intermediate results comes from the caller, too:
nothing is allocated. The arguments of a kernel hold what its pointers point to until it returns.

Pointers know no sizes and nothing checks their bounds; matrices lie in C order behind them. Where a function is called
with plain 0 or 1, numba compiles it once more for that number: ``np.int64(0)`` is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

_njit: Any = numba.njit  # its types know not all of these options
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Callable) -> Any:
    """Compile a function that Python calls: without the GIL, and kept in numba's cache."""
    return _njit(nogil=True, cache=True, **_OPTIONS)(function)


def inner(function: Callable) -> Any:
    """Compile a function that only compiled code calls; it is kept with the kernels that call it."""
    return _njit(no_cpython_wrapper=True, **_OPTIONS)(function)


def shared(function: Callable) -> Any:
    """`inner` for what takes long to compile and several kernels call: kept by itself, too."""
    return _njit(cache=True, no_cpython_wrapper=True, **_OPTIONS)(function)


def glued(function: Callable) -> Any:
    """A function whose statements become part of whatever compiled code calls it: for what is called in one place."""
    return _njit(error_model="numpy", inline="always")(function)


def instruction(function: Callable) -> Any:
    """An operation of compiled code that is written in LLVM's own instructions."""
    return intrinsic(function)


@instruction
def pointer(typing_context, array):  # type: ignore[no-untyped-def]
    """The first entry of an array; in C order, which all that counts from there relies on."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return (types.CPointer(array.dtype)(array), codegen) if array.layout == "C" else None


@instruction
def behind(typing_context, place, count):  # type: ignore[no-untyped-def]
    """The entry so many entries behind a place."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.gep(arguments[0], [arguments[1]])

    return place(place, types.int64), codegen


@instruction
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


@instruction
def larger(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The larger of two numbers of one kind; y where one of them is NaN. numba's own `max` compiles for longer."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        a, b = arguments
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return x(x, x), codegen
