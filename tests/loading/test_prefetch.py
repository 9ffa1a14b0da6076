"""`prefetch` counts batches: no more than that many are ahead of the consumer, whatever a job is made of."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.columns import Columns
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.loading.position_source import PLAN_BLOCK, TINY_BLOCK
from penstock.plan.batched import Batches

N = 3 * PLAN_BLOCK


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(N)}, lengths=[N]).steps()


class Ahead:
    """A function of batches that counts how many were computed and not received."""

    def __init__(self) -> None:
        self.received = 0
        self.most = 0

    def __call__(self, columns: Columns) -> Columns:
        self.most = max(self.most, int(columns["x"][0]) // 64 + 1 - self.received)
        return columns


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [1, 2, 5, 40])
def test_no_more_batches_are_ahead_than_prefetch(threads: int, prefetch: int) -> None:
    ahead = Ahead()
    values: list[int] = []
    for batch in dataset().map(ahead, version=1).loader(64, threads=threads, prefetch=prefetch):
        ahead.received += 1
        values += batch["x"].tolist()
    assert values == list(range(N))
    # A thread may begin the next batch after the consumer has one, and before the loop above counts it.
    assert 1 <= ahead.most <= prefetch + (threads > 0)


def test_by_default_a_job_has_many_small_batches() -> None:
    ahead = Ahead()
    loader = dataset().map(ahead, version=1).loader(64, threads=0)
    for _ in loader:
        ahead.received += 1
    assert ahead.most >= PLAN_BLOCK // 64


def test_planned_batches_are_counted_too() -> None:
    lengths = [1 + i % 7 for i in range(2000)]
    sequences = from_arrays({"x": np.arange(sum(lengths))}, lengths=lengths).sequences()
    planned = sequences.apply(Batches(tokens=32))
    first = [batch["x"].tolist() for batch in planned.loader()]
    loader = planned.loader(threads=1, prefetch=3)
    assert [batch["x"].tolist() for batch in loader] == first
    assert loader.stats.batches == loader.stats.jobs


def test_large_batches_are_jobs_of_their_own() -> None:
    loader = dataset().loader(TINY_BLOCK, threads=2, prefetch=8)
    assert loader._limits.width == 8
