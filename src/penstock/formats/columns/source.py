"""A column store opened for reading, while others may be writing to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.core.spec import Align
from penstock.errors import ExpiredRowError
from penstock.formats.base.account import CONVERSION, Account
from penstock.formats.base.state import StateSource
from penstock.formats.columns.accounting import unused_parts
from penstock.formats.columns.files import read_json
from penstock.formats.columns.layout import METADATA
from penstock.formats.columns.snapshot import Snapshot


class ColumnsSource(StateSource[Snapshot]):
    """The episodes of the store at `path`, as they stood when it was opened or last refreshed.

    `episode` and `episodes` give read-only views of the memory maps, which stay valid after `close`; `np.array(x)`
    makes one to change. Compressed columns are decoded, and the last 64 MB of their blocks are kept at hand. A pickled
    source holds the same episodes when it is opened again elsewhere.

    A store that keeps its last steps alone has the episodes that were kept when it was opened: see `first`.

    `episodes`: open the first so many alone. `first`: the number of the first episode must be this. Raises
    `FormatError` for a damaged store. Cost: 0.3 µs an episode.
    No file stays open: columns are mapped, and maps hold no file descriptors.
    """

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
        """The folder of the store."""
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
        """Episode `e` as read-only views, with its metadata; negative numbers count from the end.

        Raises `IndexError`. Cost: 20 µs for 5 columns, at any length.
        """
        snapshot = self.state
        n = len(snapshot.entries)
        if not -n <= e < n:
            raise IndexError(f"expected an episode within 0:{n}, got {e}")
        return snapshot.episode(e % n)

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Metadata of each of the given episodes. Cost: 2 µs an episode."""
        return self.state.episode_metadata(episodes)

    def refresh(self) -> bool:
        """Take in the episodes that were appended since, at the end; True if there are any.

        Raises `FormatError` if what was known is no longer there. Cost: one small read where nothing happened.
        """
        with self._refreshing:
            grown = self.state.grown()
            self._state = grown or self._state
        return grown is not None

    def close(self) -> None:
        """Let go of the files; arrays that were handed out stay valid."""
        self._state = None
