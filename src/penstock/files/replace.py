"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from penstock.files.descriptors import StrPath, open_descriptor
from penstock.files.locks import unlock
from penstock.files.rename import move
from penstock.files.scratch import disk_errors_named, make_scratch, sweep_once

Durability = Literal["none", "file", "folder"]


@contextmanager
def atomic_file(path: StrPath, *, durable: Durability = "none", overwrite: bool = True) -> Generator[IO[bytes]]:
    """Write a new file that takes the place of `path` when the block ends; if it raises, nothing changes.

    Readers have the old file or the new one, at any moment and after a kill. A link is replaced, not followed.
    The permission bits are as for a new file (0666 without the umask).
    """
    target = Path(path)
    sweep_once(target.parent)
    scratch, fd = make_scratch(target, _make)
    try:
        with disk_errors_named(target):
            with open(fd, "wb", closefd=False) as file:
                yield file
            if durable != "none":
                os.fsync(fd)
        move(scratch, target, overwrite=overwrite)
        with suppress(OSError):  # a file system without locks
            unlock(fd)  # for who opens the new file next, even if a forked process has a copy of the descriptor
    except BaseException:
        with suppress(OSError):
            os.unlink(scratch)
        raise
    finally:
        os.close(fd)
    if durable == "folder":
        sync(target.parent)


def write_atomic(path: StrPath, *parts: Any, durable: Durability = "none", overwrite: bool = True) -> None:
    """Write bytes (any buffers, in order) as `atomic_file` does, with its arguments and errors."""
    with atomic_file(path, durable=durable, overwrite=overwrite) as file:
        file.writelines(parts)


def sync(*paths: StrPath) -> None:
    """Flush the bytes of files, or the names in folders, to the disk itself."""
    for path in paths:
        fd = open_descriptor(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _make(path: str) -> int:
    return open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
