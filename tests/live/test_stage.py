"""Maps by several threads: order, bounds, errors in their place, ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import PlanError
from penstock.live.metrics import Metrics, StageMetrics, idle, rates
from penstock.live.queue import QueueClosed
from penstock.live.stage import OrderedMap


class Weighed:
    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("ahead", [1, 3, 50])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_results_come_in_the_order_of_the_items(threads: int, ahead: int, n: int) -> None:
    with OrderedMap(lambda x: -x, range(n), threads, ahead=ahead) as results:
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

    with OrderedMap(work, range(20), 2, ahead=6) as results:
        assert list(results) == list(range(20))


def test_no_more_is_begun_than_there_is_room_for_in_items() -> None:
    taken: list[int] = []

    def source() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    with OrderedMap(lambda x: x, source(), 3, ahead=5) as results:
        for x in range(100):
            assert results.get() == x
            assert len(taken) <= x + 1 + 5
    assert results.stats()["puts"] == results.stats()["gets"] == 100


def test_no_more_is_begun_than_there_is_room_for_in_bytes() -> None:
    begun: list[int] = []

    def work(x: int) -> Weighed:
        begun.append(x)
        return Weighed(x, 10)

    with OrderedMap(work, range(50), 1, ahead=40, nbytes=25) as results:
        for x in range(50):
            assert results.get().number == x
            assert len(begun) <= x + 1 + 3
    with OrderedMap(lambda x: Weighed(x, 1000), range(5), 2, nbytes=1) as heavy:
        assert [w.number for w in heavy] == list(range(5))


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_comes_in_its_place_and_ends_the_map(threads: int) -> None:
    def work(x: int) -> int:
        if x == 7:
            raise ZeroDivisionError("seven")
        return x

    results = OrderedMap(work, range(20), threads)
    assert [results.get() for _ in range(7)] == list(range(7))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="seven"):
            results.get()
    results.join()


def test_an_error_of_the_source_comes_after_its_items() -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        raise KeyError("no more")

    results = OrderedMap(lambda x: x, source(), 3)
    assert [results.get() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        results.get()
    results.join()


def test_close_ends_waits_and_says_why() -> None:
    for error, expected in [(None, QueueClosed), (ZeroDivisionError("upstream"), ZeroDivisionError)]:
        gate = threading.Event()
        results: OrderedMap[int, Any] = OrderedMap(lambda x, gate=gate: gate.wait(), range(5), 2)
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

    with OrderedMap(work, range(100), 2) as first, OrderedMap(lambda x: 2 * x, first, 2) as second:
        assert [second.get() for _ in range(30)] == [2 * x for x in range(30)]
        with pytest.raises(ZeroDivisionError, match="first map"):
            second.get()


@pytest.mark.parametrize("bad", [{"threads": 0}, {"ahead": 0}])
def test_bad_bounds_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(PlanError, match="at least one thread and one item"):
        OrderedMap(abs, [], **bad)


def test_what_stages_count() -> None:
    metrics = Metrics()
    stage = metrics.stage("loader", threads=2)
    with OrderedMap(lambda x: x, range(4), 2, metrics=stage) as results:
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
    shares = rates({**before, "time": 0.0}, {**after, "time": 2.0})
    assert shares["loader"]["chunks"] == 2.0
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
            inside.wait(20)
            may_end.wait(20)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(20)
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
