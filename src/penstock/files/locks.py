"""Advisory locks of whole files and folders (`flock`), which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import LockedError
from penstock.files.descriptors import StrPath, open_descriptor

LOCKS = Path("/proc/locks")  # of Linux: all locks, with their processes


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder until it is closed; False if somebody else holds a lock in the way."""
    try:
        fcntl.flock(fd, _kind(shared) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(fd: int, path: StrPath, *, shared: bool = False, wait: bool = False, holder: str = "another writer") -> None:
    """Lock an open file or folder until it is closed."""
    if wait:
        fcntl.flock(fd, _kind(shared))
    elif not try_lock(fd, shared=shared):
        raise LockedError(f"{os.fspath(path)} is in use by {holder}{_process(fd)}; try again when it has finished")


def open_locked(
    path: StrPath,
    flags: int = os.O_RDWR,
    *,
    shared: bool = False,
    wait: bool = False,
    holder: str = "another writer",
    name: StrPath | None = None,
    follow: bool = False,
) -> int:
    """Open a file or folder and lock it, again if it was replaced meanwhile; the descriptor holds the lock."""
    while True:
        links = 0 if follow else os.O_NOFOLLOW
        fd = open_descriptor(path, flags | links | os.O_NONBLOCK)
        try:
            lock(fd, path if name is None else name, shared=shared, wait=wait, holder=holder)
            if is_at(fd, path, follow=follow):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


@contextmanager
def locked(
    path: StrPath | int, flags: int = os.O_RDONLY, *, wait: bool = False, holder: str = "another writer"
) -> Generator[None]:
    """Hold an exclusive lock until the end of the block: on the file at a path (links are followed), or on an open
    descriptor, which stays open."""
    if isinstance(path, int):
        lock(path, f"descriptor {path}", wait=wait, holder=holder)
        try:
            yield
        finally:
            unlock(path)
        return
    fd = open_locked(path, flags, wait=wait, holder=holder, follow=True)
    try:
        yield
    finally:
        os.close(fd)


def unlock(fd: int) -> None:
    """Give up a lock before the descriptor is closed, also for copies that forked processes have."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_at(fd: int, path: StrPath, *, follow: bool = False) -> bool:
    """Whether `path` still names this open file or folder."""
    try:
        there, opened = os.stat(path, follow_symlinks=follow), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _kind(shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX


def _process(fd: int) -> str:
    """Name the process that has locked an open file, in parentheses; empty if the system does not tell."""
    state = os.fstat(fd)
    place = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    with suppress(OSError, ValueError):
        for line in LOCKS.read_text("utf-8").splitlines():
            _, kind, _, _, process, where, *_ = line.split()  # of one that waits, an arrow is in the place of the kind
            if (kind, where) == ("FLOCK", place):
                return f" (process {process})"
    return ""
