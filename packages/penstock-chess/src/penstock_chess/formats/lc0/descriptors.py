"""Open files, a bounded number of them: the last read files stay open, for all readers."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.files.descriptors import open_descriptor
from penstock.files.remote import FileState, remote_file
from penstock_chess.formats.lc0.errors import ChunkError, Reason

LIMIT = 64


class Identity(NamedTuple):
    """State of a file when it was indexed. It may grow behind that, and nothing else."""

    device: int
    number: int
    size: int
    time: int

    @classmethod
    def of(cls, fd: int, path: Path) -> Identity:
        """Of an open file, as it is now. A file behind a URL stays as it was listed."""
        if (remote := remote_file(path)) is not None:
            remote.check_opened(fd)
            return cls(*remote.identity, remote.state.size, remote.state.mtime_ns)
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @classmethod
    def at(cls, path: Path, state: FileState) -> Identity:
        """Of a file in a state that was looked up, without opening it."""
        remote = remote_file(path)
        device, number = (state.device, state.inode) if remote is None else remote.identity
        return cls(device, number, state.size, state.mtime_ns)

    def holds(self, now: Identity) -> bool:
        """Whether what was indexed is still there: the same file, either as it was or longer."""
        return now[:2] == self[:2] and (now.time == self.time or now.size > self.size)


@dataclass(slots=True)
class _OpenDescriptor:
    fd: int
    users: int = 0


class Descriptors:
    """At most `limit` descriptors, and one more for each thread that reads at the moment.

    A descriptor keeps a deleted file readable while it is open. A file that was replaced, or written again, is not
    read: its path then names another one.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._open: OrderedDict[tuple[Path, Identity], _OpenDescriptor] = OrderedDict()
        self.renew()

    def renew(self) -> None:
        """Take a new lock, in a process that was forked off while a thread may have owned the old one."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def borrow(self, path: Path, identity: Identity) -> Generator[int]:
        """A descriptor of the file, valid inside the block."""
        key = (path, identity)
        descriptor = self._taken(key) or self._opened(key)
        try:
            if not identity.holds(Identity.of(descriptor.fd, path)):
                message = "expected the file that was indexed, got another: it was replaced or written again"
                raise ChunkError(message, Reason.IO, path=path)
            yield descriptor.fd
        finally:
            with self._lock:
                descriptor.users -= 1
                self._shrink()

    def _taken(self, key: tuple[Path, Identity]) -> _OpenDescriptor | None:
        with self._lock:
            descriptor = self._open.get(key)
            if descriptor is not None:
                self._open.move_to_end(key)
                descriptor.users += 1
            return descriptor

    def _opened(self, key: tuple[Path, Identity]) -> _OpenDescriptor:
        """Opened while others read; if another thread was quicker, its descriptor."""
        fd = open_descriptor(key[0], os.O_RDONLY | os.O_NONBLOCK, fetch=False)
        with self._lock:
            descriptor = self._open.setdefault(key, _OpenDescriptor(fd))
            descriptor.users += 1
        if descriptor.fd != fd:
            os.close(fd)
        return descriptor

    def drop(self, path: Path, identity: Identity) -> None:
        """Close the file's descriptor, if it is open and no thread reads from it now."""
        with self._lock:
            descriptor = self._open.get((path, identity))
            if descriptor is not None and not descriptor.users:
                os.close(self._open.pop((path, identity)).fd)

    def _shrink(self) -> None:
        """Close those read longest ago, until there are few enough."""
        over = len(self._open) - self._limit
        if over > 0:
            idle = [key for key, descriptor in self._open.items() if not descriptor.users][:over]
            for key in idle:
                os.close(self._open.pop(key).fd)


DESCRIPTORS = Descriptors()
os.register_at_fork(after_in_child=DESCRIPTORS.renew)
