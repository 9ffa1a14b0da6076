"""`ReplayJournal`: arrivals and priority updates between draws, written as they take effect.

With the episodes of the store, the journal repeats a run bit for bit: a draw is a function of the seed, its number, and
the entries before it. An update stores the ticket of its batch and the priorities alone, because the anchors of a batch
can be drawn again.

The file is `penstock.files.AppendLog`: a magic line, then entries of a 32-byte head and a payload. The head has, as
little-endian numbers, the CRC-32 of everything after it (u4), the kind (u4), the number of draws before the entry (u8),
the first number of the entry (u8), and the payload's count of values (u8). An entry that a killed process cut is
dropped.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.core.arrays import Float32Array, IntArray
from penstock.errors import FormatError, StateError
from penstock.files import AppendLog

MAGIC = b"penstock replay journal 1\n"
ARRIVAL = 0
BY_TICKET = 1
BY_ANCHOR = 2
VERSIONED = 3
_HEAD = struct.Struct("<IIQQQ")
_BYTES = {ARRIVAL: 0, BY_TICKET: 4, BY_ANCHOR: 12, VERSIONED: 0}  # of the payload, for each value


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One change between two draws.

    Args:
        kind: `ARRIVAL`, `BY_TICKET`, `BY_ANCHOR` or `VERSIONED`.
        drawn: Samples that were drawn before it.
        number: Episodes that have arrived, or the number of the first draw of the batch whose priorities changed, or
            the version of the policy.
        anchors: `[n]` int64 anchors whose priorities changed, if the entry names them.
        priorities: `[n]` float32 new priorities.

    Example:
        >>> JournalEntry.arrival(drawn=256, episodes=3).number
        3
    """

    kind: int
    drawn: int
    number: int
    anchors: IntArray
    priorities: Float32Array

    @classmethod
    def arrival(cls, drawn: int, episodes: int) -> JournalEntry:
        """Return the entry for arrivals.

        Args:
            drawn: Samples that were drawn before.
            episodes: Episodes that have arrived.
        """
        return cls(ARRIVAL, drawn, episodes, np.zeros(0, np.int64), np.zeros(0, np.float32))

    @classmethod
    def versioned(cls, drawn: int, version: int) -> JournalEntry:
        """Return the entry for a new version of the policy.

        Args:
            drawn: Samples that were drawn before.
            version: The version.
        """
        return cls(VERSIONED, drawn, version, np.zeros(0, np.int64), np.zeros(0, np.float32))

    def encoded(self) -> bytes:
        """Return the bytes of the entry."""
        payload = (self.anchors.astype("<i8").tobytes() if self.kind == BY_ANCHOR else b"") + self.priorities.astype(
            "<f4"
        ).tobytes()
        head = _HEAD.pack(0, self.kind, self.drawn, self.number, len(self.priorities))[4:]
        return struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + head + payload


class ReplayJournal:
    """Journal of a run that is written to a file.

    Args:
        path: The file. It is made if it is missing, and continued otherwise.

    Raises:
        FormatError: The file is not a journal of a replay.
        LockedError: Another run writes to it.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/journal"
        >>> journal = ReplayJournal(path)
        >>> journal.write(JournalEntry.arrival(0, 3))
        >>> journal.close()
        >>> [entry.number for entry in read_entries(path)]
        [3]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._log = AppendLog(path, MAGIC, "a journal of a replay", holder="another run")
        try:
            self.size = sum(size for _, size in _parse(self._log.read(), Path(path))) + len(MAGIC)
            self._log.truncate(self.size)
        except BaseException:
            self._log.close()
            raise

    def write(self, entry: JournalEntry) -> None:
        """Append an entry. Raises `OSError` if the disk is full; the journal is then as it was.

        Args:
            entry: The entry.
        """
        data = entry.encoded()
        self._log.append(data)
        self.size += len(data)

    def resume(self, size: int) -> None:
        """Take back all entries after the first `size` bytes.

        Args:
            size: Size of the journal when a state was saved.

        Raises:
            StateError: The journal is shorter.
        """
        if size > self.size:
            raise StateError(
                f"expected the journal of the run that saved the state, with at least {size} bytes, got {self.size} in "
                f"{self._log.path}; give that file, or a new one together with a new run"
            )
        self._log.truncate(size)
        self.size = size

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._log.close()


def read_entries(path: str | os.PathLike[str]) -> list[JournalEntry]:
    """Return the complete entries of a journal, which a run may still write.

    Args:
        path: The file.

    Returns:
        The entries, in order.

    Raises:
        FormatError: The file is not a journal of a replay, or is damaged before its end.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/journal"
        >>> journal = ReplayJournal(path)
        >>> journal.write(JournalEntry.versioned(drawn=256, version=2))
        >>> journal.close()
        >>> [(entry.drawn, entry.number) for entry in read_entries(path)]
        [(256, 2)]
    """
    data = Path(path).read_bytes()
    if not data.startswith(MAGIC):
        raise FormatError(f"expected a journal of a replay, which begins with {MAGIC!r}", path=path)
    return [entry for entry, _ in _parse(data, Path(path))]


def whole_size(path: Path) -> int:
    """Return how many bytes of a journal are complete entries.

    Args:
        path: The file.

    Returns:
        Bytes from the start of the file.

    Raises:
        FormatError: The file is not a journal of a replay, or is damaged before its end.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "journal")
        >>> journal = ReplayJournal(path)
        >>> journal.write(JournalEntry.arrival(0, 3))
        >>> journal.close()
        >>> whole_size(path) == path.stat().st_size
        True
    """
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise FormatError(f"expected a journal of a replay, which begins with {MAGIC!r}", path=path)
    return len(MAGIC) + sum(size for _, size in _parse(data, path))


def _parse(data: bytes, path: Path) -> Iterator[tuple[JournalEntry, int]]:
    """Each complete entry, and its size."""
    place = len(MAGIC)
    while place + _HEAD.size <= len(data):
        check, kind, drawn, number, count = _HEAD.unpack_from(data, place)
        size = _HEAD.size + count * _BYTES.get(kind, 0)
        if place + size > len(data):
            return
        payload = data[place + _HEAD.size : place + size]
        if kind not in _BYTES or zlib.crc32(data[place + 4 : place + size]) != check:
            if place + size == len(data):
                return  # the last entry was cut while it was written
            raise FormatError("expected an entry with its checksum", path=path, where=f"byte {place}")
        split = 8 * count if kind == BY_ANCHOR else 0
        anchors = np.frombuffer(payload[:split], "<i8").astype(np.int64)
        yield JournalEntry(kind, drawn, number, anchors, np.frombuffer(payload[split:], "<f4")), size
        place += size
