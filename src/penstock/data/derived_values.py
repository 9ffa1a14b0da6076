"""Values of a derived column: computed by ranges of episodes in parallel, and kept in memory or in the user's cache.

Episodes are cut into ranges of a few megabytes. A thread computes a range at a time: it reads the columns of all its
episodes together, so that a file is read in large pieces and a vectorised function works on arrays that fit in a
processor's cache.

*In memory* (columns of at most `memory` bytes): one array for all episodes. A read computes the ranges that it touches
and that are not done. A flag is set after a range was written, so a fork, an error or an interrupt leaves finished
ranges valid and others undone.

*In the cache* (larger columns): a column store at `derived/<key>`, where the key is a digest of the data, the function
and the field. The first read computes the whole column. Each range is appended as one episode of the store, flushed to
the disk before it exists there. So what a killed process leaves is a valid beginning, and the next process continues
after it. A store counts only when it has all rows. One process computes while it has the lock `writing`; others wait
for it and then read its result. All users share the lock `in-use`, so that the removal of the least recently used
columns (beyond `LIMIT` bytes) leaves columns in use alone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.core.turns import ForkSafeLock
from penstock.data.derived_column import DerivedColumn
from penstock.data.episode_function import EpisodeRows
from penstock.data.progress import tracked
from penstock.errors import FormatError
from penstock.files import atomic_path, locked, move, sync
from penstock.files.locks import open_locked, unlock
from penstock.files.user_cache import remove_folders, touch, user_cache
from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.base.source import Source
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.table import join_stores
from penstock.formats.columns.writer import ColumnsWriter
from penstock.kernels.rows import RowMap

R = TypeVar("R")

MEMORY = 1 << 28  # bytes of a column that are kept in memory by default
RANGE_BYTES = 4 << 20  # bytes that are read and written for a range: few enough for a processor's cache
STORED_RANGE_BYTES = 32 << 20  # in the cache, where each range is flushed to the disk
LIMIT = 64 << 30  # bytes of all derived columns in the cache; the least recently used ones are removed
VERSION = 1  # of the values of ready-made functions: another one computes cached columns again
LEAST_BYTES = 16  # a step counts for as much at least
RAGGED_BYTES = 4096  # a row of a ragged column, whose size is not known in advance
_STORE, _COLUMN = "store", "values"
_PARTS = "parts"  # folder of the ranges that jobs wrote
_IN_USE, _WRITING = "in-use", "writing"  # files that readers lock together, and a writer alone


class DerivedValues:
    """Values of a derived column, of the episodes that the source has at the time of a read."""

    def __init__(self, base: Source, column: DerivedColumn, memory: int | None = None) -> None:
        self.base = base
        self.column = column
        self.memory = memory
        self._kept: MemoryValues | StoredValues | None = None
        self._lock = ForkSafeLock()

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather values, and compute those that are not known."""
        self._current().read(selection, out)

    def of_episode(self, episode: Episode) -> AnyArray:
        """Return the values of one episode. Values that are not known are computed for this episode alone."""
        kept = self._kept
        e = episode.id
        field = self.column.field
        if kept is None or not kept.has(e):
            return self.column.compute(EpisodeRows(self.base, e, e + 1, episode.columns))
        begin, end = self.base.episode_rows(field.align, e)
        out = np.empty((end - begin, *field.shape), field.dtype)
        kept.read(Selection.consecutive(begin, end), out)
        return out

    def close(self) -> None:
        """Close the kept values. A later read opens or computes them again."""
        kept, self._kept = self._kept, None
        if isinstance(kept, StoredValues):
            kept.close()

    def _current(self) -> MemoryValues | StoredValues:
        kept = self._kept
        if kept is not None and kept.episodes == len(self.base):
            return kept
        with self._lock:
            kept = self._kept
            if kept is None or kept.episodes != len(self.base):
                rows = self.base.rows(self.column.field.align)
                nbytes = int(rows[-1] - rows[0]) * self.column.field.row_bytes
                if nbytes <= (MEMORY if self.memory is None else self.memory):
                    known = kept if isinstance(kept, MemoryValues) else None
                    self._kept = kept = MemoryValues(self.base, self.column, rows, known)
                else:
                    self._kept = kept = StoredValues(self.base, self.column, rows)
            return kept


