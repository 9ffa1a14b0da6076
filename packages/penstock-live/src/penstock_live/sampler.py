"""`ShufflingFrameSampler`: shuffles frames of many chunks in a reservoir and makes batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.boundary import parsing_state
from penstock.errors import PlanError, StateError
from penstock.flow.metrics import StageMetrics
from penstock_live.block import Block
from penstock_live.reservoir import Reservoir
from penstock_live.restoring import Fetch, Int, Place, Restoring, restored


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """The frames of batch number `index` of a run."""

    index: int
    block: Block

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.block.nbytes


class ShufflingFrameSampler:
    """Shuffles frames in a reservoir of `slots` (0: none, frames keep their order) and makes batches of `batch_size`.

    `take` adds blocks; `ready` yields full batches; after `finish` the reservoir is drained, and the last batch is
    smaller, or dropped with `drop_last`. The order is a function of the seed and of the order of frames.

    A state references the frames of the reservoir and of batches that were returned but not yet `consumed`. A resumed
    run returns these batches first, and fetches the frames of the reservoir gradually: see `Restoring`. One thread at a
    time may call `take` and `ready`.

    Args:
        slots: Frames of the reservoir, 0 for none. The default is 1,000,000.
        batch_size: Frames of a batch, at least 1. The default is 1024.
        seed: 0 to 2^64 - 1. The default is 0.
        drop_last: Whether to drop a short last batch. The default is False.
        metrics: Counts and times to update. The default None makes new ones.

    Raises:
        PlanError: The number of slots is negative, or batches are empty.

    Example:
        >>> sampler = ShufflingFrameSampler(slots=4, batch_size=3, seed=1)
        >>> sampler.take([Block(np.zeros((8, 1), np.uint8), np.arange(8), np.zeros(8, np.int32))], end=1)
        >>> early = list(sampler.ready())
        >>> sampler.finish()
        >>> late = list(sampler.ready())
        >>> [len(batch.block) for batch in [*early, *late]]
        [3, 3, 2]
    """

    def __init__(
        self,
        slots: int = 1_000_000,
        batch_size: int = 1024,
        seed: int = 0,
        *,
        drop_last: bool = False,
        metrics: StageMetrics | None = None,
    ) -> None:
        if slots < 0 or batch_size < 1:
            raise PlanError(f"expected zero slots or more and batches of at least one, got {slots} and {batch_size}")
        self._slots = slots
        self._batch_size = batch_size
        self._seed = seed
        self._drop_last = drop_last
        self._reservoir = Reservoir(slots, seed) if slots else None
        self._metrics = metrics or StageMetrics("shuffling_frame_sampler")
        self._lock = threading.RLock()
        self._left: list[Block] = []  # out of the reservoir, in no batch yet
        self._given: deque[tuple[int, Int, Place]] = deque()  # batches not yet consumed
        self._again: deque[tuple[int, Int, Place]] = deque()  # batches of a loaded state, returned before others
        self._head: SampledBatch | None = None  # the first of them, fetched
        self._width = -1
        self._batches = self._taken = 0
        self._ended = False
        self._restoring: Restoring | None = None
        self._fetch: Fetch = _nothing

    @property
    def taken(self) -> int:
        """Number of the draw after the last one added."""
        return self._taken

    @property
    def ended(self) -> bool:
        """Whether `finish` was called."""
        return self._ended

    def held(self) -> int:
        """Frames in the reservoir."""
        return 0 if self._reservoir is None else len(self._reservoir)

    def take(self, blocks: Sequence[Block], end: int) -> None:
        """Add the frames of the draws before `end`. Blocks with another row width are dropped and counted.

        Args:
            blocks: Blocks of frames, in order.
            end: Number of the draw after the last of these.
        """
        with self._metrics.work():
            if self._restoring is not None:
                self._restoring.ready_for(sum(map(len, blocks)))
            with self._lock:
                self._taken = end
                for block in blocks:
                    self._take(block)

    def _take(self, block: Block) -> None:
        if len(block) == 0:
            return
        self._width = block.width if self._width < 0 else self._width
        if block.width != self._width:
            self._metrics.add(**{"failed.width": len(block)})
            return
        self._metrics.add(frames=len(block))
        self._leave(block if self._reservoir is None else self._reservoir.exchange(block))

    def finish(self) -> None:
        """End the input."""
        with self._lock:
            self._ended = True

    def ready(self) -> Iterator[SampledBatch]:
        """Yield the batches that are complete."""
        while (batch := self._next()) is not None:
            yield batch

    def consumed(self, index: int) -> None:
        """Mark all batches up to `index` as done: a state does not name them.

        Args:
            index: Number of a batch.
        """
        with self._lock:
            while self._given and self._given[0][0] <= index:
                self._given.popleft()

    def dropped(self, batch: SampledBatch) -> None:
        """Forget a batch that no consumer gets: a state does not name it.

        Args:
            batch: The batch.
        """
        with self._lock:
            self._given = deque(given for given in self._given if given[0] != batch.index)

    def oldest(self) -> int | None:
        """Return the smallest chunk number of all frames that a state would name; None without frames."""
        with self._lock:
            chunks = [block.chunk for block in self._left] + [chunk for _, chunk, _ in self._given]
            least = [int(chunk.min()) for chunk in chunks if len(chunk)]
            slots = None if self._reservoir is None else self._reservoir.oldest()
            return min(least if slots is None else [*least, slots], default=None)

    def _next(self) -> SampledBatch | None:
        self._head = self._head or self._fetched()
        with self._lock, self._metrics.work():
            if self._head is not None:
                batch, self._head = self._head, None
                return batch
            available = sum(map(len, self._left))
            while self._ended and available < self._batch_size and self._reservoir is not None and len(self._reservoir):
                if self._restoring is not None:
                    self._restoring.ready_for(self._batch_size - available, draining=True)
                self._leave(self._reservoir.drain(self._batch_size - available))
                available = sum(map(len, self._left))
            if available < self._batch_size and not (self._ended and available and not self._drop_last):
                return None
            leftover = Block.join(self._left)
            size = min(self._batch_size, available)
            self._left = [leftover.part(size, available)] if available > size else []
            batch = SampledBatch(self._batches, leftover.part(0, size))
            self._batches += 1
            self._given.append((batch.index, batch.block.chunk, batch.block.place))
            self._metrics.add(batches=1)
            return batch

    def _leave(self, block: Block) -> None:
        if len(block):
            self._left.append(block)

    def state_dict(self) -> dict[str, Any]:
        """Return counters, and references `chunk` int64 and `place` int32 to frames.

        References name the frames of the reservoir, of the incomplete batch (`left`), and of each returned batch that
        is not consumed (`given`).
        """
        with self._lock:
            chunk = np.concatenate([np.zeros(0, np.int64), *(b.chunk for b in self._left)])
            place = np.concatenate([np.zeros(0, np.int32), *(b.place for b in self._left)])
            return {
                **{"slots": self._slots, "batch_size": self._batch_size, "seed": self._seed},
                **{"batches": self._batches, "taken": self._taken, "ended": self._ended},
                "left": [chunk, place],
                "given": [[index, chunk, place] for index, chunk, place in self._given],
                "reservoir": None if self._reservoir is None else self._reservoir.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any], fetch: Fetch) -> None:
        """Continue from a state. Frames that cannot be read any more are left out.

        Args:
            state: Output of `state_dict`.
            fetch: Reads frames by chunk and position.

        Raises:
            StateError: The state is of other parameters or another class, or none of its frames can be read.
        """
        mine = {"slots": self._slots, "batch_size": self._batch_size, "seed": self._seed}
        with parsing_state("ShufflingFrameSampler"):
            theirs = {name: state[name] for name in mine}
            if mine != theirs:
                raise StateError(f"expected the state of a sampler with {mine}, got one with {theirs}")
            counters = int(state["batches"]), int(state["taken"]), bool(state["ended"])
            parts = [(-1, *state["left"]), *state["given"]]
            left, *given = [(int(i), np.asarray(c, np.int64), np.asarray(p, np.int32)) for i, c, p in parts]
            if self._reservoir is not None:
                self._restoring = Restoring(self._reservoir, state["reservoir"], fetch, self._batch_size)
        with self._lock:
            self._batches, self._taken, self._ended = counters
            self._fetch = fetch
            self._again = deque(given)
            self._given = deque(given)
            block = restored(*left[1:], fetch)
            self._left = [block] if len(block) else []
        self._head = self._fetched()
        self._check_some(
            len(block) + (0 if self._head is None else 1), sum(len(chunk) for _, chunk, _ in [left, *given])
        )

    def _fetched(self) -> SampledBatch | None:
        """Return the next batch of a state that has frames, None after the last."""
        while self._again:
            index, chunk, place = self._again.popleft()
            block = restored(chunk, place, self._fetch)
            if len(block):
                return SampledBatch(index, block)
        return None

    def _check_some(self, ready: int, named: int) -> None:
        """Raise `StateError` if no frame of a state can be read."""
        if self._restoring is not None and self._reservoir is not None:
            named += len(self._reservoir)
            while ready == 0 and not self._restoring.done:
                ready = self._restoring.ready_for(self._batch_size)
        if ready == 0 and named:
            raise StateError(f"expected the files of a run, got none of the {named} frames that its state names")


def _nothing(_chunk: Int, _place: Place) -> Iterator[tuple[Int, Block]]:
    return iter(())
