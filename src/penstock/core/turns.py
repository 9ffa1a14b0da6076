"""Locks for processes that may fork."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Self

from penstock.errors import WorkerError


class ForkSafeLock:
    """Reentrant lock that is free in a forked process, even if a thread of the parent had it.

    That thread does not exist in the child, so it would never release the lock. The protected data must stay usable in
    any state that such a thread left.

    Example:
        >>> with ForkSafeLock() as lock, lock:
        ...     pass
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.renew()
        _LOCKS.add(self)

    def renew(self) -> None:
        """Replace the lock with a free one."""
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)


class Turns:
    """Lock for the threads of one process: `with turns` admits one thread at a time.

    In a forked process it raises `WorkerError`. The threads of an iterator do not survive a fork. A thread of the
    parent may have had the lock, and waiting would then never end.

    Args:
        what: Name of the protected object, for the message.

    Raises:
        WorkerError: The process was forked from the one that made the lock.

    Example:
        >>> with Turns("this iterator"):
        ...     pass
    """

    __slots__ = ("_lock", "_process", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._process, self._lock = what, os.getpid(), threading.RLock()

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process."""
        return os.getpid() != self._process

    def __enter__(self) -> None:
        if self.elsewhere:
            raise WorkerError(
                f"{self._what} belongs to process {self._process}, and a forked process ({os.getpid()}) has none of "
                "its threads; make a new iterator here, from a state if it should go on where the other stands"
            )
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
