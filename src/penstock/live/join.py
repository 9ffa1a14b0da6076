"""`JoinPositions`: frames of several streams in exact proportions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.errors import PlanError
from penstock.live.block import Block
from penstock.plan.schedule import Schedule
from penstock.plan.weights import Weight, shares

PICKS = 1024  # frames of a block that is given out


class JoinPositions(Iterator[tuple[Block, np.ndarray[Any, np.dtype[np.int64]]]]):
    """Blocks of frames of which each input has given, after any number of them, its share to within the bound of
    `penstock.plan.schedule.Schedule`: for shares such as percentages, less than one frame off.

    Gives pairs of a `Block` of at most 1024 frames and `[n]` the number of the input that each is from; an input's
    frames keep their order. Ends just before a frame whose input is used up. The order is a function of the inputs and
    the weights, however the inputs are cut into blocks; weights are those of `penstock.plan.weights.shares`.

    Raises `PlanError` for weights that do not fit the inputs.

    >>> def stream(k, n):
    ...     yield Block(np.full((n, 1), k, np.uint8), np.arange(n), np.zeros(n, np.int32))
    >>> block, source = next(JoinPositions([stream(7, 9), stream(8, 3)], weights=[2, 1]))
    >>> block.rows[:, 0].tolist(), source.tolist()
    ([7, 8, 7, 7, 8, 7, 7, 8, 7, 7], [0, 1, 0, 0, 1, 0, 0, 1, 0, 0])
    """

    def __init__(self, inputs: Sequence[Iterator[Block]], weights: Sequence[Weight]) -> None:
        if len(inputs) != len(weights) or not inputs:
            raise PlanError(f"expected a weight for each input, got {len(weights)} for {len(inputs)}")
        self._inputs = list(inputs)
        self._schedule = Schedule.of(shares(weights))
        self._held: list[list[Block]] = [[] for _ in inputs]
        self._at = 0

    def __next__(self) -> tuple[Block, Any]:
        source, _ = self._schedule.picks(np.arange(self._at, self._at + PICKS))
        have = [self._fill(i, int((source == i).sum())) for i in range(len(self._inputs))]
        # The first pick that its input cannot meet ends the block.
        short = [int(np.flatnonzero(source == i)[n]) for i, n in enumerate(have) if n < (source == i).sum()]
        source = source[: min(short, default=PICKS)]
        if len(source) == 0:
            raise StopIteration
        self._at += len(source)
        parts = [self._take(i, int((source == i).sum())) for i in range(len(self._inputs))]
        given = [part for part in parts if part is not None]
        if len({part.width for part in given}) > 1:
            raise PlanError(f"expected rows of one kind from all inputs, got widths {[part.width for part in given]}")
        order = np.argsort(np.argsort(source, kind="stable"), kind="stable")
        return Block.join(given).take(order), source

    def _fill(self, i: int, wanted: int) -> int:
        """Have `wanted` frames of an input, or all that it has left; gives how many."""
        have = sum(map(len, self._held[i]))
        while have < wanted:
            block = next(self._inputs[i], None)
            if block is None:
                return have
            if len(block):
                self._held[i].append(block)
                have += len(block)
        return wanted

    def _take(self, i: int, n: int) -> Block | None:
        if n == 0:
            return None
        joined = Block.join(self._held[i])
        self._held[i] = [joined.part(n, len(joined))] if len(joined) > n else []
        return joined.part(0, n)
