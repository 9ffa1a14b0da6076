"""Definitions of `penstock.kernels.stream_packing`, written to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.kernels.stream_packing import FAR, OPENED, OUT, PROBES, scale_of


@dataclass(eq=False)
class Pack:
    """An open pack: `room` `[C]` is left of each column; `listed` counts up whenever a pack changes."""

    serial: int
    room: IntArray
    count: int = 0
    key: int = 0
    listed: int = 0


@dataclass(eq=False)
class OpenPacks:
    """The open packs, oldest first, and what bounds them."""

    capacity: IntArray
    most: int
    limit: int
    age: int
    packs: list[Pack] = field(default_factory=list[Pack])
    number: int = 0
    listings: int = 0

    def key(self, room: IntArray) -> int:
        """The least that is left of a column, as a share of its capacity: 1 and more."""
        return 1 + int((room * scale_of(self.capacity) // self.capacity).min())

    def near(self, size: IntArray, probes: int) -> Pack | None:
        """The pack with the least left that has room, of the first `probes` with a key that allows it."""
        wide = self._from(self.key(size))
        return next((p for p in wide[: probes if probes > 0 else None] if np.all(size <= p.room)), None)

    def far(self, size: IntArray) -> Pack | None:
        """The pack with the least left of those whose key alone says that they have room."""
        return next(iter(self._from(1 + int((-(-size * scale_of(self.capacity) // self.capacity)).max()))), None)

    def _from(self, key: int) -> list[Pack]:
        return sorted((p for p in self.packs if p.key >= key), key=lambda p: (p.key, p.listed))

    def opened(self) -> Pack:
        """A new pack."""
        self.packs.append(Pack(self.number, self.capacity.copy()))
        self.number += 1
        return self.packs[-1]

    def put(self, pack: Pack, size: IntArray) -> None:
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


def open_packs(capacity: IntArray, most: int, limit: int, age: int) -> OpenPacks:
    return OpenPacks(capacity, most, limit, age)


def pack_stream(
    state: Any, sizes: IntArray, final: bool, pack: IntArray, flags: ByteArray, closed: IntArray
) -> tuple[int, int]:
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


def repack_stream(state: Any, sizes: IntArray, flags: ByteArray, pack: IntArray) -> int:
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
