# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Compile what `jit` marks with the functions that numba documents.

`compiler` compiles faster, with parts of numba that are not documented. `jit` takes this compiler where numba lacks one
of them. Results are equal, except for the last bits of a sum that a helper may take `any_order` in.

A kernel accepts the types of its signatures and no others, so a wrong dtype, number of dimensions or memory
order is an error instead of a silent compilation. The check costs nothing: numba looks up the types of the arguments in
any case, and only types that it does not know yet come here. This module imports numba; `jit` imports it at the first
call.
"""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import numba
from numba import types
from numba.extending import intrinsic, register_jitable

from penstock.kernels.cache_folder import cache_folder, cached_in

OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}

Dispatcher: TypeAlias = Any  # what numba makes of a function; numba has no types
NumbaType: TypeAlias = Any

Types: TypeAlias = tuple[NumbaType, ...]
"""The types of the arguments of a kernel."""

Accepted: TypeAlias = dict[Types, str]
"""The signatures that a kernel accepts, by numba's types."""

Link: TypeAlias = Callable[[Callable[..., object]], None]
"""Called with a function before it compiles."""

Emit: TypeAlias = Callable[..., object]
"""Writes instructions with LLVM's builder: `emit(builder, *values)` returns the resulting value, if there is one."""


class PlainCompiler:
    """Makes numba's objects from the functions that `jit` marks."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def make_kernel(
        self, function: Callable[..., object], signatures: tuple[str, ...], counted: bool, link: Link, files: str
    ) -> Dispatcher:
        """Return the dispatcher of a kernel. `files` is the digest of the files whose code is in it."""
        dispatcher = self._dispatcher(function, counted, files)
        accepted = {self.types_of(signature): signature for signature in signatures}
        dispatcher.compile = partial(self._compile, dispatcher, accepted, link, dispatcher.compile)
        return dispatcher

    def _dispatcher(self, function: Callable[..., object], counted: bool, files: str) -> Dispatcher:
        """Decorate a kernel. numba looks at its own file alone, so kernels of other files get another folder."""
        decorate: Any = numba.njit(nogil=True, cache=True, **OPTIONS)
        with cache_folder():
            folder = decorate(function).stats.cache_path
        with cached_in(os.path.join(folder, f"plain-{files[:16]}")):
            return decorate(function)

    def _compile(
        self,
        dispatcher: Dispatcher,
        accepted: Accepted,
        link: Link,
        compile_now: Callable[[Types], object],
        arguments: Types,
    ) -> object:
        """Load or compile a kernel for these types. Within another kernel it may have any types."""
        if getattr(self._thread, "compiles", False):
            link(dispatcher.py_func)
            return compile_now(arguments)
        _require_accepted(dispatcher, accepted, arguments)
        self._thread.compiles = True
        try:
            with self._compiling(dispatcher):
                link(dispatcher.py_func)
                return compile_now(arguments)
        finally:
            self._thread.compiles = False

    def _compiling(self, dispatcher: Dispatcher) -> AbstractContextManager[None]:
        """Surround the compilation of a kernel and of those that it calls."""
        return nullcontext()

    def make_helper(self, function: Callable[..., object], counted: bool, any_order: bool, **options: Any) -> None:
        """Let kernels call a function. See `jit.helper`."""
        register_jitable(**OPTIONS, **options, fastmath={"reassoc"} if any_order else False)(function)

    @staticmethod
    def make_intrinsic(stub: Callable[..., object], emit: Emit, arguments: str, returns: str) -> Any:
        """Return what numba calls in place of `stub`: the instructions that `emit` writes into the kernel."""
        signature = type_of(returns)(*PlainCompiler.types_of(arguments))

        def typed(_context: object, *_arguments: object) -> tuple[object, object]:
            def write(_target: object, builder: object, _signature: object, values: Iterable[object]) -> object:
                return emit(builder, *values)

            return signature, write

        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(typed)["__signature__"] = inspect.Signature([context, *inspect.signature(stub).parameters.values()])
        typed.__name__ = stub.__name__
        return intrinsic(typed)

    @staticmethod
    def make_external(name: str, arguments: str, returns: str) -> Any:
        """Return what numba calls in place of a function of the C library."""
        return types.ExternalFunction(name, type_of(returns)(*PlainCompiler.types_of(arguments)))

    @staticmethod
    def types_of(signature: str) -> Types:
        """Return numba's types for the arguments of a signature."""
        return tuple(type_of(text) for text in signature.split())


def type_of(text: str) -> NumbaType:
    """Return numba's type for an argument or result as signatures write it."""
    parts = re.fullmatch(r"(\w+)(?:\[(\d)([ACF])(r?)\])?", text)
    if parts is None:
        raise ValueError(f"expected a type such as 'i8[2C]', got {text!r}")
    dtype, dimensions, order, read_only = parts.groups()
    kind = getattr(types, dtype)
    return types.Array(kind, int(dimensions), order, readonly=bool(read_only)) if dimensions else kind


def _require_accepted(dispatcher: Dispatcher, accepted: Accepted, arguments: Types) -> None:
    """Raise `TypeError` for types of arguments that a kernel does not list."""
    if tuple(arguments) not in accepted:
        expected = " or ".join(f"({signature})" for signature in accepted.values())
        got = ", ".join(map(str, arguments))
        raise TypeError(f"expected {dispatcher.py_func.__qualname__} to be called with {expected}, got ({got})")
