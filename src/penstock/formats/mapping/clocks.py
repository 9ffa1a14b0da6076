"""Clocks: how rows that each have a time become rows of steps.

Times are whole nanoseconds here, so that sums and tolerances are exact. docs/howto/own_data.md describes the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_mapping
from penstock.core.ragged import Array, Ragged, offsets_of, ranges
from penstock.core.spec import Field
from penstock.errors import ArgumentError, FormatError, suggestion


def check_names(entries: Mapping[str, Any], known: Collection[str], owner: str) -> None:
    """Raise `ArgumentError` for an entry of a table that has no such."""
    for name in entries:
        if name not in known:
            raise ArgumentError(f"{owner} has no entry {name!r}{suggestion(name, known)}; it has {list(known)}")


JoinRule = Literal["last", "nearest", "next", "linear", "since"]
Outside = Literal["drop", "mask", "error"]
RULES: tuple[JoinRule, ...] = get_args(JoinRule)
SECOND = 1_000_000_000
UNITS: Mapping[str, int] = {"s": SECOND, "ms": 1_000_000, "us": 1000, "ns": 1}
LONGEST = 1e9  # seconds that are counted in nanoseconds


@dataclass(frozen=True)
class TimesRule:
    """Where the time of each row is: an array, the files that have it (None: the files of the rows), and its unit."""

    array: str
    files: str | None = None
    unit: str | None = None

    @classmethod
    def of(cls, given: object, owner: str) -> TimesRule:
        """Return the rule that a text or a table states. Raises `ArgumentError`."""
        if isinstance(given, TimesRule):
            return given
        entries: dict[str, Any] = {"from": given} if isinstance(given, str) else {}
        if is_mapping(given):
            entries = {str(key): value for key, value in given.items()}
        check_names(entries, ("from", "files", "unit"), f"times of {owner}")
        if not isinstance(entries.get("from"), str) or not isinstance(entries.get("files", ""), str):
            example = 'times = "t", or times = {from = "t", unit = "ms"}'
            raise ArgumentError(f"expected the array with the times of {owner}, as in {example}, got {given!r}")
        if entries.get("unit", "s") not in UNITS:
            raise ArgumentError(f"expected unit of the times of {owner} among {list(UNITS)}, got {entries['unit']!r}")
        return cls(entries["from"], entries.get("files"), entries.get("unit"))

    def to_json(self) -> Any:
        """Return the shortest form: a text, or a table."""
        others = {name: value for name in ("files", "unit") if (value := getattr(self, name)) is not None}
        return {"from": self.array, **others} if others else self.array

    def nanoseconds(self, rows: Array, place: str) -> IntArray:
        """Return times as whole nanoseconds. Raises `FormatError` for rows that are no times."""
        if isinstance(rows, Ragged):
            return self._parsed(rows, place)
        times = rows.reshape(len(rows), -1)
        if times.shape[1] != 1 or times.dtype.kind not in "iuf":
            message = f"expected one time in each row, got {rows.dtype}{list(rows.shape)}"
            raise FormatError(message, path=place, where=self.array)
        times = times[:, 0]
        if self.unit is None and times.dtype.kind != "f":
            example = f'times = {{from = "{self.array}", unit = "ns"}}'
            message = f"expected the unit of times that are whole numbers, among {list(UNITS)}, as in {example}"
            raise FormatError(message, path=place, where=self.array)
        scale = UNITS[self.unit or "s"]
        wrong = ~np.isfinite(times) | (np.abs(times.astype(np.float64)) * scale >= 2.0**63)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            message = f"expected a time in each row, got {times[row]} in row {row}; leave the row out, or correct it"
            raise FormatError(message, path=place, where=self.array)
        if times.dtype.kind == "f":
            return np.rint(times.astype(np.float64) * scale).astype(np.int64)
        return times.astype(np.int64) * scale

    def _parsed(self, rows: Ragged, place: str) -> IntArray:
        """Dates with times as text, in UTC."""
        texts = [text.removesuffix("Z") for text in rows.strings()]
        try:
            parsed = np.array(texts, "datetime64[ns]")
        except ValueError as error:
            message = f"expected times as numbers, or as text such as 2026-01-31T12:00:00.5Z, got {error}"
            raise FormatError(message, path=place, where=self.array) from error
        if np.isnat(parsed).any():
            row = int(np.flatnonzero(np.isnat(parsed))[0])
            raise FormatError(f"expected a time in each row, got none in row {row}", path=place, where=self.array)
        return parsed.astype(np.int64)


@dataclass(frozen=True)
class Clock:
    """How columns with different times become rows of steps. docs/howto/own_data.md describes the entries."""

    reference: str | float
    within: float
    rule: JoinRule = "last"
    outside: Outside = "drop"
    times: TimesRule | None = None
    gap: float | None = None
    starts: TimesRule | None = None
    stops: TimesRule | None = None

    @classmethod
    def of(cls, given: object) -> Clock:
        """Return the clock that a table states. Raises `ArgumentError`."""
        if isinstance(given, Clock):
            return given
        example = 'clock = {reference = "observations/camera", rule = "last", within = 0.1}'
        if not is_mapping(given):
            raise ArgumentError(f"expected a table, as in {example}, got {given!r}")
        entries = {str(key): value for key, value in given.items()}
        check_names(entries, [each.name for each in fields(cls)], "the table clock")
        reference = entries.get("reference")
        if not isinstance(reference, str) and not is_seconds(reference):
            message = "expected reference of the clock: a column, or steps a second"
            raise ArgumentError(f"{message}, as in {example}, got {reference!r}")
        if not is_seconds(entries.get("within"), or_zero=True):
            message = "expected within of the clock: the seconds that a row may be away from its step"
            raise ArgumentError(f"{message}, as in {example}, got {entries.get('within')!r}")
        check_rule(entries.get("rule", "last"), "the clock")
        if entries.get("outside", "drop") not in get_args(Outside):
            outside = list(get_args(Outside))
            raise ArgumentError(f"expected outside of the clock among {outside}, got {entries['outside']!r}")
        if entries.get("gap") is not None and not is_seconds(entries["gap"]):
            raise ArgumentError(f"expected gap of the clock: seconds above 0, got {entries['gap']!r}")
        for name in ("times", "starts", "stops"):
            if entries.get(name) is not None:
                entries[name] = TimesRule.of(entries[name], f"{name} of the clock")
        return cls(**entries)

    def to_json(self) -> dict[str, Any]:
        """Return the clock as plain values, for `of`."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value.to_json() if isinstance(value, TimesRule) else value for name, value in given.items()}
        defaults = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in given.items() if value != defaults[name]}


