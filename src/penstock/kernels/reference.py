# pyright: reportUnusedImport=false
"""What each kernel computes, in NumPy. The compiled ones must equal these, at the seams too."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.mixing_reference import earliest_deadline, mix_table, mix_tree  # noqa: F401 - one module has them all
from penstock.kernels.packing_reference import (  # noqa: F401 - one module has them all
    best_fit,
    bin_slots,
    concat,
    count_decreasing,
    first_fit,
    lay,
    open_fit,
    pack_ranks,
    pack_slots,
    sort_decreasing,
)
from penstock.kernels.stream_reference import open_packs as open_packs
from penstock.kernels.stream_reference import pack_stream as pack_stream
from penstock.kernels.stream_reference import repack_stream as repack_stream

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


def locate(table: Int, _guide: Int, _shift: int, index: Int, out: Int) -> None:
    """`out[0]` is how far `index` is from the begin of the last group that begins at or before it (`table[:, 0]`),
    `out[1:]` the other columns of that group.

    >>> out = np.zeros((2, 2), np.int64)
    >>> locate(np.array([[0, 7], [2, 8], [2, 9], [5, 0]]), np.array([0, 2]), 1, np.array([1, 2]), out)
    >>> out.tolist()
    [[1, 0], [7, 9]]
    """
    group = np.searchsorted(table[:, 0], index, side="right") - 1
    out[:] = table[group].T
    out[0] = index - out[0]


ROUNDS = 6
SMALL = 64  # halves of few values hold little randomness a round, so small radices get more rounds
GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(z: Any) -> Any:
    """The finaliser of SplitMix64 on a uint64 array: every input bit changes every output bit with probability 1/2.

    >>> hex(mix(np.array([1], np.uint64))[0])
    '0x5692161d100b05e5'
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def permute(x: Int, size: Int, stream: Int, seed: np.uint64, inverse: bool, out: Int) -> None:
    """A Feistel network on radix `a` by `b` with cycle walking; see `penstock.kernels.permute`."""
    base = mix(np.asarray([seed], np.uint64) + np.uint64(GOLDEN))
    key = mix(base ^ mix(stream.astype(np.uint64)))
    for n in np.unique(size).tolist():
        todo = np.flatnonzero(size == n)
        value = x[todo].astype(np.uint64)
        while len(todo):
            value = _cipher(value, n, key[todo], inverse)
            out[todo] = value.astype(np.int64)
            walks = value >= n
            todo, value = todo[walks], value[walks]


def _cipher(x: Any, n: int, key: Any, inverse: bool) -> Any:
    """One pass of all rounds on uint64 `x < a * b`: rounds turn the left and the right half in turn."""
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    halves, radix = [x // np.uint64(b), x % np.uint64(b)], [a, b]
    rounds = range(ROUNDS + 2 * (SMALL // a))
    for i in reversed(rounds) if inverse else rounds:
        turned, m = i % 2, np.uint64(radix[i % 2])
        z = ((key + np.uint64((i + 1) * GOLDEN & (1 << 64) - 1)) ^ halves[1 - turned]) * np.uint64(MIX_1)
        hashed = ((z ^ (z >> np.uint64(32))) * np.uint64(MIX_2)) >> np.uint64(32)
        step = (hashed * m) >> np.uint64(32)
        halves[turned] = (halves[turned] + (m - step if inverse else step)) % m
    return halves[0] * np.uint64(b) + halves[1]


def paint(at: Int, length: Int, value: Int, slope: int, out: npt.NDArray[np.int32]) -> None:
    """Row `i` of span `j` is `value[j] + slope * i`, at the places `at[j] + i` of `out`; all other places are 0.

    >>> out = np.empty(5, np.int32)
    >>> paint(np.array([0, 3]), np.array([2, 2]), np.array([7, 1]), 1, out)
    >>> out.tolist()
    [7, 8, 0, 1, 2]
    """
    out[:] = 0
    for place, rows, first in zip(at.tolist(), length.tolist(), value.tolist(), strict=True):
        out[place : place + rows] = first + slope * np.arange(rows)
