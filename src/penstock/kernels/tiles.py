"""Map rows of a column that is stored in tiles, as HDF5 chunks are, and gather spans of them.

A `TileMap` checks once that the tiles cover every run and are within their buffers. So a gather checks only its spans,
copies without the GIL, and copies nothing if a span is wrong. The map keeps references to the buffers; the caller owns
the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.files.mapping import MappedFiles
from penstock.files.remote import Wanted
from penstock.kernels.gather import AXES, gather_tiles
from penstock.kernels.locate import guide_of
from penstock.kernels.rows import check_spans, expanded, flat


@dataclass(frozen=True, eq=False)
class TileMap:
    """Rows of `row_shape` elements of `itemsize` bytes, in R runs (one array each, usually an episode's).

    Run `r` holds rows `first[r] : first[r + 1]` and is cut into tiles of `tile_shape[r]` (rows first, then one number
    for each axis of a row). Its tiles are numbers `tile_first[r] : tile_first[r + 1]`, in C order of the grid
    `ceil(shape / tile_shape)`; each is stored whole, also where it reaches over the edge, in buffer `tile_buffer`
    from byte `tile_offset` on. A tile with offset -1 is not stored and reads as `fill`.

    Built through `TileMap.build`, which checks every tile against its buffer once, so that the gather need not.
    """

    buffers: tuple[ByteArray, ...]
    row_shape: tuple[int, ...]
    itemsize: int
    first: IntArray
    tile_shape: IntArray
    tile_first: IntArray
    tile_buffer: IntArray
    tile_offset: IntArray
    fill: ByteArray
    address: IntArray
    layout: IntArray
    axes: IntArray
    guide: IntArray
    shift: int
    files: MappedFiles

    @classmethod
    def build(
        cls,
        buffers: Sequence[ByteArray],
        row_shape: tuple[int, ...],
        itemsize: int,
        first: IntArray,
        tile_shape: IntArray,
        tile_first: IntArray,
        tile_buffer: IntArray,
        tile_offset: IntArray,
        fill: bytes,
    ) -> TileMap:
        """Map tiles; see the class for the arguments, all of them int64 arrays where they are arrays.

        Cost: a few passes over the tiles; nothing is read.
        """
        first, tile_first, tile_buffer, tile_offset = (
            np.ascontiguousarray(a, np.int64) for a in (first, tile_first, tile_buffer, tile_offset)
        )
        tile_shape = np.ascontiguousarray(tile_shape, np.int64).reshape(len(first) - 1, 1 + len(row_shape))
        if len(fill) != itemsize or tile_shape.min(initial=1) < 1 or min(row_shape, default=0) < 0:
            raise IndexError(
                f"expected a fill of {itemsize} bytes and tiles of at least one element, "
                f"got {len(fill)} bytes and {tile_shape.min(initial=1)}"
            )
        shapes, layout = np.unique(tile_shape, axis=0, return_inverse=True)
        layout = layout.reshape(-1)
        _check_grid(np.diff(first), tile_shape[:, 0], np.diff(tile_first), _columns(shapes, row_shape)[layout])
        _check_tiles(buffers, tile_first, _tile_bytes(shapes, itemsize)[layout], tile_buffer, tile_offset)
        bases = np.array([b.ctypes.data for b in buffers], np.int64)
        address = np.where(tile_offset < 0, -1, tile_offset)
        address[tile_offset >= 0] += bases[tile_buffer[tile_offset >= 0]]
        axes = _axes(shapes, row_shape, itemsize)
        return cls(
            tuple(buffers), tuple(row_shape), itemsize, first, tile_shape, tile_first, tile_buffer, tile_offset,
            np.frombuffer(fill, np.uint8).copy(), address, layout, axes, *guide_of(first),
            MappedFiles(buffers),
        )  # fmt: skip

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.row_shape) * self.itemsize

    @property
    def n(self) -> int:
        """How many rows there are."""
        return int(self.first[-1])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` on of `out`, for every span `j`.

        `out` is C-contiguous bytes that hold whole rows. Cost: one copy of the bytes read, in pieces as long as the
        tiles are wide, with the GIL released. Tiles that cut more than four axes are copied by a loop in Python.
        """
        if self.row_bytes == 0:
            return
        self.files.check()
        target = flat(out, self.row_bytes)
        places = len(target) // self.row_bytes
        if self.axes.shape[1] > AXES:
            check_spans(start, length, destination, self.n, places)
            release = self._fetched(start, length)
            try:
                self._gather_any_axes(
                    start, length, destination, target.reshape(places, *self.row_shape, self.itemsize)
                )
            finally:
                release()
            return
        if self.files.lazy:
            check_spans(start, length, destination, self.n, places)
        release = self._fetched(start, length)
        try:
            self._gather(start, length, destination, target, places)
        finally:
            release()

    def _fetched(self, start: IntArray, length: IntArray) -> Callable[[], None]:
        """Fetch the tiles of spans that are within the map; call what is returned when they were copied."""
        return self.files.fill(*self._bytes_of(start, length)) if self.files.lazy else _nothing

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        """Return the bytes that `gather` would fetch for spans that are within the map."""
        return self.files.remote_ranges(*self._bytes_of(start, length)) if self.files.lazy else []

    def _bytes_of(self, start: IntArray, length: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the buffers of the tiles of spans, and where their bytes begin and end."""
        start, length = start[length > 0], length[length > 0]
        begin = self.first.searchsorted(start, side="right") - 1
        runs = self.first.searchsorted(start + length, side="left") - begin
        span, run = expanded(begin, runs)
        height = self.tile_shape[:, 0]
        bands = -(-np.diff(self.first) // height)
        across = np.diff(self.tile_first) // np.maximum(bands, 1)
        low = (np.maximum(start[span], self.first[run]) - self.first[run]) // height[run]
        high = -(-(np.minimum((start + length)[span], self.first[run + 1]) - self.first[run]) // height[run])
        owner, tile = expanded(self.tile_first[run] + low * across[run], (high - low) * across[run])
        stored = self.tile_offset[tile] >= 0
        owner, tile = owner[stored], tile[stored]
        size = self.tile_shape.prod(axis=1)[run[owner]] * self.itemsize
        offset = self.tile_offset[tile]
        return self.tile_buffer[tile], offset, offset + size

    def _gather(self, start: IntArray, length: IntArray, destination: IntArray, target: ByteArray, places: int) -> None:
        bad = gather_tiles(
            self.first, self.guide, self.shift, self.tile_shape, self.tile_first, self.address, self.layout, self.axes,
            self.fill, start, length, destination, self.row_bytes, target,
        )  # fmt: skip
        if bad >= 0:
            check_spans(start, length, destination, self.n, places)

    def _gather_any_axes(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Gather rows whose tiles cut any number of axes, row by row and tile by tile: such data are rare."""
        for first, rows, place in zip(start.tolist(), length.tolist(), destination.tolist(), strict=True):
            for i in range(rows):
                self._copy_row(first + i, out[place + i])

    def _copy_row(self, number: int, row: ByteArray) -> None:
        """Copy one row into `[*row_shape, itemsize]` bytes."""
        run = int(np.searchsorted(self.first, number, side="right")) - 1
        height, *sides = self.tile_shape[run].tolist()
        down, inside = divmod(number - int(self.first[run]), height)
        grid = [-(-n // c) for n, c in zip(self.row_shape, sides, strict=True)]
        tile = int(self.tile_first[run]) + down * prod(grid)
        shape = height, *sides, self.itemsize
        for corner in np.ndindex(*grid):
            box = tuple(slice(g * c, (g + 1) * c) for g, c in zip(corner, sides, strict=True))
            row[box] = self.fill
            offset = int(self.tile_offset[tile])
            if offset >= 0:
                stored = self.buffers[int(self.tile_buffer[tile])][offset : offset + prod(shape)].reshape(shape)
                row[box] = stored[inside][tuple(slice(n) for n in row[box].shape)]
            tile += 1


def _nothing() -> None:
    """There is nothing to release."""


def _columns(shapes: IntArray, row_shape: tuple[int, ...]) -> IntArray:
    """Return `[K]`, the number of tiles across a row. Clipped to 2^62, which no list of tiles can reach."""
    counts = [prod(-(-n // c) for n, c in zip(row_shape, shape[1:], strict=True)) for shape in shapes.tolist()]
    return np.array([min(count, 1 << 62) for count in counts], np.int64)


def _tile_bytes(shapes: IntArray, itemsize: int) -> IntArray:
    """`[K]` bytes of a tile, clipped to 2^62."""
    return np.array([min(prod(shape) * itemsize, 1 << 62) for shape in shapes.tolist()], np.int64)


def _check_grid(rows: IntArray, height: IntArray, tiles: IntArray, columns: IntArray) -> None:
    # By division: a product of two wrong numbers of a file could wrap around.
    across = np.maximum(columns, 1)
    fits = (tiles % across == 0) & (tiles // across == -(-rows // height) * (columns > 0))
    wrong = (rows < 0) | ~fits
    if wrong.any():
        r = int(np.argmax(wrong))
        raise IndexError(
            f"expected run {r} of {rows[r]} rows to have a grid of {-(-rows[r] // height[r])} by {columns[r]} tiles, "
            f"got {tiles[r]} tiles"
        )


def _check_tiles(
    buffers: Sequence[ByteArray], first: IntArray, size: IntArray, buffer: IntArray, offset: IntArray
) -> None:
    count = len(offset)
    if first[0] != 0 or first[-1] != count or len(buffer) != count:
        raise IndexError(f"expected {first[-1]} tiles, got {len(buffer)} buffer numbers and {count} offsets")
    size = np.repeat(size, np.diff(first))
    here = offset >= 0
    if np.any(here & ((buffer < 0) | (buffer >= len(buffers)))):
        raise IndexError(f"expected buffer numbers within 0:{len(buffers)}, got {buffer.min()} to {buffer.max()}")
    room = np.array([len(b) for b in buffers] or [0], np.int64)[np.where(here, buffer, 0)] - offset
    wrong = (here & (room < size)) | (offset < -1)
    if wrong.any():
        t = int(np.argmax(wrong))
        raise IndexError(
            f"expected tile {t} to end within its buffer, got {size[t]} bytes from byte {offset[t]} on "
            f"where {room[t]} are left"
        )


def _axes(shapes: IntArray, row_shape: tuple[int, ...], itemsize: int) -> IntArray:
    """`[K, A, 2]` size and tile size of the axes of a row that tiles cut, the last in bytes; `A` is at least `AXES`,
    with axes of one element in front."""
    merged_axes = [_joined(row_shape, shape, itemsize) for shape in shapes[:, 1:].tolist()]
    width = max([AXES, *map(len, merged_axes)])
    return np.array([[(1, 1)] * (width - len(axes)) + axes for axes in merged_axes], np.int64).reshape(-1, width, 2)


def _joined(row_shape: tuple[int, ...], tile: list[int], itemsize: int) -> list[tuple[int, int]]:
    """Size and tile size along a row, after joining every axis that tiles do not cut to the one before it."""
    axes: list[tuple[int, int]] = []
    for n, c in reversed([*zip(row_shape, tile, strict=True), (itemsize, itemsize)]):
        if axes and axes[0][0] == axes[0][1]:
            axes[0] = (n * axes[0][0], c * axes[0][1])
        else:
            axes.insert(0, (n, c))
    return axes
