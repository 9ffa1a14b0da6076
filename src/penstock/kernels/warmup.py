"""Compile all kernels ahead of use, for the types that the library calls them with."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module

from penstock.errors import require
from penstock.kernels import jit, library

_NUMBA = tuple(f"penstock.kernels.{name}" for name in ("compiler", "objects", "reading"))
"""Modules without kernels, which import numba."""


@cache
def packages() -> tuple[str, ...]:
    """The packages whose modules have kernels: ours, and the packages that the entry points `penstock.kernels` name."""
    return ("penstock.kernels", *(point.value for point in importlib.metadata.entry_points(group="penstock.kernels")))


def signatures() -> list[tuple[str, str]]:
    """Return the name of each kernel with each of its signatures; imports all modules that have kernels."""
    for package in packages():
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            if module.name not in _NUMBA and module.name.rpartition(".")[2] != "binding":
                import_module(module.name)
    stated = [(name, text) for name, kernel in jit.KERNELS.items() for text in kernel.signatures]
    return sorted((name, text) for name, text in stated if name.startswith(packages()))


def compile_all(processes: int, progress: Callable[[int, int, str], None] | None = None) -> tuple[int, int]:
    """Compile every kernel for each of its signatures in processes, unless it is compiled already. Returns how many
    there are, and how many were compiled."""
    todo = signatures()
    left = [each for each in todo if not library.is_compiled(jit.KERNELS[each[0]], each[1])]
    if not left:
        return len(todo), 0
    require("numba", "jit")
    with ProcessPoolExecutor(min(processes, len(left)), multiprocessing.get_context("spawn")) as pool:
        for number, ((name, _), _) in enumerate(zip(left, pool.map(_compile, left), strict=True)):
            if progress is not None:
                progress(number + 1, len(left), ".".join(name.split(".")[-2:]))
    return len(todo), len(left)


def _compile(named: tuple[str, str]) -> None:
    name, signature = named
    import_module(name.rpartition(".")[0])
    library.compile_now(jit.KERNELS[name], signature)
