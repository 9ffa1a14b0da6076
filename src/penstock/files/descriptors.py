"""File descriptors: regular files alone, few of them at once, and a clear error where a process has too many."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import StrPath, whole_file

POOLED = 256  # descriptors of pooled files in a process, where `ulimit -n` allows 1,024


def open_descriptor(path: StrPath, flags: int, mode: int = 0o666, *, fetch: bool = True) -> int:
    """Open a file or folder as `os.open` does and return its descriptor, which child processes do not inherit.

    A remote file that is only read is fetched whole, unless `fetch` is False: then the caller asks for ranges. Where
    the process has reached its limit of open files, idle descriptors of pooled files are closed first.
    """
    if fetch and flags & os.O_ACCMODE == os.O_RDONLY:
        whole_file(path)
    while True:
        try:
            return os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            if not _POOL.close_idle():
                raise _too_many_files(path) from error


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False, fetch: bool = True) -> int:
    """Open a regular file and return its descriptor, which the caller closes."""
    links = 0 if follow else os.O_NOFOLLOW
    try:
        fd = open_descriptor(path, flags | links | os.O_NONBLOCK, 0o644, fetch=fetch)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FormatError("expected a file, found none", path=path) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise UnsafeDataError("expected a regular file, got a link, folder, device or pipe", path=path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnsafeDataError("expected a regular file, got a folder, device or pipe", path=path)
    return fd


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> Generator[int]:
    """`open_regular`, closed at the end of the block."""
    fd = open_regular(path, flags, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


def _too_many_files(path: StrPath) -> OSError:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    message = f"{os.strerror(errno.EMFILE)}: this process may have {limit}; raise the limit with `ulimit -n`"
    return OSError(errno.EMFILE, message, os.fspath(path))


class PooledFile:
    """A file that is read and written at positions, and holds a descriptor only while the process can spare one.

    `with file as fd` gives its descriptor for the block. Between blocks the descriptor stays open as long as there are
    few of them: all pooled files of a process together keep at most a quarter of what `ulimit -n` allows, 256 at most,
    those used last. Locks do not outlive a descriptor, so a file that is locked has to be opened otherwise.
    """

    __slots__ = ("fd", "flags", "group", "identity", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self.path, self.flags = path, flags
        self.fd = -1
        self.identity: tuple[int, int] | None = None  # device and inode, once it was open
        self.group = PooledFiles((self,))

    def __enter__(self) -> int:
        _POOL.take(self.group)
        return self.fd

    def __exit__(self, *exc: object) -> None:
        _POOL.put_back(self.group)

    def close(self) -> None:
        """Close its descriptor, if it has one. It may be used again afterwards."""
        _POOL.close(self)


class PooledFiles:
    """Pooled files that are used together: in a `with` block each has its descriptor, `file.fd`, also in the block of
    one of them. A file is in one group, the last that it was given to, and is not in use when it is given.

    Cost: little more than a block for one file. The files should be few, because all are open at once.
    """

    __slots__ = ("files", "is_open", "users")

    def __init__(self, files: Sequence[PooledFile]) -> None:
        self.files, self.users = files, 0
        self.is_open = False  # whether all files have a descriptor
        for file in files:
            if file.fd >= 0:
                file.close()
            file.group = self

    def __enter__(self) -> None:
        _POOL.take(self)

    def __exit__(self, *exc: object) -> None:
        _POOL.put_back(self)


class _Pool:
    """The open descriptors of all pooled files. Every group is in use (`users > 0`), or idle, or has none."""

    def __init__(self) -> None:
        self.renew()
        self._idle: OrderedDict[PooledFiles, None] = OrderedDict()  # those used longest ago come first
        self._open = 0

    def renew(self) -> None:
        """Take a new lock, in a process that was forked off while a thread may have owned the old one."""
        self._lock = threading.RLock()  # opening a file may close an idle one

    def take(self, group: PooledFiles) -> None:
        with self._lock:
            self._idle.pop(group, None)
            group.users += 1
            if not group.is_open:
                try:
                    self._open_all(group)
                except BaseException:
                    self.put_back(group)
                    raise

    def _open_all(self, group: PooledFiles) -> None:
        for file in group.files:
            if file.fd < 0:
                file.fd = self._opened(file)
                self._open += 1
        group.is_open = True

    def put_back(self, group: PooledFiles) -> None:
        with self._lock:
            group.users -= 1
            if not group.users:
                self._idle[group] = None

    def close(self, file: PooledFile) -> None:
        with self._lock:
            if file.fd >= 0:
                self._close(file)
            if all(other.fd < 0 for other in file.group.files):
                self._idle.pop(file.group, None)

    def close_idle(self) -> bool:
        """Close the idle files used longest ago; False if no file is idle."""
        with self._lock:
            if not self._idle:
                return False
            group, _ = self._idle.popitem(last=False)
            for file in group.files:
                if file.fd >= 0:
                    self._close(file)
            return True

    def _opened(self, file: PooledFile) -> int:
        limit = min(POOLED, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        while self._open >= limit and self.close_idle():
            pass
        fd = open_regular(file.path, file.flags)
        status = os.fstat(fd)
        if file.identity not in (None, (status.st_dev, status.st_ino)):
            os.close(fd)
            raise FormatError("expected the file that was open, got another: it was replaced", path=file.path)
        file.identity = (status.st_dev, status.st_ino)
        return fd

    def _close(self, file: PooledFile) -> None:
        os.close(file.fd)
        file.fd, file.group.is_open = -1, False
        self._open -= 1


_POOL = _Pool()
os.register_at_fork(after_in_child=_POOL.renew)
