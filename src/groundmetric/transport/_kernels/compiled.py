"""How kernels are compiled, and the pointers that they work on.

A first call waits for the compiler, so kernels are written for it. Numba takes the longer, the more operations on
arrays there are: an array carries a shape, strides and a count of references with it, and a function of NumPy drags a
dozen others along. So a `kernel`, which is what Python calls, takes arrays and hands pointers to the functions that do
the work; to read an entry of a pointer is one instruction. Room for intermediate results comes from the caller, too:
nothing is allocated. The arguments of a kernel hold what its pointers point to until it returns.

Pointers know no sizes and nothing checks their bounds; matrices lie in C order behind them.

What a kernel calls is typed by itself, once, but optimised only with the kernel, and no machine code is made of it
alone. LLVM takes most of its time for loops that it turns into vectors or writes out several times, with a copy for
every remainder: that is asked for where it pays, by `vectorised`, and elsewhere code is kept small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager, register_pass
from numba.extending import intrinsic

from ..._internal.compile import KNOWN_INSIDE


class _Whole(JITCodeLibrary):
    """A kernel with all that it calls, small except where loops are `vectorised`."""

    attributes: tuple[str, ...] = ("optsize",)

    def add_ir_module(self, module: Any) -> None:
        for function in module.functions:
            if not function.is_declaration:
                for attribute in self.attributes:
                    function.attributes.add(attribute)
        super().add_ir_module(module)


class _Part(_Whole):
    """A function that only compiled code calls: what numba has made of it is handed on as it is.

    Numba would optimise it and make machine code of it, and again with everything that calls it.
    """

    attributes: tuple[str, ...] = ("noinline", "optsize")

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # there is no machine code of it alone

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Numba's door to Python objects, of which our code has none."""


class _VectorisedPart(_Part):
    attributes = ("noinline",)


class _GluedPart(_Part):
    attributes = ("alwaysinline",)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    """Numba's step from types to LLVM, into the kind of library that the function has."""

    _name = "groundmetric_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = state.func_id.func.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class _Steps(CompilerBase):
    """The steps of numba's compiler, without those for closures, NumPy and parallel loops, which our code has not."""

    def define_pipelines(self) -> list[PassManager]:
        steps = PassManager("groundmetric")
        for step in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            untyped_passes.GenericRewrites,
            untyped_passes.ReconstructSSA,
            typed_passes.NopythonTypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization,
            typed_passes.AnnotateTypes,
            _Lowering,
            typed_passes.NoPythonBackend,
        ):
            steps.add_pass(step, step._name)
        steps.finalize()
        return [steps]


def _compiled(function: Any, library: type[JITCodeLibrary], **options: Any) -> Any:
    function.library = library
    njit: Any = numba.njit  # its types know not all of these options
    if KNOWN_INSIDE:
        options["pipeline_class"] = _Steps
    return njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)


def kernel(function: Callable) -> Any:
    """Compile a function that Python calls: without the GIL, and kept in numba's cache."""
    return _compiled(function, _Whole, nogil=True, cache=True)


def inner(function: Callable) -> Any:
    """Compile a function that only compiled code calls; it is kept with the kernels that call it."""
    return _called(function, _Part)


def vectorised(function: Callable) -> Any:
    """`inner` with loops over many numbers, side by side: worth vectors."""
    return _called(function, _VectorisedPart)


def glued(function: Callable) -> Any:
    """`inner` for what becomes part of whatever calls it: small, or called in one place."""
    return _called(function, _GluedPart)


def shared(function: Callable) -> Any:
    """`inner` for what takes long to compile and several kernels call: kept by itself, too."""
    return _called(function, _Whole, cache=True)


def _called(function: Callable, library: type[JITCodeLibrary], **options: Any) -> Any:
    """Compile a function for compiled code, once: every whole number reaches it as int64.

    For a plain 0, for a node that was read from an array of int32, and for one that was counted, numba would compile
    it three times.
    """
    compiled = _compiled(function, library, no_cpython_wrapper=True, **options)
    if not KNOWN_INSIDE:
        return compiled
    template = compiled.get_call_template

    def with_int64(arguments: tuple, keywords: dict) -> tuple:
        return template(tuple(map(_as_int64, arguments)), keywords)

    compiled.get_call_template = with_int64
    return compiled


def _as_int64(kind: Any) -> Any:
    return types.int64 if isinstance(types.unliteral(kind), types.Integer) else kind


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
