# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""How numba compiles what `jit` marks: kernels, which Python calls, and helpers, which only kernels call.

Compilation dominates the first call of a program, so each function costs as little of it as it can. A kernel is cached
on disk and gets an entry for Python, but none for C. A helper gets no entry, no machine code and no file in the cache:
its LLVM module is linked into the kernels that call it, unoptimized. The kernels optimize it together with their own
code, and the cache stores them whole. numba does the opposite by default: it optimizes every function, makes
machine code of it, and then does so again wherever the function is inlined. A helper of one loop costs 20 ms of CPU
time this way, and 100 ms by default. Most of that time is numba's own Python code, so `_quick` remembers the types of
operators, which numba otherwise derives again for each line, and collects no garbage meanwhile.

This uses parts of numba that it does not document. Where numba lacks one of them, the import of this module or
`LinkingCompiler()` raises an error, and `jit` takes the `PlainCompiler`.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Literal, cast

import numba
from numba.core import compiler_machinery
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typed_passes import NativeLowering
from numba.core.types.functions import BaseFunction

from penstock.files.locks import locked
from penstock.kernels.cache_folder import cache_folder
from penstock.kernels.plain_compiler import OPTIONS, Dispatcher, PlainCompiler

QUIET_SECONDS = 1.0
"""How long this process may compile before it says so."""

_logger = logging.getLogger("penstock")


@dataclass
class _Compiled:
    """What this process has compiled. Changed under numba's lock, which one thread has at a time."""

    seconds: float = 0.0
    announced: bool = False


_compiled = _Compiled()


_functions: Any = BaseFunction
_call_type: Callable[..., Any] = _functions.get_call_type
_operators: dict[tuple[int, tuple[object, ...]], tuple[object, Any]] = {}
"""An operator and its signature, by the operator's identity and the types of its arguments."""


def _remembered_call_type(function: Any, context: object, args: tuple[object, ...], kws: dict[str, object]) -> Any:
    """Return the signature of a call as numba does, which tries 20 templates for each `+`.

    Only signatures that numba states itself are remembered. Those that it derives by compiling a function also say
    which compiled code to call, and this may differ by the kernel.
    """
    try:
        key = id(function), tuple(args)
        known = _operators.get(key)
    except TypeError:  # some arguments are constants without a hash, such as slices
        return _call_type(function, context, args, kws)
    if known is not None and not kws:
        return known[1]
    signature = _call_type(function, context, args, kws)
    if not kws and signature is not None and function._impl_keys.get(signature.args) is function.key[0]:
        _operators[key] = function, signature  # the reference keeps the identity from being used again
    return signature


@contextmanager
def _quick() -> Generator[None]:
    """Let numba compile faster within the block. The thread must have numba's lock."""
    collects = gc.isenabled()
    gc.disable()  # numba makes many objects that live on; looking through them takes a tenth of a compilation
    _functions.get_call_type = _remembered_call_type
    try:
        yield
    finally:
        _functions.get_call_type = _call_type
        if collects:
            gc.enable()


@contextmanager
def _folder_lock(folder: str) -> Generator[None]:
    """Lock the cache of kernels; where its file system has no locks, each process compiles for itself."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with ExitStack() as stack:
            with suppress(OSError):
                # An open descriptor is unlocked at the end, also where another thread has forked a process meanwhile.
                stack.enter_context(locked(fd, wait=True))
            yield
    finally:
        os.close(fd)


def _tell(folder: str) -> None:
    """Say once that this process has compiled for a while: on a terminal to stderr, else to the log."""
    if _compiled.announced or _compiled.seconds <= QUIET_SECONDS:
        return
    _compiled.announced = True
    message = (
        f"compiled kernels for {_compiled.seconds:.1f} s, and may compile more at their first use; "
        f"later runs load them from {folder}"
    )
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"penstock: {message}", file=sys.stderr, flush=True)
    else:
        _logger.info(message)


def _link_only(library: Any) -> None:
    """Let a library only be linked into others: it is neither optimized alone nor given to the machine."""

    def finalize() -> None:
        library._finalize_dynamic_globals()
        library._finalized = True

    library._optimize_final_module = lambda: None
    library._finalize_final_module = finalize


@cast("Any", compiler_machinery).register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):
    """Lowers a helper to LLVM's language, and stops there."""

    _name = "penstock_linked_lowering"

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
        state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # numba 0.60 has none
        state["cr"] = lowered._replace(cfunc=entry)
        return True


