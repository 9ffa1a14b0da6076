"""Locks for processes that may fork, and the process that an object with threads belongs to."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Self

from penstock.errors import WorkerError


class ForkSafeLock:
    """Reentrant lock that is free in a forked process, even if a thread of the parent had it.

    That thread does not exist in the child, so it would never release the lock. The protected data must stay usable in
    any state that such a thread left. `with lock.plain` is the same, and saves two calls.
    """

    __slots__ = ("__weakref__", "plain")

    def __init__(self) -> None:
        self.renew()
        _LOCKS.add(self)

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        """A copy in another process is a free lock."""
        return ForkSafeLock, ()

    def renew(self) -> None:
        """Replace the lock with a free one."""
        self.plain = threading.RLock()

    def __enter__(self) -> Self:
        self.plain.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.plain.release()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)


class HomeProcess:
    """The process that made an object with threads. A forked process has a copy of the object without the threads.

    The copy would wait for the threads, and for locks that they had, for ever. So its methods call `check` first.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._pid = what, os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `WorkerError` in another process."""
        if not self.is_here:
            raise WorkerError(
                f"expected the process {self._pid}, which made this {self._what}, got the forked process "
                f"{os.getpid()}: threads do not survive a fork; make the {self._what} in the process that reads it, "
                "from a state if it should continue"
            )


class Turns:
    """Lock for the threads of one process: `with turns` admits one thread at a time.

    In a forked process it raises `WorkerError`. A thread of the parent may have had the lock, and waiting would then
    never end.
    """

    __slots__ = ("_lock", "home")

    def __init__(self, what: str) -> None:
        self.home, self._lock = HomeProcess(what), threading.RLock()

    def __enter__(self) -> None:
        self.home.check()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
