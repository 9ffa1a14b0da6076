# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Read the LLVM code that numba makes of a kernel: the only file that needs what numba does not document.

numba lowers a kernel and its helpers to LLVM's language and stops there: it neither optimizes them nor makes machine
code of them, which `objects` does once, for all of a kernel together. Tests run this on the version of numba that is
pinned in constraints.txt.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, cast

import numba
from numba.core import compiler_machinery, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock

from penstock.kernels import compiler
from penstock.kernels.linking import Linker, Marked

_RESULTS = {
    "none": "",
    "bool": "b1",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float32": "f4",
    "float64": "f8",
}


@dataclass(frozen=True)
class KernelCode:
    """A kernel for one signature, in LLVM's language.

    Args:
        module: The LLVM module, as text. It is not optimized.
        function: The name of the kernel in it.
        returns: The types of what it returns, such as `i8 b1`.
    """

    module: str
    function: str
    returns: str


def _link_only(library: Any) -> None:
    """Let a library only be linked into others: it is neither optimized alone nor given to the machine."""

    def finalize() -> None:
        library._finalize_dynamic_globals()
        library._finalized = True

    library._optimize_final_module = lambda: None
    library._finalize_final_module = finalize


@cast("Any", compiler_machinery).register_pass(mutates_CFG=True, analysis_only=False)
class _LoweringOnly(typed_passes.NativeLowering):
    """Lowers a function to LLVM's language, and stops there."""

    _name = "penstock_lowering_only"

    def run_pass(self, state: Any) -> Literal[True]:
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        _link_only(state.library)
        state.flags.no_compile = True
        cast("Any", super()).run_pass(state)
        lowered = state["cr"]
        # numba names what it has compiled by this object. It is never called: the address is 0.
        where = lowered.fndesc.lookup_module()
        entry = cast("Any", numba)._dynfunc.make_function(
            where, lowered.fndesc.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=entry)
        return True


_PASSES: tuple[Any, ...] = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    _LoweringOnly,
    typed_passes.NoPythonBackend,
)


class _Reader(CompilerBase):
    """The passes of numba that kernels need. Its other passes look for closures, generators or parallel loops, which
    kernels do not have. A test compares the code with the code by all passes."""

    def define_pipelines(self) -> list[Any]:
        passes: Any = compiler_machinery.PassManager("penstock")
        passes._ENFORCING = False  # else the function is analysed after each pass
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


_READING: dict[str, Any] = {
    "pipeline_class": _Reader,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # nothing makes arrays, so no references are counted
}
_linker = Linker(_READING)
_chosen: dict[tuple[Any, Any], Any] = {}
_BLAS = "scipy.linalg.cython_blas"


def read(kernel: Marked, signature: str) -> KernelCode:
    """Return the code of a kernel for one of its signatures."""
    decorate: Any = numba.njit
    types = compiler.types_of(signature)
    _import_linear_algebra()
    with _no_collection(), _types_chosen_once():
        dispatcher = decorate(nogil=True, **compiler.OPTIONS, **_READING)(_linker.linked(kernel.function))
        dispatcher.compile(types)
        result = dispatcher.overloads[types]
        result.library.finalize()  # which links the helpers into it
    returned = result.signature.return_type
    each = returned if isinstance(returned, numba.types.BaseTuple) else (returned,)
    returns = " ".join(_RESULTS[str(kind)] for kind in cast("tuple[object, ...]", each))
    return KernelCode(result.library.get_llvm_str(), result.fndesc.llvm_func_name, returns)


def _import_linear_algebra() -> None:
    """Import numba's linear algebra without SciPy's, which takes as long as the rest of numba.

    numba imports SciPy's here to know whether it exists, and again where a function of a user needs it.
    """
    if _BLAS in sys.modules:
        return
    sys.modules[_BLAS] = ModuleType(_BLAS)
    try:
        import_module("numba.np.arraymath")
    finally:
        del sys.modules[_BLAS]


@contextmanager
def _types_chosen_once() -> Generator[None]:
    """numba tries all that it knows of an operator, such as dates and texts, wherever one stands in a function.
    Here it does so once for each kind of arguments. Nobody else compiles meanwhile."""
    functions: Any = numba.types.Function
    choose = functions.get_call_type

    def choose_once(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return choose(function, context, args, kws)
        if (function, args) not in _chosen:
            _chosen[function, args] = choose(function, context, args, kws)
        return _chosen[function, args]

    with global_compiler_lock:
        functions.get_call_type = choose_once
        try:
            yield
        finally:
            del functions.get_call_type  # the one of its base class


@contextmanager
def _no_collection() -> Generator[None]:
    """numba makes many objects that live on; looking through them takes a tenth of a compilation."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
