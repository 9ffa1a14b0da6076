"""Properties of a source's values that must be known before any is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import Ragged, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.formats.base.pieces import cut
from penstock.formats.base.source import ROWS, Source

BYTES = 8 << 20  # of next observations that are compared at a time
LENGTHS = "_lengths"
R = TypeVar("R")


class Scan:
    """Answers about the chosen `episodes` `[n]` of a source, each read when it is asked for.

    `names` says by which name of the source a renamed column goes. `answers` has what an earlier scan of the same
    episodes was asked, and is filled: plain values and arrays by question.
    """

    def __init__(
        self, source: Source, episodes: IntArray, names: Mapping[str, str], answers: dict[str, Any] | None = None
    ) -> None:
        self._answers = {} if answers is None else answers
        self._source = source
        self._episodes = episodes
        self._names = names
        self.lengths: IntArray = np.diff(source.offsets)[episodes]

    def longest(self, column: str) -> int:
        """Values in the longest row of a ragged column. Cost: one call of `value_offsets`."""
        name = self._named(column)
        return self._answer(f"longest {name}", lambda: self._longest(name))

    def _longest(self, name: str) -> int:
        first = self._source.rows(self._source.spec[name].align)
        rows = ranges(first[self._episodes], first[self._episodes + 1] - first[self._episodes])
        return int(np.diff(self._source.value_offsets(name))[rows].max(initial=0))

    def unfinished(self) -> IntArray:
        """`[k]` numbers of the episodes of which no flag is set at the last step. Cost: one row an episode."""
        return self._answer("unfinished", self._unfinished)

    def _unfinished(self) -> IntArray:
        ends = self._ends("terminations", "truncations", "dones")
        chosen = self._episodes[self.lengths > 0]
        return chosen[~np.logical_or.reduce(ends)] if ends else chosen[:0]

    def ended_twice(self) -> IntArray:
        """`[k]` numbers of the episodes that were terminated and truncated at the last step. Cost: as above."""
        return self._answer("ended twice", self._ended_twice)

    def _ended_twice(self) -> IntArray:
        ends = self._ends("terminations", "truncations")
        chosen = self._episodes[self.lengths > 0]
        return chosen[np.logical_and.reduce(ends)] if len(ends) == 2 else chosen[:0]

    def _ends(self, *names: str) -> list[BoolArray]:
        """The last flags of every episode that has steps, of the columns that exist."""
        chosen = self._episodes[self.lengths > 0]
        present = [named for name in names if (named := self._named(name)) in self._source.spec]
        columns = self._source.read(present, Selection.of_rows(self._source.offsets[chosen + 1] - 1))
        return [np.asarray(np.asarray(array).reshape(len(chosen), -1).any(axis=1)) for array in columns.values()]

    def continues(self, after: str, column: str) -> bool:
        """Whether each row of `after` (T rows) equals the next row of `column` (T + 1 rows). Cost: a pass over both."""
        later, now = self._named(after), self._named(column)
        return self._answer(f"continues {later} {now}", lambda: self._continues(later, now))

    def _continues(self, later: str, now: str) -> bool:
        fields = [self._source.spec.fields.get(name) for name in (later, now)]
        if fields[0] is None or fields[1] is None or (fields[0].align, fields[1].align) != ("step", "boundary"):
            return False
        if (fields[0].dtype, fields[0].shape, fields[0].kind) != (fields[1].dtype, fields[1].shape, fields[1].kind):
            return False
        size = ROWS if fields[0].ragged else max(BYTES // max(fields[0].row_bytes, 1), 1)
        cuts = offsets_of(self.lengths)
        return all(self._same(later, now, cuts, lo, size) for lo in range(0, int(cuts[-1]), size))

    def _same(self, later: str, now: str, cuts: IntArray, lo: int, size: int) -> bool:
        """Whether that holds in steps `lo : lo + size` of the chosen episodes, whose first steps are at `cuts`."""
        zero = np.zeros(1, np.int64)
        n = min(size, int(cuts[-1]) - lo)
        part = cut(cuts, zero + lo, zero + n, zero)
        e = self._episodes[part.run]
        step = self._source.offsets[e] + part.start - cuts[part.run]
        a, b = (
            self._source.read([name], Selection(e * 0, rows, part.length, part.destination, (1, n)))[name]
            for name, rows in ((later, step), (now, step + e + 1))
        )
        if isinstance(a, Ragged) or isinstance(b, Ragged):
            return isinstance(a, Ragged) and isinstance(b, Ragged) and a.blobs() == b.blobs()
        return bool(equal(a, b).all())

    def _answer(self, question: str, read: Callable[[], R]) -> R:
        if question not in self._answers:
            self._answers[question] = read()
        return self._answers[question]

    def _named(self, column: str) -> str:
        return self._names.get(column, column)


def equal(one: AnyArray, other: AnyArray) -> BoolArray:
    """Whether values are equal, element by element; NaN is equal to NaN."""
    same = np.asarray(one == other)
    return same | np.isnan(one) & np.isnan(other) if one.dtype.kind in "fc" else same