_SKIPPED = frozenset(
    {
        "WithLifting",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "InlineClosureLikes",
        "InlineOverloads",
        "NopythonRewrites",
        "NoPythonSupportedFeatureValidation",
        "AnnotateTypes",
        "DumpParforDiagnostics",
    }
)
"""numba's passes for what kernels do not use: `with`, arguments that are `None` or literals, functions and
comprehensions within functions, loops over types, arithmetic on whole arrays, reports. Most analyse the function again,
also where they change nothing: together they take a sixth of the time of a compilation."""


class _KernelCompiler(CompilerBase):
    """numba's usual passes for compiled functions, without those that kernels do not need."""

    lowering: type[NativeLowering] = NativeLowering

    def define_pipelines(self) -> list[Any]:
        passes: Any = cast("Any", DefaultPassBuilder).define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering if known is NativeLowering else known, title)
            for known, title in passes.passes
            if known.__name__ not in _SKIPPED
        ]
        passes.finalize()
        return [passes]


class _HelperCompiler(_KernelCompiler):
    """The same for functions that are only linked into kernels."""

    lowering = _LinkedLowering


def _import_array_functions() -> None:
    """Import numba's functions of arrays without SciPy, which takes as long to import as numba itself.

    numba imports `scipy.linalg` only to set a flag: whether `np.cov` may be compiled. The flag is the same if it is
    set by looking whether SciPy is installed. Each function that needs SciPy still imports it when it compiles.
    """
    if "numba.np.arraymath" in sys.modules:
        return
    linalg: Any = import_module("numba.np.linalg")
    ensure = linalg.ensure_blas

    def look() -> None:
        if find_spec("scipy") is None:
            raise ImportError("scipy is required for linear algebra")

    linalg.ensure_blas = look
    try:
        arraymath: Any = import_module("numba.np.arraymath")
        arraymath.ensure_blas = ensure
    finally:
        linalg.ensure_blas = ensure


_import_array_functions()


class LinkingCompiler(PlainCompiler):
    """Links helpers into kernels, and compiles them with less work than numba does."""

    def __init__(self) -> None:
        super().__init__()
        _require_internals()
        self._dispatcher(_require_internals, counted=True, files="")

    def _dispatcher(self, function: Callable[..., object], counted: bool, files: str) -> Dispatcher:
        decorate: Any = numba.njit  # its types do not know `_nrt`
        with cache_folder():
            dispatcher = decorate(
                nogil=True, cache=True, _nrt=counted, pipeline_class=_KernelCompiler, no_cfunc_wrapper=True, **OPTIONS
            )(function)
        cached = dispatcher._cache._cache_file
        cached._source_stamp = (*cached._source_stamp, files)
        return dispatcher

    @contextmanager
    def _compiling(self, dispatcher: Dispatcher) -> Generator[None]:
        """Let no other process of this cache compile a kernel meanwhile.

        The ranks of a machine begin together and need the same kernels: the first one compiles, and the others load
        what it has cached. numba's lock comes first, for a kernel may also be compiled within another one.
        """
        folder: str = dispatcher.stats.cache_path
        with global_compiler_lock, _folder_lock(folder), _quick():
            before, begun = sum(dispatcher.stats.cache_misses.values()), time.perf_counter()
            yield
            if sum(dispatcher.stats.cache_misses.values()) > before:
                _compiled.seconds += time.perf_counter() - begun
                _tell(folder)

    def make_helper(self, function: Callable[..., object], counted: bool, any_order: bool, **options: Any) -> None:
        """Let kernels that call a function compile it into themselves."""
        linked = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _HelperCompiler}
        super().make_helper(function, counted, any_order, **linked, _nrt=counted, **options)


_INTERNALS = (
    "numba._dynfunc.make_function",
    "numba.core.codegen.CPUCodegen.create_library",
    "numba.core.codegen.CPUCodeLibrary._finalize_dynamic_globals",
    "numba.core.codegen.CPUCodeLibrary._finalize_final_module",
    "numba.core.codegen.CPUCodeLibrary._finalized",
    "numba.core.codegen.CPUCodeLibrary._optimize_final_module",
    "numba.core.base.BaseContext.insert_user_function",
    "numba.core.compiler.DefaultPassBuilder.define_nopython_pipeline",
    "numba.core.typed_passes.NativeLowering.run_pass",
)
"""What is looked up only while a kernel compiles."""


def _require_internals() -> None:
    """Raise `AttributeError` where numba lacks what kernels need to compile."""
    for name in _INTERNALS:
        attrgetter(name.removeprefix("numba."))(numba)
