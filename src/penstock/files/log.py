"""`AppendLog`: a file that one writer at a time appends to, and that many may read meanwhile."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from penstock.errors import FormatError, LockedError
from penstock.files.descriptors import StrPath
from penstock.files.locks import open_locked, unlock
from penstock.files.replace import disk_errors_named, write_atomic


class AppendLog:
    """A file that begins with `magic` and grows by whole records; locked while it is open.

    The magic is checked before anything changes: a file that begins otherwise is refused as it is. A missing file
    appears with its magic complete; an empty one gets it. A record that cannot be written completely is taken back, so
    that the next one does not follow half of it.
    """

    def __init__(self, path: StrPath, magic: bytes, what: str, holder: str = "another writer") -> None:
        self.path = Path(path)
        self._fd = -1
        if not os.path.lexists(self.path):
            with suppress(FileExistsError):  # somebody else made it: it is looked at below
                write_atomic(self.path, magic, overwrite=False)
        if self.path.exists() and not self.path.is_file():
            raise FormatError(f"expected {what}, got no regular file; choose another name", path=self.path)
        fd = open_locked(self.path, holder=holder, follow=True)
        try:
            self._end = _check(fd, magic, what, self.path)
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._process = fd, os.getpid()

    def read(self) -> bytes:
        """Return everything, the magic included."""
        return _read(self._open_fd(), self._end)

    def append(self, data: bytes) -> None:
        """Write behind the last record."""
        fd = self._open_fd()
        try:
            _write(fd, data, self._end, self.path)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(fd, self._end)
            raise
        self._end += len(data)

    def truncate(self, size: int) -> None:
        """Cut everything off behind `size` bytes."""
        os.ftruncate(self._open_fd(), size)
        self._end = size

    def close(self) -> None:
        """Close the file and end the lock. Closing twice is fine; in a forked process, the lock stays."""
        if self._fd >= 0:
            if self._process == os.getpid():
                unlock(self._fd)  # for forked processes that have a copy of the descriptor
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise ValueError(f"expected an open log, got one that was closed: {self.path}")
        if self._process != os.getpid():
            raise LockedError(f"{self.path} belongs to the process that opened it; give this one another file")
        return self._fd


def _check(fd: int, magic: bytes, what: str, path: Path) -> int:
    """Look whether the file begins as it must; its size. Write the magic into an empty file."""
    state = os.fstat(fd)
    if not stat.S_ISREG(state.st_mode):
        raise FormatError(f"expected {what}, got no regular file; choose another name", path=path)
    if state.st_size == 0:
        _write(fd, magic, 0, path)
        return len(magic)
    head = os.pread(fd, len(magic), 0)
    if head != magic:
        raise FormatError(
            f"expected {what}, which begins with {magic!r}, got a file that begins with {head!r}; nothing in it was "
            "changed: choose another name, or remove it",
            path=path,
        )
    return state.st_size


def _read(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    done = 0
    while done < size and (part := os.pread(fd, min(size - done, 1 << 26), done)):
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def _write(fd: int, data: bytes, position: int, path: Path) -> None:
    left = memoryview(data)
    while left:
        with disk_errors_named(path):
            written = os.pwrite(fd, left, position)
        left, position = left[written:], position + written
