"""Advisory locks of whole files and folders (`flock`), which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager

from penstock.errors import LockedError
from penstock.files.descriptors import StrPath, open_descriptor


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder until it is closed; False if somebody else holds a lock in the way.

    Args:
        fd: The descriptor. Two descriptors from two calls of `os.open` exclude each other, even in one process.
        shared: Allow other shared locks.

    Raises:
        OSError: The file system has no locks.
    """
    try:
        fcntl.flock(fd, _kind(shared) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(fd: int, path: StrPath, *, shared: bool = False, wait: bool = False, holder: str = "another writer") -> None:
    """Lock an open file or folder until it is closed.

    Args:
        fd: The descriptor.
        path: Its name, for the message.
        shared: Allow other shared locks.
        wait: Wait until the other lock is released, rather than fail.
        holder: Who that is, for the message.

    Raises:
        LockedError: Somebody else holds a lock in the way.
        OSError: The file system has no locks.
    """
    if wait:
        fcntl.flock(fd, _kind(shared))
    elif not try_lock(fd, shared=shared):
        raise LockedError(f"{os.fspath(path)} is in use by {holder}; try again when it has finished")


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
    """Open a file or folder and lock it; return the descriptor, which holds the lock until it is closed.

    The lock is on the file that `path` names when the lock is taken: a file that was replaced or removed meanwhile is
    opened again.

    Args:
        path: A file, or a folder (with `flags=os.O_RDONLY`, for folders cannot be opened otherwise).
        flags: As of `os.open`; with `os.O_CREAT` a missing file is made, empty. Some network file systems grant an
            exclusive lock only on a descriptor that may write.
        shared: Allow other shared locks.
        wait: Wait until the other lock is released, rather than fail.
        holder: Who that is, for the message.
        name: Name of the locked file in the message; by default `path`.
        follow: Whether `path` may be a symbolic link.

    Raises:
        LockedError: Somebody else holds a lock in the way.
        FileNotFoundError: `path` does not exist.
        OSError: It cannot be opened (a link, for one), or the file system has no locks.
    """
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
    descriptor, which stays open.

    Arguments and errors are as for `open_locked`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with locked(folder):
        ...     with locked(folder, holder="another conversion"):
        ...         pass
        Traceback (most recent call last):
            ...
        penstock.errors.LockedError: ... is in use by another conversion; try again when it has finished
    """
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
