"""Maps by several threads, or by the caller: order, bounds, errors in their place, ends."""

# pyright: basic

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.errors import WorkerError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics, StageMetrics, idle, rates
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import QueueClosed, wait_until

TWO = PrefetchLimits(2)


class Weighed:
    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("ahead", [1, 3, 50])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_results_come_in_the_order_of_the_items(threads: int, ahead: int, n: int) -> None:
    with OrderedMap(lambda x: -x, range(n), PrefetchLimits(threads, ahead)) as results:
        assert list(results) == [-x for x in range(n)]
        with pytest.raises(StopIteration):
            results.get()


def test_a_slow_item_holds_back_the_others_without_changing_their_order() -> None:
    gate = threading.Event()
    begun: list[int] = []

    def work(x: int) -> int:
        begun.append(x)
        if x == 0:
            gate.wait()
        elif x == 4:
            gate.set()  # the first of all ends only once the fifth has begun
        return x

    with OrderedMap(work, range(20), PrefetchLimits(2, 6)) as results:
        assert list(results) == list(range(20))


def test_no_more_is_begun_than_there_is_room_for_in_items() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    with OrderedMap(lambda x: x, source(), PrefetchLimits(3, 5)) as results:
        for x in range(100):
            assert results.get() == x
            assert len(taken) <= x + 1 + 5
    assert results.stats()["puts"] == results.stats()["gets"] == 100


def test_no_more_is_begun_than_there_is_room_for_in_bytes() -> None:
    begun: list[int] = []

    def work(x: int) -> Weighed:
        begun.append(x)
        return Weighed(x, 10)

    with OrderedMap(work, range(50), PrefetchLimits(1, 40, 25)) as results:
        for x in range(50):
            assert results.get().number == x
            assert len(begun) <= x + 1 + 3
    with OrderedMap(lambda x: Weighed(x, 1000), range(5), PrefetchLimits(2, 6, 1)) as heavy:
        assert [w.number for w in heavy] == list(range(5))


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_an_error_comes_in_its_place_and_ends_the_map(threads: int) -> None:
    def work(x: int) -> int:
        if x == 7:
            raise ZeroDivisionError("seven")
        return x

    results = OrderedMap(work, range(20), PrefetchLimits(threads))
    assert [results.get() for _ in range(7)] == list(range(7))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="seven"):
            results.get()
    results.join()


