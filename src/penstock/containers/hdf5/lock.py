"""Who may write: one `Appender` at a time, and no libhdf5 writer next to it."""

from __future__ import annotations

import os

from penstock.files.locks import lock, open_locked


def lock_for_writing(path: str, fd: int, *, wait: bool) -> int:
    """Take the writers' lock of `path`, open as `fd`; the descriptor that holds it until it is closed.

    Writers exclude each other by a lock on `.<name>.lock` next to the file.  The file itself is locked shared: that
    lets libhdf5 read, and keeps out a libhdf5 that writes.  Raises `LockedError` unless `wait`.
    """
    folder, name = os.path.split(path)
    place = os.path.join(folder, f".{name}.lock")
    holder = open_locked(place, os.O_RDWR | os.O_CREAT, wait=wait, name=path, follow=True)
    try:
        lock(fd, path, shared=True, wait=wait, holder="a program that writes with libhdf5")
    except BaseException:
        os.close(holder)
        raise
    return holder
