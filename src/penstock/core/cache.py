"""Decoded data kept for the next reader, bounded in bytes: each cache alone, and all together while a loader runs."""

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
        with _SHARED.lock:
            _SHARED.caches.add(self)

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
                self._drop()
        if _SHARED.limits:
            _SHARED.trim(self)

    def _drop(self) -> None:
        """Let go of the value that was used longest ago."""
        self.nbytes -= self._held.popitem(last=False)[1][1]

    def drop_one(self, least: int) -> bool:
        """Let go of a value, if the cache has more than `least`. Returns whether it had."""
        with self._lock:
            if len(self._held) <= least:
                return False
            self._drop()
            return True

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._held.clear()
            self.nbytes = 0


class CacheLimit:
    """Bytes that one loader allows all caches of the process."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class _Shared:
    """All caches of the process, and the limits that they are within together."""

    def __init__(self) -> None:
        self.caches: weakref.WeakSet[Cache] = weakref.WeakSet()
        self.limits: weakref.WeakSet[CacheLimit] = weakref.WeakSet()
        self.lock = threading.Lock()

    def trim(self, newest: Cache | None) -> None:
        """Let go of old values of the largest caches, until all are within the limits.

        The value that was made last is kept, of any size: rows that are read next are often in it.
        """
        with self.lock:
            limit = sum(each.nbytes for each in self.limits)
            caches = list(self.caches)
            excess = sum(cache.nbytes for cache in caches) - limit
            while self.limits and excess > 0:
                largest = max(caches, key=lambda cache: cache.nbytes)
                before = largest.nbytes
                if not largest.drop_one(least=int(largest is newest)):
                    return
                excess -= before - largest.nbytes


_SHARED = _Shared()


def caches_within(limit: int) -> CacheLimit:
    """Keep all caches of the process together within `limit` bytes while the result is alive; of several, the sum."""
    allowed = CacheLimit(limit)
    with _SHARED.lock:
        _SHARED.limits.add(allowed)
    _SHARED.trim(None)
    return allowed


def _after_fork() -> None:
    """Threads that made values are gone in the child, and so are the owners of locks."""
    _SHARED.lock = threading.Lock()
    for cache in list(_SHARED.caches):
        cache._begin()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
