"""`StreamShuffler`: random draws without repetition from a range of integers whose two ends move to the right."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import PlanError, StateError
from penstock.kernels.permute import permute
from penstock_live.kernels.draws import draw_ranges
from penstock_live.seeds import key

Int = npt.NDArray[np.int64]

LO, HI, STREAM, TAKEN = range(4)  # rows of the table of ranges


class StreamShuffler:
    """Draws numbers of a window `lo : hi`, each at most once a pass; all remaining numbers are equally likely.

    `extend(lo, hi)` moves the window to the right, at any time: new numbers join the pass, and numbers that leave are
    not drawn any more. A pass is over when `draw` returns fewer numbers than asked for; `restart` begins the next. Draw
    `d` of a run is a function of the seed, of the moves, and of the draws between them; the number of draws in one call
    does not matter. `remove(lo, hi)` takes numbers out of the window for ever.

    No table: numbers that came together are one range with its own keyed permutation. A draw picks a range with
    probability proportional to its remaining numbers and takes the next number of its permutation. Memory and state
    are a few integers for each move of the present pass, independent of the size of the window. A draw costs about
    30 ns with one range, and `log(ranges)` more. Not thread-safe.

    Raises `PlanError` for a window that moves to the left.

    Args:
        seed: 0 to 2^64 - 1. The default is 0.

    Example:
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
        # Removed numbers of the window: where each range of them begins and ends, ascending, with numbers in between.
        self._holes: tuple[list[int], list[int]] = [], []
        self._table: Int | None = None  # the same `[2, n]`
        # Numbers `lo : hi` that came together, drawn in the order of permutation `stream`; so many of them are `taken`.
        self._ranges = np.zeros((4, 0), np.int64)
        self._passes = self._streams = self._draws = 0

    @property
    def window(self) -> tuple[int, int]:
        """Numbers `lo : hi` that can be drawn."""
        return self._window

    @property
    def passes(self) -> int:
        """Number of finished passes."""
        return self._passes

    def extend(self, lo: int, hi: int) -> None:
        """Move the window to `lo : hi`.

        Args:
            lo: First number.
            hi: Number after the last.

        Raises:
            PlanError: The window would move to the left.
        """
        if lo < self._window[0] or hi < self._window[1] or lo > hi:
            raise PlanError(f"expected a window at or to the right of {self._window}, got {(lo, hi)}")
        begin = max(self._window[1], lo)
        if hi > begin:
            last = self._ranges[:, -1:]
            if last.size and last[TAKEN] == 0 and last[HI] == begin:
                last[HI] = hi  # nothing was drawn of it yet, so it may as well have come with these
            else:
                self._add(begin, hi)
        self._narrow(lo, hi)

    def remove(self, lo: int, hi: int) -> None:
        """Take the numbers `lo : hi` out of the window. Numbers outside of it, or removed already, are ignored.

        Removed numbers stay in the ranges, and are drawn and dropped like numbers that left. At the start of the
        window, where most files are deleted, they cost nothing, because the window moves past them.

        Args:
            lo: First number.
            hi: Number after the last.
        """
        lo, hi = max(lo, self._window[0]), min(hi, self._window[1])
        if lo >= hi:
            return
        begins, ends = self._holes
        first, last = bisect_left(ends, lo), bisect_right(begins, hi)  # holes that touch or overlap it
        if first < last:
            lo, hi = min(lo, begins[first]), max(hi, ends[last - 1])
        begins[first:last], ends[first:last] = [lo], [hi]
        self._table = None
        self._narrow(*self._window)

    @property
    def removed(self) -> int:
        """Number of removed numbers of the window."""
        begins, ends = self._holes
        return sum(ends) - sum(begins)

    def _narrow(self, lo: int, hi: int) -> None:
        """Make `lo : hi` the window, without the removed numbers at its beginning."""
        begins, ends = self._holes
        n = bisect_right(begins, lo)
        if n:
            lo = max(lo, ends[n - 1])
            del begins[:n], ends[:n]
            self._table = None
        if lo > self._window[0]:
            self._ranges = self._ranges[:, self._ranges[HI] > lo]
        self._window = (lo, hi)

    def restart(self) -> None:
        """Begin a new pass over the whole window."""
        self._draws += int((self._ranges[HI] - self._ranges[LO] - self._ranges[TAKEN]).sum())
        self._ranges = self._ranges[:, :0]
        self._passes += 1
        lo, hi = self._window
        if hi > lo:
            self._add(lo, hi)

    def draw(self, n: int) -> Int:
        """Return `[m]` int64 numbers, `m <= n`; fewer than `n` only at the end of the pass.

        Numbers that were removed or left the window are drawn too, and dropped. At the end of the pass, nothing is
        drawn behind the last number that is returned: how many numbers were asked for must not change later draws.

        Args:
            n: Most numbers.
        """
        parts: list[Int] = []
        before = (self._ranges.copy(), self._draws)
        used = 0  # draws after `before`, up to the last number that is returned
        while n > 0 and self._ranges.size:
            begin = (self._ranges.copy(), self._draws)
            numbers = self._take(n)
            live = np.flatnonzero(self._is_live(numbers))
            if len(live):
                before = begin
                used = int(live[-1]) + 1
                parts.append(numbers[live])
                n -= len(live)
        if n > 0:
            self._ranges, self._draws = before
            if used:
                self._take(used)
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _is_live(self, numbers: Int) -> npt.NDArray[np.bool_]:
        """`[n]`, whether each number is in the window, and was not removed."""
        live = numbers >= self._window[0]
        if self._holes[0]:
            self._table = np.array(self._holes) if self._table is None else self._table
            hole = np.searchsorted(self._table[0], numbers, side="right") - 1
            live &= (hole < 0) | (numbers >= self._table[1][hole])
        return live

    def _take(self, n: int) -> Int:
        """Draw at most `n` more numbers, with the ones that have left the window."""
        left = self._ranges[HI] - self._ranges[LO] - self._ranges[TAKEN]
        which = np.zeros(min(n, int(left.sum())), np.int64)
        if len(left) > 1:
            draw_ranges(left, self._key, self._draws, which)
        self._draws += len(which)
        order = np.argsort(which, kind="stable")  # as a permutation derives a key wherever its stream changes
        which = which[order]
        lo, hi, stream, taken = self._ranges[:, which]
        turn = taken + np.arange(len(which)) - np.searchsorted(which, which)
        numbers = np.empty(len(which), np.int64)
        numbers[order] = lo + permute(turn, hi - lo, stream, int(self._key))
        self._ranges[TAKEN] += np.bincount(which, minlength=len(left))
        self._ranges = self._ranges[:, self._ranges[HI] - self._ranges[LO] > self._ranges[TAKEN]]
        return numbers

    def _add(self, lo: int, hi: int) -> None:
        self._ranges = np.append(self._ranges, [[lo], [hi], [self._streams], [0]], axis=1)
        self._streams += 1

    def state_dict(self) -> dict[str, Any]:
        """Return plain JSON: the window, the counters, and four integers for each range."""
        return {
            "seed": self._seed,
            "window": list(self._window),
            "passes": self._passes,
            "streams": self._streams,
            "draws": self._draws,
            "ranges": self._ranges.T.tolist(),
            "holes": [list(ends) for ends in self._holes],
        }

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: It is no such state, or one of another seed.
        """
        ranges = np.array(state["ranges"], np.int64).reshape(-1, 4).T.copy()
        window = int(state["window"][0]), int(state["window"][1])
        begins, ends = ([int(end) for end in hole] for hole in state["holes"])
        counters = tuple(int(state[name]) for name in ("seed", "passes", "streams", "draws"))
        lo, hi, _, taken = ranges
        if ((lo > hi) | (hi > window[1]) | (taken < 0) | (taken > hi - lo)).any():
            raise StateError(f"expected ranges within the window {window}, got {state['ranges']}")
        if counters[0] != self._seed:
            raise StateError(f"expected the state of seed {self._seed}, got seed {counters[0]}")
        if len(begins) != len(ends) or any(a >= b for a, b in zip(begins, ends, strict=True)):
            raise StateError(f"expected holes that begin and end, got {state['holes']}")
        self._ranges = ranges
        self._window = window
        self._holes = (begins, ends)
        self._table = None
        _, self._passes, self._streams, self._draws = counters
