"""Columns in HDF5 files, read in place: rows where they are stored as they are, chunks decoded when needed.

A column is a sequence of *segments*, runs of rows of one dataset each: an episode's `obs` and, as its last row, the
end of its `next_obs`. Segments are cut where the *blocks* of the file end (one contiguous piece, or a band of chunks
that hold the same rows); from then on a read is one gather.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.containers.hdf5 import Dataset, File, Group, has_signature
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.cache import Cache
from penstock.core.narrowing import is_array, is_list
from penstock.core.ragged import offsets_of, ranges
from penstock.core.spec import Align, Field
from penstock.errors import FormatError, PenstockError
from penstock.files.remote import Wanted, file_state, is_mirrored, remote_file
from penstock.formats.base.account import LeftOut
from penstock.formats.base.infos import plain
from penstock.formats.base.pieces import RowReader, cut
from penstock.formats.demos.source import DemoColumn, Kind
from penstock.kernels.rows import RowMap

DECODED = 256 << 20  # bytes of decoded chunks that a source keeps
AT_ONCE = 32 << 20  # bytes of chunks that one gather holds beyond that
INFLATION = 1032  # deflate cannot make more than 1032 bytes out of one
SMALL = 1 << 20  # rows that may be claimed without bytes to show for


class Segments(NamedTuple):
    """Segment `s` is the rows `start[s] : start[s] + length[s]` of `datasets[owner[s]]`; `[S]` int64 each."""

    datasets: Sequence[Dataset]
    owner: IntArray
    start: IntArray
    length: IntArray

    @classmethod
    def whole(cls, datasets: Sequence[Dataset]) -> Segments:
        """Every dataset from its first row to its last."""
        owner = np.arange(len(datasets))
        return cls(datasets, owner, owner * 0, np.array([d.shape[0] for d in datasets], np.int64))


def datasets_below(group: Group, needed: Collection[str]) -> tuple[dict[str, Dataset], dict[str, LeftOut]]:
    """Datasets below a group by their paths in it, and those that cannot be read."""
    prefix = f"{group.name.rstrip('/')}/"
    unreadable: dict[str, LeftOut] = {}

    def leave_out(name: str, error: FormatError) -> None:
        path = name.removeprefix(prefix)
        if path in needed:
            raise error
        unreadable[path] = LeftOut.of_error("array", path, error)

    return {dataset.name.removeprefix(prefix): dataset for dataset in group.walk(leave_out)}, unreadable


def misfit(name: str, dataset: Dataset, steps: int) -> LeftOut | None:
    """Why a dataset is no column of so many steps; None if it has a row of numbers for each."""
    if not numbers(dataset):
        got = {"array": str(dataset.dtype), "string": "text", "vlen_string": "text", "vlen": "rows of unequal length"}
        got["array"] += "" if dataset.shape else " without rows"
        reason = "unsupported-dtype" if dataset.shape or dataset.kind != "array" else "other-length"
        return LeftOut("array", name, reason, f"expected rows of numbers, got {got[dataset.kind]}")
    if dataset.shape[0] != steps:
        message = f"expected a row for each of {steps} steps, got {dataset.shape[0]}"
        return LeftOut("array", name, "other-length", message)
    return None


def behind_the_end(file: File) -> list[LeftOut]:
    """The entry of bytes behind the end that the file states, where another file may be."""
    end, size = file.image.superblock.eof, file_state(Path(file.path)).size
    message = f"expected {end} bytes, as the file states, got {size}; another file may be behind it"
    return [LeftOut("bytes", f"byte {end}", "behind-the-end", message)] if size > end else []


def leads_to(group: Group, name: str, kind: type[Dataset] | type[Group]) -> bool:
    """Whether a name leads to a dataset or a group, or to what cannot be read, which opening refuses with a reason."""
    if name not in group.links:
        return False
    try:
        return isinstance(group[name], kind)
    except (FormatError, KeyError):
        return True


class HDF5Kind(Kind):
    """A kind in HDF5 files, known by its layout."""

    @abstractmethod
    def has_layout(self, root: Group) -> bool:
        """Whether a file has the groups and datasets of this kind. May raise `PenstockError` and `KeyError` if not."""

    def recognises(self, path: Path) -> bool:
        """Whether an HDF5 file has the layout."""
        if not is_hdf5(path):
            return False
        try:
            with File(path) as file:
                return self.has_layout(file.root)
        except (PenstockError, OSError, KeyError):
            return False


def rows_of(file: File, segments: Segments, cache: Cache) -> RowReader:
    """Reader of the rows of the segments, in order."""
    first = segments.datasets[0]
    width = row_bytes(first)
    for dataset in segments.datasets:
        # Deflated bytes have a limit, and so do rows that were never written.
        if dataset.shape[0] * max(width, 1) > INFLATION * len(file.buffer) + SMALL:
            message = f"{dataset.shape[0]} rows of {width} bytes cannot come from a file of {len(file.buffer)} bytes"
            raise FormatError(message, path=file.path, where=dataset.where)
    if width == 0:
        zero = np.zeros(1, np.int64)
        return RowMap.build([file.buffer], zero + int(segments.length.sum()), zero, zero, 0)
    places = [_stored(dataset) for dataset in segments.datasets]
    if all(offsets is not None for _, offsets in places):
        _, block, local, length = _cut_segments(segments, [height for height, _ in places])
        offset = np.concatenate([o for _, o in places if o is not None])[block] + local * width
        try:
            return RowMap.build([file.buffer], length, block * 0, offset, width)
        except IndexError as error:
            raise FormatError(f"expected rows within the file: {error}", path=file.path, where=first.name) from error
    heights = [_band(dataset) for dataset in segments.datasets]
    return BandRows(segments.datasets, heights, width, cache, *_cut_segments(segments, heights))


def row_bytes(dataset: Dataset) -> int:
    return dataset.datatype.dtype.itemsize * math.prod(row_shape(dataset))


def native(dataset: Dataset) -> np.dtype[Any]:
    """Dtype of an element as it is read, in the machine's byte order."""
    return dataset.dtype.newbyteorder("=")


