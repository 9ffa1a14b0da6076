"""Columns of a dataset: numbers, text, tasks and images in Parquet files, read by blocks.

A block is a row group of a data file. A column decodes a row group as a whole, and keeps it in the cache of the
dataset. Of images, the wanted ones are read alone, if their storage allows it; each is decoded once for a selection,
into the memory of the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import ParquetFile, array_of, arrow, values_of
from penstock.containers.arrow.values import TableColumn
from penstock.containers.images import decode_each, decode_into
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, equal_runs, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.files.remote import Wanted, is_mirrored
from penstock.formats.base.pieces import BlockRows, each_once, spread
from penstock.formats.lerobot.language import MESSAGE_FIELDS, messages_of

TOGETHER = 8
"""Row groups in a row from which on they are read in one go."""

RUN = 1 << 20
"""Bytes of numbers of a file on this machine, in consecutive row groups, that are kept as one array."""

_PART = 16  # part of the cache that a column may take to be kept in such arrays
_ENTRY = 500  # bytes of runs beside their rows, about

BYTES = Field(np.dtype(np.uint8), kind="ragged")
TEXT = Field(np.dtype(np.uint8), kind="text")
INDEX = Field(np.dtype(np.int64))


@dataclass(frozen=True, eq=False)
class BlockRuns:
    """Runs of blocks of one file: run `r` has the blocks `first[r] : first[r + 1]`, and `rows` has rows by run.

    A batch of random rows has a row of nearly each block, and to look at so many arrays takes longer than a picture.
    """

    rows: BlockRows
    first: IntArray


@dataclass(frozen=True, eq=False)
class DataFiles:
    """The data files of a dataset, and where its rows are in them."""

    files: tuple[ParquetFile, ...]
    schemas: tuple[tuple[str, ...], ...]
    file: IntArray
    group: IntArray
    rows: BlockRows
    cache: Cache
    pages: Cache
    """Pages of images: their own cache, for one of them is as large as the numbers of many row groups."""

    @cached_property
    def before(self) -> IntArray:
        """Rows of the file before each block."""
        return np.concatenate([np.zeros(0, np.int64), *(offsets_of(file.rows)[:-1] for file in self.files)])

    def block(self, number: int, name: str, dtype: np.dtype[Any], decode: Callable[[Any], Array]) -> Array:
        """Return a column of a block, from the cache or decoded."""
        file = self.file_of(number)
        group = int(self.group[number])

        def decoded() -> tuple[Array, int]:
            with parsing(file.path, f"{name}, row group {group}"):
                rows = decode(file.column(group, name))
            return rows, rows.nbytes

        return self.cache.get((number, name, dtype), decoded)

    def together(
        self, blocks: IntArray, name: str, dtype: np.dtype[Any], decode: Callable[[Any], Array]
    ) -> dict[int, Array]:
        """Read runs of `TOGETHER` blocks in one go: each takes half a millisecond, however small it is."""
        if len(blocks) < TOGETHER:
            return {}
        blocks = blocks[[self.cache.peek((block, name, dtype)) is None for block in blocks.tolist()]]
        parts: dict[int, Array] = {}
        edges = np.flatnonzero((np.diff(blocks) != 1) | (np.diff(self.file[blocks]) != 0)) + 1
        for run in np.split(blocks, edges):
            if len(run) < TOGETHER:
                continue
            file = self.file_of(int(run[0]))
            groups: list[int] = self.group[run].tolist()
            offsets = offsets_of([file.rows[group] for group in groups]).tolist()
            with suppress(FormatError), parsing(file.path, name):
                rows = decode(file.columns(groups, name))
                for block, a, b in zip(run.tolist(), offsets[:-1], offsets[1:], strict=True):
                    parts[block] = self._kept((block, name, dtype), rows[a:b])
        return parts

    def runs(self, row_bytes: int) -> BlockRuns | None:
        """Return runs of the blocks of a column, or None where its blocks are read alone."""

        def found() -> tuple[BlockRuns | None, int]:
            total = sum(rows for file in self.files for rows in file.rows)
            if row_bytes * total > self.cache.limit // _PART or any(is_mirrored(file.path) for file in self.files):
                return None, _ENTRY
            new = (np.diff(self.file, prepend=-1) != 0) | (np.diff(self.before * row_bytes // RUN, prepend=-1) != 0)
            if new.all():
                return None, _ENTRY
            first, run = np.flatnonzero(new), np.cumsum(new) - 1
            rows, skip = self.rows, self.before - self.before[first][run]
            own = BlockRows(rows.first, run[rows.block], rows.skip + skip[rows.block])
            return BlockRuns(own, np.append(first, len(self.file))), _ENTRY + 2 * own.block.nbytes

        return self.cache.get(("runs", row_bytes), found)

    def run(
        self, runs: BlockRuns, number: int, name: str, dtype: np.dtype[Any], decode: Callable[[Any], Array]
    ) -> Array:
        """Return a column of a run of blocks, from the cache or decoded."""

        def decoded() -> tuple[Array, int]:
            begin, end = runs.first[number : number + 2].tolist()
            file = self.file_of(begin)
            with parsing(file.path, name):
                rows = decode(file.columns(self.group[begin:end].tolist(), name))
            return rows, rows.nbytes

        return self.cache.get(("run", number, name, dtype), decoded)

    def images(self, blocks: IntArray, rows: IntArray, name: str) -> list[bytes]:
        """Return the images of rows of blocks, read alone where their storage allows it."""
        blobs: list[bytes] = []
        for file, leaf, mine in self._files_of(blocks, name):
            with parsing(file.path, name):
                part = file.values(leaf, self.before[blocks[mine]] + rows[mine], self.pages)
            if part is None:
                for block, begin, end in equal_runs(blocks[mine]):
                    blobs += self.encoded(block, name).take(rows[mine][begin:end]).blobs()
            else:
                blobs += part
        return blobs

    def image_ranges(self, blocks: IntArray, rows: IntArray, name: str) -> list[Wanted]:
        """Return the bytes behind a URL that `images` would fetch."""
        ranges: list[Wanted] = []
        for file, leaf, mine in self._files_of(blocks, name):
            with parsing(file.path, name):
                ranges += file.value_ranges(leaf, self.before[blocks[mine]] + rows[mine], self.pages)
        return ranges

    def _files_of(self, blocks: IntArray, name: str) -> Iterator[tuple[ParquetFile, str, slice]]:
        """Yield the files of blocks with the leaf that has the bytes of images, and the part of the blocks in each."""
        for number, first, last in equal_runs(self.file[blocks]):
            file = self.files[number]
            yield file, name if file.leaf(name) is not None else f"{name}.bytes", slice(first, last)

    def encoded(self, block: int, name: str) -> Ragged:
        """Return all images of a block, as rows of bytes."""
        encoded = self.block(block, name, BYTES.dtype, encoded_images)
        if not isinstance(encoded, Ragged):
            raise FormatError(f"expected encoded images, got {encoded.dtype}")
        return encoded

    def _kept(self, key: Hashable, rows: Array) -> Array:
        """Put a copy of decoded rows into the cache, which then keeps no other rows alive."""

        def copied() -> tuple[Array, int]:
            part = Ragged(rows.values.copy(), rows.offsets.copy()) if isinstance(rows, Ragged) else rows.copy()
            return part, part.nbytes

        return self.cache.get(key, copied)

    def remote_ranges(self, name: str, selection: Selection) -> list[Wanted]:
        return [
            wanted
            for block in self.rows.blocks(selection)
            for wanted in self.file_of(block).remote_ranges(int(self.group[block]), name)
        ]

    def file_of(self, block: int) -> ParquetFile:
        return self.files[int(self.file[block])]

    def lengths(self, load: Callable[[int], Array]) -> IntArray:
        """Return the length of each row of a ragged column. Cost: decodes all blocks."""
        lengths = [np.zeros(0, np.int64)]
        runs = zip(self.rows.block.tolist(), self.rows.skip.tolist(), np.diff(self.rows.first).tolist(), strict=True)
        for block, skip, count in runs:
            rows = load(block)
            if isinstance(rows, Ragged):
                lengths.append(rows.lengths[skip : skip + count])
        return np.concatenate(lengths)

    def column(self, field: Field, name: str) -> StoredColumn:
        return StoredColumn(self, name, field)


class CountedRagged(ABC):
    """A ragged column for `SourceState`, whose offsets are counted at first use."""

    @abstractmethod
    def read_ragged(self, selection: Selection) -> Ragged: ...

    @abstractmethod
    def lengths(self) -> IntArray: ...

    @property
    def value_offsets(self) -> IntArray:
        return self._offsets

    @cached_property
    def _offsets(self) -> IntArray:
        return offsets_of(self.lengths())

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        offsets = self.value_offsets
        spans = zip(selection.start.tolist(), selection.length.tolist(), selection.destination.tolist(), strict=True)
        for start, length, destination in spans:
            if not length:
                continue
            first, last = np.searchsorted(offsets, [start, start + length - 1], side="right").tolist()
            rows = self.read_ragged(Selection.consecutive(first - 1, last))
            skipped = start - int(offsets[first - 1])
            out[destination : destination + length] = rows.values[skipped : skipped + length]


@dataclass(frozen=True, eq=False)
class BlockColumn(CountedRagged):
    """A column of the data files, whose rows are decoded by blocks."""

    data: DataFiles
    name: str
    field: Field

    @abstractmethod
    def load(self, block: int) -> Array:
        """Return the rows of a block."""

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        return self.data.remote_ranges(self.name, selection)

    @override
    def lengths(self) -> IntArray:
        return self.data.lengths(self.load)

    @override
    def read_ragged(self, selection: Selection) -> Ragged:
        return self.data.rows.read_ragged(self.load, self.field, selection)


@dataclass(frozen=True, eq=False)
class StoredColumn(BlockColumn):
    """Numbers or text of the data files."""

    def load(self, block: int) -> Array:
        return self.data.block(block, self.name, self.field.dtype, self._decoded)

    def _decoded(self, array: Any) -> Array:
        if self.name in MESSAGE_FIELDS and self.field.kind == "text" and not arrow().types.is_string(array.type):
            return messages_of(array, self.name)
        return rows_of(array, self.field)

    def read(self, selection: Selection, out: AnyArray) -> None:
        data, field = self.data, self.field
        if (runs := data.runs(field.row_bytes)) is not None:
            with suppress(FormatError):  # then blocks are read, of which some are whole
                runs.rows.read_array(
                    lambda number: data.run(runs, number, self.name, field.dtype, self._decoded), selection, out
                )
                return
        data.rows.read_array(self._loader(selection), selection, out)

    def read_ragged(self, selection: Selection) -> Ragged:
        return self.data.rows.read_ragged(self._loader(selection), self.field, selection)

    def _loader(self, selection: Selection) -> Callable[[int], Array]:
        """Return `load`, or a function that has many blocks of the selection already."""
        blocks = np.array(self.data.rows.blocks(selection), np.int64)
        parts = self.data.together(blocks, self.name, self.field.dtype, self._decoded)
        return lambda block: parts[block] if block in parts else self.load(block)

    def rows(self, count: int) -> AnyArray:
        out = np.empty((count, *self.field.shape), self.field.dtype)
        self.read(Selection.consecutive(0, count), out)
        return out


@dataclass(frozen=True, eq=False)
class ImageColumn(BlockColumn):
    """Images of the data files, encoded as rows of bytes."""

    def load(self, block: int) -> Ragged:
        return self.data.encoded(block, self.name)

    @override
    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        rows = np.unique(ranges(selection.start, selection.length))
        return self.data.image_ranges(*self.data.rows.located(rows), self.name)

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Decode each wanted image once, and copy it to its other places."""
        rows, first, (targets, sources) = each_once(selection)
        blocks, stored = self.data.rows.located(rows)
        blobs, places = self.data.images(blocks, stored, self.name), first.tolist()

        def decode_one(i: int) -> None:
            try:
                decode_into(blobs[i], out[places[i]], convert=True)
            except Exception:
                where = f"{self.name}, image {stored[i]} of its row group"
                with parsing(self.data.file_of(int(blocks[i])).path, where):
                    raise

        decode_each(decode_one, len(blobs), len(blobs) * out[:1].nbytes)
        out[targets] = out[sources]


