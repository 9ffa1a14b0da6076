"""`StreamShuffler`: random draws without repetition from a range of integers whose two ends move to the right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError, StateError
from penstock.kernels.dispatch import kernels
from penstock.kernels.permute import permute
from penstock.live.seeds import key

Int = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Range:
    """Numbers `lo : hi` that came together. They are drawn in the order of permutation `stream`; `taken` are."""

    lo: int
    hi: int
    stream: int
    taken: int = 0

    @property
    def left(self) -> int:
        return self.hi - self.lo - self.taken


class StreamShuffler:
    """Draws numbers of a window `lo : hi`, each at most once a pass, any of those left being equally likely.

    `extend(lo, hi)` moves the window to the right, at any time: numbers that come in join the pass, numbers that leave
    are drawn no more. A pass is over when `draw` gives fewer numbers than asked for; `restart` begins the next. Draw
    `d` of a run is a function of the seed, of the moves, and of the draws that lay between them: how many numbers are
    drawn by one call changes nothing.

    No table: numbers that came together are a range with a keyed permutation of its own, and a draw picks a range by
    what is left in it and takes its next. So memory and state are a few integers a move of the present pass, whatever
    the size of the window, and a draw costs some 30 ns with one range and `log(ranges)` more. Not thread-safe.

    Raises `PlanError` for a window that moves to the left.

    >>> shuffler = StreamShuffler(seed=3)
    >>> shuffler.extend(0, 4)
    >>> early = shuffler.draw(2).tolist()
    >>> shuffler.extend(1, 6)
    >>> late = shuffler.draw(9).tolist()
    >>> sorted({*early, *late} - {0}), len(shuffler.draw(1))
    ([1, 2, 3, 4, 5], 0)
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed, self._key = seed, key(seed, "stream shuffler")
        self._window = (0, 0)
        self._ranges: list[_Range] = []
        self._passes = self._streams = self._draws = 0

    @property
    def window(self) -> tuple[int, int]:
        """The numbers `lo : hi` that can be drawn."""
        return self._window

    @property
    def passes(self) -> int:
        """How many passes are over."""
        return self._passes

    def extend(self, lo: int, hi: int) -> None:
        """Move the window to `lo : hi`."""
        if lo < self._window[0] or hi < self._window[1] or lo > hi:
            raise PlanError(f"expected a window at or to the right of {self._window}, got {(lo, hi)}")
        begin = max(self._window[1], lo)
        if hi > begin:
            last = self._ranges[-1] if self._ranges else None
            if last is not None and last.taken == 0 and last.hi == begin:
                last.hi = hi  # nothing was drawn of it yet, so it may as well have come with these
            else:
                self._add(begin, hi)
        self._window = (lo, hi)
        self._ranges = [r for r in self._ranges if r.hi > lo and r.left]

    def restart(self) -> None:
        """Begin a new pass over the whole window."""
        self._ranges = []
        self._passes += 1
        lo, hi = self._window
        if hi > lo:
            self._add(lo, hi)

    def draw(self, n: int) -> Int:
        """`[m]` int64 numbers, `m <= n`; fewer than `n` only where the pass has no more."""
        parts: list[Int] = []
        while n > 0 and self._ranges:
            live = self._take(n)
            parts.append(live)
            n -= len(live)
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _take(self, n: int) -> Int:
        """At most `n` more; numbers that left the window meanwhile are taken too, and dropped."""
        which = self._choose(n)
        place, table = np.empty(len(which), np.int64), np.empty((3, len(which)), np.int64)
        for s in np.unique(which).tolist():
            held = self._ranges[s]
            mine = np.flatnonzero(which == s) if len(self._ranges) > 1 else slice(None)
            count = len(place[mine])
            place[mine] = np.arange(held.taken, held.taken + count)
            table[:, mine] = np.array([[held.hi - held.lo], [held.stream], [held.lo]])
            held.taken += count
        numbers = table[2] + _permuted(place, table[0], table[1], int(self._key))
        self._ranges = [r for r in self._ranges if r.left]
        return numbers[numbers >= self._window[0]]

    def _choose(self, n: int) -> Int:
        """The range that each of the next `n` draws is from; fewer where less is left."""
        left = np.array([r.left for r in self._ranges], np.int64)
        which = np.zeros(min(n, int(left.sum())), np.int64)
        if len(left) > 1:
            kernels().draw_ranges(left, self._key, self._draws, which)
        self._draws += len(which)
        return which

    def _add(self, lo: int, hi: int) -> None:
        self._ranges.append(_Range(lo, hi, self._streams))
        self._streams += 1

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON: the window, the counters, and four integers for each range."""
        return {
            "seed": self._seed,
            "window": list(self._window),
            "passes": self._passes,
            "streams": self._streams,
            "draws": self._draws,
            "ranges": [[r.lo, r.hi, r.stream, r.taken] for r in self._ranges],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken. Raises `StateError` for anything else, or another seed."""
        try:
            ranges = [_Range(int(lo), int(hi), int(stream), int(taken)) for lo, hi, stream, taken in state["ranges"]]
            window = int(state["window"][0]), int(state["window"][1])
            counters = tuple(int(state[name]) for name in ("seed", "passes", "streams", "draws"))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StateError(f"expected the state of a StreamShuffler, got {state}") from error
        if any(not (r.lo <= r.hi <= window[1] and 0 <= r.taken <= r.hi - r.lo) for r in ranges):
            raise StateError(f"expected ranges within the window {window}, got {state['ranges']}")
        if counters[0] != self._seed:
            raise StateError(f"expected the state of seed {self._seed}, got seed {counters[0]}")
        self._ranges, self._window = ranges, window
        _, self._passes, self._streams, self._draws = counters


def _permuted(place: Int, size: Int, stream: Int, key: int) -> Int:
    """`permute`, handed its elements range by range: it derives a key wherever the range changes."""
    if len(stream) == 0 or (stream == stream[0]).all():
        return permute(place, size, stream, key)
    order = np.argsort(stream, kind="stable")
    out = np.empty(len(place), np.int64)
    out[order] = permute(place[order], size[order], stream[order], key)
    return out
