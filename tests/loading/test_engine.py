"""The engine: what is in flight, how it grows, and what happens to it when the consumer changes its mind."""

# pyright: basic

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.errors import WorkerError
from penstock.flow import limits as limits_module
from penstock.flow.limits import PrefetchLimits
from penstock.loading import Loader
from penstock.loading.position_source import TINY_BLOCK
from penstock.loading.ticket import Batch
from tests.loading.handing_over import handing_over


def dataset(n: int = 50_000, width: int = 1) -> MapDataset:
    return from_arrays({"x": np.arange(n * width).reshape(n, width)}, lengths=[n]).steps()


def test_no_more_jobs_are_begun_than_fit_in_memory() -> None:
    loader = dataset(4000, width=128).loader(100, threads=4, prefetch=4, memory=250_000)  # 1 kB a row
    iterator = iter(loader)
    for _ in range(10):
        assert next(iterator).n == 100
        jobs: Any = iterator._jobs
        with jobs._lock:
            assert jobs._begun - jobs._given <= 4
            assert jobs._done_bytes + jobs._work_bytes <= 250_000
    iterator.close()


def test_one_job_more_is_begun_each_time_that_the_consumer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "cores", lambda: 3)
    waits, waited = threading.Event(), PrefetchLimits.waited
    monkeypatch.setattr(PrefetchLimits, "waited", lambda limits: (waited(limits), waits.set())[0])
    loader = dataset().map(lambda columns: columns if waits.wait() else {}).loader(5000)
    assert (loader._limits.width, loader._limits.threads) == (1, 3)
    assert sum(batch.n for batch in loader) == 50_000
    assert loader._limits.width > 1


def test_the_first_job_is_one_batch_and_later_ones_are_blocks() -> None:
    source = dataset().loader(64, threads=0)._cursor.source
    jobs = source.jobs({"position": 0})
    first = next(jobs)
    assert first.nbytes == 64 * 8
    first.run()
    assert next(jobs).nbytes == TINY_BLOCK * 8


def test_ragged_rows_are_bounded_by_what_was_measured() -> None:
    rows = [np.zeros(10_000, np.uint8)] * 500
    data = from_arrays({"image": Ragged.from_rows(rows)}, lengths=[500]).steps()
    source = data.loader(10, threads=0, memory=4_000_000)._cursor.source
    jobs = source.jobs({"position": 0})
    next(jobs).run()
    for job in jobs:
        assert sum(batch.nbytes for batch, _ in job.run()) <= 1_000_000


def test_each_rank_plans_as_many_of_its_own_rows_a_job() -> None:
    source = dataset().loader(64, rank=0, world=2, threads=0)._cursor.source
    jobs = source.jobs({"position": 0})
    next(jobs).run()
    assert sum(batch.n for batch, _ in next(jobs).run()) == TINY_BLOCK


@pytest.mark.parametrize("threads", [0, 2])
def test_loading_a_state_in_a_loop_goes_on_from_there(threads: int) -> None:
    loader = dataset(1000).loader(100, threads=threads)
    states, seen = [], []
    for batch in loader:
        seen.append(int(batch["x"][0, 0]))
        states.append(loader.state_dict())
        if len(seen) == 6:
            loader.load_state_dict(states[1])
    assert seen == [0, 100, 200, 300, 400, 500, 200, 300, 400, 500, 600, 700, 800, 900]


def test_loading_a_state_of_another_epoch_ends_the_loop() -> None:
    loader = dataset(1000).loader(100, threads=1)
    seen = []
    for batch in loader:
        seen.append(batch.ticket.position)
        if len(seen) == 2:
            loader.load_state_dict({**loader.state_dict(), "position": 2500})
    assert seen == [0, 100]
    assert next(iter(loader)).ticket.position == 2500


@pytest.mark.parametrize("ahead", [0, 1, 5])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_are_handed_over_ahead_and_the_state_is_the_consumers(ahead: int, threads: int) -> None:
    loader = dataset(1000).loader(100, threads=threads)
    handed: list[int] = []

    def hand_over(batch: Batch) -> Any:
        handed.append(batch.ticket.position)
        return batch.ticket.position

    for number, position in enumerate(handing_over(loader, hand_over, ahead=ahead), start=1):
        assert position == 100 * (number - 1)
        assert loader.state_dict()["position"] == 100 * number
        assert len(handed) == min(10, number + ahead)
    assert handed == list(range(0, 1000, 100))
    assert loader.stats.samples == 1000


def test_skipping_takes_back_what_was_handed_over_ahead() -> None:
    loader = dataset(1000).loader(100, threads=1)
    seen = []
    for position in handing_over(loader, lambda batch: batch.ticket.position, ahead=3):
        seen.append(position)
        if len(seen) == 2:
            loader.skip((200, 900))
    assert seen == [0, 100, 900]


def test_a_closed_iterator_gives_nothing_more() -> None:
    iterator = iter(dataset(1000).loader(100, threads=1))
    next(iterator)
    iterator.close()
    assert next(iterator, None) is None


def test_an_iterator_has_no_length_and_says_what_a_data_loader_takes() -> None:
    batches = iter(dataset(1000).loader(100, threads=1))
    with pytest.raises(TypeError, match=r"no len\(\); .* take loader\.data_loader\(\)"):
        len(batches)
    assert bool(batches)
    assert len(list(batches)) == 10


def test_an_error_in_the_hand_over_leaves_the_state_before_it() -> None:
    loader = dataset(1000).loader(100, threads=1)

    def hand_over(batch: Batch) -> Any:
        if batch.ticket.position == 300:
            raise WorkerError("the device is gone")
        return batch

    with pytest.raises(WorkerError, match="device"):
        for _ in handing_over(loader, hand_over, ahead=0):
            pass
    assert loader.state_dict()["position"] == 300


def test_memory_of_consumed_batches_is_used_again() -> None:
    loader = dataset(40_000, width=64).loader(1000, threads=0)
    addresses = {batch["x"].ctypes.data for batch in loader}
    assert len(addresses) <= 17  # eight batches of two jobs in turn, and the first job is one batch
    held = [batch["x"] for batch in loader]
    assert [int(x[0, 0]) for x in held] == list(range(0, 40_000 * 64, 64_000))


def test_streams_end_however_much_was_asked_in_advance() -> None:
    make: Callable[[], Loader] = lambda: penstock.IterDataset.of(dataset(100), 10).loader(threads=4, prefetch=30)  # noqa: E731
    loader = make()
    assert [len(list(loader)) for _ in range(2)] == [10, 10]
