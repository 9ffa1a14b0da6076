"""Which rows are steps: rows that a mapping chooses in a file, or columns joined by its clock; and their account."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spec import Field
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.base.ends import EpisodeEnds
from penstock.formats.mapping.clocks import SECOND, Clock, RowsOfSteps, SortedTimes, TimesRule, match, steps_at_rate
from penstock.formats.mapping.columns import UnitLeaves, UnitRows
from penstock.formats.mapping.rules import ColumnRule


class JoinedUnit(NamedTuple):
    """Columns with a row for each step, the time of each step, and where episodes start."""

    rows: Mapping[str, UnitRows]
    times: IntArray
    ends: EpisodeEnds


@dataclass
class ClockCounts:
    """What became of the rows and steps of all units. `entries` is what the account says."""

    clock: Clock
    steps: int = 0
    dropped: int = 0
    inside: int = 0  # places within episodes where steps were dropped
    missing: Counter[str] = field(default_factory=Counter[str])
    stale: Counter[str] = field(default_factory=Counter[str])
    backward: Counter[str] = field(default_factory=Counter[str])
    outside_marks: int = 0
    empty: int = 0

    def sentence(self, id: str | None) -> str:
        """Where episodes end besides the ends of files."""
        clock = self.clock
        parts = [] if id is None else [f"end where `{id}` changes"]
        if clock.starts is not None:
            parts.append(f"start at the times of `{clock.starts.array}`")
        if clock.stops is not None:
            parts.append(f"stop at the times of `{clock.stops.array}`")
        if clock.gap is not None:
            parts.append(f"end before {clock.gap:g} seconds without a step")
        return "episodes " + " and ".join(parts) if parts else ""

    def entries(self) -> list[LeftOut]:
        clock = self.clock
        place = clock.reference if isinstance(clock.reference, str) else f"steps at {clock.reference:g} a second"
        missing = {name: n for name, n in self.missing.items() if n}
        entries: list[LeftOut] = []
        if clock.outside == "mask":
            for name, n in missing.items():
                message = f"{self._missing(name)}: zeros, and False in valid/{name}"
                entries.append(LeftOut("rows", name, "not-stored", message, n))
        if self.dropped:
            reasons = "; ".join(map(self._missing, missing))
            message = f"{self.dropped:,} of {counted(self.steps, 'step')} dropped: {reasons}"
            if self.inside:
                message += f"; between others at {counted(self.inside, 'place')}"
                if clock.gap is None:
                    message += ", where steps on both sides follow one another: `gap` of the clock ends episodes there"
            entries.append(LeftOut("rows", place, "unused-rows", message, self.dropped))
        if self.outside_marks:
            message = f"{counted(self.outside_marks, 'step')} before a start or after a stop of an episode"
            entries.append(LeftOut("rows", place, "unused-rows", message, self.outside_marks))
        if self.empty:
            message = f"{counted(self.empty, 'episode')} without a step"
            entries.append(LeftOut("episode", place, "no-steps", message, self.empty))
        for name, n in self.backward.items():
            if n:
                message = f"{counted(n, 'row')} after a row with a later time: taken in the order of their times"
                entries.append(LeftOut("rows", name, "time-backward", message, n))
        return entries

    def _missing(self, name: str) -> str:
        further = f"{self.stale[name]:,} of them have one further away"
        return f"{name} has no row near enough for {counted(self.missing[name], 'step')} ({further})"


class UnitJoin:
    """Joins the columns of one unit."""

    def __init__(self, counts: ClockCounts, leaves: UnitLeaves) -> None:
        self._clock = counts.clock
        self._counts = counts
        self._leaves = leaves
        self._used: set[str] = set()
        self._sorted: dict[tuple[str | None, TimesRule], SortedTimes] = {}

    def join(self, rules: Mapping[str, ColumnRule], rows: Mapping[str, UnitRows], id: str | None) -> JoinedUnit:
        """Return the columns with a row for each step. Raises `FormatError`."""
        timed = {name: self._times_of(name, rules[name], rows[name]) for name in rows if rules[name].align != "episode"}
        steps, episode = self._episodes(self._steps(timed))
        matches = {name: self._match(name, rules[name], rows[name], times, steps) for name, times in timed.items()}
        values = None if id is None else self._ids(id, steps)
        keep = self._keep(matches, steps)
        if id is not None and values is not None:
            keep &= values >= 0
            self._counts.missing[id] += int(np.count_nonzero(values < 0))
            episode = np.stack([episode, values])
        self._count(matches, keep)
        columns = {
            name: self._at_steps(rules[name], each, matches[name].take(keep)) if name in matches else each
            for name, each in rows.items()
        }
        offsets = self._offsets(steps[keep], episode[..., keep])
        none = np.zeros(int(offsets[-1]), np.bool_)
        used = frozenset(self._used if id is None else {*self._used, id})
        sentence = self._counts.sentence(id)
        return JoinedUnit(columns, steps[keep], EpisodeEnds(offsets, none, none, sentence, used, ()))

    def _times_of(self, column: str, rule: ColumnRule, rows: UnitRows) -> SortedTimes:
        """The times of the rows of a column, by its own rule, the rule of the clock, or what the file itself says."""
        stated = rule.times or self._clock.times
        times = self._leaves.times_of(column, rule.files, rows.names[0], stated)
        key = (rule.files, times)
        if key not in self._sorted:
            self._sorted[key] = SortedTimes.of(self._read(times, rule.files))
        times_in_order = self._sorted[key]
        if len(times_in_order.times) != rows.leaf.rows:
            expected = f"{rows.leaf.rows} times, one for each row of the column {column!r}"
            raise FormatError(
                f"expected {expected}, got {len(times_in_order.times)}", path=str(self._leaves.unit), where=times.array
            )
        return times_in_order

    def _read(self, times: TimesRule, files: str | None) -> IntArray:
        place = self._leaves.unit
        if times.files is None and files is None:
            self._used.add(times.array)
        return times.nanoseconds(self._leaves.read(times.files or files, times.array), str(place))

    def _steps(self, timed: Mapping[str, SortedTimes]) -> IntArray:
        reference = self._clock.reference
        if isinstance(reference, str):
            if reference not in timed:
                message = f"expected the reference {reference!r} of the clock among the columns {list(timed)}"
                raise FormatError(message, path=str(self._leaves.unit))
            return timed[reference].times
        given = [each.times for each in timed.values() if len(each.times)]
        first, last = max((times[0] for times in given), default=1), min((times[-1] for times in given), default=0)
        return steps_at_rate(reference, int(first), int(last))

    def _episodes(self, steps: IntArray) -> tuple[IntArray, IntArray]:
        """The steps between starts and stops, and the number of the start or stop of each."""
        starts, stops = self._marks(self._clock.starts), self._marks(self._clock.stops)
        episode = np.zeros(len(steps), np.int64)
        inside = np.ones(len(steps), np.bool_)
        if starts is not None:
            episode = np.searchsorted(starts, steps, side="right") - 1
            inside = episode >= 0
        if stops is not None:
            stop = np.searchsorted(stops, steps, side="left")
            if starts is None:
                episode = stop
                inside = stop < len(stops)
            else:  # the first stop after the start is the one before which the step is
                own = np.searchsorted(stops, starts, side="left")
                inside &= (stop < len(stops)) & (stop == own[np.maximum(episode, 0)] if len(own) else False)
        self._counts.outside_marks += int(np.count_nonzero(~inside))
        marks = len(starts) if starts is not None else len(stops) if stops is not None else 0
        self._counts.empty += marks - len(np.unique(episode[inside])) if marks else 0
        return steps[inside], episode[inside]

    def _marks(self, times: TimesRule | None) -> IntArray | None:
        return None if times is None else np.sort(self._read(times, None))

    def _match(self, column: str, rule: ColumnRule, rows: UnitRows, times: SortedTimes, steps: IntArray) -> RowsOfSteps:
        chosen = rule.rule or self._clock.rule
        row = rows.leaf.field
        if chosen == "linear" and (np.dtype(rule.dtype or row.dtype).kind != "f" or row.ragged or len(row.shape) > 1):
            message = f"expected floating-point numbers, or a row of them, for the rule `linear`, got {rows.leaf}"
            hint = f'; say another for the column, as in {column!r} = {{from = ..., rule = "last"}}'
            raise FormatError(message + hint, path=str(self._leaves.unit), where=column)
        if chosen == "since" and (row.kind != "array" or times.backward):
            expected = "rows of numbers in the order of their times"
            got = f"{rows.leaf}, {counted(times.backward, 'row')} of them out of order"
            message = f"expected {expected} for the rule `since`, got {got}"
            raise FormatError(message, path=str(self._leaves.unit), where=column)
        self._counts.backward[column] += times.backward
        return match(times, steps, chosen, self._clock.within if rule.within is None else rule.within)

    def _at_steps(self, rule: ColumnRule, rows: UnitRows, steps: RowsOfSteps) -> UnitRows:
        """The rows that steps take; rows of `since` vary in length."""
        if (rule.rule or self._clock.rule) != "since":
            return rows._replace(steps=steps)
        field = Field(rows.leaf.field.dtype, rows.leaf.field.shape, kind="ragged")
        return rows._replace(leaf=replace(rows.leaf, field=field), steps=steps)

    def _ids(self, name: str, steps: IntArray) -> IntArray:
        """The number of the last value of the array of ids at or before each step, -1 before the first."""
        rule = ColumnRule((name,))
        rows = self._leaves.rows_of("id", rule)
        rows_before = match(self._times_of("id", rule, rows), steps, "last", math.inf)
        values = self._leaves.read(None, name)
        texts = np.array(values.strings()) if isinstance(values, Ragged) else values
        _, numbers = np.unique(texts, axis=0, return_inverse=True)
        return np.where(rows_before.found, numbers.reshape(-1)[np.maximum(rows_before.low, 0)], -1)

    def _keep(self, matches: Mapping[str, RowsOfSteps], steps: IntArray) -> BoolArray:
        keep = np.ones(len(steps), np.bool_)
        for name, rows in matches.items():
            has = rows.found
            if self._clock.outside == "drop":
                keep &= has
            elif self._clock.outside == "error" and not has.all():
                first = int(steps[np.flatnonzero(~has)[0]])
                number = counted(int(np.count_nonzero(~has)), "step")
                message = f"expected a row of {name!r} within the tolerance of each step, got none for {number}"
                hint = f'; the first is at {first / SECOND:.6f} s; say outside = "drop" or "mask", or a larger `within`'
                raise FormatError(message + hint, path=str(self._leaves.unit), where=name)
        return keep

    def _count(self, matches: Mapping[str, RowsOfSteps], keep: BoolArray) -> None:
        counts = self._counts
        counts.steps += len(keep)
        counts.dropped += int(np.count_nonzero(~keep))
        kept = np.flatnonzero(keep)
        counts.inside += int(np.count_nonzero(np.diff(kept) > 1))
        for name, rows in matches.items():
            counts.missing[name] += int(np.count_nonzero(~rows.found))
            counts.stale[name] += rows.stale

    def _offsets(self, times: IntArray, episode: IntArray) -> IntArray:
        """Where episodes start among the steps: at another mark, another id, or after a gap."""
        new = np.diff(episode, axis=-1) != 0
        new = new.any(axis=0) if new.ndim > 1 else new
        if self._clock.gap is not None:
            new = new | (np.diff(times) > round(self._clock.gap * SECOND))
        inner = np.flatnonzero(new) + 1
        return np.concatenate([[0], inner, [len(times)]] if len(times) else [[0]]).astype(np.int64)


PIECE = 4096  # rows that are compared with zero at a time


def ring_order(written: int, rows: int, path: object) -> IntArray | None:
    """Return the rows of a ring, the oldest first; None where they are in order. Rows not yet written are left out."""
    if written < 0:
        raise FormatError(f"expected a number of rows that were written, got {written}", path=path)
    if written < rows:
        return np.arange(written)
    start = written % rows if rows else 0
    return np.concatenate([np.arange(start, rows), np.arange(start)]) if start else None


def range_order(ranges: AnyArray, numbers: IntArray, path: object) -> tuple[IntArray, IntArray]:
    """Return the rows of `[E, 2]` first and last numbers, and the length of each range; rows have `numbers`."""
    if ranges.ndim != 2 or ranges.shape[1] != 2 or ranges.dtype.kind not in "iu":
        message = f"expected the first and the last row of each episode, got {ranges.dtype}{list(ranges.shape)}"
        raise FormatError(message, path=path)
    bounds = ranges.astype(np.int64)
    first, stop = np.searchsorted(numbers, bounds[:, 0]), np.searchsorted(numbers, bounds[:, 1], side="right")
    lengths = bounds[:, 1] - bounds[:, 0] + 1
    if len(wrong := np.flatnonzero((stop - first != lengths) | (lengths < 1))):
        low, high = bounds[wrong[0]].tolist()
        got = int(max(stop[wrong[0]] - first[wrong[0]], 0))
        raise FormatError(f"expected rows of all numbers from {low} to {high}, got {got} of them", path=path)
    within = np.arange(int(lengths.sum())) - np.repeat(offsets_of(lengths)[:-1], lengths)
    return np.repeat(first, lengths) + within, lengths


def zero_rows(columns: Sequence[AnyArray]) -> BoolArray:
    """Return whether all columns of a row are zero. Columns that are small go first: of others, few rows are read."""
    zero = np.ones(len(columns[0]), np.bool_)
    for column in sorted(columns, key=lambda each: each.nbytes):
        for start, stop in _runs(zero):
            zero[start:stop] &= ~column[start:stop].reshape(stop - start, -1).any(1)
    return zero


def _runs(flags: BoolArray) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are marked, of at most `PIECE` rows."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).reshape(-1, 2)
    for start, stop in edges.tolist():
        yield from ((row, min(row + PIECE, stop)) for row in range(start, stop, PIECE))


def padding_rows(zero: BoolArray, most: int) -> BoolArray:
    """Return whether each row is padding: the first of so many rows of zeros or more, also where the file cuts them."""
    padding = np.zeros(len(zero), np.bool_)
    for start, stop in np.flatnonzero(np.diff(zero, prepend=False, append=False)).reshape(-1, 2).tolist():
        if stop - start >= most or start == 0 or stop == len(zero):
            padding[start : min(start + most, stop)] = True
    return padding


def dropped(lengths: IntArray, first: int, last: int, path: object) -> IntArray:
    """Return the rows of episodes of these lengths without some at both ends of each."""
    kept = lengths - first - last
    if len(short := np.flatnonzero(kept < 0)):
        got = int(lengths[short[0]])
        raise FormatError(f"expected episodes of {first + last} rows or more, got {got}", path=path)
    start = offsets_of(lengths)[:-1] + first
    return np.repeat(start - offsets_of(kept)[:-1], kept) + np.arange(int(kept.sum()))
