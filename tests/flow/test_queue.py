"""Queues: bounds in items and bytes, what is dropped, who closes them, and how waits end."""

from __future__ import annotations

import signal
import threading
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.flow.queue import BlockQueue, QueueClosed


class Heavy:
    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes


ACTIONS = st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=40)


@given(
    ACTIONS, st.integers(1, 5), st.one_of(st.none(), st.integers(1, 20)), st.sampled_from(["drop_new", "keep_newest"])
)
def test_a_queue_that_drops_is_as_a_plain_list(actions: Any, items: int, nbytes: int | None, overflow: Any) -> None:
    queue, model, drops = BlockQueue[Heavy](items, nbytes, overflow), deque[Heavy](), 0

    def full(weight: int) -> bool:
        held = sum(h.nbytes for h in model)
        return bool(model) and (len(model) >= items or (nbytes is not None and held + weight > nbytes))

    for number, weight in enumerate(actions):
        if weight is None:
            if model:
                assert queue.get() is model.popleft()
            continue
        thing = Heavy(number, weight)
        if overflow == "drop_new" and full(weight):
            assert queue.put(thing) == [thing]
            drops += 1
            continue
        oldest: list[Heavy] = []
        while full(weight):
            oldest.append(model.popleft())
            drops += 1
        model.append(thing)
        assert queue.put(thing) == oldest
    assert queue.drops == drops
    assert queue.stats()["nbytes"] == sum(h.nbytes for h in model)
    queue.close()
    assert list(queue) == list(model)
    assert queue.puts == queue.gets + queue.drops


def test_a_full_queue_blocks_until_there_is_room() -> None:
    queue = BlockQueue[int](items=2)
    producer = queue.producer()

    def fill() -> None:
        with producer:
            for number in range(50):
                producer.put(number)

    thread = threading.Thread(target=fill)
    thread.start()
    assert list(queue) == list(range(50))
    thread.join()
    assert (queue.puts, queue.gets, queue.drops) == (50, 50, 0)


def test_it_closes_when_the_last_producer_is_gone() -> None:
    queue = BlockQueue[int](items=9)
    with queue.producer() as first:
        second = queue.producer()
        first.put(1)
    assert not queue.closed
    second.put(2)
    second.close()
    second.close()
    assert queue.closed
    assert list(queue) == [1, 2]
    for put in (queue.put, second.put):
        with pytest.raises(QueueClosed):
            put(3)
    with pytest.raises(QueueClosed):
        queue.get()
    with pytest.raises(QueueClosed):
        queue.producer()


def test_an_error_comes_out_at_once_and_goes_to_producers_too() -> None:
    queue = BlockQueue[int]()
    queue.put(1)
    queue.close(ZeroDivisionError("upstream"))
    queue.close(KeyError("later"))
    for act in (queue.get, lambda: queue.put(2)):
        with pytest.raises(ZeroDivisionError, match="upstream"):
            act()


def test_waits_end_in_time() -> None:
    queue = BlockQueue[int](items=1)
    with pytest.raises(TimeoutError, match=r"something in a queue within 0\.01 seconds"):
        queue.get(timeout=0.01)
    queue.put(1)
    with pytest.raises(TimeoutError, match="room in a queue"):
        queue.put(2, timeout=0.01)
    assert queue.get(timeout=0) == 1


def test_whoever_waits_is_woken_by_close() -> None:
    queue, ended = BlockQueue[int](), []

    def wait() -> None:
        with pytest.raises(QueueClosed):
            queue.get()
        ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    queue.close()
    thread.join()
    assert ended == [True]


def test_a_signal_interrupts_a_wait() -> None:
    """As Ctrl-C does: the handler runs in the main thread, which waits."""
    queue = BlockQueue[int]()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the signal may come before the wait
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            queue.get()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("bad", [{"items": 0}, {"nbytes": 0}, {"overflow": "drop"}])
def test_bad_bounds_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="expected at least one item and byte"):
        BlockQueue(**bad)
