"""How kernels are compiled, and the pointers that they work on.

A first call waits for the compiler, so kernels are written for it. Numba compiles about as long as a function has
operations on arrays: each carries a shape, strides and a count of references with it, and every function of NumPy drags
a dozen others along. So a `kernel`, which is what Python calls, takes arrays and hands pointers to the `inner`
functions that do the work: an entry of a pointer is one instruction. Room for intermediate results comes from the caller
too, and nothing is allocated. What a pointer points to is held by the arguments of the kernel until it returns.

Pointers know no sizes and nothing checks their bounds; matrices lie in C order behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic


_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Callable) -> Any:
    """Compile a function that Python calls: without the GIL, and kept in numba's cache."""
    return numba.njit(nogil=True, cache=True, **_OPTIONS)(function)


def inner(function: Callable) -> Any:
    """Compile a function that only compiled code calls; it is kept with the kernels that call it."""
    return numba.njit(no_cpython_wrapper=True, **_OPTIONS)(function)


def shared(function: Callable) -> Any:
    """`inner` for what takes long to compile, and is called by kernels that are seldom used together: kept by itself."""
    return numba.njit(cache=True, no_cpython_wrapper=True, **_OPTIONS)(function)


def glued(function: Callable) -> Any:
    """A function whose statements become part of whatever compiled code calls it: for what is called in one place."""
    return numba.njit(error_model="numpy", inline="always")(function)


@intrinsic
def pointer(typing_context, array):  # type: ignore[no-untyped-def]
    """The first entry of an array in C order."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def behind(typing_context, place, count):  # type: ignore[no-untyped-def]
    """The entry so many entries behind a place."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.gep(arguments[0], [arguments[1]])

    return place(place, types.int64), codegen


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


@intrinsic
def larger(typing_context, x, y):  # type: ignore[no-untyped-def]
    """The larger of two numbers of one kind; y where one of them is NaN. numba's own `max` compiles for longer."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        a, b = arguments
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return x(x, x), codegen
