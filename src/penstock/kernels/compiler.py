# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""How numba compiles what `jit` marks: kernels, which Python calls, and helpers, which only kernels call.

Compilation dominates the first call of a program, so each function costs as little of it as it can. A kernel is cached
on disk and gets an entry for Python, but none for C. A helper gets no entry, no machine code and no file in the cache:
its LLVM module is linked into the kernels that call it, unoptimized. The kernels optimize it together with their own
code, and the cache stores them whole. numba does the opposite by default: it optimizes every function, makes
machine code of it, and then does so again wherever the function is inlined. A helper of one loop costs 20 ms of CPU
time this way, and 100 ms by default. Most of that time is numba's own Python code, so `_quick` remembers the types of
operators, which numba otherwise derives again for each line, and collects no garbage meanwhile.

A kernel accepts the types of its signatures and no others, so a wrong dtype, number of dimensions or memory order is an
error instead of a silent compilation. The check costs nothing: numba looks up the types of the arguments in any case,
and only types that it does not know yet come here. This module imports numba; `jit` imports it at the first call.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, cast

import numba
from numba import types
from numba.core import compiler_machinery
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typed_passes import NativeLowering
from numba.core.types.functions import BaseFunction
from numba.extending import intrinsic, register_jitable

from penstock.files.locks import locked
from penstock.kernels.cache_folder import cache_folder

_OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}


Accepted: TypeAlias = dict[tuple[Any, ...], str]
"""The signatures that a kernel accepts, by numba's types."""

Link: TypeAlias = Callable[[Any], None]
"""Called with a function before it compiles."""

Emit: TypeAlias = Callable[..., Any]
"""Writes instructions with LLVM's builder: `emit(builder, *values)` returns the resulting value, if there is one."""

QUIET_SECONDS = 1.0
"""How long this process may compile before it says so."""

_logger = logging.getLogger("penstock")


@dataclass
class _Compiling:
    """What this process compiles. Changed under numba's lock, which one thread has at a time."""

    depth: int = 0
    seconds: float = 0.0
    announced: bool = False


_state = _Compiling()


def _compile(dispatcher: Any, accepted: Accepted, link: Link, compile_now: Callable[[Any], Any], given: Any) -> Any:
    """Load or compile a kernel for these types, while no other process of this cache compiles one.

    The ranks of a machine begin together and need the same kernels: the first one compiles, and the others load what it
    has cached. numba's lock comes first, for a kernel may also be compiled within another one.
    """
    with global_compiler_lock, ExitStack() as stack:
        _state.depth += 1
        stack.callback(_leave)
        if _state.depth == 1:
            _require_accepted(dispatcher, accepted, given)
        link(dispatcher.py_func)
        if _state.depth == 1:
            stack.enter_context(_folder_lock(dispatcher.stats.cache_path))
            stack.enter_context(_quick())
        before, begun = sum(dispatcher.stats.cache_misses.values()), time.perf_counter()
        entry = compile_now(given)
        if _state.depth == 1 and sum(dispatcher.stats.cache_misses.values()) > before:
            _state.seconds += time.perf_counter() - begun
            _tell(dispatcher.stats.cache_path)
        return entry


def _leave() -> None:
    _state.depth -= 1


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
    if _state.announced or _state.seconds <= QUIET_SECONDS:
        return
    _state.announced = True
    message = (
        f"compiled kernels for {_state.seconds:.1f} s, and may compile more at their first use; "
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


def make_kernel(
    function: Callable[..., Any], signatures: tuple[str, ...], counted: bool, link: Link, files: str
) -> Any:
    """Return the dispatcher of a kernel: without the GIL and checks of indices; division by zero gives inf."""
    with cache_folder():
        decorate: Any = numba.njit  # its types do not know `_nrt`
        dispatcher = decorate(nogil=True, cache=True, _nrt=counted, pipeline_class=_KernelCompiler, **_OPTIONS)(
            function
        )
    cached = dispatcher._cache._cache_file
    cached._source_stamp = (*cached._source_stamp, files)
    accepted = {types_of(signature): signature for signature in signatures}
    dispatcher.compile = partial(_compile, dispatcher, accepted, link, dispatcher.compile)
    return dispatcher


def make_helper(function: Callable[..., Any], counted: bool, any_order: bool) -> None:
    """Let kernels that call a function compile it into themselves. See `jit.helper`."""
    options = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": _HelperCompiler, "_nrt": counted}
    if any_order:
        options["fastmath"] = {"reassoc"}
    register_jitable(**options)(function)


def make_intrinsic(stub: Callable[..., Any], emit: Emit, arguments: str, returns: str) -> Any:
    """Return what numba calls in place of `stub`: the instructions that `emit` writes into the kernel."""
    signature = type_of(returns)(*types_of(arguments))

    def typed(_context: object, *_arguments: object) -> tuple[object, object]:
        def write(_target: object, builder: object, _signature: object, values: Iterable[object]) -> object:
            return emit(builder, *values)

        return signature, write

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(typed)["__signature__"] = inspect.Signature([context, *inspect.signature(stub).parameters.values()])
    typed.__name__ = stub.__name__
    return intrinsic(typed)


def make_external(name: str, arguments: str, returns: str) -> Any:
    """Return what numba calls in place of a function of the C library."""
    return types.ExternalFunction(name, type_of(returns)(*types_of(arguments)))


def types_of(signature: str) -> tuple[Any, ...]:
    """Return numba's types for the arguments of a signature."""
    return tuple(type_of(text) for text in signature.split())


def type_of(text: str) -> Any:
    """Return numba's type for an argument or result as signatures write it."""
    parts = re.fullmatch(r"(\w+)(?:\[(\d)([ACF])(r?)\])?", text)
    if parts is None:
        raise ValueError(f"expected a type such as 'i8[2C]', got {text!r}")
    dtype, dimensions, order, read_only = parts.groups()
    kind = getattr(types, dtype)
    return types.Array(kind, int(dimensions), order, readonly=bool(read_only)) if dimensions else kind


def _require_accepted(dispatcher: Any, accepted: Accepted, given: Any) -> None:
    """Raise `TypeError` for types of arguments that a kernel does not list."""
    if tuple(given) not in accepted:
        expected = " or ".join(f"({signature})" for signature in accepted.values())
        got = ", ".join(map(str, given))
        raise TypeError(f"expected {dispatcher.py_func.__qualname__} to be called with {expected}, got ({got})")
