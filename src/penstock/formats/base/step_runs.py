"""`StepRuns`: rows of a flat file as runs between which an episode may begin; `episodes` decides where one does.

A run is a range of rows with one id, rising step numbers, and an end at most at its last row. Runs of several
files are joined in order, so an episode may go on in the next file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_scalar
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError

Values = AnyArray | Sequence[str]
_BLOCK = 1 << 16  # rows that are compared at a time, which stay in the cache of the processor


@dataclass(frozen=True, eq=False)
class StepRuns:
    """Runs of rows."""

    start: IntArray
    rows: int
    ended: BoolArray
    marked: BoolArray
    values: Values | None = None
    first: AnyArray | None = None
    last: AnyArray | None = None

    @classmethod
    def of(cls, values: AnyArray | None, steps: AnyArray | None, ended: BoolArray | None, rows: int) -> StepRuns:
        start = run_starts(rows, values, steps, ended)
        return cls.at(start, None if values is None else values[start], steps, ended, rows)

    @classmethod
    def at(
        cls, start: IntArray, values: Values | None, steps: AnyArray | None, ended: BoolArray | None, rows: int
    ) -> StepRuns:
        """Return the runs with known first rows. `values` has the id of each run, the others have all rows."""
        stop = np.append(start[1:], rows)[: len(start)] - 1
        first, last = (None, None) if steps is None else (steps[start], steps[stop])
        none = np.zeros(len(start), np.bool_)
        marks = (none, none) if ended is None else (ended[stop], ended[start])
        return cls(start, rows, *marks, values, first, last)

    @classmethod
    def joined(cls, parts: Sequence[StepRuns]) -> StepRuns:
        """Return the runs of files in order. At least one, all with or all without ids and step numbers."""
        before = offsets_of([part.rows for part in parts])
        start = np.concatenate([part.start + rows for part, rows in zip(parts, before[:-1], strict=True)])
        stored = [part.stored() for part in parts]
        arrays = {name: np.concatenate([each[name] for each in stored]) for name in stored[0]}
        return cls.restored(start, arrays, int(before[-1]))

    def stored(self) -> dict[str, AnyArray]:
        """Return everything but `start` as arrays. `restored` is the inverse, also of several arrays joined."""
        arrays: dict[str, AnyArray] = {"ended": self.ended, "marked": self.marked}
        if self.first is not None and self.last is not None:
            arrays |= {"first": self.first, "last": self.last}
        if isinstance(self.values, np.ndarray):
            return {**arrays, "value": self.values}
        texts = [text.encode() for text in self.values or ()]
        lengths = np.array([len(text) for text in texts], np.int64)
        raw = np.frombuffer(b"".join(texts), np.uint8)
        return arrays if self.values is None else {**arrays, "value text": raw, "value length": lengths}

    @classmethod
    def restored(cls, start: IntArray, arrays: Mapping[str, AnyArray], rows: int) -> StepRuns:
        """Return the runs that `stored` made arrays of, which begin at the rows `start`."""
        values: Values | None = arrays.get("value")
        if "value text" in arrays:
            raw, ends = arrays["value text"].tobytes(), offsets_of(arrays["value length"]).tolist()
            values = [raw[a:b].decode() for a, b in pairwise(ends)]
        marks = (arrays["ended"].astype(np.bool_), arrays["marked"].astype(np.bool_))
        return cls(start, rows, *marks, values, arrays.get("first"), arrays.get("last"))

    def episodes(self, path: object, name: str) -> RunEpisodes:
        """Return the episodes.

        An episode begins where the id changes, where the step number starts again (it falls to the first number of the
        episode, or below), and after an end. Where there are ids, marks count as ends if each episode of another id
        follows one, and no two rows in a row of one id are marked; where step numbers start again, these decide alone.
        """
        begins = np.ones(len(self.start), np.bool_)
        begins[1:] = False
        values = None if self.values is None else _array(self.values)
        if values is not None:
            begins[1:] = values[1:] != values[:-1]
        uses_steps = self._counts_within(begins[1:])
        uses_ends = not uses_steps and self._are_ends(begins[1:])
        if uses_ends:
            begins[1:] |= self.ended[:-1]
        fallen = self._restarts(begins) if uses_steps else np.zeros(0, np.int64)
        first_rows = np.flatnonzero(begins)
        if values is not None:
            self._check_order(values, first_rows, uses_steps, uses_ends, path, name)
        ids: Values = [] if values is None else values[first_rows]
        ids = ids if self.values is None or isinstance(self.values, np.ndarray) else list(ids)
        within = np.flatnonzero(self.ended[:-1] & ~begins[1:])
        ends = self.start[within + 1] - 1
        return RunEpisodes(self.start[first_rows], self.rows, ids, uses_steps, uses_ends, ends, self.start[fallen])

    def _counts_within(self, change: BoolArray) -> bool:
        """Whether step numbers count the steps of each episode: they rise in most rows, and start again somewhere, and
        where most ids change."""
        if self.first is None or self.last is None or not len(self.first):
            return False
        falls = np.asarray(self.first[1:] <= self.last[:-1])
        goes_on = ~(change | self.ended[:-1])  # in the next block: blocks may have one row each
        rises = (self.last > self.first).any() or ((self.first[1:] > self.last[:-1]) & goes_on).any()
        if not falls.any() or 2 * int(falls.sum()) > self.rows or not rises:
            return False
        return 2 * int(falls[change].sum()) >= int(change.sum())

    def _are_ends(self, change: BoolArray) -> bool:
        """Whether marks are ends of episodes. Without ids, all are."""
        if self.values is None:
            return True
        if (self.ended[:-1] & self.marked[1:] & ~change).any():
            return False
        return bool(self.ended[:-1][change].all() and (change.any() or self.ended[-1:].all()))

    def _restarts(self, begins: BoolArray) -> IntArray:
        """Set `begins` where step numbers start again, and return the runs at which they fall to another number."""
        fallen: list[int] = []
        if self.first is not None and self.last is not None:
            falls = np.flatnonzero((self.first[1:] <= self.last[:-1]) & ~begins[1:]) + 1
            latest = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
            restart = -1
            for run in falls.tolist():
                if self.first[run] <= self.first[max(restart, int(latest[run]))]:
                    begins[run], restart = True, run
                else:
                    fallen.append(run)
        return np.array(fallen, np.int64)

    def _check_order(
        self, values: AnyArray, first_rows: IntArray, uses_steps: bool, uses_ends: bool, path: object, name: str
    ) -> None:
        """Raise `FormatError` if an id comes back later, and neither an end nor a step number says that it is new."""
        ids = values[first_rows]
        order = np.argsort(ids, kind="stable")
        again = ids[order][1:] == ids[order][:-1]
        earlier, later = order[:-1][again], order[1:][again]
        new = later == earlier + 1
        if uses_ends:
            new |= self.ended[np.append(first_rows[1:], len(values))[earlier] - 1]
        if uses_steps and self.first is not None:
            new |= self.first[first_rows[later]] <= self.first[first_rows[earlier]]
        if not new.all():
            late = int(later[~new].min())
            value = plain(ids[late])
            first = int(self.start[first_rows[np.flatnonzero(ids == ids[late])[0]]])
            raise FormatError(
                f"expected the rows of an episode next to each other, got {name} {value!r} at row {first} and "
                f"again at row {self.start[first_rows[late]]}; sort the table by {name} and step, or name another "
                f"column with `episode`; recordings that number their episodes alike need a column of step numbers",
                path=path,
                where=name,
            )


@dataclass(frozen=True, eq=False)
class RunEpisodes:
    """Episodes, and which marks ended them."""

    start: IntArray
    rows: int
    values: Values
    uses_steps: bool
    uses_ends: bool
    ends_within: IntArray
    falls_within: IntArray

    @property
    def offsets(self) -> IntArray:
        """`[E + 1]` first row of each episode, and the number of rows."""
        return np.append(self.start, self.rows).astype(np.int64)


def run_starts(rows: int, values: AnyArray | None, steps: AnyArray | None, ended: BoolArray | None) -> IntArray:
    starts = [np.arange(min(rows, 1))]
    for a in range(1, rows, _BLOCK):
        before, here = slice(a - 1, min(a + _BLOCK, rows) - 1), slice(a, a + _BLOCK)
        begins: list[AnyArray] = [] if ended is None else [ended[before]]
        if values is not None:
            begins.append(values[here] != values[before])
        if steps is not None:
            begins.append(steps[here] <= steps[before])
        if (begin := either(begins)) is not None:
            starts.append(np.flatnonzero(begin) + a)
    return np.concatenate(starts).astype(np.int64, copy=False)


def either(flags: Iterable[BoolArray | None]) -> BoolArray | None:
    """Return whether any flag is true in each row; None without flags, and a single flag itself, not a copy."""
    arrays = [flag for flag in flags if flag is not None]
    return reduce(np.logical_or, arrays) if arrays else None


def plain(value: Any) -> Any:
    """Return the id of an episode as a number of Python, or as text."""
    return value.item() if is_scalar(value) else value


def _array(values: Values) -> AnyArray:
    return values if isinstance(values, np.ndarray) else np.array(values, object)
