"""Mark functions for compilation: `kernel` for what Python calls, `helper` and `intrinsic` for what kernels call.

Nothing compiles when a module of kernels is imported. The first call of a kernel replaces its name in its module by
what runs its machine code, so later calls cost nothing more. `library` says where that code comes from: a library that
was compiled when the package was built, the cache of this user, or numba. Called from Python, a helper runs as the
Python function that it is.

A signature lists the types of the arguments under numba's short names. An array is its dtype, its dimensions and its
order in memory, such as `i8[2C]`; `r` marks an array that is read only. A kernel accepts exactly the types of its
signatures. No function may make an array: the caller of a kernel gives it the arrays that it works in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from penstock.kernels import library
from penstock.kernels.linking import HELPERS, REPLACED, Intrinsic, Marked

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()


class Kernel(Marked, Generic[P, R]):
    """A function that Python calls. At the first call, what runs its machine code replaces its name in its module."""

    def __init__(self, function: Callable[P, R], signatures: tuple[str, ...]) -> None:
        super().__init__(function, signatures)
        self._made: Any = None

    def made(self) -> Callable[P, R]:
        """Return what runs the machine code, the same object for all threads."""
        with _lock:
            if self._made is None:
                self._made = library.load(self)
                REPLACED[id(self._made)] = self
                names, own = self.function.__globals__, self.function.__name__
                if names.get(own) is self:
                    names[own] = self._made
            return self._made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the machine code, also for those who imported this name before it was replaced."""
        return self.made()(*args, **kwargs)


KERNELS: dict[str, Kernel[..., Any]] = {}
"""The kernels of all modules that are imported, by module and name."""


def kernel(*signatures: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function compile, without the GIL and checks of indices; division by zero gives inf."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        lazy = Kernel(function, signatures)
        KERNELS[lazy.name] = lazy
        return lazy

    return decorate


def helper(function: Callable[P, R], *, any_order: bool = False) -> Callable[P, R]:
    """Compile a function into the kernels that call it."""
    HELPERS[function] = any_order
    return function


def intrinsic(
    emit: Callable[..., Any], arguments: str, returns: str = "void"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a function whose body is instructions of the machine. Only kernels can call it."""
    return lambda function: cast("Any", Intrinsic(function, arguments, returns, emit))


def external(arguments: str, returns: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a function that stands for the one of its name in the C library. Only kernels call it."""
    return lambda function: cast("Any", Intrinsic(function, arguments, returns, None))
