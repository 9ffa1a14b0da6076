"""Blocks of consecutive samples, for an `IterDataset`.

Blocks do not cross the end of an epoch, so the last one of an epoch may be short. The state is the next position. With
epochs of varying length, a whole block is looked for in at most `LONGEST_SEARCH` epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.blocks import BlockIterator, IteratorState
from penstock.core.columns import Columns
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError, StateError
from penstock.plan.base import Plan, chained

LONGEST_SEARCH = 1000  # epochs of unequal lengths among which one with a whole block is looked for


def check_batches(plan: Plan, batch_size: int, *, drop_last: bool) -> None:
    """Raise `PlanError` with the reason if no epoch of a plan has a batch."""
    samples, reason = len(plan), None
    if plan.empty:
        reason = plan.why_empty()
    elif drop_last and samples < batch_size and not plan.uneven:
        reason = f"an epoch has {samples:,} samples, fewer than one batch of {batch_size:,}, and drop_last is set"
    if reason is not None:
        raise PlanError(f"expected at least one batch, got none: {reason}; allow_empty=True allows that")


@dataclass(frozen=True)
class SampleBlocks:
    """Blocks of the samples of a dataset, for an `IterDataset`."""

    samples: PlannedSamples
    batch_size: int
    epochs: int | None
    drop_last: bool

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise PlanError(f"expected a batch size of at least 1, got {self.batch_size}")

    @property
    def fingerprint(self) -> str:
        """Digest of the dataset and the options."""
        return chained(self.samples.fingerprint, (self.batch_size, self.epochs, self.drop_last))

    def __call__(self) -> BlockIterator:
        return SampleBlockIterator(self)


class SampleBlockIterator(BlockIterator):
    """Iterator over the blocks of a dataset. Its state is the next position."""

    def __init__(self, blocks: SampleBlocks) -> None:
        self.blocks = blocks
        self.position = 0

    def __next__(self) -> Columns:
        plan = self.blocks.samples.plan
        step = self.blocks.batch_size
        last = self.blocks.drop_last
        if plan.empty or (last and not plan.uneven and len(plan) < step):
            raise StopIteration
        for _ in range(LONGEST_SEARCH):
            epoch = int(plan.locate(np.array([self.position]))[0][0])
            if self.blocks.epochs is not None and epoch >= self.blocks.epochs:
                raise StopIteration
            end = plan.start(epoch + 1)
            if not last or end - self.position >= step:
                break
            self.position = end
        else:
            raise StopIteration
        positions = np.arange(self.position, min(self.position + step, end))
        self.position += len(positions)
        return self.blocks.samples.at(positions)

    @override
    def state_dict(self) -> IteratorState:
        return {"position": self.position}

    @override
    def load_state_dict(self, state: IteratorState) -> None:
        if set(state) != {"position"} or not isinstance(state["position"], int) or state["position"] < 0:
            raise StateError(f"expected a state with a position >= 0, got {state}")
        self.position = state["position"]
