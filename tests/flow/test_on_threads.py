"""`map_on_threads`: results in order, the first error in order, no more threads than asked for; and `for_each`."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.flow import cores, for_each, map_on_threads


@pytest.mark.parametrize("threads", [1, 2, 7, None])
@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_are_in_the_order_of_the_items(n: int, threads: int | None) -> None:
    assert map_on_threads(lambda i: i * i, range(n), threads) == [i * i for i in range(n)]


def test_threads_work_at_the_same_time_and_are_no_more_than_asked_for() -> None:
    together = threading.Barrier(3)
    seen: set[int] = set()

    def meet(_: int) -> None:
        seen.add(threading.get_ident())
        together.wait(30)  # breaks unless three threads are here at once

    map_on_threads(meet, range(9), 3)
    assert len(seen) == 3
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_error_in_the_order_of_the_items_is_raised(threads: int) -> None:
    def fail(i: int) -> int:
        if i >= 5:
            raise ValueError(f"item {i}")
        return i

    with pytest.raises(ValueError, match="item 5"):
        map_on_threads(fail, range(20), threads)


def test_one_item_is_computed_by_the_caller() -> None:
    assert map_on_threads(lambda _: threading.get_ident(), ["only"], 8) == [threading.get_ident()]


@pytest.mark.parametrize("threads", [0, 1, 2, None])
def test_shared_threads_do_every_item_once(threads: int | None) -> None:
    done: list[int] = []
    for n in (0, 1, 2, 50):
        for_each(done.append, range(n), threads)
        assert sorted(done) == list(range(n))
        done.clear()


def test_shared_threads_are_started_once_and_work_at_the_same_time_as_the_caller() -> None:
    seen: set[int] = set()

    def meet(_: int) -> None:
        seen.add(threading.get_ident())
        together.wait(60)  # breaks unless two threads are here at once

    for _ in range(20):
        together = threading.Barrier(2)
        for_each(meet, range(2), 2)
    assert threading.get_ident() in seen
    assert len(seen) <= 1 + cores()


@pytest.mark.parametrize("threads", [1, 2])
def test_shared_threads_raise_the_first_error_and_have_no_work_left_then(threads: int) -> None:
    begun: list[int] = []
    ended: list[int] = []

    def fail(i: int) -> None:
        begun.append(i)
        try:
            if i >= 5:
                raise ValueError(f"item {i}")
        finally:
            ended.append(i)

    with pytest.raises(ValueError, match="item 5"):
        for_each(fail, range(2000), threads)
    assert sorted(ended) == sorted(begun) == list(range(len(begun)))
    assert len(begun) < 2000


def test_shared_threads_may_share_themselves_and_work_in_a_forked_process() -> None:
    done: list[int] = []
    for_each(lambda i: for_each(done.append, range(i, i + 3), 2), range(0, 30, 3), 2)
    assert sorted(done) == list(range(30))
    child = os.fork()
    if not child:
        for_each(done.append, range(30, 40), 2)
        os._exit(len(done) != 40)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
