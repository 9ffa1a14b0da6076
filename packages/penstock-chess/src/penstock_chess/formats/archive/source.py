"""Archives opened as games: the columns of `lc0`, each read from the compact rows of the frames that are wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import Ragged, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.state import OverlaySource
from penstock.formats.columns.source import ColumnsSource
from penstock_chess.expansion import row_bytes
from penstock_chess.formats.lc0.records import FRAME, SPEC
from penstock_chess.kernels.rows import check_rows, decode_field, decode_rows

CONTENT = "lc0-archive"
ROW = "compact_row"
ROWS = Spec({ROW: Field(np.dtype("u1"), kind="ragged")})
"""The columns of the store that an archive is."""


class _LastRows(threading.local):
    selection: Selection | None = None
    rows: Ragged | None = None
    is_checked = False


class ArchiveSource(OverlaySource):
    """The games of the archive at `path`, an episode each, as they stood when it was opened or last refreshed.

    Cost: opening reads 40 bytes a game. A row of a column costs one read of a compact row, which columns share that are
    read together.
    """

    def __init__(self, path: Path, episodes: int | None = None, first: int | None = None) -> None:
        self._store = ColumnsSource(path, episodes, first)
        super().__init__(self._store, SPEC)
        self._last = _LastRows()

    def __reduce__(self) -> tuple[Callable[..., ArchiveSource], tuple[Path, int, int]]:
        return ArchiveSource, (self._store.path, len(self), self._store.first)

    @property
    @override
    def fingerprint(self) -> str:
        return self._store.fingerprint

    @override
    def fingerprint_of(self, episodes: int) -> str | None:
        return self._store.fingerprint_of(episodes)

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        width = SPEC[column].row_bytes
        values, offsets = row_bytes(self._rows(selection))
        places = ranges(selection.destination, selection.length)
        into, last = out.reshape(-1).view(np.uint8).reshape(-1, width), self._last
        bad = decode_field(values, offsets, places, _BYTES[column], into, is_checked=last.is_checked)
        if bad >= 0:
            raise self._damaged(int(ranges(selection.start, selection.length)[places == bad][0]))
        last.is_checked = True

    def _rows(self, selection: Selection) -> Ragged:
        """The compact rows of a selection, kept until this thread asks for another one: columns are read in turn."""
        last = self._last
        if last.rows is None or last.selection is not selection:
            last.selection, last.rows = selection, self._store.read_ragged(ROW, selection)
            last.is_checked = False
        return last.rows

    def frames(self, e: int) -> ByteArray:
        """`[n, 8396]` the frames of game `e`, in new memory: every bit as it was written."""
        first, last = self.episode_rows("step", e)
        return self.frame_rows(np.arange(first, last))

    def frame_rows(self, steps: IntArray) -> ByteArray:
        """`[n, 8396]` the frames of single steps, counted over all games, in new memory."""
        values, offsets = row_bytes(self._compact(steps))
        out = np.empty((len(steps), FRAME.itemsize), np.uint8)
        bad = decode_rows(values, offsets, out)
        if bad >= 0:
            raise self._damaged(int(steps[bad]))
        return out

    def compact_rows(self, steps: IntArray) -> Ragged:
        """`n` compact rows of the frames of single steps, as `compact.encode` makes them. Cost: no decoding."""
        rows = self._compact(steps)
        bad = check_rows(*row_bytes(rows), 1)
        if bad >= 0:
            raise self._damaged(int(steps[bad]))
        return rows

    def _compact(self, steps: IntArray) -> Ragged:
        selection = Selection.of_rows(steps)
        self.check("step", selection)
        return self._store.read_ragged(ROW, selection).reshape(len(steps))

    def _damaged(self, row: int) -> FormatError:
        e = int(np.searchsorted(self.offsets, row, "right")) - 1
        message = "expected a compact row, got other bytes: the archive is damaged; `penstock check` lists its games"
        return FormatError(message, path=self._store.path, where=f"frame {row - self.offsets[e]} of episode {e}")

    @override
    def view_array(self, column: str, first: int, n: int) -> None:
        return None

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        return self._store.remote_ranges(ROW, selection)

    @override
    def close(self) -> None:
        self._store.close()
        self._last = _LastRows()


_BYTES = {name: int(place[1]) for name, place in (FRAME.fields or {}).items() if name in SPEC}
