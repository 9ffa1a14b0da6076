"""`BlockSource`: the blocks of an `IterDataset` as batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.blocks import BlockIterator
from penstock.data.iter_dataset import IterDataset
from penstock.errors import WorkerError
from penstock.loading.batch_source import Batches, Job, State
from penstock.loading.ticket import Batch


@dataclass(frozen=True)
class BlockSource:
    """Batches of an `IterDataset`, block by block, on one thread. Its state is the state of the iterator."""

    dataset: IterDataset

    @property
    def fingerprint(self) -> str:
        return self.dataset.fingerprint

    def start(self) -> State:
        return iter(self.dataset).state_dict()

    def epoch(self, state: State) -> None:
        """Return None: epochs are not counted."""

    def next_epoch(self, state: State) -> State:
        """Return the state of a new iterator, or the same state if the stream never ends."""
        return state if self.dataset.endless else self.start()

    def jobs(self, state: State) -> Iterator[Job]:
        iterator = iter(self.dataset)
        iterator.load_state_dict(state)
        while True:
            yield Job(lambda timed: timed("blocks", lambda: _next_block(iterator)))

    def first(self, state: State) -> Batch | None:
        """Load the first batch from a state on, and leave it to the jobs too. Return None if there is none."""
        batches = next(self.jobs(state)).run()
        return batches[0][0] if batches else None

    def received(self, state: State) -> None:
        """Do nothing: the state says all."""

    def metadata(self, state: State) -> State:
        return {}

    def resumed(self, saved: State) -> tuple[BlockSource, State]:
        """Return this source, and the state after a new iterator has accepted it."""
        iter(self.dataset).load_state_dict(saved)
        return self, saved


def _next_block(iterator: BlockIterator) -> Batches:
    try:
        block = next(iterator, None)
        return [] if block is None else [(Batch.of(block, None), iterator.state_dict())]
    except Exception as error:
        raise WorkerError(f"a block could not be loaded: {type(error).__name__}: {error}") from error
