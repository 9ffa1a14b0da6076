"""`ReplayJournal`: arrivals, recorded steps and priority updates between draws, written as they take effect.

With the episodes of the store, the journal repeats a run bit for bit: a draw is a function of the seed, its number, and
the entries before it. An update stores the ticket of its batch and the priorities alone, because the anchors of a batch
can be drawn again. Steps have their rows, because no store has the steps of an open episode.

The file is `penstock.files.AppendLog`: a magic line, then entries of a 32-byte head and a payload. The head has, as
little-endian numbers, the CRC-32 of everything after it (u4), the kind (u4), the number of draws before the entry (u8),
the first number of the entry (u8), and the payload's count of values (u8). An entry that a killed process cut is
dropped.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, Float32Array, IntArray
from penstock.core.spec import ALIGNS, Spec
from penstock.errors import FormatError, StateError
from penstock.files import AppendLog

MAGIC = b"penstock replay journal 1\n"
ARRIVAL = 0
BY_TICKET = 1
BY_ANCHOR = 2
VERSIONED = 3
COLUMNS = 4  # of the steps after it
CHANGED = 5
_HEAD = struct.Struct("<IIQQQ")
_BYTES = {ARRIVAL: 0, BY_TICKET: 4, BY_ANCHOR: 12, VERSIONED: 0, COLUMNS: 1, CHANGED: 1}  # of a value of the payload

FLAGS = ("terminations", "truncations")
KINDS = ("begin", "step", "end", "save", "close", "episode")
_CHANGE = struct.Struct("<IIIII")


@dataclass(eq=False, slots=True)
class StepChange:
    """A change of the open episodes of a source that has `lanes` environments.

    Args:
        kind: `"begin"` (rows are first boundary rows and values of episodes), `"step"` (rows are of the step, and the
            boundary after it; flags say which episodes ended), `"end"` (flags are the last termination and truncation),
            `"save"` (`which` is the lane and the number of the episode in the folder), `"close"`, or `"episode"` (a
            whole one of `which` steps).
        source: Number of the source.
        lanes: Its environments.
        which: `[m]` int64 environments.
        rows: Arrays `[m, ...]` by column.
        flags: `[k]` bool.

    Example:
        >>> from penstock import Field
        >>> spec = Spec({"rewards": Field(np.dtype("float32"))})
        >>> change = StepChange("step", 0, 1, np.zeros(1, np.int64), {"rewards": np.ones(1, "f4")}, np.ones(1, bool))
        >>> StepChange.decoded(change.encoded(spec), spec).rows["rewards"].tolist()
        [1.0]
    """

    kind: str
    source: int
    lanes: int
    which: IntArray
    rows: Mapping[str, AnyArray] = field(default_factory=dict[str, AnyArray])
    flags: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def encoded(self, spec: Spec) -> bytes:
        """Return the bytes of the change.

        Args:
            spec: Columns of the replay.
        """
        head = _CHANGE.pack(KINDS.index(self.kind), self.source, self.lanes, len(self.which), len(self.flags))
        rows = b"".join(np.ascontiguousarray(self.rows[path]).tobytes() for path in self._paths(self.kind, spec))
        return head + self.which.astype("<i8").tobytes() + self.flags.tobytes() + rows

    @classmethod
    def decoded(cls, data: bytes, spec: Spec) -> StepChange:
        """Return the change of some bytes.

        Args:
            data: Output of `encoded`.
            spec: Columns of the replay.
        """
        number, source, lanes, m, flags = _CHANGE.unpack_from(data)
        kind = KINDS[int(number)]
        place = _CHANGE.size
        which = np.frombuffer(data, "<i8", m, place).astype(np.int64)
        place += 8 * m
        flagged = np.frombuffer(data, np.bool_, flags, place).copy()
        place += flags
        rows: dict[str, AnyArray] = {}
        for path in cls._paths(kind, spec):
            column = spec[path]
            n = m if kind != "episode" else {"step": which[0], "boundary": which[0] + 1}.get(column.align, 1)
            size = int(n) * column.row_bytes
            rows[path] = np.frombuffer(data[place : place + size], column.dtype).reshape(n, *column.shape)
            place += size
        return cls(kind, source, lanes, which, rows, flagged)

    @staticmethod
    def _paths(kind: str, spec: Spec) -> list[str]:
        """Columns of which a change has rows."""
        aligns = {"begin": ("boundary", "episode"), "step": ("step", "boundary"), "episode": ALIGNS}.get(kind, ())
        return [path for path, column in spec.items() if column.align in aligns]


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One change between two draws.

    Args:
        kind: `ARRIVAL`, `BY_TICKET`, `BY_ANCHOR`, `VERSIONED`, `COLUMNS` or `CHANGED`.
        drawn: Samples that were drawn before it.
        number: Episodes that have arrived, or the number of the first draw of the batch whose priorities changed, or
            the version of the policy.
        anchors: `[n]` int64 anchors whose priorities changed, if the entry names them.
        priorities: `[n]` float32 new priorities.
        data: Columns as JSON, or a change of open episodes.

    Example:
        >>> JournalEntry.arrival(drawn=256, episodes=3).number
        3
    """

    kind: int
    drawn: int
    number: int
    anchors: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    priorities: Float32Array = field(default_factory=lambda: np.zeros(0, np.float32))
    data: bytes = b""

    @classmethod
    def arrival(cls, drawn: int, episodes: int) -> JournalEntry:
        """Return the entry for arrivals.

        Args:
            drawn: Samples that were drawn before.
            episodes: Episodes that have arrived.
        """
        return cls(ARRIVAL, drawn, episodes)

    @classmethod
    def versioned(cls, drawn: int, version: int) -> JournalEntry:
        """Return the entry for a new version of the policy.

        Args:
            drawn: Samples that were drawn before.
            version: The version.
        """
        return cls(VERSIONED, drawn, version)

    def encoded(self) -> bytes:
        """Return the bytes of the entry."""
        anchors = self.anchors.astype("<i8").tobytes() if self.kind == BY_ANCHOR else b""
        payload = anchors + self.priorities.astype("<f4").tobytes() + self.data
        head = _HEAD.pack(0, self.kind, self.drawn, self.number, len(self.priorities) + len(self.data))[4:]
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
        if kind in (COLUMNS, CHANGED):
            yield JournalEntry(kind, drawn, number, data=payload), size
            place += size
            continue
        split = 8 * count if kind == BY_ANCHOR else 0
        anchors = np.frombuffer(payload[:split], "<i8").astype(np.int64)
        yield JournalEntry(kind, drawn, number, anchors, np.frombuffer(payload[split:], "<f4")), size
        place += size
