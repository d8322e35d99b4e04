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
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager, register_pass
from numba.extending import intrinsic

class _Part(JITCodeLibrary):
    """Code that only other compiled code calls: it is handed on as it is.

    numba would optimise it by itself, make a program of it, and optimise it again with everything that calls it. Here
    that is done once, for the kernel as a whole.
    """

    attribute = "noinline"

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                function.add_function_attribute(self.attribute)

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # Python has none

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Of Python's objects, which are not used."""


class _GluedPart(_Part):
    attribute = "alwaysinline"


class _LowerPart(typed_passes.NativeLowering):
    """Numba's step from types to LLVM, into a `_Part`."""

    kind: Any

    def run_pass(self, state: Any) -> bool:
        state.library = self.kind(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerApart(_LowerPart):
    _name, kind = "groundmetric_apart", _Part


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerGlued(_LowerPart):
    _name, kind = "groundmetric_glued", _GluedPart


class _Steps(CompilerBase):
    """The steps of compilation that our code needs: of numba's own, those for closures, NumPy and threads are left out."""

    lowering: Any = typed_passes.NativeLowering

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
            self.lowering,
            typed_passes.NoPythonBackend,
        ):
            steps.add_pass(step, step._name)
        steps.finalize()
        return [steps]


class _PartSteps(_Steps):
    lowering = _LowerApart


class _GluedSteps(_Steps):
    lowering = _LowerGlued


_njit: Any = numba.njit  # its types know not all of these options
_OPTIONS = {"error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Callable) -> Any:
    """Compile a function that Python calls: without the GIL, and kept in numba's cache."""
    return _njit(nogil=True, cache=True, pipeline_class=_Steps, **_OPTIONS)(function)


def inner(function: Callable) -> Any:
    """Compile a function that only compiled code calls; it is kept with the kernels that call it."""
    return _called(function, pipeline_class=_PartSteps)


def glued(function: Callable) -> Any:
    """`inner` for what becomes part of whatever compiled code calls it: small, or called in one place."""
    return _called(function, pipeline_class=_GluedSteps)


def shared(function: Callable) -> Any:
    """`inner` for what takes long to compile and several kernels call: kept by itself, too."""
    return _called(function, pipeline_class=_Steps, cache=True)


def _called(function: Callable, **options: Any) -> Any:
    """Compile a function for compiled code, once: every whole number reaches it as int64.

    For a plain 0, for a node that comes from an array of int32, and for one that was counted, numba would compile it
    three times.
    """
    compiled = _njit(no_cpython_wrapper=True, **options, **_OPTIONS)(function)
    template = compiled.get_call_template

    def widened(arguments: tuple, keywords: dict) -> tuple:
        return template(tuple(map(_widened, arguments)), keywords)

    compiled.get_call_template = widened
    return compiled


def _widened(kind: Any) -> Any:
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
