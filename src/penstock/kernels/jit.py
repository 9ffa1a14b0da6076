"""Mark functions for compilation: `kernel` for what Python calls, `helper` and `intrinsic` for what kernels call.

Nothing compiles when a module of kernels is imported, and numba is not imported either. The first call of a kernel
imports numba and replaces the name of the kernel in its module by numba's dispatcher, so later calls cost nothing
more. Before a kernel compiles, `link` does the same for the names that it uses: it replaces kernels, intrinsics and
functions of the C library, and tells numba of helpers. All of this happens under one lock, so that threads may share a
first call. Called from Python, a helper runs as the Python function that it is.

A signature lists the types of the arguments under numba's short names. An array is its dtype, its dimensions and its
order in memory, such as `i8[2C]`; `r` marks an array that is read only. A kernel accepts exactly the types of its
signatures, and `warmup` compiles it for each.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from penstock.kernels.plain_compiler import PlainCompiler

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()
_helpers: dict[Any, tuple[bool, bool]] = {}
"""Helpers that numba does not know yet: is each reference to an array counted, may sums be taken in any order."""
_written: dict[int, object] = {}
"""The function that was written for each of numba's objects, by the identity of the object, which is never freed."""


class Lazy(Generic[P, R]):
    """A function whose name numba's own object replaces when the name is first used."""

    def __init__(
        self, function: Callable[P, R], make: Callable[[], Any], written: Callable[..., object] | None = None
    ) -> None:
        self.__doc__ = function.__doc__
        self.written = written or function
        self._make = make
        self._made: Any = None

    def made(self) -> Any:
        """Return numba's object, the same one for all threads."""
        with _lock:
            if self._made is None:
                self._made = self._make()
                _written[id(self._made)] = self.written
            return self._made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call numba's object, also for those who imported this name before it was replaced."""
        return self.made()(*args, **kwargs)


class Kernel(Lazy[P, R]):
    """A function that compiles at its first call. Numba's dispatcher then replaces its name in its module."""

    def __init__(self, function: Callable[P, R], signatures: tuple[str, ...], counted: bool) -> None:
        super().__init__(function, self._dispatcher)
        self.function = function
        self.signatures = signatures
        self._counted = counted

    def compile(self, signature: str) -> bool:
        """Compile for a signature, or load it from the cache. Returns whether it was compiled."""
        dispatcher = self.made()
        before = sum(dispatcher.stats.cache_misses.values())
        dispatcher.compile(_compiler().types_of(signature))
        return sum(dispatcher.stats.cache_misses.values()) > before

    def _dispatcher(self) -> Any:
        dispatcher = _compiler().make_kernel(
            self.function, self.signatures, self._counted, link, linked_files(self.function)
        )
        names, own = self.function.__globals__, self.function.__name__
        if names.get(own) is self:
            names[own] = dispatcher
        return dispatcher


KERNELS: dict[str, Kernel[..., Any]] = {}
"""The kernels of all modules that are imported, by module and name."""


def kernel(*signatures: str, counted: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function compile at its first call, without the GIL and checks of indices; division by zero gives inf."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        lazy = Kernel(function, signatures, counted)
        KERNELS[f"{function.__module__}.{function.__qualname__}"] = lazy
        return lazy

    return decorate


def uncounted_kernel(*signatures: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a `kernel` that makes no array: references to arrays are not counted."""
    return kernel(*signatures, counted=False)


def helper(function: Callable[P, R], *, counted: bool = True, any_order: bool = False) -> Callable[P, R]:
    """Compile a function into the kernels that call it. It may make arrays."""
    _helpers[function] = counted, any_order
    return function


def uncounted_helper(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no array into the kernels that call it: see `uncounted_kernel`."""
    return helper(function, counted=False)


def intrinsic(
    emit: Callable[..., Any], arguments: str, returns: str = "void"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a function whose body is instructions of the machine. Only kernels can call it."""
    return lambda function: Lazy(
        function, lambda: _compiler().make_intrinsic(function, emit, arguments, returns), written=emit
    )


def external(arguments: str, returns: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a function that stands for the one of its name in the C library. Only kernels call it."""
    return lambda function: Lazy(function, lambda: _compiler().make_external(function.__name__, arguments, returns))


def link(function: Any) -> None:
    """Let numba know what a function calls: replace lazy names in its module, register helpers, and link these too."""
    names: dict[str, Any] = function.__globals__
    with _lock:
        for name in _names(function.__code__):
            value = names.get(name)
            if isinstance(value, Lazy):
                names[name] = value.made()
            elif isinstance(value, FunctionType) and (options := _helpers.pop(value, None)) is not None:
                _compiler().make_helper(value, *options)
                link(value)


def linked_files(function: Callable[..., object]) -> str:
    """Return a digest of the files whose functions are compiled into a kernel: its own, its helpers and intrinsics.

    numba looks at the kernel's own file alone, and would load machine code with a helper that has changed since.
    """
    seen: set[FunctionType] = set()
    left: list[object] = [function]
    while left:
        current = left.pop()
        if not isinstance(current, FunctionType) or current in seen:
            continue
        seen.add(current)
        for name in _names(current.__code__):
            value = current.__globals__.get(name)
            left.append(value.written if isinstance(value, Lazy) else _written.get(id(value), value))
    digests = {_file_digest(each.__code__.co_filename) for each in seen}
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()


@cache
def _file_digest(path: str) -> str:
    file = Path(path)
    return hashlib.sha256(file.read_bytes() if file.is_file() else b"").hexdigest()


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names in a function, and in functions and comprehensions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _compiler() -> PlainCompiler:
    """Return what compiles kernels: the faster compiler, or the plain one where numba lacks what that one needs."""
    from penstock.kernels import plain_compiler  # heavy: imports numba

    try:
        from penstock.kernels.compiler import LinkingCompiler

        return LinkingCompiler()
    except (ImportError, AttributeError, KeyError) as missing:
        warnings.warn(
            f"numba {version('numba')} lacks a part that penstock uses to compile kernels faster ({missing}); results "
            "are the same, but the first call of a kernel takes about 1.5 times as long; install numba>=0.60,<0.69",
            stacklevel=2,
        )
        return plain_compiler.PlainCompiler()
