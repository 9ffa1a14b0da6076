"""Restores the frames of a loaded state while the reservoir is in use, after its checksum was compared.

A state refers to chunks and frames by number, and most numbers are plausible, so looking at each part finds little.
The checksum is of the values and not of their form: arrays that became lists on the way through JSON have the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.narrowing import is_array, is_listed, is_mapping, is_scalar
from penstock.errors import StateError
from penstock_live.block import Block
from penstock_live.reservoir import Reservoir

NAME = "checksum"


def sealed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with its checksum. Cost: one pass, some 3 ms a million numbers in arrays, 300 in lists."""
    plain = {name: value for name, value in state.items() if name != NAME}
    return {**plain, NAME: checksum(plain)}


def check_seal(state: Mapping[str, Any]) -> None:
    """Raise `StateError` for a state whose values have changed since it was saved."""
    expected = sealed(state)[NAME]
    if state.get(NAME) != expected:
        raise StateError(f"expected a state with the checksum {expected}, got {state.get(NAME)!r}; it was changed")


def checksum(value: object, before: int = 0) -> int:
    """Return the CRC-32 of a tree of plain values, continued from `before`."""
    if is_mapping(value):
        names = sorted(value)  # JSON may give them back in another order
        for name in names:
            before = checksum(value[name], zlib.crc32(repr(name).encode("utf-8", "surrogatepass"), before))
        return zlib.crc32(f"mapping of {len(names)}".encode(), before)
    if is_array(value) and not (value.ndim == 1 and value.dtype.kind in "iu" and value.dtype != np.uint64):
        value = value.tolist()
    if is_listed(value) or is_array(value):
        return _of_list(value, before)
    plain = value.item() if is_scalar(value) else value
    return zlib.crc32(repr(plain).encode("utf-8", "surrogatepass"), before)


def _of_list(values: Any, before: int) -> int:
    numbers = values if is_array(values) else _integers(values)
    if numbers is not None:
        before = zlib.crc32(np.ascontiguousarray(numbers, "<i8").data, before)
    else:
        for each in values:
            before = checksum(each, before)
    return zlib.crc32(f"list of {len(values)}".encode(), before)


def _integers(values: Any) -> Any:
    """Return a flat list of integers as an array, None for other values."""
    if not all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
        return None
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None


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
