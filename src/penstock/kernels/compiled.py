"""The compiled kernels. `reference` defines their results.

Each file of kernels is imported when one of its kernels is first called, and each kernel compiles alone at that call.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from penstock.kernels.cache_folder import cache_folder

FILES: dict[str, tuple[str, ...]] = {
    "packing": (
        "best_fit",
        "bin_slots",
        "count_decreasing",
        "first_fit",
        "gather_runs",
        "histogram",
        "open_fit",
        "plan_decreasing",
        "sort_decreasing",
    ),
    "packing_concat": ("concat",),
    "packing_read": (
        "lay",
        "pack_items",
        "pack_slots",
    ),
    "stream_packing": (
        "open_packs",
        "pack_stream",
        "repack_stream",
    ),
}
"""The kernels of each file in this package."""

_one_at_a_time = threading.Lock()
_FILE_OF = {name: file for file, names in FILES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _one_at_a_time, cache_folder():
        module = import_module(f"penstock.kernels.{_FILE_OF[name]}")
    globals()[name] = kernel = getattr(module, name)
    return kernel
