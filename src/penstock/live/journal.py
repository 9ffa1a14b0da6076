"""`Journal`: the moves of a window, written as they take effect, so that a run can be replayed bit for bit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import FormatError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file of chunks as a window knows it: `name`, relative and with forward slashes; `key`, which sorts by age;
    `count`, its chunks; `size` in bytes and `mtime_ns`, by which it is told from another of the same name."""

    name: str
    key: str
    count: int
    size: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """`arrival` got the numbers from `lo` on, just before draw `at`; the sources `left` left by it."""

    at: int
    lo: int
    arrival: Arrival
    left: tuple[str, ...] = ()


class Journal:
    """Moves, a line of JSON each, appended to the file at `path`, or held in memory where that is None.

    A line is written whole or, if the process is killed, cut: a cut last line is dropped when a journal is read, and
    overwritten when one is continued. `resume(n)` takes back all moves but the first `n`, as a run does that goes on
    from a state older than its journal. One writer at a time.

    Cost: one write a call. Raises `FormatError` for a file that is no journal.

    >>> journal = Journal()
    >>> journal.write([Move(0, 0, Arrival("a.gz", "a.gz", 1)), Move(5, 1, Arrival("b.gz", "b.gz", 1), ("a.gz",))])
    >>> journal.resume(1)
    >>> [move.arrival.name for move in journal.moves()]
    ['a.gz']
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lines: list[str] = []
        if self.path is not None and self.path.exists():
            whole = self.path.read_bytes().rpartition(b"\n")
            os.truncate(self.path, len(whole[0]) + len(whole[1]))
            self.moves()  # what cannot be read should not be continued
        if not self._read():
            self._append([{"journal": VERSION}])

    def write(self, moves: Iterable[Move]) -> None:
        """Append moves."""
        self._append([_line(move) for move in moves])

    def resume(self, moves: int) -> None:
        """Take back all but the first `moves`."""
        self._append([{"resume": moves}])

    def moves(self) -> list[Move]:
        """The moves that count. Raises `FormatError`."""
        return parse(self._read(), self.path)

    def _append(self, entries: Sequence[dict[str, Any]]) -> None:
        lines = [json.dumps(entry, separators=(",", ":")) for entry in entries]
        if self.path is None:
            self._lines += lines
        elif lines:
            data = ("\n".join(lines) + "\n").encode("utf-8")
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            with open(descriptor, "ab", buffering=0) as file:
                while data:
                    data = data[file.write(data) :]

    def _read(self) -> list[str]:
        if self.path is None:
            return self._lines
        return self.path.read_text("utf-8").split("\n")[:-1] if self.path.exists() else []


def read_journal(path: str | os.PathLike[str]) -> list[Move]:
    """The moves of a journal that may still be written. Raises `FormatError` for what is none, `OSError`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Journal(folder + "/moves").write([Move(3, 0, Arrival("a.gz", "a.gz", 2))])
    ...     read_journal(folder + "/moves")[0].at
    3
    """
    return parse(Path(path).read_text("utf-8").split("\n")[:-1], path)


def parse(lines: Sequence[str], path: object = None) -> list[Move]:
    """The moves of whole lines. Raises `FormatError`."""
    moves: list[Move] = []
    for i, line in enumerate(lines):
        try:
            entry = json.loads(line)
            if "resume" in entry:
                del moves[int(entry["resume"]) :]
            elif "at" in entry:
                moves.append(Move(int(entry["at"]), int(entry["lo"]), Arrival(*entry["in"]), tuple(entry["out"])))
            elif entry["journal"] != VERSION:
                raise ValueError(f"version {entry['journal']}")
        except (ValueError, KeyError, TypeError) as error:
            message = f"expected a line of a journal of version {VERSION}, got {line[:80]!r} ({error})"
            raise FormatError(message, path=path, where=f"line {i + 1}") from error
    return moves


def _line(move: Move) -> dict[str, Any]:
    return {"at": move.at, "lo": move.lo, "in": list(astuple(move.arrival)), "out": list(move.left)}
