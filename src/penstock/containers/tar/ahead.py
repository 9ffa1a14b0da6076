"""Archives that are unpacked by a thread of their own, some way ahead of who reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import IO

from penstock.containers.tar.compress import PIECE, opened


class Ahead:
    """The unpacked bytes of what `open` opens, at most `limit` and two pieces (of 1 MiB) of them ahead of `read`. The
    thread ends with the file, or once it was told to `close`.

    >>> file = Ahead(lambda: __import__("io").BytesIO(b"frame"), "a.tar", limit=4)
    >>> file.read(4), file.read(4), file.read(4)
    (b'fram', b'e', b'')
    """

    def __init__(self, open: Callable[[], IO[bytes]], path: object, limit: int) -> None:
        self._open, self._path, self._limit = open, path, limit
        self._parts: deque[bytes] = deque()
        self._held = 0
        self._ended, self._failed = False, list[BaseException]()
        self._changed = threading.Condition()
        self._part = memoryview(b"")  # the one that is being read
        threading.Thread(target=self._fill, name=f"unpacking {path}", daemon=True).start()

    def read(self, n: int) -> bytes:
        """At most `n` bytes, none at the end. Raises what opening and reading raise, behind what was read before."""
        if not self._part:
            with self._changed:
                self._changed.wait_for(lambda: self._parts or self._ended)
                if self._parts:
                    self._part = memoryview(self._parts.popleft())
                    self._held -= len(self._part)
                    self._changed.notify_all()
                elif self._failed:
                    raise self._failed[0]
        found, self._part = self._part[:n], self._part[n:]
        return bytes(found)

    def close(self) -> None:
        """Let go of what was read, and have the thread end."""
        with self._changed:
            self._ended, self._part = True, memoryview(b"")
            self._parts.clear()
            self._changed.notify_all()

    def _fill(self) -> None:
        try:
            with self._open() as file:
                reader = opened(file, self._path)
                while part := reader.read(PIECE):
                    with self._changed:
                        self._changed.wait_for(lambda: self._held < self._limit or self._ended)
                        if self._ended:
                            return
                        self._parts.append(part)
                        self._held += len(part)
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - whoever reads gets it
            self._failed.append(error)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
