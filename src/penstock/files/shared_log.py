"""`SharedLog`: records that a process and the processes that it starts append and read."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any


class SharedLog:
    """Records of integers in a file without a name. Processes that are forked or spawned by
    `multiprocessing` share it.

    All processes see the records in one order, because an append is atomic. A copy that is pickled in another way is
    empty.
    """

    def __init__(self, integers: int) -> None:
        self._record = struct.Struct(f"={integers}q")
        self._use(_new_file())

    def _use(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd).atexit = False

    def append(self, *values: int) -> None:
        """Append a record."""
        os.write(self._fd, self._record.pack(*values))

    def read(self, start: int) -> list[tuple[int, ...]]:
        """Return the records from a number on."""
        size = self._record.size
        data = os.pread(self._fd, os.fstat(self._fd).st_size - start * size, start * size)
        return list(self._record.iter_unpack(data))

    def __getstate__(self) -> dict[str, Any]:
        shared = None if get_spawning_popen() is None else reduction.DupFd(self._fd)
        return {"_record": self._record.format, "_fd": shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._record = struct.Struct(state["_record"])
        self._use(_new_file() if state["_fd"] is None else state["_fd"].detach())


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("penstock-log")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd
