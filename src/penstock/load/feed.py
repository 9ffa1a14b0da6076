"""What the loader's threads work on: jobs in the order of their batches, which give batches and states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.core.columns import Columns
from penstock.data.iter_dataset import BlockIterator, IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.data.recycler import Recycler
from penstock.errors import StateError, WorkerError

State = dict[str, Any]
Job = Callable[[], list[tuple[Columns, State]]]

PLAN_BLOCK = 4096  # positions planned and fetched by one call, so that its cost is spread over their batches
JOB_BYTES = 32 << 20  # a job never holds more than this, unless a single batch does
RECYCLED_BYTES = 1 << 30  # memory of consumed jobs that is kept for the next ones


class Feed(Protocol):
    """Cuts one epoch into jobs, from any state on."""

    @property
    def threads(self) -> int | None:
        """The most threads that may work at once, None for any number."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest of data and order."""
        ...

    def start(self) -> State:
        """The state before the first batch."""
        ...

    def jobs(self, state: State) -> Iterator[Job]:
        """The jobs from `state` to the end of its epoch. A job that gives no batch ends it."""
        ...

    def check(self, state: State) -> None:
        """Raise `StateError` unless `jobs` can start there."""
        ...


@dataclass(frozen=True)
class PositionFeed:
    """Feeds a `MapDataset`: state `{"position": p}`, `p` samples having been consumed since the first epoch."""

    dataset: MapDataset
    batch_size: int
    drop_last: bool

    threads: None = None
    recycler: Recycler = field(default_factory=lambda: Recycler(RECYCLED_BYTES), compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """The dataset's."""
        return self.dataset.fingerprint

    def start(self) -> State:
        """Position 0."""
        return {"position": 0}

    def batches(self) -> int:
        """Batches in one epoch from its start."""
        n = len(self.dataset)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def jobs(self, state: State) -> Iterator[Job]:
        """One job for about `PLAN_BLOCK` positions."""
        size, position = len(self.dataset), int(state["position"])
        if size == 0:
            return
        end = (position // size + 1) * size
        if self.drop_last and end - position < self.batch_size:  # what is left of the epoch is dropped
            position, end = end, end + size
        last = end - (end - position) % self.batch_size if self.drop_last else end
        row_bytes = max(self.dataset.row_bytes(), 1)
        rows = min(PLAN_BLOCK, max(JOB_BYTES // row_bytes, 1))
        step = max(rows // self.batch_size, 1) * self.batch_size
        for lo in range(position, last, step):
            hi = min(lo + step, last)
            yield lambda lo=lo, hi=hi: self._batches(lo, hi, end if hi == last else hi)

    def _batches(self, lo: int, hi: int, after: int) -> list[tuple[Columns, State]]:
        positions = np.arange(lo, hi)
        try:
            block = self.dataset.read(self.dataset.resolve(positions), self.recycler.empty)
            cuts = range(0, hi - lo, self.batch_size)
            return [
                (
                    self.dataset.mapped(block.take(slice(a, a + self.batch_size)), positions[a : a + self.batch_size]),
                    {"position": after if a + self.batch_size >= hi - lo else lo + a + self.batch_size},
                )
                for a in cuts
            ]
        except Exception as error:
            raise WorkerError(f"positions {lo}:{hi} could not be loaded: {type(error).__name__}: {error}") from error

    def check(self, state: State) -> None:
        """A state has one position, at least 0."""
        if set(state) != {"position"} or type(state["position"]) is not int or state["position"] < 0:
            raise StateError(f"expected a state with one position >= 0, got {state}")


@dataclass(frozen=True)
class BlockFeed:
    """Feeds an `IterDataset`, block by block, on one thread; the state is its iterator's."""

    dataset: IterDataset

    threads: int = 1

    @property
    def fingerprint(self) -> str:
        """The dataset's."""
        return self.dataset.fingerprint

    def start(self) -> State:
        """A fresh iterator's state."""
        return iter(self.dataset).state_dict()

    def jobs(self, state: State) -> Iterator[Job]:
        """One job a block."""
        iterator = iter(self.dataset)
        iterator.load_state_dict(state)
        while True:
            yield lambda: _next_block(iterator)

    def check(self, state: State) -> None:
        """A state that a fresh iterator takes."""
        iter(self.dataset).load_state_dict(state)


def _next_block(iterator: BlockIterator) -> list[tuple[Columns, State]]:
    try:
        block = next(iterator, None)
        return [] if block is None else [(block, iterator.state_dict())]
    except Exception as error:
        raise WorkerError(f"a block could not be loaded: {type(error).__name__}: {error}") from error
