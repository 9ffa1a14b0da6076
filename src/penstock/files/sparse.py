"""Sparse files: of full size from the start, filled in any order, with parts given back to the disk."""

from __future__ import annotations

import ctypes
import errno
import os

from penstock.files.descriptors import StrPath, open_descriptor

_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # flags of fallocate, from linux/falloc.h


def make_sparse(path: StrPath, size: int) -> None:
    """Make a file of `size` bytes that takes no room, unless there is one of that size."""
    fd = open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        if os.fstat(fd).st_size != size:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)


def make_full(path: StrPath, size: int) -> None:
    """Make a file of `size` bytes that has all its room, unless there is one: a write to a map of it cannot fail."""
    fd = open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        state = os.fstat(fd)
        if state.st_size != size or state.st_blocks * 512 < size:
            os.ftruncate(fd, size)
            if size:
                os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def punch_hole(fd: int, begin: int, size: int) -> bool:
    """Give the room of a part of a file back to the disk; it reads as zeros. False where the file system cannot."""
    if not hasattr(_libc, "fallocate"):
        return False
    arguments = fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(size)
    if _libc.fallocate(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number))


def link_file(source: StrPath, target: StrPath) -> None:
    """Give a file a second name on the same file system; another file of that name is replaced."""
    while True:
        try:
            os.link(source, target)
        except FileExistsError:
            if os.path.samefile(source, target):
                return
            os.unlink(target)
        else:
            return


def room_of(path: StrPath) -> int:
    """How many bytes of the disk a file takes."""
    return os.stat(path).st_blocks * 512
