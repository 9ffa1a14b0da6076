"""Reference implementation of packing a stream: best fit into a bounded number of open packs of bounded age."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]

OUT, OPENED, FAR = 1, 2, 4
"""Flags of a sequence: its pack is closed; it was the first of its pack; a key alone said that its pack has room."""
PROBES = 64
"""Packs that are looked at for one sequence; with one column of up to 65 536 places the first always has room."""


def scale_of(capacity: Int) -> int:
    """Into how many steps the room of packs is divided for their keys: single places, for one column of usual length.

    >>> scale_of(np.array([2048])), scale_of(np.array([8192, 100]))
    (2048, 4096)
    """
    return min(int(capacity[0]), 1 << 16) if len(capacity) == 1 else 1 << 12


@dataclass(eq=False)
class Pack:
    """An open pack: `room` `[C]` is left of each column; `listed` counts up whenever a pack changes."""

    serial: int
    room: Int
    count: int = 0
    key: int = 0
    listed: int = 0


@dataclass(eq=False)
class OpenPacks:
    """The open packs, oldest first, and what bounds them."""

    capacity: Int
    most: int
    limit: int
    age: int
    packs: list[Pack] = field(default_factory=list[Pack])
    number: int = 0
    listings: int = 0

    def key(self, room: Int) -> int:
        """The least that is left of a column, as a share of its capacity: 1 and more."""
        return 1 + int((room * scale_of(self.capacity) // self.capacity).min())

    def near(self, size: Int, probes: int) -> Pack | None:
        """The pack with the least left that has room, of the first `probes` with a key that allows it."""
        wide = self._from(self.key(size))
        return next((p for p in wide[: probes if probes > 0 else None] if np.all(size <= p.room)), None)

    def far(self, size: Int) -> Pack | None:
        """The pack with the least left of those whose key alone says that they have room."""
        return next(iter(self._from(1 + int((-(-size * scale_of(self.capacity) // self.capacity)).max()))), None)

    def _from(self, key: int) -> list[Pack]:
        return sorted((p for p in self.packs if p.key >= key), key=lambda p: (p.key, p.listed))

    def opened(self) -> Pack:
        """A new pack."""
        self.packs.append(Pack(self.number, self.capacity.copy()))
        self.number += 1
        return self.packs[-1]

    def put(self, pack: Pack, size: Int) -> None:
        """A sequence into a pack; one without room for another has the key 0."""
        pack.room = pack.room - size
        pack.count += 1
        full = bool(np.any(pack.room == 0)) or pack.count >= self.most
        pack.key = 0 if full else self.key(pack.room)
        self.listings += 1
        pack.listed = self.listings

    def due(self) -> Pack | None:
        """The pack that has to go before the next sequence comes: a full one; the fullest of too many; one too old."""
        fullest = min(self.packs, key=lambda p: (p.key, p.listed), default=None)
        if fullest is not None and (fullest.key == 0 or len(self.packs) > self.limit):
            return fullest
        return next((p for p in self.packs[:1] if self.number - p.serial > self.age), None)


def open_packs(capacity: Int, most: int, limit: int, age: int) -> OpenPacks:
    """No pack open yet. `capacity` `[C]` int64 places of each column, `most` sequences in a pack, at most `limit` open
    packs, and none that is open while `age` others are opened after it."""
    return OpenPacks(capacity, most, limit, age)


def pack_stream(
    state: Any, sizes: Int, final: bool, pack: Int, flags: npt.NDArray[np.uint8], closed: Int
) -> tuple[int, int]:
    """Pack sequences of `sizes` `[n, C]` in order, until all are in a pack or `closed` is full.

    Writes the serial of each one's pack to `pack` `[n]` and how it came there (`OPENED`, `FAR` or 0) to `flags` `[n]`,
    and the serials of the packs that were closed, in order, to `closed` `[w]`, `w >= 1`. With `final`, packs are closed
    after the last sequence until none is open, oldest first. Gives how many sequences were taken, and how many packs
    closed. A call that stops with `closed` full goes on with the next call as if it had not stopped.

    >>> pack, flags, closed = np.zeros(3, np.int64), np.zeros(3, np.uint8), np.zeros(9, np.int64)
    >>> state = open_packs(np.array([4]), 9, 9, 9)
    >>> pack_stream(state, np.array([[3], [2], [1]]), True, pack, flags, closed), pack.tolist(), closed[:2].tolist()
    ((3, 2), [0, 1, 0], [0, 1])
    """
    taken = done = 0
    while True:
        leaving = state.due()
        if leaving is None and taken == len(sizes):
            if not final or not state.packs:
                return taken, done
            leaving = state.packs[0]
        if leaving is not None:
            state.packs.remove(leaving)
            closed[done] = leaving.serial
            done += 1
            if done == len(closed):
                return taken, done
            continue
        flags[taken], chosen = 0, state.near(sizes[taken], PROBES)
        if chosen is None:
            flags[taken], chosen = FAR, state.far(sizes[taken])
        if chosen is None:
            flags[taken], chosen = OPENED, state.opened()
        state.put(chosen, sizes[taken])
        pack[taken] = chosen.serial
        taken += 1


def repack_stream(state: Any, sizes: Int, flags: npt.NDArray[np.uint8], pack: Int) -> int:
    """Bring back the open packs of an earlier run, from its sequences since the oldest that is still in an open pack.

    `flags` `[n]` are as `pack_stream` wrote them, and `OUT` for sequences whose pack is closed. Writes the serial of
    each sequence's pack, or -1 for `OUT`. Returns -1, or the first sequence that cannot have been packed so.

    Each sequence in an open pack went to the first pack that had room in the order of keys, among more packs than are
    open now. So the same pack is also the first among the remaining packs, and no other state is needed.

    >>> pack = np.zeros(3, np.int64)
    >>> state = open_packs(np.array([4]), 9, 9, 9)
    >>> repack_stream(state, np.array([[3], [2], [1]]), np.array([3, 2, 0], np.uint8), pack), pack.tolist()
    (-1, [-1, 1, 1])
    """
    for i, flag in enumerate(flags.tolist()):
        pack[i] = -1
        if flag & OUT:
            state.number += bool(flag & OPENED)
            continue
        if flag & OPENED and len(state.packs) > state.limit:
            return i
        find = state.far if flag & FAR else partial(state.near, probes=-1)
        chosen = state.opened() if flag & OPENED else find(sizes[i])
        if chosen is None:
            return i
        state.put(chosen, sizes[i])
        pack[i] = chosen.serial
    return -1
