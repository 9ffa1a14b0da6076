"""Files of which only some bytes are on this machine: the hook by which readers ask for the others.

A mirror of remote data (`penstock.locations.mirror`) is a folder of sparse files of full size. All that reads files by
path goes through this module, or through `penstock.files.mapping`, so that bytes are fetched before they are touched
(docs/architecture.md has the table). For any other path these functions do what their namesakes do.
"""

from __future__ import annotations

import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import FormatError, RemoteError

StrPath = str | os.PathLike[str]

FOLDER = "mirror.penstock"
"""Name of the folder in the user's cache below which files are mirrors."""

_MARK = f"{os.sep}{FOLDER}{os.sep}"
_BUFFER = 1 << 18  # bytes that a file object asks for at least
_LONGEST = 16 << 20  # bytes that it asks for at once


SETTLED = 2_000_000_000  # ns: times of files are as coarse as 2 s on some file systems


@dataclass(frozen=True)
class FileState:
    """What tells one state of a file from another: `device` and `inode` are 0 for remote files."""

    size: int
    mtime_ns: int
    device: int = 0
    inode: int = 0
    is_settled: bool = field(default=True, compare=False, repr=False)
    """Whether another version of the file would have another time, as far as was seen when the state was looked up."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the state of a file that is below no mirror, looked up now."""
        settled = status.st_mtime_ns < time.time_ns() - SETTLED
        return cls(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino, settled)


class RemoteFile(ABC):
    """A local sparse file that stands for a remote object."""

    state: FileState

    @property
    @abstractmethod
    def identity(self) -> tuple[int, int]:
        """Device and inode of the local file, into which bytes are fetched."""

    @abstractmethod
    def progress(self) -> AbstractContextManager[Callable[[int], None]]:
        """Show a bar for the block, where that helps. The function takes the number of bytes that came."""

    def check_opened(self, fd: int) -> None:
        """Raise `RemoteError` if an open file is not the one that bytes are fetched into: it would have zeros."""
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self.identity:
            raise deleted_cache()


def deleted_cache() -> RemoteError:
    """The error of a reader whose files in the cache were deleted by somebody."""
    return RemoteError("the cache of remote data was deleted while it was in use; open the dataset again")


_failures: ContextVar[list[RemoteError] | None] = ContextVar("penstock_remote", default=None)


@contextmanager
def remote_errors_kept() -> Generator[None]:
    """Raise the first `RemoteError` of this thread in the block, also if the code in the block caught it. After it,
    no further bytes are fetched in the block.

    Who looks at files to see what they are takes an error of the system for "something else", which is wrong where a
    server did not answer.
    """
    failures: list[RemoteError] = []
    token = _failures.set(failures)
    try:
        yield
    except Exception:
        if failures:
            raise failures.pop() from None  # no reference stays that would keep files open until the next collection
        raise
    finally:
        _failures.reset(token)
    if failures:
        raise failures.pop()


def require_fetched() -> None:
    """Raise the `RemoteError` of the block, if a fetch failed in it: what was made of its bytes is not proven."""
    if failures := _failures.get():
        raise failures[0]


Wanted = tuple[RemoteFile, IntArray, IntArray]
"""A file, and where the ranges of its bytes begin and end."""


class RemoteFiles(ABC):
    """Finds and fills remote files; there is one in a process."""

    @abstractmethod
    def find(self, path: str) -> RemoteFile | None:
        """The remote file at an absolute path below `FOLDER`; None for another file there."""

    @abstractmethod
    def fill(self, wanted: Sequence[Wanted]) -> Callable[[], None]:
        """Fetch what is missing of some ranges. They stay until the function that is returned is called."""

    @abstractmethod
    def begin_fetch(self, wanted: Sequence[Wanted], *, most: bool) -> None:
        """Begin to fetch what is missing of some ranges, and return at once. Errors are left to the read."""


_handlers: list[RemoteFiles] = []


def set_remote_files(files: RemoteFiles) -> None:
    """Let `files` find and fill the remote files of this process."""
    _handlers[:] = [files]


def is_mirrored(path: StrPath) -> bool:
    """Return whether a file or folder is below a mirror of remote data."""
    return _MARK in os.path.abspath(path)


def lasting_name(path: StrPath) -> str:
    """The path of a file or folder; of a mirrored one without the folder of a state, which changes with any object."""
    if not is_mirrored(path):
        return os.path.abspath(path)
    parts = Path(path).absolute().parts
    url = parts.index(FOLDER) + 2  # below it, the folder of a state
    return "/".join([parts[url], *parts[url + 2 :]])


def remote_file(path: StrPath) -> RemoteFile | None:
    """Return the remote file at a path, or None for any other path."""
    text = os.fspath(path)
    if _MARK not in text and os.path.isabs(text):
        return None  # a fifth of the time of `abspath`, in each read of a file
    place = os.path.abspath(text)
    if _MARK not in place:
        return None
    if not _handlers:
        raise FormatError("expected remote files to be known; import penstock.locations.mirror", path=path)
    return _handlers[0].find(place)


@contextmanager
def filled(wanted: Sequence[Wanted]) -> Generator[None]:
    """Have the bytes of some ranges on this machine for the block."""
    release = fill(wanted)
    try:
        yield
    finally:
        release()


