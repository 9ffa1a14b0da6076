"""Read-only memory maps: one mechanism for every file that is read in place.

A map made here keeps no file descriptor (Python's `mmap` duplicates it, before 3.13 without a choice), and it knows its
file, so that a read can notice that the file was truncated: touching a page behind the end of a file ends the process
with SIGBUS, which no `except` can catch.

Maps of remote files hold zeros where bytes were not fetched. `map_file` fetches a remote file whole, unless `lazy` says
that every reader asks first. At the exit of the interpreter nothing is unmapped, because daemon threads may still be
copying.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray, read_only
from penstock.errors import FormatError
from penstock.files.descriptors import open_descriptor, open_regular
from penstock.files.remote import RemoteFile, Wanted, fill, filled, range_of, remote_file

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
_clock = time.monotonic

Mapped = TypeVar("Mapped", bound=AnyArray)

BELIEVED = 0.01  # seconds for which a file that was looked at is not looked at again
SHARE = 0.02  # of the time that looking at many files may take


class MappedFile:
    """The first `size` bytes of a file, mapped read-only; the owner of the arrays that `map_file` returns."""

    __slots__ = (
        "__array_interface__",
        "__weakref__",
        "_found",
        "_identity",
        "_place",
        "_until",
        "address",
        "path",
        "remote",
        "size",
    )

    def __init__(self, fd: int, size: int, path: Path, *, writable: bool = False, lazy: bool = False) -> None:
        status = os.fstat(fd)
        access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        address = _libc.mmap(None, size, access, mmap.MAP_SHARED, fd, 0)
        if address is None or address == _FAILED:
            raise _map_error(ctypes.get_errno(), path)
        self.address = address
        self.path = path
        self.size = size
        self._identity = (status.st_dev, status.st_ino)
        self._place = os.path.abspath(path)  # the working directory may change
        self._found, self._until = size, 0.0  # what the last look found, and until when it is believed
        self.__array_interface__ = {"data": (address, not writable), "shape": (size,), "typestr": "|u1", "version": 3}
        weakref.finalize(self, _libc.munmap, address, size).atexit = False
        remote = None if writable else remote_file(path)
        if remote is not None:
            remote.check_opened(fd)
        if remote is not None and not lazy:
            release = fill([range_of(remote, 0, size)])
            weakref.finalize(self, release).atexit = False
            remote = None  # all of it is here
        self.remote: RemoteFile | None = remote

    def check(self, size: int | None = None) -> None:
        """Raise `FormatError` if the file has fewer than `size` bytes by now, by default all that are mapped.

        A file that was replaced or deleted is fine: mapped bytes stay as they were until it is unmapped. Cost: one
        `stat`, 2 to 10 µs, unless there was one less than `BELIEVED` seconds ago. A remote file keeps its size.
        """
        if self.remote is not None:
            return
        wanted, now = self.size if size is None else size, _clock()
        if now >= self._until:
            self._found, self._until = self._length(), now + BELIEVED
        if self._found < wanted:
            self._until = 0.0
            raise FormatError(
                f"expected at least {wanted} bytes, got {self._found}: the file was truncated while it was open; "
                "restore it and open the dataset again",
                path=self.path,
            )

    def _length(self) -> int:
        """How many bytes of the map can be read: fewer than are mapped only where this very file was truncated."""
        try:
            status = os.stat(self._place)
        except OSError:
            return self.size  # its name is gone; the mapped bytes remain
        return status.st_size if (status.st_dev, status.st_ino) == self._identity else self.size


def map_file(
    path: str | os.PathLike[str], size: int | None = None, *, follow: bool = True, lazy: bool = False
) -> ByteArray:
    path = Path(path)
    fd = open_regular(path, follow=follow, fetch=False)
    try:
        return map_descriptor(fd, path, size, lazy=lazy)
    finally:
        os.close(fd)


def map_writable(path: str | os.PathLike[str], size: int) -> ByteArray:
    """Map a file of `size` bytes as `[size]` uint8. Other processes see at once what is written to the array."""
    fd = open_descriptor(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        return np.asarray(MappedFile(fd, size, Path(path), writable=True)) if size else np.zeros(0, np.uint8)
    finally:
        os.close(fd)


def map_descriptor(fd: int, path: Path, size: int | None = None, *, lazy: bool = False) -> ByteArray:
    """Map a file that is open as `fd`, which may be closed afterwards; else as `map_file`."""
    actual = os.fstat(fd).st_size
    wanted = actual if size is None else size
    if actual < wanted:
        raise FormatError(f"expected at least {wanted} bytes, got {actual}", path=path)
    return np.asarray(MappedFile(fd, wanted, path, lazy=lazy)) if wanted else np.zeros(0, np.uint8)


def mapping_of(buffer: Any) -> MappedFile | None:
    """The mapped file that an array or memoryview shows, None for other memory."""
    while buffer is not None and not isinstance(buffer, MappedFile):
        buffer = buffer.obj if isinstance(buffer, memoryview) else getattr(buffer, "base", None)
    return buffer


def check_mapped(*buffers: ByteArray | memoryview) -> None:
    """Raise `FormatError` if the file behind one of these buffers has fewer bytes now than the buffer shows."""
    for buffer in buffers:
        if (file := mapping_of(buffer)) is not None:
            file.check(_end(buffer, file))


def is_lazy(buffer: Any) -> bool:
    """Whether an array shows a remote file that was mapped with `lazy`."""
    return (file := mapping_of(buffer)) is not None and file.remote is not None


def read_mapped(buffer: Mapped) -> Mapped:
    """Return a part of a map, to be read now or later: the part as it is, of a lazy map a copy."""
    file = mapping_of(buffer)
    if file is None:
        return buffer
    end = _end(buffer, file)
    file.check(end)
    if file.remote is None or not buffer.nbytes:
        return buffer
    with filled([range_of(file.remote, end - buffer.nbytes, end)]):
        copy = buffer.copy()
    copy.flags.writeable = False
    return copy


class MappedFiles:
    """The files behind a sequence of buffers, so that a gather can check the files that it is about to read.

    The files must have the bytes of the buffers, not of the whole maps: a writer may cut off what it had not committed.
    Looking at every file takes `SHARE` of the time at most, for any number of files.
    """

    __slots__ = ("_file", "_files", "_size", "_skipped", "_until", "lazy")

    def __init__(self, buffers: Sequence[ByteArray]) -> None:
        numbers: dict[MappedFile, int] = {}
        self._file: list[int] = []  # by buffer, -1 for other memory
        self._size: list[int] = []  # by file, how many of its bytes are in use
        skipped: list[int] = []  # by buffer, the bytes of the file before it
        for buffer in buffers:
            file = mapping_of(buffer)
            self._file.append(-1 if file is None else numbers.setdefault(file, len(numbers)))
            skipped.append(0 if file is None else _end(buffer, file) - buffer.nbytes)
            if file is not None:
                self._size += [0] * (len(numbers) - len(self._size))
                self._size[self._file[-1]] = max(self._size[self._file[-1]], _end(buffer, file))
        self._files: list[MappedFile] = list(numbers)
        self._until = 0.0
        self._skipped = np.array(skipped, np.int64)
        self.lazy = any(file.remote is not None for file in self._files)

    def fill(self, buffers: IntArray, begin: IntArray, end: IntArray) -> Callable[[], None]:
        """Fetch the bytes `begin : end` of these buffers, where they are lazy; call the result after reading."""
        wanted = self.remote_ranges(buffers, begin, end)
        return fill(wanted) if wanted else _nothing

    def remote_ranges(self, buffers: IntArray, begin: IntArray, end: IntArray) -> list[Wanted]:
        """Return the bytes `begin : end` of each of these buffers, where they are lazy, as ranges of remote files."""
        if not self.lazy or not len(buffers):
            return []
        number = np.array(self._file, np.int64)[buffers]
        order = np.argsort(number, kind="stable")
        files, first = np.unique(number[order], return_index=True)
        wanted: list[Wanted] = []
        numbers: list[int] = files.tolist()
        for file, places in zip(numbers, np.split(order, first[1:]), strict=True):
            remote = self._files[file].remote if file >= 0 else None
            if remote is not None:
                skipped = self._skipped[buffers[places]]
                wanted.append((remote, begin[places] + skipped, end[places] + skipped))
        return wanted

    def __len__(self) -> int:
        return len(self._files)

    def check(self, buffers: IntArray | None = None) -> None:
        """Raise `FormatError` if one of them was truncated; with `buffers`, of those behind these buffer numbers."""
        if buffers is not None:
            wanted: list[int] = buffers.tolist()
            for number in {self._file[i] for i in wanted} - {-1}:
                self._files[number].check(self._size[number])
        elif (begin := _clock()) >= self._until:
            for file, size in zip(self._files, self._size, strict=True):
                file.check(size)
            end = _clock()
            self._until = end + max(BELIEVED, (end - begin) / SHARE)


def _nothing() -> None:
    """There is nothing to release."""


def _end(buffer: AnyArray | memoryview, file: MappedFile) -> int:
    """How many bytes of the file have to be there for the buffer to be read."""
    shown = np.asarray(buffer)
    return shown.__array_interface__["data"][0] + shown.nbytes - file.address if shown.nbytes else 0


def _map_error(number: int, path: Path) -> OSError:
    message = os.strerror(number)
    if number == errno.ENOMEM:  # address space, or the number of maps
        message += "; a process may have `sysctl vm.max_map_count` maps and `ulimit -v` KiB of addresses: raise these"
    return OSError(number, message, str(path))


class FetchedParts:
    """Fetches parts of a lazy map, which stay until the end of the block. Does nothing for other bytes."""

    def __init__(self, data: ByteArray, part: int) -> None:
        file = mapping_of(data)
        self._remote = None if file is None else file.remote
        self._size, self._part = len(data), part
        self._marks = np.zeros(0 if self._remote is None else -(-len(data) // part), np.uint8)
        self.present = read_only(self._marks)
        self._releases: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._releases:
            self._releases.pop()()

    def fetch(self, begin: IntArray, end: IntArray) -> None:
        """Fetch the parts that have bytes `begin[j] : end[j]` and were not fetched before."""
        if self._remote is None:
            return
        first = np.maximum(begin, 0) // self._part
        count = np.maximum(-(-np.minimum(end, self._size) // self._part) - first, 0)
        numbers = np.unique(np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum())))
        numbers = numbers[self._marks[numbers] == 0]
        if len(numbers):
            begins = numbers * self._part
            self._releases.append(fill([(self._remote, begins, np.minimum(begins + self._part, self._size))]))
            self._marks[numbers] = 1
