"""`JoinPositions`: frames of several streams in exact proportions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import parsing_state
from penstock.errors import PlanError, StateError
from penstock.plan.schedule import Schedule
from penstock.plan.weights import Weight, shares
from penstock_live.block import Block
from penstock_live.restoring import Fetch, restored

Int = npt.NDArray[np.int64]
Stop = Literal["first_exhausted", "drain"]

PICKS = 1024  # frames of a returned block


class Joiner:
    """What joins, apart from where blocks come from: `put` and `end` hand them in, `take` gives what can be given, and
    once it gives nothing, `wanted` says of which input the next block is needed. One input goes through as it comes.

    The order is a function of the weights and of the order of each input's frames.
    """

    def __init__(self, weights: Sequence[Weight], stop: Stop = "first_exhausted") -> None:
        if stop not in ("first_exhausted", "drain"):
            raise PlanError(f"expected stop to be 'first_exhausted' or 'drain', got {stop!r}")
        self._shares, self._stop = shares(weights), stop
        self._held: list[list[Block]] = [[] for _ in self._shares]
        self._ended: set[int] = set()
        self._width: int | None = None
        self._follow([i for i, share in enumerate(self._shares) if share])

    def _follow(self, inputs: list[int], next_input: int = 0) -> None:
        """Order the picks of some inputs from now on, starting at pick `next_input`."""
        self._open, self._at = inputs, next_input
        self._schedule = Schedule.of(shares([self._shares[i] for i in inputs])) if len(inputs) > 1 else None

    @property
    def wanted(self) -> int | None:
        """Input whose next block is needed if `take` returns nothing; None at the end."""
        while True:
            short = self._next()[1]
            if short is None or short not in self._ended:
                return short
            self._follow([i for i in self._open if i != short and self._stop == "drain"])

    def put(self, i: int, block: Block) -> None:
        """Add the next block of an input."""
        if len(block):
            width = self._width = block.width if self._width is None else self._width
            if block.width != width and len(self._shares) > 1:
                raise PlanError(f"expected rows of one kind from all inputs, got widths {width} and {block.width}")
            self._held[i].append(block)

    def end(self, i: int) -> None:
        """Mark an input as used up."""
        self._ended.add(i)

    def take(self) -> tuple[Block, Int] | None:
        """Return a block, and `[n]` the input of each frame; None if an input must be filled first."""
        source = self._next()[0]
        if len(source) == 0:
            return None
        self._at += len(source)
        if self._schedule is None:
            return self._cut(self._open[0], len(source)), source
        parts = [self._cut(i, n) for i in self._open if (n := int((source == i).sum()))]
        order = np.argsort(np.argsort(source, kind="stable"), kind="stable")
        return Block.join(parts).take(order), source

    def _next(self) -> tuple[Int, int | None]:
        """The inputs of the next frames, up to the first that its input cannot give; and that input."""
        have = {i: sum(map(len, self._held[i])) for i in self._open}
        if self._schedule is None:
            i = next(iter(have), None)
            return np.full(have.get(i, 0) if i is not None else 0, i or 0), i
        source = np.array(self._open)[self._schedule.picks(np.arange(self._at, self._at + PICKS))[0]]
        lacks = [(int(np.flatnonzero(source == i)[n]), i) for i, n in have.items() if n < int((source == i).sum())]
        end, short = min(lacks, default=(PICKS, None))
        return source[:end], short

    def _cut(self, i: int, n: int) -> Block:
        """Return the next `n` frames of an input, which has at least `n` in its buffer."""
        whole = Block.join(self._held[i])
        self._held[i] = [whole.part(n, len(whole))] if len(whole) > n else []
        return whole.part(0, n)

    def held(self) -> list[tuple[Int, npt.NDArray[np.int32]]]:
        """Return references to the buffered frames of each input."""
        empty = np.zeros(0, np.int64), np.zeros(0, np.int32)
        references: list[tuple[Int, npt.NDArray[np.int32]]] = []
        for blocks in self._held:
            chunk = np.concatenate([empty[0], *(block.chunk for block in blocks)])
            references.append((chunk, np.concatenate([empty[1], *(block.place for block in blocks)])))
        return references

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the order, the open inputs, and references to the buffered frames."""
        return {"at": self._at, "open": list(self._open), "held": [list(pair) for pair in self.held()]}

    def load_state_dict(self, state: Mapping[str, Any], fetch: Fetch) -> int:
        """Continue from a state; return the number of its frames that cannot be read."""
        with parsing_state("join"):
            next_input, inputs = int(state["at"]), [int(i) for i in state["open"]]
            references = [(np.asarray(chunk, np.int64), np.asarray(place, np.int32)) for chunk, place in state["held"]]
        if len(references) != len(self._shares) or not set(inputs) <= set(range(len(references))):
            raise StateError(f"expected the state of {len(self._shares)} inputs, got {len(references)}")
        self._follow(inputs, next_input)
        blocks = [restored(chunk, place, fetch) for chunk, place in references]
        self._held = [[block] if len(block) else [] for block in blocks]
        return sum(len(chunk) for chunk, _ in references) - sum(map(len, blocks))


class JoinPositions(Iterator[tuple[Block, Int]]):
    """Joins inputs in exact proportions: after any number of frames, each input has given its share of the frames.

    The error is within the bound of `penstock.plan.schedule.Schedule`: less than one frame for shares such as
    percentages. Yields pairs of a `Block` of at most 1024 frames and the input `[n]` of each frame; the frames of an
    input keep their order. Ends just before a frame whose input is used up; with `stop="drain"`, continues with the
    other inputs until all are used up. The order is a function of the inputs and the weights, and does not depend on
    the sizes of blocks; for weights see `penstock.plan.weights.shares`.

    Args:
        inputs: Iterators over blocks.
        weights: Weight of each input, in any scale.
        stop: `"first_exhausted"` or `"drain"`. The default is `"first_exhausted"`.

    Raises:
        PlanError: There are more or fewer weights than inputs.

    Example:
        >>> def stream(k, n):
        ...     yield Block(np.full((n, 1), k, np.uint8), np.arange(n), np.zeros(n, np.int32))
        >>> join = JoinPositions([stream(7, 9), stream(8, 3)], weights=[2, 1])
        >>> np.concatenate([source for _, source in join]).tolist()
        [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]
    """

    def __init__(
        self, inputs: Sequence[Iterator[Block]], weights: Sequence[Weight], stop: Stop = "first_exhausted"
    ) -> None:
        if len(inputs) != len(weights) or not inputs:
            raise PlanError(f"expected a weight for each input, got {len(weights)} for {len(inputs)}")
        self._inputs, self._joiner = list(inputs), Joiner(weights, stop)

    def __next__(self) -> tuple[Block, Int]:
        while (taken := self._joiner.take()) is None:
            i = self._joiner.wanted
            if i is None:
                raise StopIteration
            block = next(self._inputs[i], None)
            if block is None:
                self._joiner.end(i)
            else:
                self._joiner.put(i, block)
        return taken
