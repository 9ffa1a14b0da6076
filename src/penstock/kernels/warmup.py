"""Compile all kernels ahead of use, for the types that the library calls them with."""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module

from penstock.kernels import jit


@cache
def packages() -> tuple[str, ...]:
    """The packages whose modules have kernels: ours, and the packages that the entry points `penstock.kernels` name."""
    return ("penstock.kernels", *(point.value for point in importlib.metadata.entry_points(group="penstock.kernels")))


def signatures() -> list[tuple[str, str]]:
    """Return the name of each kernel with each of its signatures; imports all modules that have kernels."""
    for package in packages():
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            if module.name != "penstock.kernels.compiler":  # has no kernels, and needs more of numba than they do
                import_module(module.name)
    stated = [(name, text) for name, kernel in jit.KERNELS.items() for text in kernel.signatures]
    return sorted((name, text) for name, text in stated if name.startswith(packages()))


def compile_all(progress: Callable[[int, int, str], None] | None = None) -> tuple[int, int]:
    """Compile every kernel for each of its signatures, or load it where it is cached."""
    todo = signatures()
    compiled_now = 0
    for number, (name, signature) in enumerate(todo):
        module, _, function = name.rpartition(".")
        if progress is not None:
            progress(number, len(todo), f"{module.rpartition('.')[2]}.{function}")
        compiled_now += jit.KERNELS[name].compile(signature)
    return len(todo), compiled_now
