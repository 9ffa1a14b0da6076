"""The engine: what is in flight, how it grows, and what happens to it when the consumer changes its mind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from penstock.core.ragged import Ragged
from penstock.data import MapDataset, from_arrays
from penstock.errors import PlanError, WorkerError
from penstock.load import Loader
from penstock.load import engine as engine_module
from penstock.load.engine import Flow, cores, free_memory
from penstock.load.feed import TINY_BLOCK


def dataset(n: int = 50_000, width: int = 1) -> MapDataset:
    return from_arrays({"x": np.arange(n * width).reshape(n, width)}, lengths=[n]).samples()


def test_what_is_left_out_sets_itself(monkeypatch):
    monkeypatch.setattr(engine_module, "cores", lambda: 6)
    monkeypatch.setattr(engine_module, "free_memory", lambda: 100 << 20)
    flow = Flow(None, None, None)
    assert (flow.threads, flow.width, flow.most, flow.memory) == (6, 1, 7, 25 << 20)
    for _ in range(20):
        flow.waited()
    assert flow.width == 7
    monkeypatch.setattr(engine_module, "free_memory", lambda: 100 << 30)
    assert Flow(None, None, None).memory == 1 << 30
    monkeypatch.setattr(engine_module, "free_memory", lambda: 0)
    assert Flow(None, None, None).memory == 1 << 24


def test_what_is_given_is_kept():
    for given, expected in (((3, None), (3, 4)), ((3, 2), (3, 2)), ((0, None), (0, 1)), ((5, None, None, 1), (1, 2))):
        flow = Flow(*given, *[None] * (3 - len(given)))
        assert (flow.threads, flow.width) == expected
        flow.waited()
        assert flow.width == expected[1]
    assert Flow(None, 5, None).width == 5


def test_room_is_counted_in_jobs_and_bytes():
    flow = Flow(2, 3, 100)
    assert flow.has_room(0, 0, 1000)  # one job always
    assert flow.has_room(2, 60, 40)
    assert not flow.has_room(2, 61, 40)
    assert not flow.has_room(3, 0, 1)


def test_impossible_flows():
    for given in ((-1, None, None), (1, 0, None), (1, 1, 0)):
        with pytest.raises(PlanError):
            Flow(*given)


def test_the_machine_is_asked():
    assert cores() >= 1
    assert free_memory() > 1 << 20


def test_no_more_jobs_are_begun_than_fit_in_memory():
    loader = Loader(dataset(4000, width=128), 100, threads=4, prefetch=4, memory=250_000)  # 1 kB a row
    iterator = iter(loader)
    for _ in range(10):
        assert next(iterator).n == 100
        assert 1 <= len(iterator._pending) <= 4
        assert sum(job.nbytes for job, _ in iterator._pending) <= 250_000
    iterator.close()


@pytest.mark.parametrize(("ready", "width"), [(False, 4), (True, 1)])
def test_one_job_more_is_begun_each_time_that_the_consumer_waits(monkeypatch, ready, width):
    monkeypatch.setattr(engine_module, "cores", lambda: 3)
    monkeypatch.setattr(engine_module.Future, "done", lambda _: ready)
    loader = Loader(dataset(), 100)
    assert (loader.flow.width, loader.flow.threads) == (1, 3)
    assert sum(batch.n for batch in loader) == 50_000
    assert loader.flow.width == width


def test_the_first_job_is_one_batch_and_later_ones_are_blocks():
    feed = Loader(dataset(), 64, threads=0)._cursor.feed
    jobs = feed.jobs({"position": 0})
    first = next(jobs)
    assert first.nbytes == 64 * 8
    first.run()
    assert next(jobs).nbytes == TINY_BLOCK * 8


def test_ragged_rows_are_bounded_by_what_was_measured():
    rows = [np.zeros(10_000, np.uint8)] * 500
    data = from_arrays({"image": Ragged.from_rows(rows)}, lengths=[500]).samples()
    feed = Loader(data, 10, threads=0, memory=4_000_000)._cursor.feed
    jobs = feed.jobs({"position": 0})
    next(jobs).run()
    for job in jobs:
        assert sum(batch.nbytes for batch, _ in job.run()) <= 1_000_000


def test_each_rank_plans_as_many_of_its_own_rows_a_job():
    feed = Loader(dataset(), 64, rank=0, world=2, threads=0)._cursor.feed
    jobs = feed.jobs({"position": 0})
    next(jobs).run()
    assert sum(batch.n for batch, _ in next(jobs).run()) == TINY_BLOCK


@pytest.mark.parametrize("threads", [0, 2])
def test_loading_a_state_in_a_loop_goes_on_from_there(threads):
    loader = Loader(dataset(1000), 100, threads=threads)
    states, seen = [], []
    for batch in loader:
        seen.append(int(batch["x"][0, 0]))
        states.append(loader.state_dict())
        if len(seen) == 6:
            loader.load_state_dict(states[1])
    assert seen == [0, 100, 200, 300, 400, 500, 200, 300, 400, 500, 600, 700, 800, 900]


def test_loading_a_state_of_another_epoch_ends_the_loop():
    loader = Loader(dataset(1000), 100, threads=1)
    seen = []
    for batch in loader:
        seen.append(batch.ticket.position)
        if len(seen) == 2:
            loader.load_state_dict({**loader.state_dict(), "position": 2500})
    assert seen == [0, 100]
    assert next(iter(loader)).ticket.position == 2500


@pytest.mark.parametrize("ahead", [0, 1, 5])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_are_handed_over_ahead_and_the_state_is_the_consumers(ahead, threads):
    loader = Loader(dataset(1000), 100, threads=threads)
    handed: list[int] = []

    def hand_over(batch):
        handed.append(batch.ticket.position)
        return batch.ticket.position

    for number, position in enumerate(loader.through(hand_over, ahead=ahead), start=1):
        assert position == 100 * (number - 1)
        assert loader.state_dict()["position"] == 100 * number
        assert len(handed) == min(10, number + ahead)
    assert handed == list(range(0, 1000, 100))
    assert loader.stats.samples == 1000


def test_skipping_takes_back_what_was_handed_over_ahead():
    loader = Loader(dataset(1000), 100, threads=1)
    seen = []
    for position in loader.through(lambda batch: batch.ticket.position, ahead=3):
        seen.append(position)
        if len(seen) == 2:
            loader.skip((200, 900))
    assert seen == [0, 100, 900]


def test_a_closed_iterator_gives_nothing_more():
    iterator = iter(Loader(dataset(1000), 100, threads=1))
    next(iterator)
    iterator.close()
    assert next(iterator, None) is None


def test_an_error_in_the_hand_over_leaves_the_state_before_it():
    loader = Loader(dataset(1000), 100, threads=1)

    def hand_over(batch):
        if batch.ticket.position == 300:
            raise WorkerError("the device is gone")
        return batch

    with pytest.raises(WorkerError, match="device"):
        for _ in loader.through(hand_over, ahead=0):
            pass
    assert loader.state_dict()["position"] == 300


def test_memory_of_consumed_batches_is_used_again():
    loader = Loader(dataset(40_000, width=64), 1000, threads=0)
    addresses = {batch["x"].ctypes.data for batch in loader}
    assert len(addresses) <= 16
    held = [batch["x"] for batch in loader]
    assert [int(x[0, 0]) for x in held] == list(range(0, 40_000 * 64, 64_000))


def test_streams_end_however_much_was_asked_in_advance():
    make: Callable[[], Loader] = lambda: Loader(dataset(100).iterate(10), threads=4, prefetch=30)  # noqa: E731
    loader = make()
    assert [len(list(loader)) for _ in range(2)] == [10, 10]
