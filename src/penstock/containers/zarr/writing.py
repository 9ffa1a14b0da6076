"""Writing arrays: rows appended to chunks, each file only when whole, the length last.

An array that was written in parts becomes one array (`join_arrays`): whole chunks are moved, and only the chunk in
which a part ends and the next one begins, and rows of a part that begins at another row than was expected, are encoded
again. A second call after a kill goes on: chunks that were moved are found at their new place, and others are written
again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.array import Missing, ZarrArray
from penstock.containers.zarr.codecs import JpegXLEncoder
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ATTRIBUTES, BLOSC_LZ4, CONSOLIDATED, GROUP, NODE, ArrayMetadata, dumped
from penstock.containers.zarr.rows import as_bytes
from penstock.containers.zarr.stores import DirectoryStore, ZarrStore, ZipStore
from penstock.containers.zarr.version3 import array_of_version3, described_in_version3
from penstock.core.arrays import AnyArray
from penstock.core.boundary import json_object
from penstock.core.cache import Cache
from penstock.core.narrowing import is_dict
from penstock.errors import DataError, FormatError, SpecError, require
from penstock.files import move, sync, write_atomic
from penstock.files.remote import read_bytes

CODECS = ("blosc", "zlib", "gzip", "bz2", "lzma", "lz4", "zstd")
_BLOCK_BYTES = 16 << 20  # of rows that are decoded at a time


def compressor_of(codec: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A codec's configuration by its name (`"lz4"` and `"zstd"` are Blosc's, with shuffle) or as a `.zarray` has it."""
    if codec is None or codec == "none":
        return None
    if isinstance(codec, str):
        codec = {**BLOSC_LZ4, "cname": codec} if codec in ("lz4", "zstd") else {"id": codec}
    codecs: Any = require("numcodecs", "zarr")
    if codec.get("id") not in CODECS:
        raise DataError(f"expected a compressor among {CODECS}, got {codec.get('id')!r}")
    try:
        return codecs.get_codec(dict(codec)).get_config()
    except (TypeError, ValueError) as error:
        raise DataError(f"expected the configuration of a codec, got {dict(codec)}: {error}") from error


class ArrayWriter:
    """Appends rows to the array `folder`, which is created unless it exists.

    `length` is how many rows count; the length that the array has on disk changes with the first commit. A full chunk
    is written as soon as it is full; `commit` writes what is left, and then the new length, so that a reader sees all
    rows of a commit or none. Rows behind `length` that an interrupted writer left are written over. `missing` says what
    a chunk before `length` is that is not stored. Memory: two chunks.
    """

    def __init__(self, folder: Path, metadata: ArrayMetadata, length: int = 0, missing: Missing = "refuse") -> None:
        self.folder, self.metadata = folder, metadata
        self._missing: Missing = missing
        if not (metadata.codecs.plain or metadata.codecs.one_image) or metadata.gridded:
            message = (
                "expected chunks of whole rows without filters, shards, checksums and loss to append to, got others"
            )
            raise DataError(f"{message}, in {folder}; convert the dataset")
        self._codec = _encoder_of(metadata)
        self._written: set[Path] = set()
        self._begin(length)

    def _begin(self, length: int) -> None:
        """Go on behind row `length`: the rows before it in its chunk are read again."""
        self._length, self._dirty = length, False
        self._tail = np.zeros((self.metadata.chunk_rows, *self.metadata.shape[1:]), self.metadata.dtype)
        if filled := length % self.metadata.chunk_rows:
            store = DirectoryStore(self.folder.parent)
            stored = ZarrArray(store, self.folder.name, self.metadata, Cache(0), self._missing)
            self._tail[:filled] = stored.read(length - filled, length)

    @classmethod
    def create(cls, folder: Path, metadata: ArrayMetadata) -> ArrayWriter:
        folder.mkdir(parents=True)
        empty = metadata.resized(0)
        write_atomic(folder / metadata.file, empty.to_json())
        return cls(folder, empty)

    @classmethod
    def begin_at(cls, folder: Path, metadata: ArrayMetadata, row: int) -> ArrayWriter:
        """An empty array whose rows before `row` are missing: a part of an array, see `join_arrays`."""
        placed = metadata.resized(row)
        write_atomic(folder / placed.file, placed.to_json())
        return cls(folder, placed, row, "fill")

    def __len__(self) -> int:
        return self._length

    def append(self, rows: AnyArray) -> None:
        """Take `[n, ...]` rows."""
        if rows.dtype != self.metadata.dtype or rows.shape[1:] != self.metadata.shape[1:]:
            expected = f"{self.metadata.dtype}{list(self.metadata.shape[1:])}"
            raise SpecError(f"expected rows of {expected}, got {rows.dtype}{list(rows.shape[1:])}")
        source, tail = as_bytes(np.ascontiguousarray(rows)), as_bytes(self._tail)
        size, row = self.metadata.chunk_rows, 0
        while row < len(source):
            begin = self._length % size
            n = min(size - begin, len(source) - row)
            tail[begin : begin + n] = source[row : row + n]
            row = row + n
            self._length = self._length + n
            self._dirty = True
            if self._length % size == 0:
                self._put()
                tail[:] = 0

    def commit(self) -> None:
        """Make the rows last: chunks first, the length last."""
        if self._dirty:
            self._put()
        if self._length != self.metadata.shape[0]:
            self.metadata = self.metadata.resized(self._length)
            write_atomic(self.folder / self.metadata.file, self.metadata.to_json())

    def rollback(self, length: int) -> None:
        """Go on behind row `length`; rows behind it are overwritten."""
        self._begin(length)

    def go_to(self, length: int) -> None:
        """Go on at row `length`, the first of a chunk; what was appended, and the chunks before it, are stored."""
        if self._dirty or length % self.metadata.chunk_rows:
            raise DataError(f"expected rows of whole chunks, got {self._length} and {length}")
        self._length = length

    def sync(self) -> None:
        """Flush what was written to the disk itself."""
        sync(*self._written, self.folder / self.metadata.file, self.folder)
        self._written.clear()

    def close(self) -> None:
        """Let go of memory; nothing more is written."""
        self._begin(0)

    def _put(self) -> None:
        c = (self._length - 1) // self.metadata.chunk_rows
        data = as_bytes(self._tail) if self._codec is None else self._codec.encode(self._tail)
        place = self.folder / self.metadata.key(c)
        place.parent.mkdir(parents=True, exist_ok=True)  # keys of version 3 have folders
        write_atomic(place, data)
        self._written.add(place)
        self._dirty = False


