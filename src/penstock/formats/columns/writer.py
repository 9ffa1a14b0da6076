"""Writing to a column store: one segment a writer, and the table that all of them append to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from penstock.core.arrays import StructArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DataError, LockedError
from penstock.files import atomic_path, locked, sync
from penstock.files.descriptors import open_regular
from penstock.formats.base.account import UnfinishedWork
from penstock.formats.base.metadata import json_line, plain_metadata
from penstock.formats.base.writer import Writer, check_columns, check_open
from penstock.formats.columns import table
from penstock.formats.columns.layout import (
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
from penstock.formats.columns.retention import RETENTION, RetentionState, read_retention
from penstock.formats.columns.segment import Segment

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
            self._retention_seen: tuple[int, int] | None = None
            self._retention: RetentionState | None = None
            self._segment = self._acquire()
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
        """The columns that episodes must have."""
        return self._layout.spec

    def write(self, episode: Episode) -> int:
        """Save one episode; returns its number in the store."""
        self._check(episode)
        text = json_line(episode.metadata)
        if not self._sound:
            self._restore()
        if (retention := self._read_retention()) is not None and self._segment.steps >= retention.segment_steps:
            self._begin_segment()
        self._sound = False
        try:
            entry = self._segment.write(episode, text)
            flush = self._sync == "episode" or self._segment.unsynced >= SYNC_BYTES
            if flush:
                self._segment.sync()
            number = self._enter(entry, flush)
            self._segment.advance(len(episode), text)
        except BaseException:
            with contextlib.suppress(
                OSError
            ):  # a torn tail does no harm: readers ignore it, and the next write cuts it
                self._restore()
            raise
        self._sound = True
        return number

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the store's metadata, atomically."""
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
        with self._locked():
            number = os.fstat(self._table).st_size // table.SIZE
            try:
                write_at(self._table, entry, number * table.SIZE)
                if flush:
                    os.fsync(self._table)
            except BaseException:
                os.ftruncate(self._table, number * table.SIZE)
                raise
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
            segment = Segment.acquire(self._layout, entries, self._read_retention())
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

    def _read_retention(self) -> RetentionState | None:
        """What the store keeps, which a replay may say at any time. Cost: one `stat`."""
        try:
            status = os.stat(self._layout.root / RETENTION)
        except FileNotFoundError:
            return None
        seen = status.st_ino, status.st_mtime_ns
        if seen != self._retention_seen:
            self._retention, self._retention_seen = read_retention(self._layout.root), seen
        return self._retention

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
) -> None:
    """Create an empty store as `ColumnsWriter.create` does, which appears only when complete, with the mark of the work
    that writes it, if that is given."""
    with atomic_path(path, durable="folder") as folder:
        folder.mkdir()
        if unfinished is not None:
            unfinished.begin(folder)
        write_store(StoreLayout(folder, spec, Packing.of(spec, compression, block_steps)), metadata or {})


def write_store(layout: StoreLayout, metadata: Mapping[str, Any]) -> None:
    """Write an empty store into an empty folder."""
    layout.write()
    write_json(layout.root / METADATA, plain_metadata(metadata))
    (layout.root / SEGMENTS).mkdir()
    layout.table.touch()
    sync(layout.root)
