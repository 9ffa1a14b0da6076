"""Writing to a column store: one segment a writer, and the table that all of them append to.

An episode exists once its entry is in the table, so the order of writes is rows, the line of metadata, then the entry.
A process that is killed in between leaves bytes behind the last entry, which `Segment.restore` cuts off before the next
write. A number that the table knows is never used for another segment. `sync` flushes all files before the table, so an
entry on disk never names rows that are not.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import StructArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Align, Field, Spec
from penstock.errors import DataError, FormatError, LockedError, SpecError
from penstock.files import atomic_path, locked, sync, try_lock
from penstock.files.descriptors import PooledFile, PooledFiles, open_regular
from penstock.files.locks import lock, unlock
from penstock.formats.base.account import UnfinishedWork
from penstock.formats.base.metadata import json_line, plain_metadata
from penstock.formats.base.writer import Writer, check_columns, check_open
from penstock.formats.columns import table
from penstock.formats.columns.layout import (
    BLOCKS,
    METADATA,
    SEGMENTS,
    STEPS,
    Compression,
    Packing,
    StoreLayout,
    read_json,
    write_at,
    write_json,
)
from penstock.formats.columns.reading import as_bytes
from penstock.formats.columns.retention import RetentionState, read_retention

_OPEN = os.O_RDWR | os.O_CREAT
_OFFSET = struct.Struct("<q")
COPIED = 1 << 14  # bytes up to which a copy costs less than a view
TOGETHER = 8  # columns whose files are open at once
LOOKED = 1024  # steps that are written between two looks for a retention: a look costs a tenth of a short episode


class Segment:
    """The one writer of a segment: `write` gives the entry that makes an episode exist, `restore` what exists."""

    def __init__(self, layout: StoreLayout, number: int, locked: int) -> None:
        self.number = number
        self.unsynced = 0
        self._folder = layout.segment(number)
        self._texts = locked
        self._files: list[PooledFile] = []  # all but the locked one
        self._parts: list[SegmentColumn | PackedPart] = []
        self._groups: list[tuple[PooledFiles, list[SegmentColumn | PackedPart]]] = []  # parts that are open together
        self._packed: list[PackedPart] = []
        self._blocks = PooledFile(layout.blocks(number), _OPEN)  # the positions of blocks
        self._episodes = self._start = self._text_end = self._block_count = 0

    @classmethod
    def acquire(cls, layout: StoreLayout, entries: StructArray, retention: RetentionState | None) -> Segment:
        """Lock the first segment without a writer, or a new one. A dead writer's lock is gone with it.

        With a retention, segments that have left or that have all their steps are passed over. The caller holds the
        lock of the table, whose entries are given. A number that the table has is never used for another segment.
        """
        closed = set[int]() if retention is None else _closed(entries, retention)
        known = int(entries["segment"].max(initial=0)) + 1 if len(entries) else 0
        while True:
            numbers = layout.numbers()
            for number in numbers:
                if number not in closed and (locked := _lock(layout.metadata(number))) is not None:
                    return cls(layout, number, locked)._opened(layout)
            with contextlib.suppress(FileExistsError):  # another writer was quicker: look again
                layout.segment(max([known, *(number + 1 for number in numbers)])).mkdir()
                sync(layout.root / SEGMENTS)

    @property
    def steps(self) -> int:
        return self._start

    def _opened(self, layout: StoreLayout) -> Segment:
        try:
            self._parts = [_part(layout, self.number, path) for path in layout.spec]
            self._packed = [part for part in self._parts if isinstance(part, PackedPart)]
            for i in range(0, len(self._parts), TOGETHER):
                parts = self._parts[i : i + TOGETHER]
                files = [file for part in parts for file in part.files]
                self._groups.append((PooledFiles(files), parts))
                self._files += files
            if self._packed:
                self._files.append(self._blocks)
        except BaseException:
            self.close()
            raise
        return self

    def restore(self, entries: StructArray) -> None:
        """Cut everything back to what the entries say."""
        self._episodes, self._start, self._text_end, self._block_count = table.ends(entries, self.number)
        _cut(self._texts, self._text_end, self._folder)
        ends = self._block_ends() if self._packed else iter(())
        for part in self._parts:
            if isinstance(part, PackedPart):
                part.restore(next(ends), self._folder)
                continue
            rows, _ = table.places(self._episodes, self._start, 0)[part.align]
            part.restore(rows if self._episodes else 0, self._folder)

    def write(self, episode: Episode, steps: int, text: bytes) -> bytes:
        """Write the rows of an episode and the line about it, and give its entry for the table."""
        places = table.places(self._episodes, self._start, steps)
        columns, size = episode.columns, len(text)
        check = 0
        for files, parts in self._groups:
            with files:
                for part in parts:
                    array = columns[part.path]
                    first, rows = places[part.align]
                    check = part.write(array, first, rows, check)
                    size += array.nbytes
        write_at(self._texts, text, self._text_end)
        check = zlib.crc32(text, check)
        self.unsynced += size
        blocks = self._block_count + self._write_positions() if self._packed else 0
        return table.pack(self.number, self._episodes, self._start, steps, self._text_end, len(text), blocks, check)

    def advance(self, steps: int, text: bytes) -> None:
        """The episode written last exists."""
        self._episodes += 1
        self._block_count += len(self._packed[0].ends) - 1 if self._packed else 0
        self._start += steps
        self._text_end += len(text)

    def sync(self) -> None:
        """Flush everything to the disk itself; nothing to do where nothing was written."""
        if not self.unsynced:
            return
        os.fsync(self._texts)
        for file in self._files:
            with file as fd:
                os.fsync(fd)
        sync(self._folder)
        self.unsynced = 0

    def close(self) -> None:
        for file in self._files:
            file.close()
        os.close(self._texts)

    def _write_positions(self) -> int:
        """Write the positions of the new blocks; return their number. The file already has the first position."""
        positions = np.array([part.ends for part in self._packed], np.int64).T
        with self._blocks as fd:
            write_at(fd, as_bytes(positions), self._block_count * 8 * len(self._packed))
        return len(positions) - 1

    def _block_ends(self) -> Iterator[int]:
        """Cut the positions back to the last block in use; gives where it ends in each column."""
        width = 8 * len(self._packed)
        with self._blocks as fd:
            _cut(fd, (self._block_count + 1) * width if self._block_count else 0, self._folder, BLOCKS)
            last = os.pread(fd, width, self._block_count * width) or bytes(width)
        return iter(np.frombuffer(last, "<i8").tolist())


class SegmentColumn:
    """One column of a segment."""

    def __init__(self, layout: StoreLayout, number: int, path: str) -> None:
        self.path = path
        self.field: Field = layout.spec[path]
        self.align: Align = self.field.align
        self._row_bytes = self.field.row_bytes
        self._values = PooledFile(layout.values(number, path), _OPEN)
        self._offsets = PooledFile(layout.offsets(number, path), _OPEN)
        self.files = [self._values, self._offsets] if self.field.ragged else [self._values]
        self._held = 0  # values in use, of a ragged column

    def restore(self, rows: int, folder: Path) -> None:
        """Cut the files back to so many rows."""
        size = rows * self._row_bytes
        if self.field.ragged:
            with self._offsets as fd:
                _cut(fd, (rows + 1) * 8 if rows else 0, folder, self.path)
                self._held = _OFFSET.unpack(os.pread(fd, 8, rows * 8))[0] if rows else 0
            size = self._held * self.field.dtype.itemsize
        with self._values as fd:
            _cut(fd, size, folder, self.path)

    def write(self, array: Array, row: int, rows: int, check: int) -> int:
        """Write rows from row `row` on, while `files` are open; gives the checksum `check`, taken on over them."""
        if isinstance(array, Ragged):
            return self._write_ragged(array, row, check)
        size = array.nbytes
        if size != rows * self._row_bytes:
            raise SpecError(f"expected {rows} rows of {self._row_bytes} bytes, got {size} bytes - at {self.path}")
        data = array.tobytes() if size <= COPIED else as_bytes(array).data
        write_at(self._values.fd, data, row * self._row_bytes)
        return zlib.crc32(data, check)

    def _write_ragged(self, array: Ragged, row: int, check: int) -> int:
        if array.values.ndim != 1:
            raise SpecError(f"expected ragged rows of one dimension, got {array.values.shape} - at {self.path}")
        data = as_bytes(array.values)
        write_at(self._values.fd, data, self._held * self.field.dtype.itemsize)
        write_at(self._offsets.fd, as_bytes(array.offsets + self._held), row * 8)  # the first one stands there already
        self._held += len(array.values)
        return zlib.crc32(data.data, zlib.crc32(as_bytes(array.lengths).data, check))


class PackedPart:
    """One compressed column of a segment. `ends` are the bytes where the blocks of the last episode begin and end."""

    def __init__(self, layout: StoreLayout, packing: Packing, number: int, path: str) -> None:
        self.path = path
        self.field: Field = layout.spec[path]
        self.align: Align = self.field.align
        self.ends = [0]
        self._level, self._steps = packing.levels[path], packing.steps
        self._values = PooledFile(layout.values(number, path), _OPEN)
        self.files = [self._values]

    def restore(self, end: int, folder: Path) -> None:
        """Cut the file back to that byte."""
        with self._values as fd:
            _cut(fd, end, folder, self.path)
        self.ends = [end]

    def write(self, array: Array, row: int, rows: int, check: int) -> int:
        """Write `rows` rows in blocks, while `files` are open; gives the checksum `check`, taken on over them."""
        data, width = as_bytes(np.asarray(array)), self._steps * self.field.row_bytes
        if len(data) != rows * self.field.row_bytes:
            raise SpecError(f"expected {rows} rows of {self.field.row_bytes} bytes, got {len(data)} - at {self.path}")
        steps = rows - (self.align == "boundary")
        last = (max(steps, 1) - 1) // self._steps * width  # its block takes the last boundary row as well
        self.ends = [self.ends[-1]]
        for begin in range(0, last + 1, width):
            packed = zlib.compress(data[begin : begin + width if begin < last else None].data, self._level)
            write_at(self._values.fd, packed, self.ends[-1])
            self.ends.append(self.ends[-1] + len(packed))
        return zlib.crc32(data.data, check)


def _closed(entries: StructArray, retention: RetentionState) -> set[int]:
    """Segments whose episodes have all left, or that have as many steps as one takes."""
    numbers, first = np.unique(entries["segment"][::-1], return_index=True)  # the last entry of each
    last = len(entries) - 1 - first
    ends = entries["start"][last] + entries["steps"][last]
    closed = (last < retention.first) | (ends >= retention.segment_steps)
    return set(numbers[closed].tolist())


def _part(layout: StoreLayout, number: int, path: str) -> SegmentColumn | PackedPart:
    if layout.packing is not None and path in layout.packing.levels:
        return PackedPart(layout, layout.packing, number, path)
    return SegmentColumn(layout, number, path)


def _lock(path: Path) -> int | None:
    """A file descriptor of `path`, locked until it is closed; None where somebody else holds the lock."""
    fd = open_regular(path, _OPEN)
    if try_lock(fd):
        return fd
    os.close(fd)
    return None


def _cut(fd: int, size: int, folder: Path, where: str = "metadata.jsonl") -> None:
    actual = os.fstat(fd).st_size
    if size < 0 or actual < size:
        raise FormatError(f"expected at least {size} bytes, got {actual}", path=folder, where=where)
    if actual > size:
        os.ftruncate(fd, size)


Sync = Literal["close", "episode"]
SYNCS: tuple[Sync, ...] = ("close", "episode")
SYNC_BYTES = 64 << 20  # with sync="close", at most so much waits to be flushed


class ColumnsWriter(Writer):
    """Appends episodes to the store at `path`, at the same time as other writers and readers, in any process."""

    def __init__(self, path: str | os.PathLike[str], *, sync: Sync = "close") -> None:
        if sync not in SYNCS:
            raise DataError(f"expected sync to be one of {SYNCS}, got {sync!r}")
        self._layout = StoreLayout.read(Path(path))
        self._sync = sync
        self._accepted: Spec = self._layout.spec
        self._process = os.getpid()
        self._sound = False
        with contextlib.ExitStack() as undo:
            self._table = open_regular(self._layout.table, os.O_RDWR)
            undo.callback(os.close, self._table)
            self._segment = self._acquire()
            self._look_at = 0  # steps of the segment
            undo.callback(self._close_segment)
            self._sound = True
            self._closing = undo.pop_all()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        spec: Spec,
        metadata: Mapping[str, Any] | None = None,
        *,
        sync: Sync = "close",
        compression: Compression = None,
        block_steps: int = STEPS,
    ) -> ColumnsWriter:
        """Create an empty store, which appears at `path` only when complete, and open it for writing."""
        create_store(path, spec, metadata, compression=compression, block_steps=block_steps)
        return cls(path, sync=sync)

    @property
    def spec(self) -> Spec:
        return self._layout.spec

    def write(self, episode: Episode) -> int:
        """Save one episode; returns its number in the store."""
        self._check(episode)
        text = json_line(episode.metadata)
        if not self._sound:
            self._restore()
        if self._segment.steps >= self._look_at:
            self._look_for_retention()
        self._sound = False
        try:
            steps = len(episode)
            entry = self._segment.write(episode, steps, text)
            flush = self._sync == "episode" or self._segment.unsynced >= SYNC_BYTES
            if flush:
                self._segment.sync()
            number = self._enter(entry, flush)
            self._segment.advance(steps, text)
        except BaseException:
            with contextlib.suppress(
                OSError
            ):  # a torn tail does no harm: readers ignore it, and the next write cuts it
                self._restore()
            raise
        self._sound = True
        return number

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        path = self._layout.root / METADATA
        with self._locked():
            write_json(path, {**read_json(path), **plain_metadata(metadata)})

    def close(self) -> None:
        """Flush to the disk itself and let go of the segment. Closing twice is fine."""
        if self._table < 0:
            return
        with self._closing:
            if os.getpid() == self._process:
                self._segment.sync()
                os.fsync(self._table)
        self._table = -1

    def _check(self, episode: Episode) -> None:
        check_open(self._table >= 0)
        if os.getpid() != self._process:
            raise LockedError("a writer belongs to the process that opened it; open the store again in this one")
        check_columns(episode, self._accepted)
        self._accepted = episode.spec

    def _enter(self, entry: bytes, flush: bool) -> int:
        """Append to the table. From here on the episode exists, in the order of the writers' arrival."""
        lock(self._table, self._layout.table, wait=True)  # `locked` takes twice the time
        try:
            number = os.lseek(self._table, 0, os.SEEK_END) // table.SIZE
            try:
                write_at(self._table, entry, number * table.SIZE)
                if flush:
                    os.fsync(self._table)
            except BaseException:
                os.ftruncate(self._table, number * table.SIZE)
                raise
        finally:
            unlock(self._table)
        return number

    def _restore(self) -> None:
        """Go by the table: cut off what was not completed."""
        with self._locked():
            entries = self._entries()
        self._segment.restore(entries)
        self._sound = True

    def _entries(self) -> StructArray:
        """The table, without the part that was not completed. The caller has the lock."""
        entries = table.read(self._layout.table)
        table.check_order(entries, self._layout.table, self._layout.packing)
        if os.fstat(self._table).st_size > entries.nbytes:
            os.ftruncate(self._table, entries.nbytes)
        return entries

    def _acquire(self) -> Segment:
        """Lock a segment, cut back to its last whole episode."""
        with self._locked():
            entries = self._entries()
            segment = Segment.acquire(self._layout, entries, read_retention(self._layout.root))
        try:
            segment.restore(entries)
        except BaseException:
            segment.close()
            raise
        return segment

    def _begin_segment(self) -> None:
        """Go on in another segment, so that this one can be removed when its episodes are old."""
        segment = self._acquire()
        full, self._segment = self._segment, segment
        try:
            full.sync()
        finally:
            full.close()

    def _close_segment(self) -> None:
        self._segment.close()

    def _look_for_retention(self) -> None:
        """Begin another segment where this one has the steps that a replay, which may say so at any time, lets it
        have."""
        retention = read_retention(self._layout.root)
        if retention is not None and self._segment.steps >= retention.segment_steps:
            self._begin_segment()
        steps = self._segment.steps
        self._look_at = steps + LOOKED if retention is None else min(steps + LOOKED, retention.segment_steps)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked(self._table, wait=True)


def create_store(
    path: str | os.PathLike[str],
    spec: Spec,
    metadata: Mapping[str, Any] | None = None,
    *,
    compression: Compression = None,
    block_steps: int = STEPS,
    unfinished: UnfinishedWork | None = None,
    content: str | None = None,
) -> None:
    """Create an empty store, which appears only when complete, perhaps with the mark of the work that writes it."""
    with atomic_path(path, durable="folder") as folder:
        folder.mkdir()
        if unfinished is not None:
            unfinished.begin(folder)
        layout = StoreLayout(folder, spec, Packing.of(spec, compression, block_steps), content)
        write_store(layout, metadata or {})


def write_store(layout: StoreLayout, metadata: Mapping[str, Any]) -> None:
    """Write an empty store into an empty folder."""
    layout.write()
    write_json(layout.root / METADATA, plain_metadata(metadata))
    (layout.root / SEGMENTS).mkdir()
    layout.table.touch()
    sync(layout.root)
