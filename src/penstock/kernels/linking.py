"""What is compiled together with a kernel: its helpers, the kernels that it calls, and instructions of the machine.

What compiles gets copies of the functions, in which the names of kernels, intrinsics and functions of the C library are
replaced by what numba calls for them: see `Linker`.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import numpy as np

HELPERS: dict[Any, bool] = {}
"""Helpers, and whether their sums may be taken in any order."""

REPLACED: dict[int, Marked] = {}
"""Kernels whose names were replaced, by the identity of what replaced them, which is never freed."""


class Marked:
    """A function that Python calls as a kernel, and the types that it accepts."""

    def __init__(self, function: Callable[..., object], signatures: tuple[str, ...]) -> None:
        self.__doc__ = function.__doc__
        self.function = cast("FunctionType", function)
        self.name = f"{self.function.__module__}.{self.function.__qualname__}"
        self.signatures = signatures


class Intrinsic:
    """A function that only kernels call: instructions of the machine, or a function of the C library."""

    def __init__(
        self, function: Callable[..., Any], arguments: str, returns: str, emit: Callable[..., Any] | None
    ) -> None:
        self.__doc__ = function.__doc__
        self.function = function
        self.arguments = arguments
        self.returns = returns
        self.emit = emit


class Linker:
    """Copies functions for numba, with the names in them replaced by what numba calls.

    Args:
        options: Options of helpers, for numba.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._linked: dict[object, Any] = {}
        self._registered: set[object] = set()

    def linked(self, function: FunctionType) -> FunctionType:
        """Return the copy of a function, the same one at each call."""
        if function not in self._linked:
            names = dict(function.__globals__)
            copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
            copy.__qualname__ = function.__qualname__
            self._linked[function] = copy
            for name in _names(function.__code__):
                if name in names:  # others are builtins, and attributes
                    names[name] = self._replacement(names[name])
        return self._linked[function]

    def _replacement(self, value: Any) -> Any:
        value = REPLACED.get(id(value), value)
        if isinstance(value, Intrinsic):
            if value not in self._linked:
                self._linked[value] = self._intrinsic(value)
            return self._linked[value]
        if isinstance(value, Marked):
            value = value.function
        elif not isinstance(value, FunctionType) or value not in HELPERS:
            return value
        return self._helper(value)

    def _helper(self, function: FunctionType) -> FunctionType:
        from penstock.kernels import compiler  # heavy: imports numba

        copy = self.linked(function)
        if copy not in self._registered:
            self._registered.add(copy)
            compiler.make_helper(copy, HELPERS.get(function, False), self._options)
        return copy

    @staticmethod
    def _intrinsic(value: Intrinsic) -> Any:
        from penstock.kernels import compiler  # heavy: imports numba

        if value.emit is None:
            return compiler.make_external(value.function.__name__, value.arguments, value.returns)
        return compiler.make_intrinsic(value.function, value.emit, value.arguments, value.returns)


def linked_files(function: Callable[..., object]) -> str:
    """Return a digest of what is compiled into a kernel: the files of its function, its helpers and intrinsics, and the
    constants that they use, which may be of other files."""
    seen: set[FunctionType] = set()
    left: list[object] = [function]
    digests: set[str] = set()
    while left:
        current = left.pop()
        if isinstance(current, np.ndarray):
            digests.add(hashlib.sha256(current.tobytes()).hexdigest())
        elif isinstance(current, (int, float, tuple, np.generic)):
            digests.add(repr(cast("object", current)))
        if not isinstance(current, FunctionType) or current in seen:
            continue
        seen.add(current)
        digests.add(file_digest(current.__code__.co_filename) or _code_digest(current.__code__))
        for name in _names(current.__code__):
            value = current.__globals__.get(name)
            value = REPLACED.get(id(value), value)
            if isinstance(value, Intrinsic):
                value = value.emit
            elif isinstance(value, Marked):
                value = value.function
            left.append(value)
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()


def _code_digest(code: CodeType) -> str:
    return hashlib.sha256(marshal.dumps(code)).hexdigest()


@cache
def file_digest(path: str) -> str:
    """Return the SHA-256 of a file; empty where there is none, such as for what is typed into an interpreter."""
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names in a function, and in functions and comprehensions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
