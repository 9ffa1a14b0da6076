"""Archives that a thread unpacks ahead of the reader."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import IO

from penstock.containers.tar.compress import PIECE, opened
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import QueueClosed


class Ahead:
    """File of the unpacked bytes of an archive, which a thread reads ahead.

    The thread ends with the file, or after `close`.
    """

    def __init__(self, open: Callable[[], IO[bytes]], path: object, limit: int) -> None:
        # The reading itself is the source of the map: it has to go forward, so it is one thread's work.
        limits = PrefetchLimits(1, max(1, limit), limit)
        self._pieces = OrderedMap(_as_it_is, _pieces(open, path), limits, weigh=len, name=f"unpacking {path}")
        self._pieces.start()
        self._piece = memoryview(b"")  # rest of the piece that is being read

    def read(self, n: int) -> bytes:
        """Return at most `n` bytes, and none at the end."""
        if not self._piece:
            try:
                self._piece = memoryview(self._pieces.get())
            except (StopIteration, QueueClosed):
                return b""
        piece, self._piece = self._piece[:n], self._piece[n:]
        return bytes(piece)

    def close(self) -> None:
        """Release what was unpacked, and end the thread."""
        self._piece = memoryview(b"")
        self._pieces.close()


def _pieces(open: Callable[[], IO[bytes]], path: object) -> Generator[bytes]:
    with open() as file:
        reader = opened(file, path)
        while piece := reader.read(PIECE):
            yield piece


def _as_it_is(piece: bytes) -> bytes:
    return piece
