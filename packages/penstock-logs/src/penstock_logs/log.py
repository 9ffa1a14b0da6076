"""`Log`: the messages of a file by topic, each with a time and a place, without reading the messages."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import lz4.frame
import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.errors import FormatError
from penstock.files.remote import open_file
from penstock.formats.base.account import LeftOut

CACHE = Cache(256 << 20)  # chunks and decoded messages of all logs
PART = 1 << 20
MAX_CHUNK = 1 << 31  # bytes of a chunk that are unpacked
_NUMBERS = itertools.count()

Decode = Callable[[bytes], Mapping[str, Any]]


class StoredMessage(NamedTuple):
    """The bytes of a message, and when it was sent, as far as the file says."""

    data: bytes
    publish_time: int | None


@dataclass(frozen=True, eq=False)
class Topic:
    """Messages of one type in the order of their times. `chunk` is -1 for a message that is in no chunk.

    `decode` gives the fields of a message; None: none is known.
    """

    name: str
    type: str
    times: IntArray
    chunk: IntArray
    offset: IntArray
    decode: Decode

    @classmethod
    def of(cls, name: str, type: str, entries: Mapping[str, IntArray], decode: Decode) -> Topic:
        """Return the topic of messages in any order. Messages of one time stay in the order of the file."""
        order = np.lexsort((entries["offset"], entries["chunk"], entries["times"]))
        times, chunk, offset = (entries[key][order] for key in ("times", "chunk", "offset"))
        return cls(name, type, times, chunk, offset, decode)

    @property
    def rate(self) -> float:
        """Messages a second, 0 for a single one."""
        seconds = (int(self.times[-1]) - int(self.times[0])) / 1e9 if len(self.times) else 0.0
        return (len(self.times) - 1) / seconds if seconds > 0 else 0.0

    @property
    def period(self) -> float:
        """Usual seconds between two messages, 0 for a single one."""
        return float(np.median(np.diff(self.times))) / 1e9 if len(self.times) > 1 else 0.0


class Log(ABC):
    """A file of messages. A subclass finds them, and reads one at its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = next(_NUMBERS)  # in the cache
        self.left_out: list[LeftOut] = []
        self.values: dict[str, Any] = {}
        with open_file(path) as file:
            self.topics = self._find(file)

    @abstractmethod
    def _find(self, file: IO[bytes]) -> dict[str, Topic]:
        """Return the topics by name, without the first slash."""

    @abstractmethod
    def messages(self, topic: Topic, rows: IntArray) -> Iterator[StoredMessage]:
        """Yield messages of a topic."""


class ChunkedLog(Log):
    """A file whose messages are in chunks, which are unpacked once as long as the cache has room."""

    @abstractmethod
    def _load(self, file: IO[bytes], chunk: int) -> bytes:
        """Return the content of a chunk."""

    @abstractmethod
    def _message(self, content: bytes, offset: int) -> StoredMessage:
        """Return the message at a place of a chunk."""

    def _outside(self, file: IO[bytes], offset: int) -> StoredMessage:
        """Return a message that is in no chunk."""
        raise FormatError(f"expected messages in chunks, got one at byte {offset}", path=self.path)

    def messages(self, topic: Topic, rows: IntArray) -> Iterator[StoredMessage]:
        """Yield messages of a topic."""
        with open_file(self.path) as file:
            for row in rows.tolist():
                chunk, offset = int(topic.chunk[row]), int(topic.offset[row])
                if chunk < 0:
                    yield self._outside(file, offset)
                else:
                    yield self._message(self._chunk(file, chunk), offset)

    def _chunk(self, file: IO[bytes], chunk: int) -> bytes:
        def loaded() -> tuple[bytes, int]:
            content = self._load(file, chunk)
            return content, len(content)

        return CACHE.get((self.number, chunk), loaded)


def exactly(file: IO[bytes], offset: int, size: int, path: Path) -> bytes:
    """Return bytes of a file. Raises `FormatError` where it ends before."""
    file.seek(offset)
    data = file.read(size)
    if len(data) < size:
        raise FormatError(f"expected {size} bytes from byte {offset} on, got {len(data)}", path=path)
    return data


def of_lz4(packed: bytes, most: int) -> bytes:
    """Return unpacked bytes, one more than expected at most: memory is taken for them, not for what a header says."""
    content = bytearray()
    unpacker: Any = lz4.frame.LZ4FrameDecompressor()
    part: bytes = unpacker.decompress(packed, max_length=PART)
    while part and len(content) <= most:
        content += part
        part = b"" if unpacker.eof else unpacker.decompress(b"", max_length=PART)
    return bytes(content)
