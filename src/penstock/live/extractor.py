"""`SimpleChunkExtractor`: all chunks of one source after the other, each once, without a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.live.journal import Arrival, Journal, Move
from penstock.live.pool import ShufflingChunkPool
from penstock.live.stream_shuffler import StreamShuffler

EVERYTHING = 1 << 62  # chunks: what is there is taken whole


class SimpleChunkExtractor(ShufflingChunkPool):
    """Draws the chunks of a source in a seeded order, then those of the next, in the order in which sources arrive;
    those that are there at the start, oldest first. There is one pass, and a source that is used up leaves.

    As a pool otherwise: its moves are in the `journal`, draw `seq` is a function of the seed and of the moves.
    Source: the stage of this name of Leela Chess Zero's loader.

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
        placed: Callable[[int, Arrival], None] | None = None,
        left: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(EVERYTHING, seed, passes=1, journal=journal, replay=replay, placed=placed, left=left)
        self._shuffler = _InTurn(seed)

    def _place(self, arrival: Arrival) -> Move:
        move, left = super()._place(arrival), list[str]()
        while len(self._sources) > 1 and self._sources[1][0] <= self._shuffler.window[0]:
            first, gone = self._sources.popleft()
            left.append(gone.name)
            if self._on_left is not None:
                self._on_left(first)
        return replace(move, left=tuple(left))


class _InTurn(StreamShuffler):
    """Draws from the range that came first, until it is used up."""

    @property
    def window(self) -> tuple[int, int]:
        hi = self._window[1]
        return (self._ranges[0].lo if self._ranges else hi, hi)

    def extend(self, lo: int, hi: int) -> None:
        begin = self._window[1]
        if hi > begin:
            self._add(begin, hi)
        self._window = (max(lo, self._window[0]), hi)

    def _choose(self, n: int) -> npt.NDArray[np.int64]:
        first = min(n, self._ranges[0].left)
        self._draws += first
        return np.zeros(first, np.int64)