def test_an_error_of_the_source_comes_after_its_items() -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise KeyError("no more")

    results = OrderedMap(lambda x: x, source(), PrefetchLimits(3))
    assert [results.get() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        results.get()
    results.join()


def test_close_ends_waits_and_says_why() -> None:
    for error, expected in [(None, QueueClosed), (ZeroDivisionError("upstream"), ZeroDivisionError)]:
        gate = threading.Event()
        results: OrderedMap[int, Any] = OrderedMap(lambda x, gate=gate: gate.wait(), range(5), PrefetchLimits(2))
        with pytest.raises(TimeoutError):
            results.get(timeout=0.01)
        results.close(error)
        with pytest.raises(expected):
            results.get()
        gate.set()
        results.join()


def test_maps_can_be_chained_and_any_of_them_may_fail() -> None:
    def work(x: int) -> int:
        if x == 30:
            raise ZeroDivisionError("first map")
        return x

    with OrderedMap(work, range(100), TWO) as first, OrderedMap(lambda x: 2 * x, first, TWO) as second:
        assert [second.get() for _ in range(30)] == [2 * x for x in range(30)]
        with pytest.raises(ZeroDivisionError, match="first map"):
            second.get()


def test_what_stages_count() -> None:
    metrics = Metrics()
    stage = metrics.stage("loader", threads=2)
    with OrderedMap(lambda x: x, range(4), TWO, metrics=stage) as results:
        before = metrics.snapshot()
        assert list(results) == [0, 1, 2, 3]
    stage.add(chunks=4)
    stage.failed("checksum", "a#0", "expected 1, got 2")
    metrics.stage("pool").failed("checksum", "b#0", "expected 3, got 4")
    after = metrics.snapshot()
    assert after["stages"]["loader"]["queue"]["gets"] == 4
    assert after["stages"]["loader"]["busy"] > 0
    assert metrics.failures() == {"checksum": 2}
    assert [name for name, _, _ in metrics.examples()] == ["a#0", "b#0"]
    shares = rates({**before, "time": 0.0}, {**after, "time": 2000.0})
    assert shares["loader"]["chunks"] == 0.002
    assert 0 < shares["loader"]["busy"] < 1


def test_the_names_of_failures_are_bounded() -> None:
    stage = StageMetrics("loader")
    for i in range(1000):
        stage.failed("missing", f"f{i}", "gone")
    assert stage.counts["failed.missing"] == 1000
    assert [name for name, _, _ in stage.examples] == [f"f{i}" for i in range(900, 1000)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_that_goes_on_counts_up_to_the_look_and_never_above_the_threads() -> None:
    """An item of ten seconds, looked at each second: a sum at its end would show 0 % nine times and 1000 % once."""
    clock = Clock()
    metrics = Metrics(clock)
    stage = metrics.stage("unpacker")
    before, shares = metrics.snapshot(), list[float]()
    with stage.work():
        for _ in range(10):
            clock.now += 1
            after = metrics.snapshot()
            shares.append(rates(before, after)["unpacker"]["busy"])
            before = after
    clock.now += 1
    assert shares == [1.0] * 10
    assert rates(before, metrics.snapshot())["unpacker"]["busy"] == 0.0


def test_work_within_work_is_of_one_stage_alone_and_threads_that_help_are_counted() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    outer, inner = metrics.stage("unpacker", threads=1), metrics.stage("rescorer", threads=1)
    before = metrics.snapshot()
    inside, may_end = threading.Barrier(3), threading.Event()

    def work() -> None:
        with outer.work(), inner.work(), inner.work():
            inside.wait(60)
            may_end.wait(60)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    clock.now += 4
    after = metrics.snapshot()
    may_end.set()
    for thread in threads:
        thread.join()
    assert (after["stages"]["unpacker"]["busy"], after["stages"]["rescorer"]["busy"]) == (0.0, 8.0)
    assert after["stages"]["rescorer"]["threads"] == 2
    assert rates(before, after)["rescorer"]["busy"] == 1.0
    with outer.work():
        clock.now += 1
        with idle():
            clock.now += 5
    assert metrics.snapshot()["stages"]["unpacker"]["busy"] == 1.0


def test_weights_that_are_known_bound_what_is_in_work_from_the_first_item_on() -> None:
    """The mean of results says nothing about the first item, and little about items of different sizes."""
    weights = [7, 1, 1, 1, 5, 9, 30, 2, 2, 2, 2, 2, 2, 2, 9, 1] * 3
    lock, inside, most = threading.Lock(), dict[int, int](), list[int]()

    def work(i: int) -> int:
        with lock:
            inside[i] = weights[i]
            held = sum(inside.values())
            most.append(held if len(inside) > 1 else 0)  # one item always gets through
        return i

    results = OrderedMap(work, range(len(weights)), PrefetchLimits(3, 9, 10), weigh=lambda i: weights[i])
    for i in range(len(weights)):
        assert results.get() == i
        with lock:
            del inside[i]
    assert max(most) <= 10 + max(weights)  # an item may start while the consumer leaves with another
    with pytest.raises(StopIteration):
        results.get()
    results.join()


def test_a_heavy_item_waits_until_it_is_alone_and_nothing_passes_it() -> None:
    started, gate = list[int](), threading.Event()
    seen = threading.Event()

    def source() -> Iterator[int]:
        yield from (4, 40)
        seen.set()  # the item behind the heavy one is only taken once that is in work
        yield 4

    def work(weight: int) -> int:
        started.append(weight)
        if len(started) == 1:
            gate.wait()
        return weight

    with OrderedMap(work, source(), PrefetchLimits(3, 9, 10), weigh=int) as results:
        results.start()
        assert not seen.is_set()
        gate.set()
        assert [results.get() for _ in range(3)] == [4, 40, 4]
    assert started == [4, 40, 4]


def test_threads_start_when_there_is_work_for_them() -> None:
    limits = PrefetchLimits(memory=1 << 20, limit=8)
    limits.threads = limits.most = 8
    gate, threads = threading.Event(), set[str]()

    def work(x: int) -> int:
        threads.add(str(threading.get_ident()))
        gate.wait()
        return x

    with OrderedMap(work, range(30), limits) as results:
        results.start()
        assert limits.width == 1
        with pytest.raises(TimeoutError):
            results.get(timeout=0.01)  # a wait: one item more may be ahead
        assert limits.width == 2
        gate.set()
        assert list(results) == list(range(30))
    assert len(threads) <= limits.width


def test_a_result_that_is_there_lets_the_limits_as_they_are() -> None:
    limits = PrefetchLimits(memory=1 << 20, limit=4)
    with OrderedMap(lambda x: x, range(6), limits) as results:
        results.start()
        with results._lock:
            wait_until(results._results, lambda: 0 in results._done, 60, "a result")
        assert results.get() == 0
    assert limits.width == 1


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_generator_is_closed_with_the_map(threads: int) -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.set()

    results = OrderedMap(lambda x: x, source(), PrefetchLimits(threads, 2))
    assert [results.get(), results.get()] == [0, 1]
    results.close()
    results.join()
    assert closed.is_set()
    with pytest.raises(QueueClosed):
        results.get()


def test_after_an_error_nothing_more_is_taken() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    def work(x: int) -> int:
        if x == 1:
            raise ZeroDivisionError
        return x

    results = OrderedMap(work, source(), PrefetchLimits(1, 50))
    assert results.get() == 0
    with pytest.raises(ZeroDivisionError):
        results.get()
    results.join()
    assert taken == [0, 1]


@pytest.mark.parametrize("threads", [0, 2])
def test_a_function_that_raises_stop_iteration_is_no_end(threads: int) -> None:
    results = OrderedMap(lambda x: next(iter(())), range(3), PrefetchLimits(threads))
    with pytest.raises(WorkerError, match="StopIteration"):
        list(results)


def test_a_map_that_was_abandoned_ends_without_its_lock() -> None:
    begun = threading.Event()
    results: OrderedMap[int, Any] = OrderedMap(lambda x: begun.set(), iter(range(5)), PrefetchLimits(1, 1))
    results.start()
    begun.wait()
    with results._lock:  # as a finalizer that runs in a thread which has it
        results.abandon()
    results.join()
    assert results.closed


@pytest.mark.parametrize("threads", [0, 2])
def test_a_map_that_ended_keeps_nothing_that_its_function_refers_to(threads: int) -> None:
    """A cycle would keep the buffers of batches until the next collection of garbage."""
    buffer = np.zeros(4)
    memory = weakref.ref(buffer)

    def fill(place: int, buffer: np.ndarray[Any, Any] = buffer) -> None:
        buffer[place] = place

    gc.collect()
    gc.disable()
    try:
        with OrderedMap(fill, range(4), PrefetchLimits(threads)) as filled:
            assert len(list(filled)) == 4
        del filled, fill, buffer
        assert memory() is None
    finally:
        gc.enable()
