"""Who may write: one `Appender` at a time, and no libhdf5 writer next to it."""

from __future__ import annotations

import fcntl
import os

from penstock.errors import LockedError


def lock_for_writing(path: str, fd: int, *, wait: bool) -> int:
    """Take the writers' lock of `path`, open as `fd`; the descriptor that holds it until it is closed.

    Writers exclude each other by a lock on `.<name>.lock` beside the file.  The file itself is locked
    shared: that lets libhdf5 read, and keeps out a libhdf5 that writes.  Raises `LockedError` unless `wait`.
    """
    folder, name = os.path.split(path)
    holder = os.open(os.path.join(folder, f".{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _flock(holder, fcntl.LOCK_EX, path, "another writer", wait=wait)
        _flock(fd, fcntl.LOCK_SH, path, "a program that writes with libhdf5", wait=wait)
    except BaseException:
        os.close(holder)
        raise
    return holder


def _flock(fd: int, kind: int, path: str, who: str, *, wait: bool) -> None:
    try:
        fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LockedError(f"{path} is in use by {who}; wait for it to finish, or open with wait=True") from error


def sync_folder(path: str) -> None:
    """Make the name of a new file durable."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
