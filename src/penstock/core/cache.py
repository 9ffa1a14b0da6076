"""Decoded data kept for the next reader, bounded in bytes."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from penstock.core.arrays import AnyArray


class Cache:
    """Values by key, the ones used last, at most `limit` bytes of them. Shared by threads: a value that several want at
    once is made by one of them. Whoever makes a value says its size. A pickled cache is an empty one.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self.made = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._begin()
        _ALL.add(self)

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self.limit,)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Event] = {}

    def peek(self, key: Hashable) -> Any:
        """The cached value, or None. Cost: under 1 µs."""
        with self._lock:
            cached = self._held.get(key)
            if cached is None:
                return None
            self._held.move_to_end(key)
            return cached[0]

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The cached value; otherwise `make` gives the value and its size."""
        while True:
            with self._lock:
                if (cached := self._held.get(key)) is not None:
                    self._held.move_to_end(key)
                    return cached[0]
                if (other := self._making.get(key)) is None:
                    mine = self._making[key] = threading.Event()
                    break
            other.wait()
        try:
            value, size = make()
            self._keep(key, value, size)
        finally:
            with self._lock:
                self._making.pop(key, None)
            mine.set()
        return value

    def array(self, key: Hashable, make: Callable[[], AnyArray]) -> AnyArray:
        """`get` of an array, whose size is the size of its values."""

        def sized() -> tuple[AnyArray, int]:
            array = make()
            return array, array.nbytes

        return self.get(key, sized)

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            self.made += 1
            if size > self.limit:
                return
            self._held[key] = value, size
            self.nbytes += size
            while self.nbytes > self.limit:
                self.nbytes -= self._held.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._held.clear()
            self.nbytes = 0


_ALL: weakref.WeakSet[Cache] = weakref.WeakSet()


def _after_fork() -> None:
    """Threads that made values are gone in the child, and so are the owners of locks."""
    for cache in list(_ALL):
        cache._begin()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