def _encoder_of(metadata: ArrayMetadata) -> Any:
    """What encodes chunks, None where they are stored as they are."""
    config = metadata.compressor
    if config is None or metadata.codecs.one_image:
        return None if config is None else JpegXLEncoder(config)
    codecs: Any = require("numcodecs", "zarr")
    return codecs.get_codec(dict(config))


class GrowingArray(Protocol):
    """What writers do with one array of a dataset."""

    def __len__(self) -> int: ...
    def append(self, rows: AnyArray) -> None: ...
    def commit(self) -> None: ...
    def rollback(self, length: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


def close_arrays(arrays: Iterable[GrowingArray], folder: Path) -> None:
    """Flush the arrays of a folder to the disk itself, and close them, also if that fails."""
    closing = list(arrays)
    try:
        for array in closing:
            array.sync()
        sync(folder)
    finally:
        for array in closing:
            array.close()


def new_array(
    dtype: np.dtype[Any],
    row_shape: tuple[int, ...],
    chunk_rows: int,
    compressor: Mapping[str, Any] | None,
    zarr_format: int = 2,
) -> ArrayMetadata:
    """The description of an empty array of a version."""
    if zarr_format == 2:
        return ArrayMetadata.of(dtype, (0, *row_shape), chunk_rows, compressor)
    return array_of_version3(described_in_version3(dtype, (0, *row_shape), (chunk_rows, *row_shape), compressor))


def create_group(folder: Path, attributes: Mapping[str, Any] | None = None, zarr_format: int = 2) -> None:
    """The files that make an existing folder a group. Without `attributes`, version 2 has no file of them."""
    if zarr_format == 3:
        write_atomic(folder / NODE, dumped({"attributes": {}, "node_type": "group", "zarr_format": 3}))
    if attributes is not None:
        write_attributes(folder, attributes)
    if zarr_format == 2:
        write_atomic(folder / GROUP, dumped({"zarr_format": 2}))


def write_attributes(folder: Path, attributes: Mapping[str, Any]) -> None:
    node = folder / NODE
    entries = json_object(read_bytes(node), folder, NODE) if node.is_file() else None
    if entries is not None:
        entries = {name: value for name, value in entries.items() if name != "consolidated_metadata"}
    try:
        raw = dumped(attributes if entries is None else {**entries, "attributes": dict(attributes)})
    except (TypeError, ValueError) as error:
        raise DataError(f"expected attributes that JSON has a place for: {error}") from error
    write_atomic(folder / ATTRIBUTES if entries is None else node, raw)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / CONSOLIDATED)


@dataclass(frozen=True)
class ArrayPart:
    """Rows of an array that one writer wrote."""

    group: Path
    first: int
    change: Callable[[AnyArray], AnyArray] | None = None


