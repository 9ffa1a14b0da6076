# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""How kernels are compiled: `kernel` for what Python calls, `helper` for what only kernels call.

Compilation dominates the first call of a program, so each function costs as little of it as it can. A kernel is cached
on disk and gets an entry for Python, but none for C. A helper gets no entry, no machine code and no file in the cache:
its LLVM module is linked into the kernels that call it, unoptimized. The kernels optimize it together with their own
code, and the cache stores them whole. numba does the opposite by default: it optimizes every function, makes
machine code of it, and then does so again wherever the function is inlined. A helper of one loop costs 30 ms of CPU
time this way, and 100 ms by default. Called from Python, a helper runs as the Python function that it is.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numba
from numba import _dynfunc  # pyright: ignore[reportAttributeAccessIssue]
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.extending import register_jitable

from penstock.files.locks import locked

_OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}


QUIET_SECONDS = 1.0
"""How long this process may compile before it says so."""

_logger = logging.getLogger("penstock")


@dataclass
class _Compiling:
    """What this process compiles. Changed under numba's lock, which one thread has at a time."""

    depth: int = 0
    seconds: float = 0.0
    told: bool = False


_state = _Compiling()


def _compile(dispatcher: Any, compile_now: Callable[[Any], Any], types: Any) -> Any:
    """Load or compile a kernel for these types, while no other process of this cache compiles one.

    The ranks of a machine begin together and need the same kernels: the first one compiles, and the others load what it
    has cached. numba's lock comes first, for a kernel may also be compiled within the function of a user.
    """
    with global_compiler_lock, ExitStack() as stack:
        _state.depth += 1
        stack.callback(_leave)
        if _state.depth == 1:
            stack.enter_context(_folder_lock(dispatcher.stats.cache_path))
        before, begun = sum(dispatcher.stats.cache_misses.values()), time.perf_counter()
        entry = compile_now(types)
        if _state.depth == 1 and sum(dispatcher.stats.cache_misses.values()) > before:
            _state.seconds += time.perf_counter() - begun
            _tell(dispatcher.stats.cache_path)
        return entry


def _leave() -> None:
    _state.depth -= 1


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
    if _state.told or _state.seconds <= QUIET_SECONDS:
        return
    _state.told = True
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


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):
    """Lowers a helper to LLVM's language, and stops there."""

    _name = "penstock_linked_lowering"

    def run_pass(self, state: Any) -> Literal[True]:
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        _link_only(state.library)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # numba names what it has compiled by this object. It is never called: the address is 0.
        where = lowered.fndesc.lookup_module()
        entry = _dynfunc.make_function(where, lowered.fndesc.qualname, "", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # numba 0.60 has none
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class _LinkedCompiler(CompilerBase):
    """numba's usual passes, but for the last."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        where = next(i for i, (known, _) in enumerate(passes.passes) if known is NativeLowering)
        passes.passes[where] = (_LinkedLowering, _LinkedLowering.__doc__)
        passes.finalize()
        return [passes]


def kernel(function: Any, **options: Any) -> Any:
    """Compile a function that Python calls: without the GIL and checks of indices; division by zero gives inf."""
    dispatcher: Any = numba.njit(nogil=True, cache=True, **_OPTIONS, **options)(function)
    dispatcher.compile = partial(_compile, dispatcher, dispatcher.compile)
    return dispatcher


def helper(function: Any, *, _nrt: bool = True, **options: Any) -> Any:
    """Compile a function into the kernels that call it, at their first call. It may make arrays."""
    options = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": _LinkedCompiler, "_nrt": _nrt, **options}
    return register_jitable(**options)(function)


def uncounted_kernel(function: Any) -> Any:
    """A `kernel` without reference counts of arrays, which cost more than a small function does. It makes no array."""
    return kernel(function, _nrt=False)


def uncounted_helper(function: Any) -> Any:
    """A `helper` without reference counts of arrays; see `uncounted_kernel`."""
    return helper(function, _nrt=False)