@dataclass(frozen=True, eq=False)
class TaskColumn(BlockColumn):
    """Text of the task of each step, whose number is in the column `name`."""

    tasks: Mapping[int, str]

    @cached_property
    def _texts(self) -> tuple[IntArray, Ragged]:
        """Numbers of the tasks, sorted, and their texts."""
        known = sorted(self.tasks)
        return np.array(known, np.int64), Ragged.from_strings(self.tasks[number] for number in known)

    @override
    def load(self, block: int) -> Ragged:
        numbers = np.asarray(self.data.column(INDEX, self.name).load(block), np.int64)
        known, texts = self._texts
        places, matches = self._places(numbers)
        if not matches.all():
            raise FormatError(
                f"expected the number of a task among {known[:8].tolist()}, got {numbers[~matches][:8].tolist()}; add "
                "its text to the tasks in meta",
                path=self.data.file_of(block).path,
            )
        return texts.take(places)

    @override
    def read_ragged(self, selection: Selection) -> Ragged:
        """Read the numbers of all blocks, then their texts at once."""
        offsets = offsets_of(selection.length)
        numbers = np.empty(int(offsets[-1]), np.int64)
        wanted = replace(selection, destination=offsets[:-1], shape=(1, len(numbers)))
        self.data.column(INDEX, self.name).read(wanted, numbers)
        places, matches = self._places(numbers)
        return spread(self._texts[1].take(places), selection) if matches.all() else super().read_ragged(selection)

    def _places(self, numbers: IntArray) -> tuple[IntArray, BoolArray]:
        """Return where texts of numbers are, and whether each has one."""
        known = self._texts[0]
        places = np.searchsorted(known, numbers)
        return places, np.append(known, -1)[np.minimum(places, len(known))] == numbers


