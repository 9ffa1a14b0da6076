# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Make numba's objects of the functions that `jit` marks, with what numba documents.

A kernel accepts the types of its signatures and no others, so a wrong dtype, number of dimensions or memory order is an
error instead of a silent compilation. numba looks up the types of the arguments in any case, and only types that it
does not know yet come here. This module imports numba.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import Any, TypeAlias

import numba
from numba import types
from numba.extending import intrinsic, register_jitable

from penstock.kernels.cache_folder import cache_folder, cached_in
from penstock.kernels.telling import compiled_for

OPTIONS: dict[str, Any] = {"boundscheck": False, "error_model": "numpy"}

Dispatcher: TypeAlias = Any  # what numba makes of a function; numba has no types
NumbaType: TypeAlias = Any

Types: TypeAlias = tuple[NumbaType, ...]
"""The types of the arguments of a kernel."""

Accepted: TypeAlias = dict[Types, str]
"""The signatures that a kernel accepts, by numba's types."""

Emit: TypeAlias = Callable[..., object]
"""Writes instructions with LLVM's builder: `emit(builder, *values)` returns the resulting value, if there is one."""


def make_kernel(function: FunctionType, signatures: tuple[str, ...], files: str) -> Dispatcher:
    """Return the dispatcher of a linked kernel. `files` is the digest of the files whose code is in it.

    numba looks at the kernel's own file alone, so code of other files gets another folder in its cache.
    """
    decorate: Any = numba.njit(nogil=True, cache=True, **OPTIONS)
    with cache_folder():
        folder = decorate(function).stats.cache_path
    with cached_in(os.path.join(folder, f"penstock-{files[:16]}")):
        dispatcher = decorate(function)
    accepted = {types_of(signature): signature for signature in signatures}
    dispatcher.compile = partial(_compile, dispatcher, accepted, dispatcher.compile)
    return dispatcher


def _compile(
    dispatcher: Dispatcher, accepted: Accepted, compile_now: Callable[[Types], object], arguments: Types
) -> object:
    """Load or compile a kernel for these types."""
    if tuple(arguments) not in accepted:
        expected = " or ".join(f"({signature})" for signature in accepted.values())
        got = ", ".join(map(str, arguments))
        function = dispatcher.py_func
        name = f"{function.__module__}.{function.__qualname__}"
        raise TypeError(f"expected {name} to be called with {expected}, got ({got})")
    misses, begun = _misses(dispatcher), time.perf_counter()
    compiled = compile_now(arguments)
    if _misses(dispatcher) > misses:
        compiled_for(time.perf_counter() - begun, dispatcher.stats.cache_path)
    return compiled


def _misses(dispatcher: Dispatcher) -> int:
    return sum(dispatcher.stats.cache_misses.values())


def make_helper(function: FunctionType, any_order: bool, options: Mapping[str, Any]) -> None:
    """Let kernels call a linked function. See `jit.helper`."""
    register_jitable(**OPTIONS, **options, fastmath={"reassoc"} if any_order else False)(function)


def make_intrinsic(stub: Callable[..., object], emit: Emit, arguments: str, returns: str) -> Any:
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


def types_of(signature: str) -> Types:
    """Return numba's types for the arguments of a signature."""
    return tuple(type_of(text) for text in signature.split())


def type_of(text: str) -> NumbaType:
    """Return numba's type for an argument or result as signatures write it."""
    parts = re.fullmatch(r"(\w+)(?:\[(\d)C(r?)\])?", text)
    if parts is None:
        raise ValueError(f"expected a type such as 'i8[2C]', got {text!r}")
    dtype, dimensions, read_only = parts.groups()
    kind = getattr(types, dtype)
    return types.Array(kind, int(dimensions), "C", readonly=bool(read_only)) if dimensions else kind
