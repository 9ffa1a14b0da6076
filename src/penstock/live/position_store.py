"""`PositionStore`: encoded positions of later uses of chunks, so that a chunk is not read for each use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, offsets_of
from penstock.live.block import Block, Part

Int = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Entry:
    block: Block
    first: int  # use of the first part of the block
    ends: list[int]  # frames of the block up to each use
    nbytes: int


class PositionStore:
    """Keeps the frames of the `ahead` uses of a chunk that follow the one it was read for, in at most `limit` bytes;
    the chunk that was read longest ago goes first. What comes out is what reading again would give. Thread-safe.

    >>> store = PositionStore(ahead=2, limit=1 << 20)
    >>> places = [np.array([4]), np.array([1]), np.array([0])]
    >>> now = store.put(number=7, use=0, rows=np.eye(3, dtype=np.uint8), places=places)
    >>> Part.join([now, store.get(7, 1)]).place.tolist(), store.get(7, 3)
    ([4, 1], None)
    """

    def __init__(self, ahead: int, limit: int = 1 << 30) -> None:
        self.ahead, self.limit = ahead, limit
        self.hits = self.misses = self.nbytes = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def has(self, number: int) -> bool:
        """Whether frames of a chunk are held, of whatever use."""
        return number in self._held

    def get(self, number: int, use: int) -> Part | None:
        """The frames of one use; None where they are not held."""
        entry = self._held.get(number)
        at = -1 if entry is None else use - entry.first
        if entry is None or not 0 <= at < len(entry.ends) - 1:
            self.misses += 1
            return None
        self.hits += 1
        if at == len(entry.ends) - 2:  # its last use
            self._remove(number)
        return Part(entry.block, entry.ends[at], entry.ends[at + 1])

    def put(self, number: int, use: int, rows: Array, places: list[Int]) -> Part:
        """Keep rows of `use` and of those after it, `places` of each; gives the frames of `use`."""
        place = np.concatenate(places).astype(np.int32)
        block = Block(rows, np.full(len(place), number), place)
        ends = offsets_of([len(p) for p in places]).tolist()
        entry = _Entry(block, use, ends, block.nbytes + 64 * len(ends))
        self._remove(number)
        with self._lock:
            if number not in self._held and len(ends) > 2:
                self._held[number] = entry
                self.nbytes += entry.nbytes
            while self.nbytes > self.limit:
                self.nbytes -= self._held.popitem(last=False)[1].nbytes
        return Part(block, ends[0], ends[1])

    def forget(self, below: int) -> None:
        """Keep no more of chunks below a number."""
        for number in [n for n in list(self._held) if n < below]:
            self._remove(number)

    def _remove(self, number: int) -> None:
        with self._lock:
            entry = self._held.pop(number, None)
            self.nbytes -= 0 if entry is None else entry.nbytes