def fill(wanted: Sequence[Wanted]) -> Callable[[], None]:
    """Fetch ranges, which stay until the function that is returned is called."""
    if not wanted:
        return _release_nothing
    require_fetched()  # nothing else that the block does can end well
    try:
        return _handlers[0].fill(wanted)
    except RemoteError as error:
        if (failures := _failures.get()) is not None:
            failures.append(error)
        raise


def _release_nothing() -> None:
    """No range was fetched."""


def begin_fetch(wanted: Sequence[Wanted], *, most: bool) -> None:
    """Begin to fetch ranges that are read later, and return at once. Errors are left to the read."""
    if wanted:
        _handlers[0].begin_fetch(wanted, most=most)


def remote_files_known() -> bool:
    """Return whether this process has opened a URL."""
    return bool(_handlers)


def range_of(file: RemoteFile, begin: int, end: int) -> Wanted:
    return file, np.array([begin], np.int64), np.array([end], np.int64)


def read_at(path: StrPath, fd: int, size: int, position: int) -> bytes:
    """Return at most `size` bytes of an open file, which are fetched before. `path` names the file."""
    file = remote_file(path)
    if file is None:
        return os.pread(fd, size, position)
    with filled([range_of(file, position, min(position + size, file.state.size))]):
        return os.pread(fd, size, position)


def whole_file(path: StrPath) -> Path:
    """Return the path, after all bytes of the file are on this machine; they stay as long as this process lives."""
    if (file := remote_file(path)) is not None:
        fill([range_of(file, 0, file.state.size)])
    return Path(path)


@contextmanager
def whole_for_block(path: StrPath) -> Generator[None]:
    """Have all bytes of a file on this machine for the block."""
    file = remote_file(path)
    with nullcontext() if file is None else filled([range_of(file, 0, file.state.size)]):
        yield


def path_or_file(path: StrPath, buffer: int = _BUFFER) -> StrPath | IO[bytes]:
    """Return what a library reads that takes either: the path, or a file that fetches ranges of a remote one."""
    return path if remote_file(path) is None else open_file(path, buffer=buffer)


def open_file(path: StrPath, *, buffer: int = _BUFFER) -> IO[bytes]:
    """Open a file for reading. Its descriptor shows the bytes that were read through the object alone."""
    file = remote_file(path)
    return open(path, "rb") if file is None else _FillingReader(_FillingFile(path, file, buffer), buffer)


@contextmanager
def read_in_order(path: StrPath) -> Generator[IO[bytes]]:
    """Open a file, all of which the block reads in order. A terminal shows a bar while a large file is fetched."""
    file = remote_file(path)
    if file is None:
        with open(path, "rb") as local:
            yield local
        return
    with file.progress() as advance, _FillingReader(_FillingFile(path, file, _BUFFER, advance), _BUFFER) as reader:
        yield reader


def read_bytes(path: StrPath) -> bytes:
    with open_file(path) as file:
        return file.read()


def read_text(path: StrPath) -> str:
    return read_bytes(path).decode("utf-8")


def file_state(path: StrPath) -> FileState:
    """Return the state of a file; links are followed. The time of a remote file stands for its version."""
    file = remote_file(path)
    return local_state(path) if file is None else file.state


def opened_state(fd: int, path: StrPath) -> FileState:
    """Return the state of an open file. Fetching parts of a remote file does not change it."""
    file = remote_file(path)
    return FileState.of(os.fstat(fd)) if file is None else file.state


def local_state(path: StrPath) -> FileState:
    """Return the state of a file that is below no mirror."""
    return FileState.of(os.stat(path))


class _FillingFile(io.FileIO):
    """A file object that fetches ranges before it reads them, and further ahead the longer it is read in order."""

    def __init__(
        self, path: StrPath, file: RemoteFile, buffer: int, advance: Callable[[int], None] | None = None
    ) -> None:
        super().__init__(os.fspath(path), "rb")
        self._advance = advance
        file.check_opened(self.fileno())
        self._file = file
        self._least = buffer
        self._next = 0  # where the last read ended
        self._fetched = 0  # where the last fetch ended
        self._ahead = buffer

    @override
    def readinto(self, buffer: object, /) -> int:
        begin = self.tell()
        view = memoryview(buffer)  # pyright: ignore[reportArgumentType]
        with self._filled(begin, begin + view.nbytes):
            return super().readinto(view)

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        begin = self.tell()
        end = self._file.state.size if size is None or size < 0 else begin + size
        with self._filled(begin, end):
            return super().read(size)

    @override
    def readall(self) -> bytes:
        return self.read(-1)

    def __del__(self) -> None:
        self.close()  # as of the reader above it, which an error may keep alive until both are collected at once

    @contextmanager
    def _filled(self, begin: int, end: int) -> Generator[None]:
        end = min(end, self._file.state.size)
        if begin >= end:
            yield
            return
        until = end
        if begin != self._next:
            self._ahead = self._least
        elif end > self._fetched:
            until = min(max(end, begin + self._ahead), self._file.state.size)
            self._ahead = min(2 * self._ahead, _LONGEST)
        if self._advance is not None and until > self._fetched:
            self._advance(until - self._fetched)
        self._fetched = until if begin != self._next else max(until, self._fetched)
        self._next = end
        with filled([range_of(self._file, begin, until)]):
            yield


class _FillingReader(io.BufferedReader):
    """A file that is closed when the last reference is gone: libraries do not close file objects."""

    def __del__(self) -> None:
        self.close()
