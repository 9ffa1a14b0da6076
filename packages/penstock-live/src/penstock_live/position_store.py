"""`PositionStore`: encoded positions of later uses of chunks, so that a chunk is not read for each use."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, Ragged
from penstock_live.block import Block, Part
from penstock_live.kernels.record_log import copy_records, find_records, slide_records

Int = npt.NDArray[np.int64]

FIRST_WORDS = 1 << 16
FULL = 0.75  # of the log, above which it grows, or the oldest of it are left out


class PositionStore:
    """Cache of the frames of the next `ahead` uses of a chunk, in at most `limit` bytes. Thread-safe.

    When the cache is full, the quarter that was read longest ago is dropped. Cached frames equal the frames that
    another read would return. Frames of another width than the first are not cached.

    The cache is one log of records (the kernels document the layout) and a table of the offset of each chunk, so that
    two calls find and copy the frames of many draws. Cost: about 0.3 µs and one copy a draw. Memory: twice the cached
    bytes, and 8 bytes for each chunk number between the smallest and the largest cached one.

    Args:
        ahead: Later uses of a chunk that are cached.
        limit: Bytes. The default is 1 GiB.

    Example:
        >>> store = PositionStore(ahead=2, limit=1 << 20)
        >>> rows, places, ends = np.eye(3, dtype=np.uint8), np.array([4, 1, 0]), np.arange(4)
        >>> now = store.put(7, 0, rows, places, ends)
        >>> block, frames = store.take(np.array([7, 8]), np.array([1, 0]))
        >>> Part.join([now]).place.tolist(), block.place.tolist(), block.rows.tolist(), frames.tolist()
        ([4], [1], [[0, 1, 0]], [1, -1])
    """

    def __init__(self, ahead: int, limit: int = 1 << 30) -> None:
        self.ahead, self.limit = ahead, limit
        self.hits = self.misses = 0
        self.added = self.turned_away = 0  # positions of later uses that were kept, and for which there was no room
        self._lock = threading.Lock()
        self._words: Int = np.empty(min(FIRST_WORDS, limit // 8), np.int64)
        self._end: int = 0  # words of the log
        self._held: int = 0  # words of its live records
        self._where, self._base = np.zeros(0, np.int64), 0
        self._width: int | None = None  # of the rows, as of a block

    def __len__(self) -> int:
        return int(np.count_nonzero(self._where >= 0))

    @property
    def nbytes(self) -> int:
        """Bytes of all cached records."""
        return 8 * self._held

    @property
    def positions(self) -> int:
        """Cached positions of later uses, including positions already returned. Cost: linear in all chunks."""
        with self._lock:
            record_starts = self._where[self._where >= 0]
            ends = record_starts + 4
            return int((self._words[ends + self._words[record_starts + 3]] - self._words[ends + 1]).sum())

    def has(self, number: Int) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether frames of any use of each chunk are cached.

        Args:
            number: `[n]` int64 chunk numbers.
        """
        with self._lock:
            slot = number - self._base
            inside = (slot >= 0) & (slot < len(self._where))
            inside[inside] = self._where[slot[inside]] >= 0
            return inside

    def take(self, number: Int, use: Int) -> tuple[Block, Int]:
        """Return the frames of each `use` of chunk `number` `[n]` in one block, and their counts `[n]`, -1 if absent.

        No chunk may come twice. A chunk is dropped after its last cached use.

        Args:
            number: `[n]` int64 chunk numbers, each once.
            use: `[n]` int64 uses.
        """
        frames, nbytes = np.empty(len(number), np.int64), np.empty(len(number), np.int64)
        with self._lock:
            find_records(self._words, self._where, self._base, number, use, frames, nbytes)
            is_cached = frames >= 0
            n, hits = int(frames[is_cached].sum()), int(np.count_nonzero(is_cached))
            rows, ends = np.empty(int(nbytes.sum()), np.uint8), np.zeros(n + 1, np.int64)
            chunk, place = np.empty(n, np.int64), np.empty(n, np.int32)
            records = (self._words, self._where, self._base, number, use, frames)
            self._held -= copy_records(*records, rows, ends, chunk, place)
            self.hits, self.misses = self.hits + hits, self.misses + int(np.count_nonzero(use >= 0)) - hits
        return Block(rows.reshape(n, self._width) if self._width else Ragged(rows, ends), chunk, place), frames

    def put(self, number: int, use: int, rows: Array, places: Int, ends: Int) -> Part:
        """Cache `rows` at `places`, for `use` and later uses, each up to its `ends`; return the rows of `use`.

        Args:
            number: Number of the chunk.
            use: The use that the first rows are for.
            rows: Rows of all uses.
            places: Position of each row in the chunk.
            ends: End of the rows of each use.
        """
        block = Block(rows, np.full(len(places), number), places.astype(np.int32))
        with self._lock:
            if self._width is None and len(block):
                self._width = block.width
            if block.width == self._width and len(ends) > 2:
                self._keep(number, use, block, ends)
        return Part(block, 0, int(ends[1]))

    def forget(self, below: int) -> None:
        """Drop chunks below a number.

        Args:
            below: First number that stays.
        """
        with self._lock:
            gone = self._where[: max(0, below - self._base)]
            self._held -= int(self._words[gone[gone >= 0] + 1].sum())
            self._where, self._base = self._where[len(gone) :].copy(), self._base + len(gone)

    def _keep(self, number: int, use: int, block: Block, ends: Int) -> None:
        values, cuts = block.flat()
        head = np.concatenate([[number, 0, use, len(ends) - 1], ends, block.place, cuts])
        head[1] = len(head) + -(-len(values) // 8)
        self._reach(number)
        self._drop(number)
        later = int(ends[-1] - ends[1])
        if head[1] > FULL * (self.limit // 8):
            self.turned_away += later
            return
        self.added += later
        if self._end + head[1] > len(self._words):
            self._make_room(int(head[1]))
        record_start, self._end = self._end, self._end + int(head[1])
        self._words[record_start : record_start + len(head)] = head
        self._words[record_start + len(head) : self._end].view(np.uint8)[: len(values)] = values
        self._where[number - self._base] = record_start
        self._held += int(head[1])

    def _drop(self, number: int) -> None:
        record_start = self._where[number - self._base]
        if record_start >= 0:
            self._held -= int(self._words[record_start + 1])
            self._where[number - self._base] = -1

    def _make_room(self, needed: int) -> None:
        """Make room at the end of the log: enlarge it, or discard unused and the oldest records."""
        most, wanted = self.limit // 8, self._held + needed
        if wanted > FULL * len(self._words) and len(self._words) < most:
            grown = np.empty(min(most, 2 * len(self._words) + needed), np.int64)
            grown[: self._end] = self._words[: self._end]
            self._words = grown
        if self._end + needed > len(self._words):
            excess = max(0, wanted - int(FULL * len(self._words)))
            log = self._words, self._where, self._base
            self._end, dropped = slide_records(*log, self._end, excess)
            self._held -= dropped

    def _reach(self, number: int) -> None:
        """Extend the table to a number; the table grows by doubling, at either end."""
        if not len(self._where):
            self._base = number
        more = max(len(self._where), 64)
        if number < self._base:
            more = max(more, self._base - number)
            self._where, self._base = np.concatenate([np.full(more, -1), self._where]), self._base - more
        elif number >= self._base + len(self._where):
            more = max(more, number - self._base - len(self._where) + 1)
            self._where = np.concatenate([self._where, np.full(more, -1)])
