"""A column store opened for reading, while others may be writing to it: all its episodes, or each new one once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray, StructArray
from penstock.core.episode import Episode
from penstock.core.spec import Align, Spec
from penstock.errors import ExpiredRowError, FormatError
from penstock.files.remote import file_state, remote_file
from penstock.formats.base.account import CONVERSION, MARK, Account, LeftOut, unused_files
from penstock.formats.base.state import StateSource
from penstock.formats.columns import table
from penstock.formats.columns.layout import METADATA, SEGMENTS, SPEC, TABLE, StoreLayout, is_segment, read_json
from penstock.formats.columns.retention import RETENTION, first_kept
from penstock.formats.columns.snapshot import Maps, Snapshot

VIEWED_BYTES = 1 << 14  # larger episodes are views sooner than a copy among others
OURS = frozenset((SPEC, METADATA, SEGMENTS, TABLE, RETENTION, MARK))


class ColumnsSource(StateSource[Snapshot]):
    """The episodes of the store at `path`, as they stood when it was opened or last refreshed."""

    def __init__(self, path: str | os.PathLike[str], episodes: int | None = None, first: int | None = None) -> None:
        self._path = Path(path)
        self.location = self._path
        snapshot = Snapshot.open(self._path)
        if first is not None and first != snapshot.base:
            raise ExpiredRowError(
                f"expected the episodes from number {first} on in {path}, got a store that keeps episodes from number "
                f"{snapshot.base} on; open it again"
            )
        self._state = snapshot if episodes is None else snapshot.first(episodes)
        self._refreshing = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., ColumnsSource], tuple[Path, int, int]]:
        return ColumnsSource, (self._path, len(self), self.first)

    @property
    def first(self) -> int:
        """Number in the store of episode 0, above 0 if files of older episodes were removed."""
        return self.state.base

    @property
    def path(self) -> Path:
        return self._path

    def fingerprint_of(self, episodes: int) -> str | None:
        """The digest of the first episodes alone."""
        return self.state.first(episodes).fingerprint

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the whole dataset, as it is now."""
        metadata = read_json(self._path / METADATA)
        if self.first:  # a store whose first episodes have left is no longer the target of its conversion
            metadata.pop(CONVERSION, None)
        return metadata

    @property
    def account(self) -> Account:
        """What of the folder is not read. Cost: a listing of the folder and of each segment."""
        return Account(tuple(unused_parts(self._path, self.state))).with_left_out(self.unfinished)

    def rows(self, align: Align) -> IntArray:
        """`[E + 1]` int64 first row of each episode, and the end, in the row space of one alignment."""
        return self.state.rows[align]

    def episode(self, e: int) -> Episode:
        """Episode `e` as read-only views, with its metadata; negative numbers count from the end."""
        snapshot = self.state
        n = len(snapshot.entries)
        if not -n <= e < n:
            raise IndexError(f"expected an episode within 0:{n}, got {e}")
        return snapshot.episode(e % n)

    @property
    def _long(self) -> int:
        return super()._long if remote_file(self._path) else VIEWED_BYTES

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Metadata of each of the given episodes. Cost: 2 µs an episode."""
        return self.state.episode_metadata(episodes)

    def refresh(self) -> bool:
        """Take in the episodes that were appended since, at the end; True if there are any."""
        with self._refreshing:
            grown = self.state.grown()
            self._state = grown or self._state
        return grown is not None

    def close(self) -> None:
        """Let go of the files; arrays that were handed out stay valid."""
        self._state = None


def unused_parts(root: Path, snapshot: Snapshot) -> Iterator[LeftOut]:
    """Yield an entry for each file that is not part of the store, and for a damaged entry of the table."""
    layout, place = snapshot.layout, os.fspath(root)
    names = [name for name in _names(place) if name not in OURS]
    for segment in _names(f"{place}/{SEGMENTS}"):
        if not is_segment(segment):
            names.append(f"{SEGMENTS}/{segment}")
            continue
        inside = _names(f"{place}/{SEGMENTS}/{segment}")
        names += [f"{SEGMENTS}/{segment}/{name}" for name in inside if name not in layout.file_names]
    if names:
        others = [name for name in names if not name.endswith(".penstock")]
        yield from unused_files(others, "the files of a column store")
    end = snapshot.table_end
    if file_state(layout.table).size >= end + table.SIZE:
        yield from _damaged_entry(layout.table, end)


def _damaged_entry(path: Path, end: int) -> Iterator[LeftOut]:
    """Yield an entry if the next one of the table is damaged, and was not added meanwhile."""
    behind = table.read_bytes(path, end)
    entries = np.frombuffer(behind, table.ENTRY, len(behind) // table.SIZE)
    if len(entries) and not table.sound_entries(entries[:1])[0]:
        message = f"expected the table to end here, got {len(behind)} bytes that are no entry: torn, or damaged"
        yield LeftOut("bytes", f"entry {end // table.SIZE}", "unreadable", message, len(behind))


def _names(folder: str) -> list[str]:
    """Names in a folder, none if it was removed meanwhile."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


class EpisodeTail:
    """Reader that follows a store. Its cost depends on the new episodes alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._layout = StoreLayout.read(Path(path))
        self._maps = Maps()
        self._last: bytes = b""  # entry of the last episode that was read
        self.done = 0  # episodes that were read or skipped

    @property
    def spec(self) -> Spec:
        return self._layout.spec

    def written(self) -> int:
        """Return the number of entries in the table. The last one may still be incomplete. Cost: one `stat`."""
        return os.stat(self._layout.table).st_size // table.SIZE

    def lengths(self) -> IntArray:
        """Return the steps of all episodes, `[n]` int64, also of episodes whose files were removed."""
        return table.read(self._layout.table)["steps"].astype(np.int64)

    def first_kept(self) -> int:
        """Return the number of the first episode whose files are kept."""
        return first_kept(self._layout.root)

    def skip(self, episodes: int) -> None:
        self.done = episodes
        self._last = self._entries(episodes - 1, episodes).tobytes() if episodes else b""

    def read(self, end: int | None = None) -> Iterator[Episode]:
        """Episodes after the first `done`, which counts one when the next is asked for: a refused one comes again."""
        known = min(self.done, 1)
        entries = self._entries(self.done - known, end)
        if known and entries[:1].tobytes() != self._last:
            raise FormatError(
                "expected the store that was read before, got another one: it was replaced or rolled back",
                path=self._layout.table,
                where=f"entry {self.done - 1}",
            )
        entries = entries[known:]
        if len(entries) == 0:
            return
        table.check_limits(entries, self._layout.table)
        snapshot = self._snapshot(entries)
        for i in range(len(entries)):
            episode = snapshot.episode(i)
            yield Episode.trusted(episode.spec, episode.columns, self.done, episode.metadata)
            self._last, self.done = entries[i : i + 1].tobytes(), self.done + 1

    def _snapshot(self, entries: StructArray) -> Snapshot:
        try:
            self._check_kept()
            snapshot = Snapshot.of(self._layout, entries, self._maps, self.done)
        except FormatError:
            self._check_kept()  # episodes may have left since the first look
            raise
        self._maps.keep({path for path, _ in snapshot.files()})
        return snapshot

    def _check_kept(self) -> None:
        if (kept := self.first_kept()) > self.done:
            raise ExpiredRowError(
                f"expected the episodes from number {self.done} on in {self._layout.root}, got a store that keeps "
                f"episodes from number {kept} on"
            )

    def _entries(self, first: int, end: int | None) -> StructArray:
        entries = table.read(self._layout.table, first)
        return entries if end is None else entries[: end - first]
