"""Games as episodes: files of chunks opened as a dataset."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.cache import Cache
from penstock.core.narrowing import is_path
from penstock.core.ragged import offsets_of, ranges
from penstock.core.selection import Selection
from penstock.errors import DataError, FormatError
from penstock.files.remote import FileState, Wanted, begin_fetch, file_state, range_of, remote_file, whole_for_block
from penstock.formats.base.account import Account, LeftOut, unused_files
from penstock.formats.base.state import SourceState, StateSource
from penstock_chess.formats.lc0.accounting import GAMES, bad_chunk, unused_beside, unused_in, with_counts
from penstock_chess.formats.lc0.chunks import LIMIT, ChunkFile, Counted
from penstock_chess.formats.lc0.errors import ChunkError, Reason
from penstock_chess.formats.lc0.files import files_at, opened, read_metadata
from penstock_chess.formats.lc0.frame_counts import FrameCounts
from penstock_chess.formats.lc0.records import FRAME, SPEC, values
from penstock_chess.formats.lc0.upgrade import Missing, check_missing

CACHE_BYTES = 256 << 20
FETCHED = 64  # files behind URLs that are asked for at a time
MOST_ROWS = 1 << 13  # frames that a thread keeps until it reads others: 65 MiB
SMALL = 1 << 18  # bytes of a file that are asked for before it is opened

Damaged = Literal["drop", "refuse"]


class _LastFrames(threading.local):
    selection: Selection | None = None
    frames: ByteArray | None = None


class Lc0Source(StateSource[SourceState]):
    """The games of a file, a folder or several files, an episode each, in the order of files and of members.

    `missing_st` and `limit` are as in `open_chunks`, `order` is `"natural"` (2 before 10) or `"key"` (as live data).
    Files and chunks that are found damaged are left out, which `account` says, or refused with `damaged="refuse"`. So
    are archives that are compressed as a whole, if there is nothing else. What only unpacking shows (a wrong checksum)
    is a `ChunkError` when the episode is read.

    A game is inflated whole when one of its rows is read; `cache_bytes` of frames are kept.

    Cost: opening reads all compressed bytes, for how many frames a chunk has stands at its end; 50 µs a game. Of a
    folder it does so once: the counts are kept in the user's cache, and a later opening reads new and changed files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[Path],
        *,
        missing_st: Missing = "zero",
        order: Literal["natural", "key"] = "natural",
        damaged: Damaged = "drop",
        cache_bytes: int = CACHE_BYTES,
        limit: int = LIMIT,
    ) -> None:
        check_missing(missing_st)
        if damaged not in ("drop", "refuse"):
            raise DataError(f"expected damaged to be 'drop' or 'refuse', got {damaged!r}")
        files = Path(path) if is_path(path) else tuple(path)
        self.path = files if isinstance(files, Path) else files[0]
        self._reopen = partial(
            Lc0Source, files, missing_st=missing_st, order=order, damaged=damaged, cache_bytes=cache_bytes, limit=limit
        )
        self._files: list[ChunkFile] = []
        self._chunks: list[tuple[int, int]] = []
        self._counted: list[Counted] = []
        self._left_out: list[LeftOut] = []
        self._errors: list[ChunkError] = []
        places = files_at(files, order)
        states = [file_state(file) for file in places]
        self._open_files(places, states, missing_st, limit, every_file=isinstance(files, Path))
        if self._errors and damaged == "refuse":
            first = self._errors[0]
            raise ChunkError(f"{len(self._errors)} chunks are damaged, first: {first}", first.reason)
        if self._errors and all(error.reason == Reason.ARCHIVE for error in self._errors) and not self._chunks:
            raise self._errors[0]
        if isinstance(files, Path):
            self._left_out += unused_beside(files)
        stored = read_metadata(files) if isinstance(files, Path) and files.is_dir() else {}
        offsets = offsets_of([counted.frames for counted in self._counted])
        described = [(file.name, state.size, state.mtime_ns) for file, state in zip(places, states, strict=True)]
        self._state = SourceState(
            spec=SPEC,
            offsets=offsets,
            digest=hashlib.sha256(repr((missing_st, *described, len(self._chunks))).encode()).hexdigest(),
            metadata=stored,
            account=Account(with_counts(self._left_out)),
        )
        self._kept = Cache(cache_bytes)
        self._last = _LastFrames()
        self._closed = False

    def _open_files(
        self, places: Sequence[Path], states: Sequence[FileState], missing: Missing, limit: int, *, every_file: bool
    ) -> None:
        """Open files and count their frames, of files that were counted before without reading them."""
        counts = FrameCounts(places if len(places) > 1 else (), limit)
        known = [counts.open(file, state, missing, limit) for file, state in zip(places, states, strict=True)]
        unread = [file for file, counted in zip(places, known, strict=True) if counted is None]
        read = 0
        for path, state, counted in zip(places, states, known, strict=True):
            if counted is not None:
                self._take(counted, path)
                continue
            if read % FETCHED == 0 and len(places) > 1:
                _begin_fetch(unread[read : read + 2 * FETCHED])
            read += 1
            file = opened(path, missing, limit)
            self._take(file, path)
            counts.note(path, state, file.noted if isinstance(file, ChunkFile) else 0)
        if len(places) > 1:
            counts.save(every_file=every_file)

    def _take(self, file: ChunkFile | ChunkError | None, path: Path) -> None:
        if isinstance(file, ChunkError):
            self._leave_out(path, None, file)
        elif file is None:
            self._left_out += unused_files([path.name], GAMES)
        else:
            self._files.append(file)
            with nullcontext() if file.has_counts else whole_for_block(path):
                self._count(file, path)
            file.keep_table()
            self._left_out += unused_in(file)
            if file.torn is not None:
                self._errors.append(ChunkError(file.torn, Reason.TRUNCATED))

    def _count(self, file: ChunkFile, path: Path) -> None:
        for i in range(len(file)):
            try:
                self._counted.append(file.count(i))
                self._chunks.append((len(self._files) - 1, i))
            except ChunkError as error:
                self._leave_out(path, file.name(i), error)

    def _leave_out(self, path: Path, member: str | None, error: ChunkError) -> None:
        self._errors.append(error)
        self._left_out.append(bad_chunk(path, member, error))

    def __reduce__(self) -> tuple[Callable[..., Lc0Source], tuple[()]]:
        return self._reopen, ()

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Of each game `file`, `member` (None where the file is the chunk), `frames`, and the `version` of its records
        in the file. Cost: nothing is read."""
        entries: list[dict[str, Any]] = []
        for e in episodes:
            number, i = self._chunks[e]
            file, counted = self._files[number], self._counted[e]
            entry = {"file": file.key, "member": file.name(i), "frames": counted.frames, "version": counted.version}
            entries.append(entry)
        return entries

    def frames(self, e: int) -> ByteArray:
        """`[n, 8396]` the frames of game `e`, shared and read-only."""
        if self._closed:
            raise FormatError("expected an open source, got one that was closed; open it again", path=self.path)
        return self._kept.array(e, lambda: self._load(e))

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Each game that is touched is inflated once, if it is not kept, also for several columns in turn."""
        if column not in SPEC:
            raise KeyError(f"expected a column among {list(SPEC)}, got {column!r}")
        places, n = ranges(selection.destination, selection.length), int(selection.length.sum())
        if n > MOST_ROWS:
            for chosen, frames, rows in self._pieces(selection):
                out[places[chosen]] = values(frames, column)[rows]
            return
        last = self._last
        if last.frames is None or last.selection is not selection:
            every = np.empty((n, FRAME.itemsize), np.uint8)
            for chosen, frames, rows in self._pieces(selection):
                every[chosen] = frames[rows]
            last.selection, last.frames = selection, every
        out[places] = values(last.frames, column)

    def _pieces(self, selection: Selection) -> Iterator[tuple[IntArray, ByteArray, IntArray]]:
        """For each game that is touched: which rows of the selection it has, frames, and the places of these rows."""
        for e, chosen, rows in self._by_game(selection):
            number, i = self._chunks[e]
            file = self._files[number]
            if file.remote is not None and file.is_plain(i):
                needed, which = np.unique(rows, return_inverse=True)
                yield chosen, file.plain_frames(i, needed), which
            else:
                yield chosen, self.frames(e), rows

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        wanted: list[Wanted] = []
        for e, _, rows in self._by_game(selection) if any(file.remote for file in self._files) else ():
            number, i = self._chunks[e]
            if (remote := self._files[number].remote) is not None:
                wanted.append((remote, *self._files[number].byte_ranges(i, np.unique(rows))))
        return wanted

    def _by_game(self, selection: Selection) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Each game that has rows of a selection, which of all rows these are, and their places in the game."""
        rows = ranges(selection.start, selection.length)
        offsets = self.offsets
        game = np.searchsorted(offsets, rows, side="right") - 1
        order = np.argsort(game, kind="stable")
        cuts = np.flatnonzero(np.diff(game[order], prepend=-1, append=-1)) if len(order) else np.zeros(1, np.int64)
        for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            chosen = order[a:b]
            e = int(game[chosen[0]])
            yield e, chosen, rows[chosen] - offsets[e]

    def _load(self, e: int) -> ByteArray:
        number, i = self._chunks[e]
        file, expected = self._files[number], self._counted[e].frames
        frames = file.load(i)
        if len(frames) != expected:
            message = f"expected {expected} frames, got {len(frames)}: the end of its gzip says another size"
            raise ChunkError(message, Reason.SIZE, path=file.path, where=file.name(i))
        frames.setflags(write=False)
        return frames

    def close(self) -> None:
        """Let go of the files; arrays that were handed out stay valid."""
        self._closed = True
        self._last = _LastFrames()
        for file in self._files:
            file.close()


def _begin_fetch(files: Sequence[Path]) -> None:
    """Ask for small files behind URLs, which are opened one after the other."""
    remote = [file for file in map(remote_file, files) if file is not None]
    begin_fetch([range_of(file, 0, min(file.state.size, SMALL)) for file in remote], most=False)
