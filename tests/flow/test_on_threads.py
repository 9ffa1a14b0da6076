"""`map_on_threads`: results in order, the first error in order, no more threads than asked for."""

from __future__ import annotations

import threading

import pytest

from penstock.flow import map_on_threads


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
