"""Compile all kernels ahead of use, for the types that the library calls them with."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.kernels import compiled, jit
from penstock.kernels.cache_folder import cache_folder

PACKAGES = ("penstock.kernels", "penstock.domains.chess.kernels", "penstock.domains.driving.kernels")
"""The packages whose modules have kernels."""

SIGNATURES: dict[str, tuple[str, ...]] = {
    "packing.best_fit": ("i8[1C] i8 i8 i8[1C]",),
    "packing.bin_slots": ("i8[1C] i8 i8[1C] i8[1C]",),
    "packing.count_decreasing": ("i4[1C] i8 i8",),
    "packing.first_fit": ("i8[1C] i8 i8 i8[1C]",),
    "packing.gather_runs": (
        "u1[1C] i8[1C] i8[1C] i8[1C]",
        "u2[1C] i8[1C] i8[1C] i8[1C]",
        "i8[1C] i8[1C] i8[1C] i8[1C]",
    ),
    "packing.histogram": (
        "u1[1C] i8[1C] i8[1C] i4[1C]",
        "u2[1C] i8[1C] i8[1C] i4[1C]",
        "i8[1C] i8[1C] i8[1C] i4[1C]",
    ),
    "packing.open_fit": ("i8[2C] i8[1C] f8[1C] i8[1C] i8 i8 i8 b1 b1 i8[1C]",),
    "packing.plan_decreasing": (
        "i8[1C] i8 i8 i4[2C] u2[1C] u2[1C] u2[1C] u2[1C]",
        "i8[1C] i8 i8 i4[2C] u4[1C] u4[1C] u4[1C] u4[1C]",
    ),
    "packing.sort_decreasing": (
        "i8[1C] i8 i8[1C] i8[1C]",
        "i8[1C] i8 u2[1C] u2[1C]",
        "i8[1C] i8 u4[1C] u4[1C]",
    ),
    "packing_concat.concat": ("i8[2C] i8[1C] i8 i8 i8 b1 i8[2C] i8[2C] i8[2C]",),
    "packing_read._blocks": ("i8[2C] i8 i8[2C] i8[1C]",),
    "packing_read._positions": (
        "i8[2C] i8 u2[1C] i8[1C] i8[2C] i8[2C]",
        "i8[2C] i8 u4[1C] i8[1C] i8[2C] i8[2C]",
        "i8[2C] i8 u2[1Cr] i8[1C] i8[2C] i8[2C]",
    ),
    "packing_read._ranks": (
        "i8[2C] i8[1C] i8 u2[1C] i8[1C] u2[1C] i8[1C] i8[2C] i8[2C]",
        "i8[2C] i8[1C] i8 u4[1C] i8[1C] u4[1C] i8[1C] i8[2C] i8[2C]",
        "i8[2C] i8[1C] i8 u2[1Cr] i8[1Cr] u2[1Cr] i8[1Cr] i8[2C] i8[2C]",
    ),
    "packing_read.lay": (
        "i8[1C] i8[2C] i8[1C] i8[1C] i8 i8 i8 i8[3C]",
        "i8[1C] i8[2C] u4[1C] i8[1C] i8 i8 i8 i8[3C]",
        "i8[1C] i8[2C] u4[1Cr] i8[1C] i8 i8 i8 i8[3C]",
    ),
    "packing_read.pack_slots": (
        "i8[1C] i8[1C] i8[1C] i8[1C] u2[1C] i8[2C]",
        "i8[1C] i8[1C] i8[1C] i8[1C] u4[1C] i8[2C]",
        "i8[1C] i8[1C] i8[1Cr] i8[1Cr] u2[1Cr] i8[2C]",
    ),
    "stream_packing.pack_stream": ("OpenPacks i8[2C] b1 i8[1C] u1[1C] i8[1C]",),
    "stream_packing.repack_stream": ("OpenPacks i8[2C] u1[1C] i8[1C]",),
}
"""Signatures of the files that do not state them at their kernels yet."""


def signatures() -> list[tuple[str, str]]:
    """Return the name of each kernel with each of its signatures; imports all modules that have kernels."""
    for package in PACKAGES:
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            if module.name.rpartition(".")[2] not in compiled.FILES:
                import_module(module.name)
    old = [(f"penstock.kernels.{name}", text) for name, texts in SIGNATURES.items() for text in texts]
    stated = [(name, text) for name, kernel in jit.KERNELS.items() for text in kernel.signatures]
    return sorted(old + [(name, text) for name, text in stated if name.startswith(PACKAGES)])


def compile_all(progress: Callable[[int, int, str], None] | None = None) -> tuple[int, int]:
    """Compile every kernel for each of its signatures, or load it where it is cached.

    Args:
        progress: Called before each signature with its number, how many there are, and the name of the kernel.

    Returns:
        The number of signatures, and how many of them were compiled now; the others were in the cache.
    """
    todo = signatures()
    compiled_now = 0
    for number, (name, signature) in enumerate(todo):
        module, _, function = name.rpartition(".")
        if progress is not None:
            progress(number, len(todo), f"{module.rpartition('.')[2]}.{function}")
        dispatcher = jit.KERNELS[name].made() if name in jit.KERNELS else _old(module, function)
        compiled_now += jit.compile_for(dispatcher, signature)
    return len(todo), compiled_now


def _old(module: str, function: str) -> Any:
    with cache_folder():
        return getattr(import_module(module), function)