def check_rule(rule: object, owner: str) -> None:
    """Raise `ArgumentError` for an unknown rule."""
    if rule not in RULES:
        raise ArgumentError(f"expected rule of {owner} among {list(RULES)}, got {rule!r}")


def is_seconds(value: object, *, or_zero: bool = False) -> bool:
    """Whether a value is a number of seconds above 0 that can be counted in nanoseconds, or 0 where that is allowed."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value < LONGEST or (or_zero and value == 0)


class SortedTimes(NamedTuple):
    """Times in order, the row of each, and how many rows come after a row with a later time."""

    times: IntArray
    rows: IntArray
    backward: int

    @classmethod
    def of(cls, times: IntArray) -> SortedTimes:
        """Sort times. Rows with equal times stay in their order."""
        rows = np.argsort(times, kind="stable")
        latest = np.maximum.accumulate(times) if len(times) else times
        return cls(times[rows], rows, int(np.count_nonzero(times < latest)))


class RowsOfSteps(NamedTuple):
    """The row of a column for each step, -1 without one. On a line, `high` is the second row and `weight` its part. Of
    `since`, `high` is the row after the last one, and there is no `weight`.

    `stale` steps have a row, but further away than the tolerance.
    """

    low: IntArray
    stale: int = 0
    high: IntArray | None = None
    weight: AnyArray | None = None

    @property
    def found(self) -> BoolArray:
        """Whether each step has a row."""
        return self.low >= 0

    def take(self, steps: BoolArray) -> RowsOfSteps:
        high = None if self.high is None else self.high[steps]
        return RowsOfSteps(self.low[steps], self.stale, high, None if self.weight is None else self.weight[steps])

    def since(self, read: Callable[[int, int], Array], start: int, stop: int) -> Ragged:
        """Return the rows of some steps, each with those since the step before; empty for steps without rows."""
        low = np.maximum(self.low[start:stop], 0)
        high = low if self.high is None else np.where(self.found[start:stop], self.high[start:stop], low)
        full = high > low
        first, last = (int(low[full].min()), int(high[full].max())) if full.any() else (0, 0)
        rows = np.asarray(read(first, last))
        return Ragged(rows[ranges(low[full] - first, (high - low)[full])], offsets_of(high - low))

    def between(self, read: Callable[[int, int], Array], start: int, stop: int, field: Field) -> AnyArray:
        """Return the values on the line between two rows for some steps; zeros for steps without rows."""
        out = np.zeros((stop - start, *field.shape), field.dtype)
        steps = start + np.flatnonzero(self.found[start:stop])
        if not len(steps) or self.high is None or self.weight is None:
            return out
        low, high = self.low[steps], self.high[steps]
        first, last = int(min(low.min(), high.min())), int(max(low.max(), high.max()))
        rows = np.asarray(read(first, last + 1), np.float64)
        weight = self.weight[steps].reshape(-1, *[1] * len(field.shape))
        below, above = rows[low - first], rows[high - first]
        with np.errstate(invalid="ignore"):
            out[steps - start] = np.where(weight > 0, below + weight * (above - below), below)
        return out


def match(column: SortedTimes, steps: IntArray, rule: JoinRule, within: float) -> RowsOfSteps:
    times = column.times
    n = len(times)
    if not n:
        none = np.full(len(steps), -1, np.int64)
        return RowsOfSteps(none, 0, none, np.zeros(len(steps))) if rule == "linear" else RowsOfSteps(none)
    if rule == "since":
        return _since(column, steps, within)
    before = np.searchsorted(times, steps, side="right") - 1
    after = np.searchsorted(times, steps, side="left")
    has_before, has_after = before >= 0, after < n
    age = steps - times[np.maximum(before, 0)]
    wait = times[np.minimum(after, n - 1)] - steps
    takes_before = has_before & (~has_after | (age <= wait))
    if rule == "nearest":
        exists = has_before | has_after
        index = np.where(takes_before, before, after)
        distance = np.where(takes_before, age, wait)
    elif rule == "next":
        exists = has_after
        index = after
        distance = wait
    else:
        exists = has_before & has_after if rule == "linear" else has_before
        index = before
        distance = np.maximum(age, wait) if rule == "linear" else age
    near = exists if math.isinf(within) else exists & (distance <= round(within * SECOND))
    low = np.where(near, column.rows[np.where(near, index, 0)], -1)
    stale = int(np.count_nonzero(exists & ~near))
    if rule != "linear":
        return RowsOfSteps(low, stale)
    high = np.where(near & (age > 0), column.rows[np.where(near, after, 0)], low)
    return RowsOfSteps(low, stale, high, np.where(near, age / np.maximum(age + wait, 1), 0.0))


def _since(column: SortedTimes, steps: IntArray, within: float) -> RowsOfSteps:
    """All rows of each step after the step before. Rows must be in the order of their times."""
    high = np.searchsorted(column.times, steps, side="right")
    first = np.searchsorted(column.times, steps[:1] - round(min(within, LONGEST) * SECOND), side="left")
    low = np.concatenate([first, high[:-1]])
    exists = high > low
    return RowsOfSteps(np.where(exists, low, -1), 0, np.where(exists, high, -1))


def steps_at_rate(rate: float, first: int, last: int) -> IntArray:
    """Return the times of steps at a rate, from the first time to the last."""
    number = int((last - first) * rate / SECOND + 1e-6) + 1 if last >= first else 0
    return first + np.rint(np.arange(number) * (SECOND / rate)).astype(np.int64)