class MemoryValues:
    """Values in memory. Ranges are computed when they are first read."""

    def __init__(self, base: Source, column: DerivedColumn, rows: IntArray, known: MemoryValues | None = None) -> None:
        self.episodes = len(rows) - 1
        self._base, self._column = base, column
        self._cuts = _cuts(base, column, self.episodes, RANGE_BYTES)
        self._first = int(rows[0])
        self._row_cuts = rows[self._cuts] - self._first
        self._values = np.empty((int(self._row_cuts[-1]), *column.field.shape), column.field.dtype)
        self._map = RowMap.of(self._values)
        self._done = np.zeros(len(self._cuts) - 1, np.bool_)
        if known is not None:
            self._take(known)
        self._complete = bool(self._done.all())
        self._lock = ForkSafeLock()

    def has(self, e: int) -> bool:
        return e < self.episodes and bool(self._done[np.searchsorted(self._cuts, e, side="right") - 1])

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Compute the ranges that are missing, and gather. See `DerivedValues.read`."""
        start = selection.start - self._first if self._first else selection.start
        if not self._complete:
            self._ensure(start, selection.length)
        self._map.gather(start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))

    def _take(self, known: MemoryValues) -> None:
        """Copy finished ranges that are the same in both."""
        shared = min(len(known._cuts), len(self._cuts))
        other = np.flatnonzero(known._cuts[:shared] != self._cuts[:shared])
        equal = (int(other[0]) if len(other) else shared) - 1
        for r in np.flatnonzero(known._done[:equal]).tolist():
            rows = slice(int(self._row_cuts[r]), int(self._row_cuts[r + 1]))
            self._values[rows] = known._values[rows]
            self._done[r] = True

    def _ensure(self, start: IntArray, length: IntArray) -> None:
        touched, end = np.zeros(len(self._done) + 1, np.int64), (start + length)[length > 0]
        np.add.at(touched, np.searchsorted(self._row_cuts, start[length > 0], side="right") - 1, 1)
        # The gather refuses rows that do not exist.
        np.add.at(touched, np.minimum(np.searchsorted(self._row_cuts, end - 1, side="right"), len(self._done)), -1)
        wanted = np.cumsum(touched[:-1]) > 0
        if not (wanted & ~self._done).any():
            return
        with self._lock:
            missing = np.flatnonzero(wanted & ~self._done).tolist()
            with _mapped(self._compute, missing) as results:
                for r in results:
                    self._done[r] = True
            self._complete = bool(self._done.all())

    def _compute(self, r: int) -> int:
        first, last, begin, end = (int(cuts[i]) for cuts in (self._cuts, self._row_cuts) for i in (r, r + 1))
        self._values[begin:end] = self._column.compute(EpisodeRows(self._base, first, last))
        return r


class StoredValues:
    """Values in a column store in the user's cache. The first read computes all that the store lacks."""

    def __init__(self, base: Source, column: DerivedColumn, rows: IntArray, parent: Path | None = None) -> None:
        self.episodes = len(rows) - 1
        self._base, self._column = base, column
        self._first, self._rows = int(rows[0]), rows - rows[0]
        self._spec = Spec({_COLUMN: Field(column.field.dtype, column.field.shape)})
        key = hashlib.sha256(f"{VERSION} {base.fingerprint} {column.fingerprint}".encode()).hexdigest()
        self.folder = (user_cache("derived") if parent is None else parent) / key
        self._source: ColumnsSource | None = None
        self._release: Callable[[], object] | None = None
        self._lock = ForkSafeLock()

    def has(self, e: int) -> bool:
        return self._source is not None and e < self.episodes

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather, after computing what is missing. See `DerivedValues.read`."""
        source = self._source or self._opened()
        source.read_array(_COLUMN, replace(selection, start=selection.start - self._first), out)

    def close(self) -> None:
        """Close the store, and release its lock."""
        source, self._source = self._source, None
        if source is not None:
            source.close()
        if self._release is not None:
            self._release()

    def fill(self) -> None:
        """Compute all that the store lacks."""
        self._opened()

    def cuts(self) -> IntArray:
        """Return `[R + 1]` int64 bounds of the ranges of episodes that are computed and written together."""
        return _cuts(self._base, self._column, self.episodes, STORED_RANGE_BYTES)

    def range_bytes(self, cuts: IntArray) -> IntArray:
        return np.diff(self._rows[cuts]) * self._column.field.row_bytes

    def write_part(self, cuts: IntArray, threads: int) -> str:
        """Compute consecutive ranges into their own store, unless that or the store of the whole column exists."""
        self._lock_parts()
        path = self.folder / _PARTS / f"{int(cuts[0]):012d}-{int(cuts[-1]):012d}"
        if path.exists() or self._complete() is not None:
            return path.name
        path.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError), atomic_path(path, durable="folder") as new_path:  # or a second copy was first
            ranges = range(len(cuts) - 1)
            with (
                self._full_disk_named(),
                ColumnsWriter.create(new_path, self._spec) as writer,
                OrderedMap(partial(self._compute, cuts), ranges, PrefetchLimits(threads)) as results,
            ):
                for values in results:
                    writer.write(Episode(self._spec, {_COLUMN: values}))
        return path.name

    def has_part(self, name: str) -> bool:
        """Return whether a part exists, or was moved to the store."""
        parts = self.folder / _PARTS
        return (parts / name).exists() or (parts / _STORE).exists() or self._complete() is not None

    def join_parts(self, names: Sequence[str]) -> None:
        """Move parts together to the store, unless the column is complete."""
        self._lock_parts()
        parts, store = self.folder / _PARTS, self.folder / _STORE
        with locked(self.folder / _WRITING, os.O_RDWR | os.O_CREAT, wait=True):
            if self._complete() is None and names:
                staged = parts / _STORE
                if missing := [name for name in names if not (parts / name).exists() and not staged.exists()]:
                    raise FileNotFoundError(
                        f"expected the parts of column {self._column.name!r} in {parts}, got none of {missing[:5]}; "
                        "all jobs must reach the same PENSTOCK_CACHE"
                    )
                join_stores([parts / name for name in names], staged)
                shutil.rmtree(store, ignore_errors=True)  # what a run without jobs began
                move(staged, store)
                sync(self.folder)
            shutil.rmtree(parts, ignore_errors=True)
        touch(self.folder)

    def _lock_parts(self) -> None:
        """Keep the folder from being removed to make room, until `close`."""
        with self._lock:
            if self._release is None:
                self._release = weakref.finalize(self, os.close, self._lock_in_use())

    def _opened(self) -> ColumnsSource:
        with self._lock:
            if self._source is None:
                self._source = self._open()
            return self._source

    def _open(self) -> ColumnsSource:
        release = weakref.finalize(self, os.close, self._lock_in_use())
        try:
            source = self._complete() or self._completed()
        except BaseException:
            release()
            raise
        if self._release is not None:
            release()  # `write_part` has locked the folder already
        else:
            self._release = release
        touch(self.folder)
        return source

    def _lock_in_use(self) -> int:
        """Make the folder, and lock it against removal. Return the descriptor that holds the lock."""
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process removed the folder to make room
                return open_locked(self.folder / _IN_USE, os.O_RDWR | os.O_CREAT, shared=True, wait=True)

    def _completed(self) -> ColumnsSource:
        """Compute what is missing, or wait for the process that does."""
        fd = open_locked(self.folder / _WRITING, os.O_RDWR | os.O_CREAT, wait=True)
        try:
            if (source := self._complete()) is None:
                self._write()
                source = self._complete()
        finally:
            unlock(fd)  # also for copies of the descriptor in processes that were forked meanwhile
            os.close(fd)
        if source is None:
            raise FormatError("expected the column that was just written, got another one", path=self.folder)
        return source

    def _complete(self) -> ColumnsSource | None:
        """The store, if it has the values of all episodes."""
        source = self._found()
        return source if source is not None and source.steps == self._rows[-1] else None

    def _found(self) -> ColumnsSource | None:
        """The store, if there is a sound one with this column."""
        try:
            source = ColumnsSource(self.folder / _STORE)
        except (FormatError, FileNotFoundError):
            return None
        return source if source.spec == self._spec else None

    def _write(self) -> None:
        """Compute what the store lacks. An interrupt, an error or a kill leaves a valid beginning."""
        path, nbytes = self.folder / _STORE, int(self._rows[-1]) * self._column.field.row_bytes
        remove_folders(self.folder.parent, LIMIT - nbytes, _IN_USE)
        begun = self._found()
        rows = 0 if begun is None else begun.steps
        first = int(np.searchsorted(self._rows, rows, side="right")) - 1
        if begun is None or self._rows[first] != rows:
            first = 0
            shutil.rmtree(path, ignore_errors=True)
        with self._full_disk_named(), self._writer(path) as writer:
            for values in self._computed(first):
                writer.write(Episode(self._spec, {_COLUMN: values}))

    @contextmanager
    def _full_disk_named(self) -> Generator[None]:
        """Say what needs the space, and what to do, if the disk is full."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            nbytes = int(self._rows[-1]) * self._column.field.row_bytes
            message = f"no space for the {nbytes:,} bytes of column {self._column.name!r}; set PENSTOCK_CACHE"
            raise OSError(error.errno, f"{message} to a folder on a larger disk", str(self.folder)) from error

    def _writer(self, path: Path) -> ColumnsWriter:
        if path.exists():
            return ColumnsWriter(path, sync="episode")
        return ColumnsWriter.create(path, self._spec, sync="episode")

    def _computed(self, first: int) -> Iterator[AnyArray]:
        """Values of each range from episode `first` on."""
        cuts = _cuts(self._base, self._column, self.episodes, STORED_RANGE_BYTES, first)
        ranges = range(len(cuts) - 1)
        with _mapped(partial(self._compute, cuts), ranges) as results:
            for _ in tracked(ranges, f"computing {self._column.name}", None):
                yield results.get()

    def _compute(self, cuts: IntArray, r: int) -> AnyArray:
        return self._column.compute(EpisodeRows(self._base, int(cuts[r]), int(cuts[r + 1])))


def _mapped(compute: Callable[[int], R], ranges: Sequence[int]) -> OrderedMap[int, R]:
    """Results for ranges, in order, computed by a thread on each core."""
    threads = min(cores(), len(ranges))
    limits = PrefetchLimits(threads if threads > 1 else 0, items=max(2 * threads, 1))
    return OrderedMap(compute, ranges, limits, name="penstock-derived")


def _cuts(base: Source, column: DerivedColumn, episodes: int, nbytes: int, first: int = 0) -> IntArray:
    """Bounds of ranges of episodes from `first` on, `[R + 1]` int64: of about `nbytes` bytes, or of one episode."""
    offsets = base.rows_between("step", 0, episodes)
    step_bytes = column.field.row_bytes
    for path in column.reads:
        field = base.spec[path]
        step_bytes += RAGGED_BYTES if field.ragged else field.row_bytes * (field.align != "episode")
    steps = max(1, nbytes // max(step_bytes, LEAST_BYTES))
    inner = np.searchsorted(offsets, np.arange(int(offsets[first]) + steps, int(offsets[-1]), steps, dtype=np.int64))
    return np.unique(np.concatenate([np.array([first], np.int64), inner, np.array([episodes], np.int64)]))
