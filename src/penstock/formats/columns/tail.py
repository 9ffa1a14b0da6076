"""`EpisodeTail`: the episodes that writers append to a column store, read once each, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.core.arrays import IntArray, StructArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import ExpiredRowError, FormatError
from penstock.formats.columns import table
from penstock.formats.columns.layout import StoreLayout
from penstock.formats.columns.retention import first_kept
from penstock.formats.columns.snapshot import Maps, Snapshot


class EpisodeTail:
    """Reader that follows a store. Its cost depends on the new episodes alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._layout = StoreLayout.read(Path(path))
        self._maps = Maps()
        self._last: bytes = b""  # entry of the last episode that was read
        self.done = 0  # episodes that were read or skipped

    @property
    def spec(self) -> Spec:
        """Columns of the store."""
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
        """Leave out episodes."""
        self.done = episodes
        self._last = self._entries(episodes - 1, episodes).tobytes() if episodes else b""

    def read(self, end: int | None = None) -> Iterator[Episode]:
        """Yield the episodes after the first `done`. `done` counts each one when the next one is asked for.

        So an episode that the reader refuses with an error comes again, and numbers stay right.
        """
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
