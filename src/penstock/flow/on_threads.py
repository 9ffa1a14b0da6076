"""`map_on_threads`: a list of results that several threads compute; and `for_each`, by threads that all calls share.

A read of a column may take less time than starting threads, so reads use `for_each`. Its threads are started once in a
process, one for each core.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Generic, TypeVar

from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.ordered_map import OrderedMap

T = TypeVar("T")
R = TypeVar("R")

_ALL = 1 << 62  # bytes: the caller keeps all results, so there is nothing to bound


def map_on_threads(
    fn: Callable[[T], R], items: Sequence[T], threads: int | None = None, *, name: str = "penstock-map"
) -> list[R]:
    """Return `fn(item)` for each item, in order, computed by several threads.

    After an error, no further item begins.
    """
    limits = PrefetchLimits(threads, max(len(items), 1), _ALL, len(items))
    if limits.threads < 2:
        return [fn(item) for item in items]
    with OrderedMap(fn, items, limits, name=name) as results:
        return list(results)


def for_each(fn: Callable[[T], object], items: Sequence[T], threads: int | None = None) -> None:
    """Call `fn(item)` for each item, in the calling thread and in threads that all calls of the process share.

    The caller works too, so a call never waits for threads that are busy, and `fn` may call `for_each`. After an error,
    no further item begins, and the call ends when the items in work are done.
    """
    helpers = min(cores() if threads is None else threads, len(items)) - 1
    if helpers < 1:
        for item in items:
            fn(item)
        return
    work = _SharedWork(fn, items)
    begun: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # the interpreter exits and starts no threads: the caller does everything
            for _ in range(helpers):
                begun.append(_shared_threads().submit(work.run))
        work.run()
    finally:
        work.stop()  # also after an interrupt: nothing writes to the caller's memory afterwards
        wait([helper for helper in begun if not helper.cancel()])
    if work.error is not None:
        raise work.error


class _SharedWork(Generic[T]):
    """Items of one call, which any number of threads take in order."""

    def __init__(self, fn: Callable[[T], object], items: Iterable[T]) -> None:
        self._fn = fn
        self._items = enumerate(items)
        self._lock = threading.Lock()
        self._stopped = False
        self._failed: dict[int, BaseException] = {}

    @property
    def error(self) -> BaseException | None:
        """Error of the first item that failed."""
        return self._failed[min(self._failed)] if self._failed else None

    def stop(self) -> None:
        """Begin no further item."""
        self._stopped = True

    def run(self) -> None:
        """Work until no item is left, or one failed."""
        while (numbered := self._next()) is not None:
            number, item = numbered
            try:
                self._fn(item)
            except BaseException as error:  # noqa: BLE001  raised by the caller
                self._failed[number] = error
                self._stopped = True

    def _next(self) -> tuple[int, T] | None:
        with self._lock:
            return None if self._stopped else next(self._items, None)


@cache
def _shared_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "penstock-shared")


os.register_at_fork(after_in_child=_shared_threads.cache_clear)  # the threads are of the process that was forked
