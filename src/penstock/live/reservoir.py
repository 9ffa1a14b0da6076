"""`Reservoir`: frames wait in slots, and each that comes in drives out one drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import PlanError, StateError
from penstock.kernels.cipher_reference import GOLDEN, mix
from penstock.kernels.dispatch import kernels
from penstock.kernels.permute import permute
from penstock.live.block import Block
from penstock.live.seeds import key

Int = npt.NDArray[np.int64]

PAGE = 128  # bytes: half a page is lost in each frame, a link of four bytes is needed for each page
FIRST_PAGES = 1 << 10


class Reservoir:
    """`slots` frames in random order. Frames first fill the slots; then each that comes drives out the one in a slot
    drawn at random, and takes its place. At the end `drain` gives those that are left, in random order.

    A frame's chance to stay for `d` more frames is `(1 - 1 / slots) ** d`: half of them are out after `0.69 * slots`.
    The order is a function of the seed and of the frames' order, however they are cut into blocks. Frames are rows of
    bytes of any length; all have to be of one kind, ragged or of one width. Not thread-safe.

    Memory: the rows in pages of 128 bytes, 20 bytes a slot, 4 a page; no more than were ever held at once.
    Cost: one copy in and one out a frame. Source: the sampler of Leela Chess Zero's loader, which calls it a reservoir
    (it exchanges frames; it does not sample them).

    Raises `PlanError` for fewer than one slot.

    >>> def block(numbers):
    ...     n = np.array(numbers)
    ...     return Block(n.astype(np.uint8)[:, None], n, np.zeros(len(n), np.int32))
    >>> reservoir = Reservoir(4, seed=1)
    >>> out = reservoir.exchange(block([0, 1, 2, 3, 4, 5]))
    >>> left = reservoir.drain(9)
    >>> len(out), sorted([*out.chunk.tolist(), *left.chunk.tolist()])
    (2, [0, 1, 2, 3, 4, 5])
    """

    def __init__(self, slots: int, seed: int = 0) -> None:
        if slots < 1:
            raise PlanError(f"expected a reservoir of at least one slot, got {slots}")
        self._slots, self._seed, self._key = slots, seed, key(seed, "reservoir")
        self._filled = self._drawn = self._drained = 0
        self._chunk, self._place = np.zeros(slots, np.int64), np.zeros(slots, np.int32)
        self._width = -1  # of the rows; 0 where they are ragged, -1 before the first
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._head, self._length = np.zeros(self._slots, np.int32), np.zeros(self._slots, np.int64)
        self._pages, self._link = np.empty((FIRST_PAGES, PAGE), np.uint8), np.empty(FIRST_PAGES, np.int32)
        self._free = np.array([-1, 0], np.int64)

    def __len__(self) -> int:
        """Frames that are held."""
        return self._filled - self._drained

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use or used before, and of what is kept for each slot."""
        pages = int(self._free[1]) * (PAGE + self._link.itemsize)
        return pages + sum(a.nbytes for a in (self._chunk, self._place, self._head, self._length))

    def exchange(self, block: Block) -> Block:
        """Take in a block; gives the frames that it drove out, `max(0, held + n - slots)`.

        Raises `PlanError` once `drain` was called, or for rows of another kind.
        """
        if self._drained:
            raise PlanError("expected no more frames once a reservoir is drained")
        self._check(block)
        fresh = min(len(block), self._slots - self._filled)
        slots = np.empty(len(block), np.int64)
        slots[:fresh] = np.arange(self._filled, self._filled + fresh)
        slots[fresh:] = self._draws(len(block) - fresh)
        self._filled += fresh
        out = self._swap(slots, *_flat(block), block.chunk, block.place)
        return Block(self._shaped(*out[:2], fresh), out[2][fresh:], out[3][fresh:])

    def drain(self, n: int) -> Block:
        """At most `n` of the frames that are left; none once it is empty."""
        n = min(n, len(self))
        k = np.arange(self._drained, self._drained + n)
        slots = self._order(k)
        self._drained += n
        nothing = np.zeros(0, np.uint8), np.zeros(n + 1, np.int64)
        out = self._swap(slots, *nothing, np.zeros(n, np.int64), np.zeros(n, np.int32))
        return Block(self._shaped(*out[:2], 0), *out[2:])

    def _check(self, block: Block) -> None:
        width = 0 if isinstance(block.rows, Ragged) else int(block.rows.shape[1])
        if len(block) and self._width < 0:
            self._width = width
        if len(block) and width != self._width:
            raise PlanError(f"expected rows of {_kind(self._width)}, got {_kind(width)}")

    def _draws(self, n: int) -> Int:
        with np.errstate(over="ignore"):
            counters = np.arange(self._drawn, self._drawn + n, dtype=np.uint64) * np.uint64(GOLDEN)
            draws = mix(counters + self._key)
        self._drawn += n
        return (draws % np.uint64(self._slots)).astype(np.int64)

    def _order(self, k: Int) -> Int:
        """The `k`-th slots of the order in which those that are filled are drained."""
        return permute(k, np.full(len(k), self._filled), np.zeros(len(k), np.int64), int(self._key))

    def _swap(self, slots: Int, given: Any, ends: Int, chunk: Int, place: Any) -> tuple[Any, Int, Int, Any]:
        """Rows and references out of the slots, others into them; a slot may come up more than once."""
        taken_ends = np.zeros(len(slots) + 1, np.int64)
        taken = np.empty(int(self._length[slots].sum()) + len(given), np.uint8)
        done = 0
        while done < len(slots):
            done = kernels().exchange(
                *(self._pages, self._link, self._free, self._head, self._length),
                *(slots, given, ends, taken, taken_ends, done),
            )
            if done < len(slots):
                self._grow()
        out_chunk, out_place = np.empty(len(slots), np.int64), np.empty(len(slots), np.int32)
        kernels().exchange_references(self._chunk, self._place, slots, chunk, place, out_chunk, out_place)
        return taken[: taken_ends[-1]], taken_ends, out_chunk, out_place

    def _grow(self) -> None:
        """As many pages as all slots will want if they hold what those filled do, and some more. What is never touched
        costs no memory."""
        held = max(int(np.count_nonzero(self._length)), 1)
        wanted = int(1.1 * self._slots * int(self._free[1]) / held)
        more = max(wanted, len(self._pages) + max(FIRST_PAGES, len(self._pages) // 4))
        for name, array in (("_pages", self._pages), ("_link", self._link)):
            grown = np.empty((more, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            setattr(self, name, grown)

    def _shaped(self, values: npt.NDArray[np.uint8], ends: Int, skipped: int) -> Any:
        """Rows as they came in, without the first `skipped`, which are empty."""
        if self._width > 0:
            return values.reshape(-1, self._width)
        return Ragged(values, ends[skipped:])

    def state_dict(self) -> dict[str, Any]:
        """Counters, and which frame is in each slot: `chunk` `[slots]` int64, `place` `[slots]` int32. No rows."""
        names = ("slots", "seed", "filled", "drawn", "drained")
        counters = {name: int(getattr(self, f"_{name}")) for name in names}
        return {**counters, "chunk": self._chunk[: self._filled].copy(), "place": self._place[: self._filled].copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Int:
        """Take the counters and references of a state; gives the slots that have to be filled by `restore`.

        Raises `StateError` for a state of another size or seed, or of something else.
        """
        try:
            counters = {name: int(state[name]) for name in ("slots", "seed", "filled", "drawn", "drained")}
            chunk, place = np.asarray(state["chunk"], np.int64), np.asarray(state["place"], np.int32)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"expected the state of a Reservoir, got {sorted(state)}") from error
        if (counters["slots"], counters["seed"]) != (self._slots, self._seed):
            mine = {"slots": self._slots, "seed": self._seed}
            raise StateError(f"expected the state of a reservoir with {mine}, got {counters}")
        filled, drained = counters["filled"], counters["drained"]
        if not len(chunk) == len(place) == filled <= self._slots or not 0 <= drained <= filled:
            raise StateError(f"expected references for {filled} slots, got {len(chunk)}")
        self._filled, self._drawn, self._drained = filled, counters["drawn"], drained
        self._chunk[:filled], self._place[:filled] = chunk, place
        self._forget_rows()
        return np.setdiff1d(np.arange(filled), self._order(np.arange(drained)))

    def restore(self, slots: Int, block: Block) -> None:
        """Put the rows of frames into slots that a loaded state has them in. Raises `StateError` for other frames."""
        if not (np.array_equal(self._chunk[slots], block.chunk) and np.array_equal(self._place[slots], block.place)):
            raise StateError("expected the frames that the state names, got others")
        self._check(block)
        self._swap(slots, *_flat(block), block.chunk, block.place)


def _flat(block: Block) -> tuple[npt.NDArray[np.uint8], Int]:
    """The rows end to end, and where each ends."""
    if isinstance(block.rows, Ragged):
        return np.ascontiguousarray(block.rows.values), block.rows.offsets
    n, width = block.rows.shape
    return np.ascontiguousarray(block.rows).reshape(-1), offsets_of(np.full(n, width))


def _kind(width: int) -> str:
    return f"{width} bytes" if width else "unequal lengths"
