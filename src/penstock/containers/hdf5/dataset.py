"""One dataset of an HDF5 file: its description, the place of its bytes, and reading rows of it.

If all values are consecutive and unfiltered (`flat`), a row is a slice of the map. Otherwise `tiles` lists the stored
chunks, and rows are put together from them and the fill value. Every size in the header is checked against the size of
the file before memory is allocated, and rows may be `INFLATION` times the file at most. Elements are moved as opaque
bytes; only `as_array` gives them their dtype.

Source: HDF5 File Format Specification 3.0, IV.A.2 (messages) and VII (chunk indexes).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.containers.hdf5.chunks import Tiles, first_tile, make_tiles, read_tiles
from penstock.containers.hdf5.filters import decode
from penstock.containers.hdf5.image import INFLATION, UNDEFINED, Image, located
from penstock.containers.hdf5.messages import (
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILL,
    FILTERS,
    LAYOUT,
    OLD_FILL,
    SHARED,
    DataLayout,
    Filter,
    Message,
    parse_dataspace,
    parse_fill,
    parse_filters,
    parse_layout,
    parse_old_fill,
    resolve_shared,
)
from penstock.containers.hdf5.values import Attributes, Datatype, Kind, as_array, parse_datatype, read_references
from penstock.core.arrays import AnyArray, IntArray, StructArray
from penstock.errors import DataError, FormatError
from penstock.files.mapping import check_mapped

if TYPE_CHECKING:
    from penstock.containers.hdf5.heap import GlobalHeap

SMALL = 1 << 20  # bytes of fill values that are given without stored bytes to show for


class Dataset:
    """A dataset of an HDF5 file.

    `name`, absolute; `shape`; `maxshape`, None for an unlimited dimension; `dtype` of an element, or of the
    items of a variable-length one (uint8 for strings); `kind`, "array", "string" (fixed length),
    "vlen_string" or "vlen"; `layout`, "contiguous", "chunked" or "compact"; `chunk_shape`, None unless
    chunked; `filters`.  Cost of making one: its object header is parsed, no value is touched.
    """

    __slots__ = (
        "_attrs", "_fill", "_heap", "_image", "_layout", "_tiles", "address", "datatype",
        "filters", "maxshape", "messages", "name", "shape",
    )  # fmt: skip

    def __init__(self, image: Image, heap: GlobalHeap, name: str, address: int, messages: list[Message]) -> None:
        self._image = image
        self._heap = heap
        self.messages = messages
        self.name, self.address = name, address
        self._attrs: Attributes | None = None
        self._tiles: Tiles | None = None
        self._fill: bytes = b""
        self.filters: tuple[Filter, ...] = ()
        self._parse(messages)

    @property
    def path(self) -> str:
        return self._image.path

    @property
    def where(self) -> str:
        """The place in the file, for messages."""
        return f"{self.name} (object header at byte {self.address})"

    @located
    def _parse(self, messages: list[Message]) -> None:
        space = datatype = layout = None
        for kind, flags, body in messages:
            if flags & SHARED:
                body = resolve_shared(self._image, kind, body)  # noqa: PLW2901
            if kind == DATASPACE:
                space = parse_dataspace(body)
            elif kind == DATATYPE:
                datatype = parse_datatype(body)
            elif kind == LAYOUT:
                layout = parse_layout(body)
            elif kind == FILL:
                self._fill = parse_fill(body)
            elif kind == OLD_FILL:
                self._fill = self._fill or parse_old_fill(body)
            elif kind == FILTERS:
                self.filters = parse_filters(body)
            elif kind == EXTERNAL_FILES:
                raise FormatError("values kept in other files are not read; copy the dataset into this file")
        if space is None or datatype is None or layout is None:
            raise FormatError("expected a dataspace, a datatype and a layout in the header of a dataset")
        self.shape: tuple[int, ...] = space.shape if space.shape is not None else (0,)
        self.maxshape: tuple[int | None, ...] = space.maxshape if space.maxshape is not None else (0,)
        self.datatype: Datatype = datatype
        self._layout: DataLayout = layout
        self._check()

    def _check(self) -> None:
        layout = self._layout
        if self.datatype.size > max(self._image.size, SMALL):
            raise FormatError(f"an element cannot take {self.datatype.size} bytes of this file")
        if layout.kind == "chunked":
            if len(layout.chunk) != len(self.shape) or layout.element != self.datatype.size:
                raise FormatError(f"chunks {layout.chunk} do not fit an array of shape {self.shape}")
        elif layout.address != UNDEFINED or layout.kind == "compact":
            needed = math.prod(self.shape) * self.datatype.size
            if needed > layout.nbytes:
                raise FormatError(f"expected {needed} bytes for shape {self.shape}, got {layout.nbytes}")
            if layout.kind == "contiguous" and layout.address + layout.nbytes > self._image.size:
                raise FormatError(f"{layout.nbytes} bytes at byte {layout.address} are outside the file")
        if self._fill and len(self._fill) != self.datatype.size:
            raise FormatError(f"expected a fill value of {self.datatype.size} bytes, got {len(self._fill)}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an element, or of the items of a variable-length one."""
        return self.datatype.dtype

    @property
    def kind(self) -> Kind:
        """Array, string, vlen_string or vlen."""
        return self.datatype.kind

    @property
    def layout(self) -> str:
        """Contiguous, chunked or compact."""
        return self._layout.kind

    @property
    def chunk_shape(self) -> tuple[int, ...] | None:
        """Shape of a chunk, None unless chunked."""
        return self._layout.chunk or None

    @property
    def attrs(self) -> Attributes:
        """Attributes, decoded when asked for."""
        if self._attrs is None:
            self._attrs = Attributes(self._image, self._heap, self.messages, self.name)
        return self._attrs

    @property
    def fill(self) -> Any:
        """Fill value, what elements hold that were never written; None for a variable-length kind."""
        if self.kind in ("vlen_string", "vlen"):
            return None
        return self._as_array(self._fill or bytes(self.datatype.size), ())[()]

    @located
    def _as_array(self, raw: bytes | memoryview, shape: tuple[int, ...]) -> AnyArray:
        return as_array(raw, self.datatype, shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, shape={self.shape}, dtype={self.dtype}, kind={self.kind!r})"

    @located
    def flat(self) -> int | None:
        """Byte of the file from which all values are consecutive, in C order and as they are, or None."""
        layout, base = self._layout, self._image.base
        if layout.kind == "contiguous":
            return None if layout.address == UNDEFINED else base + layout.address
        if layout.kind != "chunked" or self.filters or layout.address == UNDEFINED:
            return None
        if layout.chunk[1:] != self.shape[1:] or layout.chunk[0] < self.shape[0]:
            return None
        return self._flat_chunk()

    def _flat_chunk(self) -> int | None:
        """Like `flat`, for a dataset whose rows are all in the first chunk."""
        layout, image = self._layout, self._image
        if layout.index:
            tiles = self.tiles()
            return int(tiles.offset[0]) if len(tiles) == 1 else None
        tile = first_tile(image, layout)
        if tile is None or tile[1] != math.prod(layout.chunk) * layout.element:
            return None
        return image.base + tile[0]

    @located
    def tiles(self) -> Tiles:
        """Position in the file of each stored piece of the array; pieces never written are missing."""
        if self._tiles is None:
            self._tiles = self._read_tiles()
        return self._tiles

    def _read_tiles(self) -> Tiles:
        layout, rank = self._layout, len(self.shape)
        if layout.kind == "compact":
            raise FormatError("the values of a compact dataset are in its header; use read")
        if layout.kind == "chunked":
            return read_tiles(self._image, layout, self.shape, self.maxshape, filtered=bool(self.filters))
        nbytes = math.prod(self.shape) * self.datatype.size
        rows = [] if layout.address == UNDEFINED or not nbytes else [(layout.address, nbytes, 0, *([0] * rank))]
        return make_tiles(self._image, rank, rows)

    def read(self, start: int = 0, stop: int | None = None) -> AnyArray:
        """Rows `start` to `stop` along the first axis; a scalar dataset is read whole."""
        if self.kind in ("vlen_string", "vlen"):
            raise DataError(f"{self.name} has elements of variable length; use read_list or read_vlen")
        rows = self._rows(start, stop)
        return self._as_array(self._read_raw(*rows), self._result(*rows))

    @located
    def byte_ranges(self, start: int, stop: int) -> tuple[IntArray, IntArray]:
        """Where the stored bytes of rows `start` to `stop` begin and end in the file."""
        if self._layout.kind == "compact" or start >= stop:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        row = math.prod(self.shape[1:]) * self.datatype.size
        if (address := self.flat()) is not None:
            return np.array([address + start * row]), np.array([address + stop * row])
        tiles = self.tiles()
        first = tiles.origin[:, 0]
        height = self._layout.chunk[0] if self._layout.chunk else self.shape[0]
        chosen = (first < stop) & (first > start - height)
        return tiles.offset[chosen], tiles.offset[chosen] + tiles.nbytes[chosen]

    def read_list(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Elements `start` to `stop` of a variable-length dataset as `bytes`, in C order."""
        return [bytes(piece) for piece in self._pieces(start, stop)]

    def read_vlen(self, start: int = 0, stop: int | None = None) -> tuple[AnyArray, IntArray]:
        """Variable-length elements as `values` `[total]`, and `offsets` `[n + 1]` where each begins."""
        pieces = self._pieces(start, stop)
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(piece) // self.dtype.itemsize for piece in pieces], out=offsets[1:])
        return self._as_array(b"".join(pieces), (-1,)), offsets

    @located
    def _references(self, raw: bytes | memoryview) -> list[memoryview]:
        return read_references(raw, self.datatype, self._heap, self._image.size)

    def _pieces(self, start: int, stop: int | None) -> list[memoryview]:
        if self.kind not in ("vlen_string", "vlen"):
            raise DataError(f"{self.name} has elements of fixed length; use read")
        return self._references(self._read_raw(*self._rows(start, stop)))

    def _rows(self, start: int, stop: int | None) -> tuple[int, int]:
        if not self.shape:
            return 0, 1
        end = self.shape[0] if stop is None else stop
        if not 0 <= start <= end <= self.shape[0]:
            raise DataError(f"expected rows within 0 to {self.shape[0]} of {self.name}, got {start} to {end}")
        return start, end

    def _result(self, start: int, stop: int) -> tuple[int, ...]:
        return (stop - start, *self.shape[1:]) if self.shape else ()

    @located
    def _read_raw(self, start: int, stop: int) -> bytes | memoryview:
        """Bytes of rows `start` to `stop`, in C order."""
        check_mapped(self._image.buffer)
        layout = self._layout
        row = math.prod(self.shape[1:]) * self.datatype.size
        if layout.kind == "compact":
            return layout.data[start * row : stop * row]
        address = None if start == stop else self.flat()
        if address is not None:
            first = address - self._image.base + start * row
            return self._image.view(first, (stop - start) * row, "rows")
        return self._assemble(start, stop).reshape(-1).view(np.uint8).data

    def _assemble(self, start: int, stop: int) -> StructArray:
        tiles = self.tiles() if start < stop else make_tiles(self._image, len(self.shape), [])
        shape, size = self._result(start, stop), self.datatype.size
        total = math.prod(shape) * size
        if total > INFLATION * self._image.size + SMALL:
            raise FormatError(f"{total} bytes cannot come from a file of {self._image.size} bytes")
        raw = np.empty(total, np.uint8)
        out = raw.view(f"V{size}").reshape(shape)
        out[...] = np.frombuffer(self._fill or bytes(size), f"V{size}")[0]
        if len(tiles):
            lo = tiles.origin[:, 0]
            for i in np.flatnonzero((lo < stop) & (lo > start - self._layout.chunk[0])):
                self._place(out, start, tiles, int(i))
        return out

    def _place(self, out: StructArray, start: int, tiles: Tiles, i: int) -> None:
        origin = tuple(int(o) for o in tiles.origin[i])
        chunk = self._decode(tiles, i, origin)
        source: list[slice] = []
        target: list[slice] = []
        for axis, (o, n, c) in enumerate(zip(origin, out.shape, self._layout.chunk, strict=True)):
            first = o - start if axis == 0 else o
            lo, hi = max(first, 0), min(first + c, n)
            if lo >= hi:
                return
            target.append(slice(lo, hi))
            source.append(slice(lo - first, hi - first))
        out[tuple(target)] = chunk[tuple(source)]

    def _decode(self, tiles: Tiles, i: int, origin: tuple[int, ...]) -> StructArray:
        layout, size = self._layout, self.datatype.size
        nbytes = math.prod(layout.chunk) * size
        address = int(tiles.offset[i]) - self._image.base
        raw = self._image.take(address, int(tiles.nbytes[i]), "chunk")
        sticks_out = any(o + c > n for o, c, n in zip(origin, layout.chunk, self.shape, strict=True))
        filters = self.filters if layout.filter_edges or not sticks_out else ()
        data = decode(raw, filters, int(tiles.filter_mask[i]), nbytes)
        return np.frombuffer(data, f"V{size}").reshape(layout.chunk)
