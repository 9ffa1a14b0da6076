"""`Restoring`: restores the frames of a loaded state while the reservoir is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock_live.block import Block
from penstock_live.reservoir import Reservoir

Int = npt.NDArray[np.int64]
Place = npt.NDArray[np.int32]
Fetch = Callable[[Int, Place], Iterable[tuple[Int, Block]]]
"""Yields frames by references `(chunk [n], place [n])`, in pieces: `index` into the references, and the frames.

Frames that cannot be read are in no piece.
"""

BESIDE = 4  # extra slots restored per new frame, so that restoring ends before old files expire


def restored(chunk: Int, place: Place, fetch: Fetch) -> Block:
    """Return frames in the order of their references, without frames that cannot be read."""
    pieces = list(fetch(chunk, place)) if len(chunk) else []
    if not pieces:
        return Block(np.zeros((0, 1), np.uint8), chunk[:0], place[:0])
    order = np.argsort(np.concatenate([index for index, _ in pieces]))
    return Block.join([block for _, block in pieces]).take(order)


class Restoring:
    """Fills the slots of a `reservoir` that has just loaded `state`, first the slots that are read next.

    Each chunk is fetched once, with all of its wanted frames; slots that are read next are filled `together` or more
    at a time. Frames that cannot be read are `lose`d.
    """

    def __init__(self, reservoir: Reservoir, state: Mapping[str, Any], fetch: Fetch, together: int = 1024) -> None:
        self._reservoir = reservoir
        self._fetch = fetch
        self._together = together
        slots = reservoir.load_state_dict(state)
        self._chunk, self._place = np.asarray(state["chunk"], np.int64), np.asarray(state["place"], np.int32)
        self._slots = slots[np.argsort(self._chunk[slots], kind="stable")]
        self._sorted = self._chunk[self._slots]
        self._at = 0  # of `_slots`, so many were filled in turn

    @property
    def done(self) -> bool:
        """Whether all slots are filled."""
        return self._at == len(self._slots)

    def ready_for(self, n: int, *, draining: bool = False) -> int:
        """Fill the slots that the next `n` frames, or the drain of `n`, take from, and some more; gives how many."""
        if self.done:
            return 0
        awaited = self._reservoir.awaited(n, draining=draining)
        if len(awaited):  # and slots of later calls, because large fetches are faster
            awaited = self._reservoir.awaited(max(n, self._together), draining=draining)
        turn = self._slots[self._at : self._at + BESIDE * n]
        self._at += len(turn)
        slots = self._with_their_chunks(np.concatenate([awaited, turn]))
        missing = np.ones(len(slots), bool)
        chunk = self._chunk[slots]
        place = self._place[slots]
        for index, block in self._fetch(chunk, place) if len(slots) else ():
            self._reservoir.restore(slots[index], block)
            missing[index] = False
        self._reservoir.lose(slots[missing])
        return int(np.count_nonzero(~missing))

    def _with_their_chunks(self, slots: Int) -> Int:
        """Return all slots that are not filled yet from the same chunks."""
        chunks = np.unique(self._chunk[slots])
        lo, hi = (np.searchsorted(self._sorted, chunks, side=side) for side in ("left", "right"))
        every = np.concatenate([self._slots[:0], *(self._slots[a:b] for a, b in zip(lo, hi, strict=True))])
        return every[self._reservoir.is_absent(every)]
