"""Lengths of sequences in a file, written during a first pass, so that later passes can be planned.

The file is a line of JSON, one little-endian int64 for each column and sequence, and the CRC-32 of these numbers. A
pass writes to `path.partial`, at the offset of each sequence. Passes over the same data write equal numbers at equal
offsets, so several may write at the same time, and a killed pass leaves whole records. `finish` adds the checksum and
renames the file. Lengths of other data are replaced. A file that has no lengths is never replaced.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError, StateError
from penstock.files.locks import lock, open_locked
from penstock.files.replace import move

KIND = "penstock-lengths-1"
_BEGIN = b'{"kind": "penstock-lengths-1", '  # of the header
LONGEST_HEADER = 1 << 20
_CHECK = 4  # bytes of the checksum at the end


def read_lengths(path: str | os.PathLike[str], *, fingerprint: str | None = None) -> dict[str, IntArray]:
    """Read the lengths of sequences that a finished pass wrote.

    `IterDataset.pack(lengths=...)` and `measure(cache=...)` write such files.

    Args:
        path: The file.
        fingerprint: Fingerprint that the data must have. The default is None: do not check.

    Returns:
        `[n]` int64 for each column, the length of each sequence. Cost: one read of 8 bytes a sequence and column.

    Raises:
        FileNotFoundError: The pass has not finished.
        FormatError: The file is damaged.
        StateError: The lengths belong to other data.

    Example:
        >>> import tempfile, penstock
        >>> path = Path(tempfile.mkdtemp()) / "words.lengths"
        >>> words = penstock.columns.Ragged.from_strings(["three", "ab"])
        >>> data = penstock.from_arrays({"words": words}, lengths=[2]).steps()
        >>> packs = list(penstock.IterDataset.of(data, 2).pack(8, lengths=path))
        >>> read_lengths(path)["words"].tolist()
        [5, 2]
    """
    raw = Path(path).read_bytes()
    header = _header(raw, path)
    columns = header["columns"]
    body, check = raw[raw.index(b"\n") + 1 : -_CHECK], raw[-_CHECK:]
    width = 8 * len(columns)
    if len(body) % width or zlib.crc32(body).to_bytes(_CHECK, "little") != check:
        raise FormatError(f"expected whole records of {width} bytes and their checksum", path=path)
    if fingerprint is not None and header["fingerprint"] != fingerprint:
        raise StateError(f"expected lengths of {fingerprint}, got lengths of {header['fingerprint']} - in {path}")
    table = np.frombuffer(body, "<i8").reshape(-1, len(columns)).astype(np.int64)
    if np.any(table < 0):
        raise FormatError("expected lengths of at least 0", path=path, where=f"record {_first_negative(table)}")
    return {column: table[:, c].copy() for c, column in enumerate(columns)}


def _first_negative(table: IntArray) -> int:
    return int(np.argmax(np.any(table < 0, axis=1)))


def _header(raw: bytes, path: object) -> dict[str, Any]:
    line, end, _ = raw[:LONGEST_HEADER].partition(b"\n")
    try:
        header: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected a line of JSON, got {error}", path=path, where="byte 0") from error
    columns = header.get("columns") if is_dict(header) else None
    named = is_list(columns) and columns and all(isinstance(c, str) for c in columns)
    if not end or not named or header.get("kind") != KIND or not isinstance(header.get("fingerprint"), str):
        raise FormatError(f"expected kind {KIND!r}, columns and a fingerprint", path=path, where="byte 0")
    return header


class LengthsFile:
    """Writer of a lengths file. The file appears at `path` when `finish` is called; before, it is `path` +
    `.partial`.

    A file is a line of JSON, one `<i8` a column for each sequence, and the CRC-32 of these integers. Written lengths
    survive a kill of the process: open the file again with the same `columns` and `fingerprint`, and `rows` counts the
    known sequences. Lengths may be written twice, and several passes over the same data may write at the same time.
    Lengths of other data are replaced. Other files are refused and stay unchanged.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str], fingerprint: str) -> None:
        self._path, self._columns = Path(path), list(columns)
        header = {"kind": KIND, "columns": self._columns, "fingerprint": fingerprint}
        self._header = json.dumps(header).encode() + b"\n"
        self.finished = self._is_finished()
        if not self.finished:
            _check_replaceable(self._path)
        self._file = -1 if self.finished else self._open()

    @property
    def partial(self) -> Path:
        """Path of the file until the pass finishes."""
        return self._path.with_name(self._path.name + ".partial")

    @property
    def rows(self) -> int:
        """Number of known sequences. A torn last record does not count."""
        size = os.stat(self._path).st_size - _CHECK if self.finished else os.fstat(self._file).st_size
        return (size - len(self._header)) // self._width

    def write(self, row: int, lengths: IntArray) -> None:
        """Write lengths of consecutive sequences."""
        if self.finished:
            return
        if row > self.rows:
            raise StateError(
                f"expected the lengths of {row} sequences in {self.partial}, got {self.rows}; start the pass again, "
                "or leave `lengths` out"
            )
        position = len(self._header) + row * self._width
        data = memoryview(np.ascontiguousarray(lengths, "<i8").tobytes())
        while data:
            written = os.pwrite(self._file, data, position)
            data, position = data[written:], position + written

    def read(self, first: int, last: int) -> IntArray:
        with open(self._path if self.finished else self.partial, "rb") as file:
            file.seek(len(self._header) + first * self._width)
            raw = file.read((last - first) * self._width)
        return np.frombuffer(raw, "<i8").reshape(-1, len(self._columns)).astype(np.int64)

    def finish(self, rows: int) -> None:
        """Finish the pass: flush the file to the disk and move it to `path`."""
        self.finished = self.finished or (not self.partial.exists() and self._is_finished())
        if self.finished:  # perhaps by another pass over the same data
            return
        os.ftruncate(self._file, len(self._header) + rows * self._width)
        check = zlib.crc32(np.ascontiguousarray(self.read(0, rows), "<i8").data if rows else b"")
        os.pwrite(self._file, check.to_bytes(_CHECK, "little"), len(self._header) + rows * self._width)
        os.fsync(self._file)
        move(self.partial, self._path, overwrite=True)
        self.close()
        self.finished = True

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> LengthsFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    @property
    def _width(self) -> int:
        return 8 * len(self._columns)

    def _matches(self, path: Path) -> bool:
        try:
            with open(path, "rb") as file:
                return file.read(len(self._header)) == self._header
        except FileNotFoundError:
            return False

    def _is_finished(self) -> bool:
        """Whether a complete and undamaged file for this data exists."""
        if not self._matches(self._path):
            return False
        with suppress(FormatError):
            read_lengths(self._path)
            return True
        return False  # damaged: they are found once more

    def _open(self) -> int:
        """Open the partial file, shared with passes over the same data. Empty it if it belongs to other data."""
        holder = "a pass over other data"
        if self._matches(self.partial):
            return open_locked(self.partial, shared=True, holder=holder, follow=True)
        _check_replaceable(self.partial)
        file = open_locked(self.partial, os.O_RDWR | os.O_CREAT, holder=holder, follow=True)
        try:
            if not self._matches(self.partial):  # no other process wrote the header meanwhile
                os.ftruncate(file, 0)
                os.pwrite(file, self._header, 0)
            lock(file, self.partial, shared=True, holder=holder)
        except BaseException:
            os.close(file)
            raise
        return file


def _check_replaceable(path: Path) -> None:
    """Raise `FormatError` if a file without lengths exists at `path`. Cut-off or damaged lengths may be replaced."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        head = file.read(len(_BEGIN))
        if not _BEGIN.startswith(head):
            raise FormatError(
                f"expected lengths, which begin with {_BEGIN!r}, got a file that begins with {head!r}; nothing in it "
                "was changed: choose another name, or remove it",
                path=path,
            )
