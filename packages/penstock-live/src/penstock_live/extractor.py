"""`SimpleChunkExtractor`: reads all chunks of one source after another, each once, without a window."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import StateError
from penstock.kernels.permute import permute
from penstock_live.journal import Arrival, Journal, Move
from penstock_live.pool import ShufflingChunkPool
from penstock_live.seeds import key
from penstock_live.stream_shuffler import StreamShuffler

Int = npt.NDArray[np.int64]

EVERYTHING = 1 << 62  # chunks: all existing sources are taken


class SimpleChunkExtractor(ShufflingChunkPool):
    """Draws the chunks of one source after another, each in a seeded order.

    Sources come in the order of arrival; sources that exist at the start come oldest first. There is one pass, and a
    source that is used up leaves. As for other pools, moves are written to the `journal`, and draw `seq` is a function
    of the seed and of the moves.

    Source: the stage of this name of Leela Chess Zero's loader.

    Args:
        seed: 0 to 2^64 - 1. The default is 0.
        journal: Journal to write moves to. The default None writes none.
        replay: Moves of an earlier run, to repeat it. The default None repeats nothing.
        called: Further arguments of `ShufflingChunkPool`, apart from `size` and `passes`.

    Example:
        >>> extractor = SimpleChunkExtractor(seed=1)
        >>> extractor.arrive([Arrival("a", "a", 3), Arrival("b", "b", 2)])
        >>> extractor.finish()
        >>> numbers = extractor.draw(9).number.tolist()
        >>> sorted(numbers[:3]), sorted(numbers[3:]), extractor.draw(9)
        ([0, 1, 2], [3, 4], None)
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        journal: Journal | None = None,
        replay: Sequence[Move] | None = None,
        **called: Any,
    ) -> None:
        super().__init__(EVERYTHING, seed, passes=1, journal=journal, replay=replay, **called)
        self._shuffler = _InTurn(seed)

    @property
    def sources_processed(self) -> int:
        """Number of sources that are used up."""
        assert isinstance(self._shuffler, _InTurn), "made so"
        return self._shuffler.used_up

    def _place(self, arrival: Arrival) -> Move:
        move, left = super()._place(arrival), list[str]()
        sources = self._window.sources
        while len(sources) > 1 and sources[1][0] <= self._shuffler.window[0]:
            left.append(self._window.leave())
        return replace(move, left=tuple(left))


class _InTurn(StreamShuffler):
    """Shuffler that draws from the oldest range, in its own order, until it is used up; then from the next."""

    def __init__(self, seed: int) -> None:
        self._seed, self._permutation = seed, int(key(seed, "extractor"))
        self._came: deque[tuple[int, int]] = deque()  # numbers that came together, not used up
        self._taken = self._upper = self._used_up = 0

    @property
    def used_up(self) -> int:
        """Number of ranges that are used up."""
        return self._used_up

    @property
    def window(self) -> tuple[int, int]:
        return (self._came[0][0] if self._came else self._upper, self._upper)

    @property
    def passes(self) -> int:
        return 0

    def extend(self, lo: int, hi: int) -> None:
        if hi > self._upper:
            self._came.append((self._upper, hi))
            self._upper = hi

    @property
    def removed(self) -> int:
        lo, hi = self.window
        return hi - lo - sum(b - a for a, b in self._came)

    def remove(self, lo: int, hi: int) -> None:
        if self._came and lo <= self._came[0][0] < hi:
            self._taken, self._used_up = 0, self._used_up + 1
        self._came = deque((a, b) for a, b in self._came if not lo <= a < hi)

    def draw(self, n: int) -> Int:
        parts = [np.zeros(0, np.int64)]
        while n > 0 and self._came:
            lo, hi = self._came[0]
            k = np.arange(self._taken, min(self._taken + n, hi - lo))
            stream = np.full(len(k), self._used_up)
            parts.append(lo + permute(k, np.full(len(k), hi - lo), stream, self._permutation))
            n, self._taken = n - len(k), self._taken + len(k)
            if self._taken == hi - lo:
                self._came.popleft()
                self._taken, self._used_up = 0, self._used_up + 1
        return np.concatenate(parts)

    def state_dict(self) -> dict[str, Any]:
        counters = {"seed": self._seed, "taken": self._taken, "upper": self._upper, "used_up": self._used_up}
        return {**counters, "came": [list(ends) for ends in self._came]}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if int(state["seed"]) != self._seed:
            raise StateError(f"expected the state of seed {self._seed}, got seed {state['seed']}")
        self._taken, self._upper, self._used_up = (int(state[name]) for name in ("taken", "upper", "used_up"))
        self._came = deque((int(lo), int(hi)) for lo, hi in state["came"])
