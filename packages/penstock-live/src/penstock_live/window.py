"""`ChunkWindow`: the sources of a window of the newest chunks and their numbers; `UseCounts`: how often each was used.

Chunks are numbered in the order of arrival, and no number is used again. The oldest source leaves when the others have
`size` chunks, so a window has less than `size` chunks and one source more. A source that is removed leaves a gap in the
numbers. Both classes are part of a pool, whose lock guards them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock_live.events import Event, EventLog, SourceLeft, SourcePlaced, SourceRemoved
from penstock_live.journal import Arrival

Int = npt.NDArray[np.int64]

_NOTHING = Arrival("", "", 0)


class ChunkWindow:
    """Sources of the newest `size` chunks, oldest first, with the number of the first chunk of each.

    It also counts the chunks since an anchor: at the start the chunks of sources with a greater key, later all.

    `events` gets an event for each source that comes or goes. Not thread-safe.
    """

    def __init__(self, size: int, events: EventLog | None = None) -> None:
        self.size, self._events = size, events
        self.sources: deque[tuple[int, Arrival]] = deque()
        self.chunks = 0  # of these sources
        self.upper = 0  # the next number
        self.newest = ""  # greatest key of all sources
        self.anchor, self.since = "", 0

    @property
    def overfull(self) -> bool:
        """Whether the window does not need its oldest source."""
        return len(self.sources) > 1 and self.chunks - self.sources[0][1].count >= self.size

    @property
    def first(self) -> int:
        """The smallest number that may be drawn: of the oldest source, or `upper - size` without removed sources."""
        return self.sources[0][0] + max(0, self.chunks - self.size)

    def place(self, arrival: Arrival, *, started: bool) -> int:
        """Append a source, and return its first number; `started` once a chunk was drawn."""
        lo = self.upper
        self.upper += arrival.count
        self.sources.append((lo, arrival))
        self.chunks += arrival.count
        self.newest = max(self.newest, arrival.key)
        if started or arrival.key > self.anchor:
            self.since += arrival.count
        self._tell(SourcePlaced(lo, arrival))
        return lo

    def leave(self) -> str:
        """Take out the oldest source, and return its name."""
        lo, arrival = self.sources.popleft()
        self.chunks -= arrival.count
        self._tell(SourceLeft(lo))
        return arrival.name

    def remove(self, number: int) -> tuple[int, Arrival] | None:
        """Take out the source of a chunk, whose file is gone, and return it; None if it is not in the window."""
        position = bisect_right(self.sources, number, key=_first) - 1
        lo, arrival = self.sources[position] if position >= 0 else (0, _NOTHING)
        if number >= lo + arrival.count:
            return None
        del self.sources[position]
        self.chunks -= arrival.count
        self._tell(SourceRemoved(lo, arrival))
        return lo, arrival

    def set_anchor(self, key: str) -> None:
        """Count from a key: the chunks of the sources above it."""
        self.anchor = key
        self.since = sum(arrival.count for _, arrival in self.sources if arrival.key > key)

    def reset_anchor(self) -> str:
        """Count from now on: set the anchor to the greatest key so far, and return it."""
        self.anchor, self.since = self.newest, 0
        return self.anchor

    def state_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        counters = {"upper": self.upper, "newest": self.newest, "anchor": self.anchor, "since": self.since}
        return {**counters, "sources": [[lo, *astuple(arrival)] for lo, arrival in self.sources]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; its sources are placed again, in their order."""
        self.sources = deque((int(lo), Arrival(*described)) for lo, *described in state["sources"])
        self.chunks = sum(arrival.count for _, arrival in self.sources)
        self.upper, self.since = int(state["upper"]), int(state["since"])
        self.newest, self.anchor = str(state["newest"]), str(state["anchor"])
        for lo, arrival in self.sources:
            self._tell(SourcePlaced(lo, arrival))

    def _tell(self, event: Event) -> None:
        if self._events is not None:
            self._events.append(event)


class UseCounts:
    """How often each chunk was used, by its number: an array over a range of numbers that moves to the right.

    Numbers behind the largest one so far are room. Amortised cost: constant for each new number. Not thread-safe.
    """

    def __init__(self) -> None:
        self._uses, self.base = np.zeros(0, np.int32), 0

    def has_room(self, upper: int) -> bool:
        """Return whether numbers up to `upper` have a count."""
        return upper - self.base <= len(self._uses)

    def reach(self, lo: int, base: int, upper: int) -> None:
        """Begin at `base`, which is at most `lo`, and have room for twice the numbers `lo : upper`."""
        grown = np.zeros(max(upper - base, 2 * (upper - lo)), np.int32)
        surviving = self._uses[base - self.base : upper - self.base]
        grown[: len(surviving)] = surviving
        self._uses, self.base = grown, base

    def count(self, number: Int) -> Int:
        """Return how often each chunk was used before, and count this use. Each number comes once."""
        before = self._uses[number - self.base].astype(np.int64)
        self._uses[number - self.base] += 1
        return before

    def part(self, lo: int, hi: int) -> npt.NDArray[np.int32]:
        """Return a copy of the counts of the numbers `lo : hi`."""
        return self._uses[lo - self.base : hi - self.base].copy()

    def load(self, uses: Any, base: int) -> None:
        """Continue with the counts of the numbers from `base` on."""
        self._uses, self.base = np.array(uses, np.int32), base


def _first(source: tuple[int, Arrival]) -> int:
    """Return the first number of a source."""
    return source[0]
