"""An array that was written in parts becomes one array: whole chunks are moved, and only the others are encoded again.

A part has its rows where they are in the array, as far as that is known when it is begun: its chunks have the numbers
that they will have, and the chunks before it are missing. Then all chunks but its first and its last are files of the
array, and are moved. The chunk in which a part ends and the next one begins is put together from the rows of both. Rows
of a part that begins at another row, as where it follows values whose number was not known, are decoded and encoded.

A chunk is the same file, whoever encoded it, so the array has the same bytes as an array that one writer wrote.

A second call after a kill goes on: chunks that were moved are found at their new place, and others are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.containers.cache import Cache
from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.stores import DirectoryStore
from penstock.containers.zarr.writing import ArrayWriter
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError
from penstock.files import move, write_atomic

_BLOCK_BYTES = 16 << 20  # of rows that are decoded at a time


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
