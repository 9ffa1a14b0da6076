"""The cache that formats share: bounded, in the order of use, one maker a value, alive after a fork."""

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock.core.cache as cache_module
from penstock.core.cache import Cache, caches_within


def test_it_is_bounded_and_keeps_what_was_used_last() -> None:
    cache, made = Cache(20), list[str]()

    def get(key: str) -> None:
        cache.array(key, lambda: made.append(key) or np.zeros(8, np.uint8))  # pyright: ignore[reportArgumentType]

    for key in "abacab":
        get(key)
    assert "".join(made) == "abcb"
    assert (cache.nbytes, cache.made) == (16, 4)


@pytest.mark.parametrize("limit", [0, 7])
def test_what_is_larger_than_all_of_it_is_not_kept(limit: int) -> None:
    cache = Cache(limit)
    for _ in range(2):
        assert cache.array("a", lambda: np.ones(8, np.uint8)).sum() == 8
    assert (cache.made, cache.nbytes, cache.peek("a")) == (2, 0, None)


def test_a_maker_that_fails_leaves_the_key_to_the_next() -> None:
    cache = Cache(100)

    def fail() -> tuple[Any, int]:
        raise ValueError("no")

    make: Callable[[], tuple[Any, int]] = lambda: (1, 1)  # noqa: E731
    with pytest.raises(ValueError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", make) == 1
    cache.clear()
    assert (cache.peek("a"), cache.nbytes) == (None, 0)


def test_a_pickle_of_it_is_empty() -> None:
    cache = Cache(100)
    cache.get("a", lambda: (1, 1))
    copied = pickle.loads(pickle.dumps(cache))
    assert (copied.limit, copied.nbytes, copied.peek("a")) == (100, 0, None)


def test_a_child_does_not_wait_for_threads_of_its_parent() -> None:
    cache = Cache(100)
    begun, go = threading.Event(), threading.Event()

    def slow() -> tuple[int, int]:
        begun.set()
        go.wait()
        return 1, 1

    thread = threading.Thread(target=lambda: cache.get("a", slow))
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what is tried here
        child = os.fork()
    if child == 0:
        signal.alarm(120)  # a child that waits for ever fails
        os._exit(cache.get("a", lambda: (42, 1)))
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other cache of the process takes part."""
    monkeypatch.setattr(cache_module, "_SHARED", cache_module._Shared())  # pyright: ignore[reportPrivateUsage]


def filled(cache: Cache, *sizes: int) -> Cache:
    for number, size in enumerate(sizes):
        cache.get((id(cache), number), lambda number=number, size=size: (number, size))
    return cache


@pytest.mark.usefixtures("alone")
def test_all_caches_are_within_one_limit_while_it_is_there() -> None:
    first, second = filled(Cache(1000), *[10] * 30), filled(Cache(1000), *[10] * 10)
    allowed = caches_within(150)
    assert sorted([first.nbytes, second.nbytes]) == [70, 80]  # the largest one loses values first
    filled(third := Cache(1000), *[10] * 10)
    assert first.nbytes + second.nbytes + third.nbytes == 150
    assert min(first.nbytes, second.nbytes, third.nbytes) == 50
    del allowed
    filled(second, *[10] * 40)
    assert second.nbytes == 400


@pytest.mark.usefixtures("alone")
def test_the_value_made_last_is_kept_whatever_its_size() -> None:
    small, large = filled(Cache(1000), 10), Cache(1000)
    allowed = caches_within(50)
    for key in "ab":
        assert large.get(key, lambda: (1, 200)) == 1
    assert (large.peek("a"), large.peek("b"), large.nbytes) == (None, 1, 200)
    assert small.nbytes <= 10
    del allowed


@pytest.mark.usefixtures("alone")
def test_limits_of_several_loaders_add_up() -> None:
    cache = filled(Cache(1000), *[10] * 50)
    limits = [caches_within(200), caches_within(100)]
    assert cache.nbytes <= 300
    filled(cache, *[10] * 50)
    assert cache.nbytes == 300
    limits.pop()
    filled(cache, *[10] * 51)
    assert cache.nbytes == 200