def rows_of(array: Any, field: Field) -> Array:
    """Return numbers or text of an Arrow array."""
    types = arrow().types
    array = _storage(array)
    if field.kind == "text":
        if not (types.is_string(array.type) or types.is_large_string(array.type)):
            raise FormatError(f"expected text, got {array.type}")
        return values_of(array, field)
    depth, inner = 0, array.type
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        depth, inner = depth + 1, inner.value_type
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise FormatError(f"expected numbers, got {array.type}")
    stored = np.dtype(inner.to_pandas_dtype())
    if not np.can_cast(stored, field.dtype, "same_kind"):
        raise FormatError(f"expected {field.dtype}, got {stored}, which it cannot hold")
    shape = (1,) * depth if depth < 2 and field.shape in ((), (1,)) else field.shape  # one number, perhaps in a list
    if depth != len(shape):
        raise FormatError(f"expected rows of shape {field.shape}, got {array.type}")
    values: Any = values_of(array, Field(field.dtype, shape))
    return values.reshape(len(array), *field.shape)


def encoded_images(array: Any) -> Ragged:
    """Return the bytes of each image of a column of structs with `bytes` and `path`, or of bytes alone."""
    types = arrow().types
    array = _storage(array)
    if types.is_struct(array.type):
        if array.type.get_field_index("bytes") < 0:
            raise FormatError(f"expected images with bytes, got {array.type}")
        array = array_of(array, TableColumn(("", "bytes"), BYTES))
    if not (types.is_binary(array.type) or types.is_large_binary(array.type)):
        raise FormatError(f"expected the bytes of images, got {array.type}")
    if array.null_count:
        raise FormatError(f"expected the bytes of every image, got {array.null_count} rows without; embed the images")
    values = values_of(array, BYTES)
    if not isinstance(values, Ragged):
        raise FormatError(f"expected the bytes of images, got {values.dtype}")
    return values


def _storage(array: Any) -> Any:
    return array.storage if isinstance(array, arrow().ExtensionArray) else array
