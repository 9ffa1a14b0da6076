"""`FileRows`: rows in many files that are mapped when they are read, gathered as `RowMap` gathers rows of open files.

A `RowMap` has the address of each run of rows, so its files must be mapped. `FileRows` cuts the wanted spans at the
edges of runs, orders the pieces by file, and gathers the pieces of some files at a time through a `RowMap` of these
alone. That map checks every piece against the size of its file, so a wrong place is an error and no foreign byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import RowPieces, cut
from penstock.kernels.rows import RowMap, check_spans, flat

AT_ONCE = 1024  # files of which the rows are gathered together


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows of one width in runs: run `r` has rows `first[r] : first[r + 1]`, in file `file[r]` from `offset[r]` on."""

    files: Sequence[ByteArray]
    first: IntArray
    file: IntArray
    offset: IntArray
    row_bytes: int

    @classmethod
    def of(
        cls, files: Sequence[ByteArray], rows: IntArray, file: IntArray, offset: IntArray, row_bytes: int
    ) -> FileRows:
        """Return runs of `rows[R]` rows. Arguments are as of `RowMap.build`; places are checked when they are read."""
        return cls(files, offsets_of(rows), file, offset, row_bytes)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.first[-1])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` on of `out`, for every span `j`."""
        if self.row_bytes == 0:
            return
        target = flat(out, self.row_bytes)
        check_spans(start, length, destination, self.n, len(target) // self.row_bytes)
        for pieces, rows in self._mapped(start, length, destination):
            rows.gather(rows.first[:-1], pieces.length, pieces.destination, target)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        """Return the bytes behind URLs that `gather` would fetch."""
        if self.row_bytes == 0:
            return []
        parts = self._mapped(start, length, np.zeros_like(start))
        return [wanted for pieces, rows in parts for wanted in rows.remote_ranges(rows.first[:-1], pieces.length)]

    def _mapped(self, start: IntArray, length: IntArray, destination: IntArray) -> Iterator[tuple[RowPieces, RowMap]]:
        """Yield the pieces of spans by groups of files, each with a map in which piece `j` is run `j`."""
        pieces = cut(self.first, start, length, destination)
        pieces = pieces.take(np.argsort(self.file[pieces.run], kind="stable"))
        files, first = np.unique(self.file[pieces.run], return_index=True)
        edges = [*first[::AT_ONCE].tolist(), len(pieces.run)]
        for group, (begin, end) in enumerate(pairwise(edges)):
            mine, chosen = pieces.take(slice(begin, end)), files[group * AT_ONCE : (group + 1) * AT_ONCE]
            wanted: list[int] = chosen.tolist()
            data = [self.files[number] for number in wanted]
            number = np.searchsorted(chosen, self.file[mine.run])
            offset = self.offset[mine.run] + (mine.start - self.first[mine.run]) * self.row_bytes
            yield mine, RowMap.build(data, mine.length, number, offset, self.row_bytes)
