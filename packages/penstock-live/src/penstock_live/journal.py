"""`Journal`: the moves of a window, written as they take effect, so that a run can be replayed bit for bit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError, StateError
from penstock.files import AppendLog

VERSION = 1
MAGIC = b'{"journal":1}\n'
_LARGEST = (1 << 62) - 1  # positions, chunks and nanoseconds of times are 64-bit integers


@dataclass(frozen=True, slots=True)
class Arrival:
    """File of chunks in a window: `name`, relative with forward slashes; `key`, which sorts by age; `count` of chunks.

    `size` in bytes and `mtime_ns` distinguish it from another file of the same name.
    """

    name: str
    key: str
    count: int
    size: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """`arrival` got the numbers from `lo` on, just before number `draw` was drawn; the sources `left` left by it. Where
    `arrival` is None, the source with the numbers from `lo` on left, as its file was gone."""

    draw: int
    lo: int
    arrival: Arrival | None
    left: tuple[str, ...] = ()


class Journal:
    """Moves, a line of JSON each, appended to the file at `path`, or kept in memory if `path` is None.

    The file is this journal's alone while it is open: another run that is given the same one is refused, and so is a
    file that is no journal, before anything in it changes. Reading it meanwhile is fine (`read_journal`). A line is
    written whole or, if the process is killed, cut: a cut last line is dropped when a journal is read, and removed when
    one is continued. `resume(n)` takes back all moves but the first `n`, as a run does that goes on from a state older
    than its journal.

    Cost: one write a call.

    Args:
        path: The file, which is made if it is missing.

    Raises:
        FormatError: The file is no journal, or one that is damaged before its last line.
        LockedError: Another run writes to it.
        OSError: It cannot be opened or made.

    Example:
        >>> with Journal() as journal:
        ...     journal.write([Move(0, 0, Arrival("a.gz", "a.gz", 1))])
        ...     journal.write([Move(5, 1, Arrival("b.gz", "b.gz", 1), ("a.gz",))])
        ...     journal.resume(1)
        >>> [move.arrival.name for move in journal.moves() if move.arrival is not None]
        ['a.gz']
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lines: list[bytes] = [MAGIC]
        self._log: AppendLog | None = None
        if self.path is None:
            return
        log = AppendLog(self.path, MAGIC, "a journal of live data", holder="another run")
        try:
            lines = _whole_lines(log.read())
            parse(lines, self.path)  # what cannot be read is not continued
            log.truncate(sum(map(len, lines)))
        except BaseException:
            log.close()
            raise
        self._log = log

    def write(self, moves: Iterable[Move]) -> None:
        """Append moves. Raises `OSError` if the disk is full; the journal is then as it was.

        Args:
            moves: The moves, in order.
        """
        self._append([_line(move) for move in moves])

    def resume(self, moves: int) -> None:
        """Drop all moves but the first ones.

        Args:
            moves: Number of moves to keep.

        Raises:
            StateError: The journal has fewer moves.
        """
        if (there := len(self.moves())) < moves:
            raise StateError(
                f"expected the journal of the run that the state is of, with at least {moves} moves, got {there}"
                f"{'' if self.path is None else f' in {self.path}'}; give that one, or none"
            )
        self._append([{"resume": moves}])

    def moves(self) -> list[Move]:
        """Return the moves that count. Raises `FormatError`."""
        return parse(self._lines) if self.path is None else read_journal(self.path)

    def close(self) -> None:
        """Let others write to the file. Closing twice is fine, and `moves` can be asked for afterwards."""
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        lines = [json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries]
        if self._log is None:
            self._lines += lines
        elif lines:
            self._log.append(b"".join(lines))


def read_journal(path: str | os.PathLike[str]) -> list[Move]:
    """Return the moves of a journal, which may still be written.

    Args:
        path: The file.

    Returns:
        The moves that count, in order.

    Raises:
        FormatError: The file is no journal.
        OSError: The file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Journal(folder + "/moves") as journal:
        ...         journal.write([Move(3, 0, Arrival("a.gz", "a.gz", 2))])
        ...         read_journal(folder + "/moves")[0].draw
        3
    """
    return parse(_whole_lines(Path(path).read_bytes()), path)


def whole_size(path: Path) -> int:
    """Return how many bytes of a journal are whole lines."""
    lines = _whole_lines(path.read_bytes())
    parse(lines, path)
    return sum(map(len, lines))


def parse(lines: Sequence[str | bytes], path: object = None) -> list[Move]:
    """Return the moves of whole lines, of which the first names kind and version."""
    moves: list[Move] = []
    for i, line in enumerate(lines or [""]):
        try:
            entry = json.loads(line)
            if i == 0:
                _check(entry == {"journal": VERSION}, f'{{"journal": {VERSION}}} in the first line')
            elif isinstance(entry, dict) and "resume" in entry:
                del moves[_integer(entry["resume"], "resume", len(moves)) :]
            else:
                moves.append(_move(entry))
        except (ValueError, RecursionError) as error:
            message = f"expected a line of a journal of version {VERSION}, got {line[:80]!r} ({error})"
            raise FormatError(message, path=path, where=f"line {i + 1}") from error
    return moves


def _move(entry: Any) -> Move:
    _check(is_dict(entry) and entry.keys() >= {"at", "lo", "in", "out"}, "at, lo, in and out")
    described: Any = entry["in"]
    left: Any = entry["out"]
    seq, lo = (_integer(entry[name], name) for name in ("at", "lo"))
    _check(is_list(left) and all(isinstance(name, str) for name in left), "a list of names for out")
    if described is None:
        return Move(seq, lo, None, tuple(left))
    _check(is_list(described) and 3 <= len(described) <= 5, "in as [name, key, count, size, mtime_ns]")
    _check(all(isinstance(text, str) for text in described[:2]), "texts for name and key")
    numbers = [_integer(value, "count, size and mtime_ns") for value in described[2:4]]
    numbers += [_integer(value, "mtime_ns", least=-_LARGEST) for value in described[4:]]
    return Move(seq, lo, Arrival(described[0], described[1], *numbers), tuple(left))


def _integer(value: Any, name: str, most: int = _LARGEST, least: int = 0) -> int:
    _check(type(value) is int and least <= value <= most, f"an integer of {least} to {most} for {name}")
    return value


def _check(good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"expected {expected}")


def _whole_lines(raw: bytes) -> list[bytes]:
    return raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)


def _line(move: Move) -> dict[str, Any]:
    described = None if move.arrival is None else list(astuple(move.arrival))
    return {"at": move.draw, "lo": move.lo, "in": described, "out": list(move.left)}
