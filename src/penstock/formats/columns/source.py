"""A column store opened for reading, while others may be writing to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Align, Spec
from penstock.errors import FormatError
from penstock.formats.base.source import Source, check_values
from penstock.formats.columns.files import read_json
from penstock.formats.columns.layout import METADATA
from penstock.formats.columns.reading import RaggedColumnReader
from penstock.formats.columns.snapshot import Snapshot


class ColumnsSource(Source):
    """The episodes of the store at `path`, as they stood when it was opened or last refreshed.

    `episode` and `episodes` give read-only views of the memory maps, which stay valid after `close`; `np.array(x)`
    makes one to change. Compressed columns are decoded, and the last 64 MB of their blocks are kept at hand. A pickled
    source holds the same episodes when it is opened again elsewhere.

    `episodes`: open the first so many alone. Raises `FormatError` for a damaged store. Cost: 0.3 µs an episode.
    No file stays open: columns are mapped, and maps hold no file descriptors.

    >>> import tempfile
    >>> from penstock.core.spec import Field
    >>> from penstock.formats.columns.writer import ColumnsWriter
    >>> path = Path(tempfile.mkdtemp()) / "store"
    >>> spec = Spec({"rewards": Field(np.dtype("f8"))})
    >>> with ColumnsWriter.create(path, spec) as writer:
    ...     writer.write(Episode(spec, {"rewards": np.arange(3.0)}, metadata={"seed": 7}))
    0
    >>> with ColumnsSource(path) as source:
    ...     source.offsets.tolist(), source.episode(0).rewards.tolist(), source.episode_metadata([0])
    ([0, 3], [0.0, 1.0, 2.0], [{'seed': 7}])
    """

    def __init__(self, path: str | os.PathLike[str], episodes: int | None = None) -> None:
        self._path = Path(path)
        held = Snapshot.open(self._path)
        self._held: Snapshot | None = held if episodes is None else held.first(episodes)
        self._refreshing = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., ColumnsSource], tuple[Path, int]]:
        return ColumnsSource, (self._path, len(self))

    @property
    def path(self) -> Path:
        """The folder of the store."""
        return self._path

    @property
    def spec(self) -> Spec:
        """The columns and spaces."""
        return self._snapshot.layout.spec

    @property
    def offsets(self) -> IntArray:
        """`[E + 1]` int64 first step row of each episode, and the end."""
        return self._snapshot.offsets

    @property
    def fingerprint(self) -> str:
        """A digest of the spec and the checksums of all episodes: the same for the same episodes in another store."""
        return self._snapshot.fingerprint

    def fingerprint_of(self, episodes: int) -> str | None:
        """The digest of the first episodes alone."""
        return self._snapshot.first(episodes).fingerprint

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the whole dataset, as it is now."""
        return read_json(self._path / METADATA)

    def rows(self, align: Align) -> IntArray:
        """`[E + 1]` int64 first row of each episode, and the end, in the row space of one alignment."""
        return self._snapshot.rows[align]

    @property
    def blocks(self) -> IntArray | None:
        """`[B + 1]` int64 step rows that cut the rows into blocks decoded together, None where values are raw."""
        held = self._snapshot.blocks
        return None if held is None else np.unique(held.cuts)

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """One gather out of the memory maps; of compressed columns, each block that is touched is decoded once."""
        held = self._snapshot.columns[column]
        if isinstance(held, RaggedColumnReader):
            raise KeyError(f"column {column!r} is ragged: its rows have different lengths")
        held.read(selection, out)

    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        """Three gathers: where rows start, where they end, and their values."""
        return self._ragged(column).read(selection)

    def value_offsets(self, column: str) -> IntArray:
        """As they are stored; a pass over them the first time after `refresh`."""
        return self._ragged(column).value_offsets

    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        """One gather out of the memory maps."""
        held = self._ragged(column)
        check_values(column, held.value_offsets, selection)
        held.read_values(selection, out)

    def _ragged(self, column: str) -> RaggedColumnReader:
        held = self._snapshot.columns[column]
        if not isinstance(held, RaggedColumnReader):
            raise KeyError(f"column {column!r} is not ragged")
        return held

    def episode(self, e: int) -> Episode:
        """Episode `e` as read-only views, with its metadata; negative numbers count from the end.

        Raises `IndexError`. Cost: 20 µs for 5 columns, at any length.
        """
        held = self._snapshot
        n = len(held.entries)
        if not -n <= e < n:
            raise IndexError(f"expected an episode within 0:{n}, got {e}")
        return held.episode(e % n)

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Metadata of each of the given episodes. Cost: 2 µs an episode."""
        return self._snapshot.metadata(episodes)

    def refresh(self) -> bool:
        """Take in the episodes that were appended since, at the end; True if there are any.

        Raises `FormatError` if what was known is no longer there. Cost: one small read where nothing happened.
        """
        with self._refreshing:
            found = self._snapshot.grown()
            self._held = found or self._held
        return found is not None

    def close(self) -> None:
        """Let go of the files; arrays that were handed out stay valid."""
        self._held = None

    @property
    def _snapshot(self) -> Snapshot:
        held = self._held
        if held is None:
            raise FormatError("expected an open source, got one that was closed; open it again", path=self._path)
        return held
