# pyright: reportUnusedImport=false
"""Reference implementation of the kernels, in NumPy. The compiled kernels must equal it, also at chunk ends.

It is written to be read, not to be fast. `PENSTOCK_KERNELS=reference` runs it in place of the compiled kernels."""

from __future__ import annotations

from penstock.kernels.packing_read_reference import lay, pack_items, pack_slots  # noqa: F401 - one module has them all
from penstock.kernels.packing_reference import (  # noqa: F401 - one module has them all
    best_fit,
    bin_slots,
    concat,
    count_decreasing,
    first_fit,
    gather_runs,
    histogram,
    open_fit,
    plan_decreasing,
    sort_decreasing,
)
from penstock.kernels.stream_reference import open_packs, pack_stream, repack_stream  # noqa: F401 - one module has them all
