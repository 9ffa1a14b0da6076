"""`Reservoir`: shuffle buffer in which each new frame replaces one drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import PlanError, StateError
from penstock.kernels.permute import permute
from penstock_live.block import Block
from penstock_live.kernels.pages import exchange, exchange_references
from penstock_live.seeds import draws, key

Int = npt.NDArray[np.int64]

PAGE = 128  # bytes: half a page is lost in each frame, a link of four bytes is needed for each page
FIRST_PAGES = 1 << 10


class Reservoir:
    """Shuffle buffer of `slots` frames. Frames first fill the slots; then each new frame replaces one in a
    random slot.

    `exchange` returns the replaced frames; at the end, `drain` returns the remaining frames in random order.

    A frame stays for `d` more frames with probability `(1 - 1 / slots) ** d`: half of the frames leave within
    `0.69 * slots` frames. The order is a function of the seed and of the order of frames, and does not depend on the
    sizes of blocks. Frames are rows of bytes of any length; all are ragged or all of one width. Not thread-safe.

    Memory: the rows in pages of 128 bytes, 20 bytes a slot, 4 a page; the pages of the largest content so far.
    Cost: one copy in and one copy out a frame. Source: the sampler of Leela Chess Zero's loader, which calls it a
    reservoir (it exchanges frames; it does not sample them).
    """

    def __init__(self, slots: int, seed: int = 0) -> None:
        if slots < 1:
            raise PlanError(f"expected a reservoir of at least one slot, got {slots}")
        self._slots = slots
        self._seed = seed
        self._key = key(seed, "reservoir")
        self._filled = self._drawn = self._drained = 0
        self._absences = self._losses = 0
        self._chunk, self._place = np.zeros(slots, np.int64), np.zeros(slots, np.int32)
        # Slots of a loaded state whose rows are not restored yet, or cannot be restored.
        self._absent, self._lost = np.zeros(slots, bool), np.zeros(slots, bool)
        self._width = -1  # of the rows, as of a block; -1 before the first
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._head, self._length = np.zeros(self._slots, np.int32), np.zeros(self._slots, np.int64)
        self._pages, self._link = np.empty((FIRST_PAGES, PAGE), np.uint8), np.empty(FIRST_PAGES, np.int32)
        self._free = np.array([-1, 0], np.int64)

    def __len__(self) -> int:
        """Number of frames in the buffer."""
        return self._filled - self._drained

    @property
    def nbytes(self) -> int:
        """Bytes of the pages used so far, and of the tables of the slots."""
        pages = int(self._free[1]) * (PAGE + self._link.itemsize)
        return pages + sum(a.nbytes for a in (self._chunk, self._place, self._head, self._length))

    def exchange(self, block: Block) -> Block:
        """Insert a block; return the replaced frames, `max(0, len(self) + n - slots)`."""
        if self._drained:
            raise PlanError("expected frames only before `drain`, got frames once a reservoir is drained")
        self._check_kind(block)
        self._check_present(len(block))
        fresh, slots = self._fresh(len(block)), self._coming(len(block))
        self._filled += fresh
        self._drawn += len(block) - fresh
        return self._swap(slots, *block.flat(), block.chunk, block.place, fresh)

    def drain(self, n: int) -> Block:
        """Return at most `n` of the remaining frames; none once it is empty."""
        n = min(n, len(self))
        self._check_present(n, draining=True)
        slots = self._coming(n, draining=True)
        self._drained += n
        nothing = np.zeros(0, np.uint8), np.zeros(n + 1, np.int64)
        return self._swap(slots, *nothing, np.zeros(n, np.int64), np.zeros(n, np.int32))

    def awaited(self, n: int, *, draining: bool = False) -> Int:
        """Return the slots of a loaded state to restore before `exchange` of `n` frames, or before `drain`."""
        if self._absences == 0:
            return np.zeros(0, np.int64)
        slots = np.unique(self._coming(min(n, len(self)) if draining else n, draining=draining))
        return slots[self._absent[slots]]

    def oldest(self) -> int | None:
        """Return the smallest chunk number in slots that were ever filled; None if none were. Cost: reads all slots."""
        return int(self._chunk[: self._filled].min()) if self._filled else None

    def _check_kind(self, block: Block) -> None:
        """Check that a block is of the kind of the first block with frames."""
        if len(block) == 0:
            return
        if self._width < 0:
            self._width = block.width
        if block.width != self._width:
            raise PlanError(f"expected rows of {_kind(self._width)}, got {_kind(block.width)}")

    def _check_present(self, n: int, *, draining: bool = False) -> None:
        if len(slots := self.awaited(n, draining=draining)):
            raise StateError(f"expected {len(slots)} frames of the loaded state to be restored before they come out")

    def _fresh(self, n: int) -> int:
        """Return how many of the next `n` frames go to slots that were never filled."""
        return min(n, self._slots - self._filled)

    def _coming(self, n: int, *, draining: bool = False) -> Int:
        """The slots that the next `n` frames go to, or of the next `n` that are drained."""
        if draining:
            return self._order(np.arange(self._drained, self._drained + n))
        fresh = self._fresh(n)
        drawn = draws(self._key, np.arange(self._drawn, self._drawn + n - fresh)) % np.uint64(self._slots)
        return np.concatenate([np.arange(self._filled, self._filled + fresh), drawn.astype(np.int64)])

    def _order(self, k: Int) -> Int:
        """Return the `k`-th slots in the order in which filled slots are drained."""
        return permute(k, np.full(len(k), self._filled), np.zeros(len(k), np.int64), int(self._key))

    def _swap(self, slots: Int, given: Any, ends: Int, chunk: Int, place: Any, fresh: int = 0) -> Block:
        """Write rows and references to the slots, and return the previous ones, without the first `fresh` slots.

        A slot may occur several times.
        """
        taken_ends = np.zeros(len(slots) + 1, np.int64)
        taken = np.empty(int(self._length[slots].sum()) + len(given), np.uint8)
        done = 0
        while done < len(slots):
            done = exchange(
                *(self._pages, self._link, self._free, self._head, self._length),
                *(slots, given, ends, taken, taken_ends, done),
            )
            if done < len(slots):
                self._grow()
        out_chunk, out_place = np.empty(len(slots), np.int64), np.empty(len(slots), np.int32)
        exchange_references(self._chunk, self._place, slots, chunk, place, out_chunk, out_place)
        rows, kept = taken[: taken_ends[-1]], self._kept(slots)
        if kept is None:
            return Block(self._shaped(rows, taken_ends[fresh:]), out_chunk[fresh:], out_place[fresh:])
        kept = kept[kept >= fresh]
        ends = offsets_of(np.diff(taken_ends)[kept])
        return Block(self._shaped(rows, ends), out_chunk[kept], out_place[kept])

    def _kept(self, slots: Int) -> Int | None:
        """Return which of the slots gave a frame; None for all. Slots that had lost their frame are reset."""
        if self._losses == 0:
            return None
        gone, first = np.zeros(len(slots), bool), np.unique(slots, return_index=True)[1]
        gone[first] = self._lost[slots[first]]
        self._lost[slots] = False
        self._losses -= int(np.count_nonzero(gone))
        return np.flatnonzero(~gone)

    def _grow(self) -> None:
        """Add pages for all slots, with rows as long as the present ones on average, and a reserve.

        Untouched pages use no memory.
        """
        occupied = max(int(np.count_nonzero(self._length)), 1)
        wanted = int(1.1 * self._slots * int(self._free[1]) / occupied)
        more = max(wanted, len(self._pages) + max(FIRST_PAGES, len(self._pages) // 4))
        for name, array in (("_pages", self._pages), ("_link", self._link)):
            grown = np.empty((more, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)

    def _shaped(self, values: npt.NDArray[np.uint8], ends: Int) -> Any:
        """Return rows in the form of the inserted blocks."""
        return values.reshape(-1, self._width) if self._width > 0 else Ragged(values, ends)

    def state_dict(self) -> dict[str, Any]:
        """Return counters and the frame of each slot: `chunk` `[slots]` int64, `place` `[slots]` int32. No rows."""
        names = ("slots", "seed", "filled", "drawn", "drained")
        counters = {name: int(getattr(self, f"_{name}")) for name in names}
        return {**counters, "chunk": self._chunk[: self._filled].copy(), "place": self._place[: self._filled].copy()}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> Int:
        """Take the counters and references of a state; gives the slots that are to be filled by `restore`, at the
        latest when they are `awaited`.
        """
        counters = {name: int(state[name]) for name in ("slots", "seed", "filled", "drawn", "drained")}
        chunk, place = np.asarray(state["chunk"], np.int64), np.asarray(state["place"], np.int32)
        if (counters["slots"], counters["seed"]) != (self._slots, self._seed):
            mine = {"slots": self._slots, "seed": self._seed}
            raise StateError(f"expected the state of a reservoir with {mine}, got {counters}")
        filled, drained = counters["filled"], counters["drained"]
        if not len(chunk) == len(place) == filled <= self._slots or not 0 <= drained <= filled:
            raise StateError(f"expected references for {filled} slots, got {len(chunk)}")
        self._filled = filled
        self._drawn = counters["drawn"]
        self._drained = drained
        self._chunk[:filled], self._place[:filled] = chunk, place
        self._forget_rows()
        self._absent[:] = np.arange(self._slots) < filled
        self._absent[self._order(np.arange(drained))] = False
        self._absences = int(np.count_nonzero(self._absent))
        return np.flatnonzero(self._absent)

    def restore(self, slots: Int, block: Block) -> None:
        """Put the rows of frames into slots that a loaded state has them in."""
        if not (np.array_equal(self._chunk[slots], block.chunk) and np.array_equal(self._place[slots], block.place)):
            raise StateError("expected the frames that the state names, got others")
        self._check_kind(block)
        self._swap(slots, *block.flat(), block.chunk, block.place)
        self._absences -= int(np.count_nonzero(self._absent[slots]))
        self._absent[slots] = False

    def lose(self, slots: Int) -> None:
        """Mark slots of a loaded state whose frames cannot be restored: they return no frame."""
        self._absences -= int(np.count_nonzero(self._absent[slots]))
        self._absent[slots], self._lost[slots] = False, True
        self._losses += len(slots)

    def is_absent(self, slots: Int) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether the frames of slots are not restored yet."""
        return self._absent[slots]


def _kind(width: int) -> str:
    return f"{width} bytes" if width else "unequal lengths"
