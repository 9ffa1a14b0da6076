"""Arrow files behind URLs: the footer, then the buffers of single columns of single record batches.

PyArrow reads a file object. With `included_fields` it asks for the buffers of these columns alone, so the file object
fetches their ranges and nothing between them.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow.joined_files import ARROW, arrow_footer, arrow_room, check_one_file
from penstock.containers.arrow.values import arrow
from penstock.core.arrays import IntArray
from penstock.files.remote import Wanted, file_state, open_file, remote_file

_FOOTER = 16  # reads, at most, by which PyArrow opens a file


class RangedArrowFile:
    """An Arrow file of which parts are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._described: dict[tuple[int, int], bytes] = {}  # footer and descriptions of record batches, by range
        self._named: dict[tuple[int, str], tuple[IntArray, IntArray]] = {}
        self.schema: Any = self._reader(None)[0].schema
        self._check_one_file()
        narrowest, file = self._reader(min(range(len(self.schema)), key=self._width, default=None))
        self.rows: list[int] = []
        for number in range(narrowest.num_record_batches):
            file.keeping = 1
            self.rows.append(narrowest.get_batch(number).num_rows)

    def _check_one_file(self) -> None:
        """Raise `FormatError` if the file has several files in it. PyArrow read the footer."""
        size = file_state(self._path).size
        for (place, _), raw in self._described.items():
            footer = np.frombuffer(raw, np.uint8)
            if place + len(raw) == size - 10:
                check_one_file(self._path, arrow_room(footer, size), ARROW)
            elif place + len(raw) == size and len(raw) > 10:
                check_one_file(self._path, arrow_room(arrow_footer(footer), size), ARROW)

    def _reader(self, column: int | None) -> tuple[Any, _DescribedFile]:
        """A reader of one column, and its file. Readers are not shared by threads."""
        pa = arrow()
        fields = [] if column is None else [column]
        file = _DescribedFile(self._path, self._described)
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        file.keeping = 0
        return reader, file

    def _width(self, column: int) -> int:
        """Bits of a row; types without a fixed width are wider than all others."""
        try:
            return int(self.schema.field(column).type.bit_width)
        except ValueError:
            return 1 << 62

    def remote_ranges(self, batch: int, name: str) -> list[Wanted]:
        """Return the bytes that `column` would fetch."""
        remote = remote_file(self._path)
        if remote is None:
            return []
        if (batch, name) not in self._named:
            self._named[batch, name] = self._asked(batch, self.schema.names.index(name))
        return [(remote, *self._named[batch, name])]

    def _asked(self, batch: int, column: int) -> tuple[IntArray, IntArray]:
        """Where the ranges begin and end that PyArrow reads of a column."""
        reader, file = self._reader(column)
        file.naming = True
        with suppress(arrow().ArrowException, OSError, ValueError):  # zeros may be no valid buffers
            reader.get_batch(batch)
        begin, end = np.array(file.missing_ranges, np.int64).reshape(-1, 2).T
        return begin, end

    def column(self, batch: int, name: str) -> Any:
        """Return a column of a record batch as an Arrow array."""
        return self._reader(self.schema.names.index(name))[0].get_batch(batch).column(0)


class _DescribedFile(io.RawIOBase):
    """A file whose footer and descriptions of record batches are read once."""

    def __init__(self, path: Path, described: dict[tuple[int, int], bytes]) -> None:
        super().__init__()
        self._file = open_file(path, buffer=1)
        self._described = described
        self.keeping = _FOOTER
        """How many of the next reads are kept."""
        self.naming = False
        """Whether other reads are only noted, and give zeros."""
        self.missing_ranges: list[tuple[int, int]] = []

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    @override
    def tell(self) -> int:
        return self._file.tell()

    @override
    def read(self, size: int = -1, /) -> bytes:
        place = self.tell(), size
        if (raw := self._described.get(place)) is None and self.naming:
            self.missing_ranges.append((place[0], place[0] + size))
            raw = bytes(size)
        if raw is not None:
            self.seek(place[0] + size)
            return raw
        raw = self._file.read(size)
        if self.keeping:
            self.keeping -= 1
            self._described[place] = raw
        return raw

    @override
    def close(self) -> None:
        self._file.close()
        super().close()