def join_arrays(name: str, parts: Sequence[ArrayPart], out: Path) -> None:
    """Join the parts of an array. A second call continues after a kill."""
    arrays = [ZarrGroup(part.group).array(name).metadata for part in parts]
    empty = arrays[0].resized(0)
    (out / name).mkdir(parents=True, exist_ok=True)
    write_atomic(out / name / empty.file, empty.to_json())
    writer = ArrayWriter(out / name, empty)
    for part, metadata in zip(parts, arrays, strict=True):
        _append(writer, name, part, metadata)
    writer.commit()
    writer.sync()
    writer.close()


def _append(writer: ArrayWriter, name: str, part: ArrayPart, metadata: ArrayMetadata) -> None:
    """Append the rows of a part: chunks of it alone are moved."""
    size, stop = metadata.chunk_rows, metadata.shape[0]
    first_chunk, last_chunk = -(-part.first // size), stop // size
    row = part.first
    if part.first == len(writer) and part.change is None and first_chunk < last_chunk:
        _copy(writer, name, part, metadata, (row, first_chunk * size))
        for c in range(first_chunk, last_chunk):
            _move_chunk(part.group / name / metadata.key(c), writer.folder / metadata.key(c))
        row = last_chunk * size
        writer.go_to(row)
    _copy(writer, name, part, metadata, (row, stop))


def _copy(writer: ArrayWriter, name: str, part: ArrayPart, metadata: ArrayMetadata, rows: tuple[int, int]) -> None:
    """Decode rows of a part, and append them."""
    array = ZarrArray(DirectoryStore(part.group), name, metadata, Cache(0), "refuse")
    step = max(_BLOCK_BYTES // metadata.chunk_bytes, 1) * metadata.chunk_rows
    row, stop = rows
    while row < stop:
        end = min((row // step + 1) * step, stop)  # so that each chunk is decoded once
        values = array.read(row, end)
        writer.append(values if part.change is None else part.change(values))
        row = end


def _move_chunk(source: Path, target: Path) -> None:
    """Move the file of a chunk, unless an earlier call did."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        move(source, target, overwrite=True)
    except FileNotFoundError:
        if not target.exists():
            raise FormatError("expected a chunk, got none", path=source) from None


_MOMENT = (1980, 1, 1, 0, 0, 0)  # equal repairs make equal files


@dataclass(frozen=True, eq=False)
class ChangedFile:
    """New bytes of a file, behind the first `keep` bytes (None: the whole file), for the arrays in `names`."""

    path: Path
    content: bytes
    keep: int | None
    names: tuple[str, ...]


def cut_rows(path: Path, arrays: Mapping[str, tuple[ZarrArray, int]]) -> Iterator[ChangedFile]:
    store = next((array.store for array, _ in arrays.values()), None)
    if isinstance(store, ZipStore):
        content = _appended(store, _entries(store, arrays.values()))
        yield ChangedFile(path, content, path.stat().st_size, tuple(arrays))
    elif store is not None:
        for name, change in arrays.items():
            for key, content in _entries(store, [change]).items():
                yield ChangedFile(path / key, content, None, (name,))


def _entries(store: ZarrStore, arrays: Iterable[tuple[ZarrArray, int]]) -> dict[str, bytes]:
    """Return the new content of each entry of a store that says how many rows arrays have."""
    entries: dict[str, bytes] = {}
    for array, rows in arrays:
        file = array.metadata.file
        entries[f"{array.name}/{file}"] = array.metadata.resized(rows).to_json()
        place = NODE if file == NODE else CONSOLIDATED
        text = entries.get(place) or store.text(place)
        if text is None:
            continue
        document: Any = json.loads(text)
        nodes: Any = document.get("consolidated_metadata") if file == NODE else document
        nodes = nodes.get("metadata") if is_dict(nodes) else None
        key = array.name if file == NODE else f"{array.name}/{file}"
        if is_dict(nodes) and is_dict(nodes.get(key)):
            nodes[key]["shape"][0] = rows
            entries[place] = json.dumps(document, indent=4).encode()
    return entries


def _appended(store: ZipStore, entries: Mapping[str, bytes]) -> bytes:
    """Return bytes that replace entries of an archive when they are written behind its end.

    They are new members and a new table of all members. The old table stays in the file, so that an archive whose
    repair was killed is the old one again as soon as what was written is cut off.
    """
    names = {store.member_name(key): content for key, content in entries.items()}
    with zipfile.ZipFile(store.path) as old:
        members, comment = {member.filename: member for member in old.infolist()}, old.comment
    out = _BytesBehind(store.path.stat().st_size)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        new.comment = comment
        new.filelist.extend(member for name, member in members.items() if name not in names)
        for name, content in names.items():
            new.writestr(zipfile.ZipInfo(name, _MOMENT), content)
    return out.getvalue()


class _BytesBehind(io.BytesIO):
    """Bytes in memory at positions from `start` on, as behind the end of a file."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    @override
    def tell(self) -> int:
        return self._start + super().tell()

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._start + super().seek(offset - self._start if whence == io.SEEK_SET else offset, whence)
