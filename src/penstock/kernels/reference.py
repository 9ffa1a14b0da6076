# pyright: reportUnusedImport=false
"""Reference implementation of the kernels, in NumPy. The compiled kernels must equal it, also at chunk ends.

It is written to be read, not to be fast. `PENSTOCK_KERNELS=reference` runs it in place of the compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from penstock.kernels.driving_reference import (  # noqa: F401 - one module has them all
    move_lines,
    nearest_agents,
    nearest_lines,
    relative_poses,
    select_agents,
)
from penstock.kernels.live_reference import (  # noqa: F401 - one module has them all
    copy_held,
    draw_ranges,
    exchange,
    exchange_references,
    find_held,
    shuffle_places,
    slide_held,
)
from penstock.kernels.members_reference import plain_members  # noqa: F401 - one module has them all
from penstock.kernels.mixing_reference import (  # noqa: F401 - one module has them all
    deal,
    earliest_deadline,
    mix_table,
    mix_tree,
)
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
from penstock.kernels.polygons_reference import (  # noqa: F401 - one module has them all
    draw_shapes,
    meeting_boxes,
    place_shapes,
    split_channels,
    to_unit,
)
from penstock.kernels.stream_reference import open_packs, pack_stream, repack_stream  # noqa: F401 - one module has them all
from penstock.kernels.warp_reference import warp  # noqa: F401 - one module has them all

Int = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def gather_rows(
    buffers: Sequence[Bytes], first: Int, buffer: Int, offset: Int, start: Int, length: Int, at: Int, out: Bytes
) -> None:
    """Copy row spans out of runs of rows; `out` is `[places, row_bytes]`.

    >>> out = np.zeros((1, 2), np.uint8)
    >>> zero = np.zeros(1, np.int64)
    >>> gather_rows([np.arange(6, dtype=np.uint8)], np.array([0, 3]), zero, zero, zero + 2, zero + 1, zero, out)
    >>> out.tolist()
    [[4, 5]]
    """
    width = out.shape[1]
    for span_start, span_length, place in zip(start.tolist(), length.tolist(), at.tolist(), strict=True):
        rows = np.arange(span_start, span_start + span_length)
        runs = np.searchsorted(first, rows, side="right") - 1
        for i, (row, run) in enumerate(zip(rows.tolist(), runs.tolist(), strict=True)):
            byte = int(offset[run]) + (row - int(first[run])) * width
            out[place + i] = buffers[int(buffer[run])][byte : byte + width]


def gather_tiles(
    buffers: Sequence[Bytes],
    row_shape: tuple[int, ...],
    first: Int,
    tile_shape: Int,
    tile_first: Int,
    tile_buffer: Int,
    tile_offset: Int,
    fill: Bytes,
    start: Int,
    length: Int,
    at: Int,
    out: Bytes,
) -> None:
    """Copy row spans out of tiles; `out` is `[places, row_bytes]`. See `penstock.kernels.tiles.TileMap`."""
    for span_start, span_length, place in zip(start.tolist(), length.tolist(), at.tolist(), strict=True):
        for i in range(span_length):
            run = int(np.searchsorted(first, span_start + i, side="right")) - 1
            height, *sides = tile_shape[run].tolist()
            down, inside = divmod(span_start + i - int(first[run]), height)
            grid = [-(-n // c) for n, c in zip(row_shape, sides, strict=True)]
            row = out[place + i].reshape(*row_shape, len(fill))
            for j, corner in enumerate(np.ndindex(*grid)):
                tile = int(tile_first[run]) + down * prod(grid) + j
                box = tuple(slice(g * c, (g + 1) * c) for g, c in zip(corner, sides, strict=True))
                row[box] = fill
                if tile_offset[tile] >= 0:
                    held = buffers[int(tile_buffer[tile])][int(tile_offset[tile]) :]
                    slab = held[: prod((height, *sides)) * len(fill)].reshape(height, *sides, len(fill))[inside]
                    row[box] = slab[tuple(slice(n) for n in row[box].shape)]