def row_shape(dataset: Dataset) -> tuple[int, ...]:
    """Shape of a row, including the shape of array elements."""
    return (*dataset.shape[1:], *dataset.datatype.inner)


def _band(dataset: Dataset) -> int:
    """Rows of a band: the rows of a chunk, or all."""
    rows, height = dataset.shape[0], (dataset.chunk_shape or dataset.shape)[0]
    height = min(max(height, 1), max(rows, 1))
    if rows // height > SMALL + len(dataset.tiles() if dataset.chunk_shape else ()):
        message = f"expected chunks for {rows} rows, got {len(dataset.tiles())}"
        raise FormatError(message, path=dataset.path, where=dataset.where)
    return height


def _stored(dataset: Dataset) -> tuple[int, IntArray | None]:
    """Rows of a block, and where each block of whole, uncompressed rows begins; None without such blocks."""
    rows = dataset.shape[0]
    if rows == 0:
        return 1, np.zeros(0, np.int64)
    if dataset.dtype != native(dataset):
        return rows, None  # to be swapped
    address = dataset.flat()
    if address is not None:
        return rows, np.array([address], np.int64)
    chunk = dataset.chunk_shape
    if chunk is None or dataset.filters or chunk[1:] != dataset.shape[1:]:
        return rows, None
    tiles = dataset.tiles()
    order = np.argsort(tiles.origin[:, 0], kind="stable")
    expected = np.arange(min(-(-rows // max(chunk[0], 1)), len(tiles) + 1)) * chunk[0]
    if not np.array_equal(tiles.origin[order, 0], expected):
        return rows, None  # some were never written: they hold the fill value
    return chunk[0], tiles.offset[order]


def _cut_segments(segments: Segments, heights: Sequence[int]) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Segments cut where blocks of so many rows end: `[R + 1]` first rows, block, row in the block, and rows, `[R]`."""
    height = np.array(heights, np.int64)
    rows = np.array([d.shape[0] for d in segments.datasets], np.int64)
    base, counts = offsets_of(rows), -(-rows // height)
    number = ranges(np.zeros_like(counts), counts)  # of each block in its dataset
    edges = np.append(np.repeat(base[:-1], counts) + number * np.repeat(height, counts), base[-1])
    places = offsets_of(segments.length)[:-1]
    pieces = cut(edges, base[segments.owner] + segments.start, segments.length, places)
    return offsets_of(pieces.length), pieces.run, pieces.start - edges[pieces.run], pieces.length


@dataclass(frozen=True, eq=False)
class BandRows:
    """Rows in chunks that have to be decoded: run `r` is `rows[r]` rows of band `band[r]`, from its row `local[r]` on.

    `heights` are the rows of a band, a dataset each; `cuts` `[R + 1]` the rows at which runs begin.
    """

    datasets: Sequence[Dataset]
    heights: Sequence[int]
    width: int
    cache: Cache
    cuts: IntArray
    band: IntArray
    local: IntArray
    rows: IntArray

    @cached_property
    def _first(self) -> IntArray:
        """First band of each dataset, and the end."""
        return offsets_of([-(-d.shape[0] // height) for d, height in zip(self.datasets, self.heights, strict=True)])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Decode each band that is needed once, in the order of the file, and copy. Memory: 32 MB, or one band."""
        run, begin, rows, place = cut(self.cuts, start, length, destination)
        local = self.local[run] + begin - self.cuts[run]
        order = np.argsort(self.band[run], kind="stable")
        bands, where = np.unique(self.band[run][order], return_inverse=True)
        owner = np.searchsorted(self._first, bands, side="right") - 1
        group = np.cumsum(np.array(self.heights, np.int64)[owner] * self.width) // AT_ONCE
        for number in np.unique(group):
            chosen = np.flatnonzero(group == number)
            mine = order[(where >= chosen[0]) & (where <= chosen[-1])]
            buffers = [self._decoded(int(bands[i]), int(owner[i])) for i in chosen]
            buffer = np.searchsorted(bands[chosen], self.band[run][mine])
            row_map = RowMap.build(buffers, rows[mine], buffer, local[mine] * self.width, self.width)
            row_map.gather(row_map.first[:-1], rows[mine], place[mine], out)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        """Return the bytes behind URLs of the bands that `gather` would read, also of decoded ones."""
        if not is_mirrored(self.datasets[0].path):
            return []
        bands: list[int] = np.unique(self.band[cut(self.cuts, start, length, start).run]).tolist()
        owners: list[int] = (np.searchsorted(self._first, bands, side="right") - 1).tolist()
        wanted: list[Wanted] = []
        for band, owner in zip(bands, owners, strict=True):
            dataset = self.datasets[owner]
            if (remote := remote_file(dataset.path)) is not None:
                wanted.append((remote, *dataset.byte_ranges(*self._rows_of(band, owner))))
        return wanted

    def _rows_of(self, band: int, owner: int) -> tuple[int, int]:
        """First row of a band in its dataset, and the end."""
        begin = (band - int(self._first[owner])) * self.heights[owner]
        return begin, min(begin + self.heights[owner], self.datasets[owner].shape[0])

    def _decoded(self, band: int, owner: int) -> ByteArray:
        dataset = self.datasets[owner]
        begin, end = self._rows_of(band, owner)

        def decode() -> ByteArray:
            return np.asarray(dataset.read(begin, end), native(dataset), order="C").reshape(-1).view(np.uint8)

        return self.cache.array((dataset.address, begin), decode)


def column(
    file: File, segments: Segments, align: Align, cache: Cache, shape: tuple[int, ...] | None = None
) -> DemoColumn:
    """A column of the segments' rows, which must be alike; `shape` where a row is called another than it is stored."""
    dataset = segments.datasets[0]
    field = Field(native(dataset), row_shape(dataset) if shape is None else shape, align)
    return DemoColumn(field, rows_of(file, segments, cache))


def numbers(dataset: Dataset) -> bool:
    """Whether it has rows of numbers, and not text or values of unequal length, of a size that can be counted."""
    size = math.prod(max(side, 1) for side in (*dataset.shape, *dataset.datatype.inner)) * dataset.dtype.itemsize
    return dataset.kind == "array" and len(dataset.shape) > 0 and dataset.dtype.kind in "biufc" and size < 1 << 62


def alike(one: Dataset, other: Dataset) -> bool:
    """Whether rows of both have one dtype and shape."""
    return one.dtype == other.dtype and row_shape(one) == row_shape(other) and one.kind == other.kind


def is_hdf5(path: Path) -> bool:
    """Whether a file begins like HDF5. Never raises."""
    try:
        if not path.is_file():  # asked first, for opening a pipe would wait
            return False
        return has_signature(path)
    except OSError:
        return False


def attribute(value: Any) -> Any:
    """An attribute or a scalar as a plain value that JSON can hold."""
    if is_array(value) and value.dtype.kind in "OS":
        return attribute(value.tolist())
    if is_list(value):
        return [attribute(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else plain(value)
