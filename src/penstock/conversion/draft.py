"""The columns of a target while they are worked out: what each is made of, and what is to be said about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.core.columns import under
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import SpecError

Columns = Mapping[str, Array]
Make = Callable[[Columns, int], Array]  # columns of the source and steps of an episode, to a column of the target

Level = Literal["adapted", "inferred", "filled", "computed", "left out"]
FLAG = Field(np.dtype(np.bool_))
ASKED = "as asked for"


@dataclass(frozen=True)
class Note:
    """One difference between source and target."""

    level: Level
    what: str
    message: str


class Draft:
    """Columns by path: their fields, and functions that make them. At first all come from the source."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.fields: dict[str, Field] = dict(fields)
        self.makes: dict[str, Make] = {path: kept(path) for path in fields}
        self.origins: dict[str, str] = {}  # the former name of a renamed column
        self.notes: list[Note] = []

    def note(self, level: Level, what: str, message: str) -> None:
        """Say something about a column."""
        self.notes.append(Note(level, what, message))

    def has(self, name: str) -> bool:
        """Whether there is a column of that name or below it."""
        return any(under(name, path) for path in self.fields)

    def below(self, name: str) -> list[str]:
        return [path for path in self.fields if under(name, path)]

    def put(self, path: str, field: Field, make: Make) -> None:
        """Add a column, or make it in another way. A new one goes to the end."""
        self.fields[path], self.makes[path] = field, make

    def leave_out(self, path: str, message: str) -> None:
        """Take a column out, and say why."""
        del self.fields[path], self.makes[path]
        self.note("left out", path, message)

    def drop(self, names: Sequence[str]) -> None:
        """Take out what the caller does not want. Raises `SpecError` for an unknown column."""
        for name in names:
            if not self.has(name):
                raise SpecError(f"expected columns of {list(self.fields)} to leave out, got {name!r}")
            for path in self.below(name):
                self.leave_out(path, ASKED)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give columns, and those below them, other names. Raises `SpecError` if two would have the same."""
        for old, new in names.items():
            if not self.has(old):
                raise SpecError(f"expected columns of {list(self.fields)} to rename, got {old!r}")
            for path in self.below(old):
                other = new + path[len(old) :]
                if other in self.fields:
                    raise SpecError(f"expected a name that no column has for {path!r}, got {other!r}")
                self.fields[other], self.makes[other] = self.fields.pop(path), self.makes.pop(path)
                self.origins[other] = path
                self.note("adapted", path, f"renamed to {other}")

    def of(self, columns: Columns, steps: int) -> dict[str, Array]:
        return {path: make(columns, steps) for path, make in self.makes.items()}


def kept(path: str) -> Make:
    return lambda columns, _: columns[path]


def earlier(make: Make) -> Make:
    """All rows but the last."""
    return lambda columns, steps: make(columns, steps)[:-1]


def later(make: Make) -> Make:
    """All rows but the first."""
    return lambda columns, steps: make(columns, steps)[1:]


def ended_by(rows: Make, last: Make | None) -> Make:
    """T rows and one more: the last row of `last`, or the last once more."""

    def made(columns: Columns, steps: int) -> Array:
        now = rows(columns, steps)
        after = now if last is None else last(columns, steps)
        if isinstance(now, Ragged) and isinstance(after, Ragged):
            return Ragged.concatenate([now, after[-1:]])
        return np.concatenate([np.asarray(now), np.asarray(after)[-1:]])

    return made


def zeros(field: Field) -> Make:
    return lambda _, steps: np.zeros((steps, *field.shape), field.dtype)


def flags(make: Make) -> Make:
    """As `[T]` bool."""
    return lambda columns, steps: np.asarray(make(columns, steps)).reshape(steps).astype(np.bool_)


def single(make: Make) -> Make:
    """`[T, 1]` as `[T]`."""
    return lambda columns, steps: np.asarray(make(columns, steps)).reshape(steps)


def closed(make: Make | None, ends: Sequence[Make]) -> Make:
    """Truncations whose last one is set where none of `ends` is at the last step."""

    def made(columns: Columns, steps: int) -> Array:
        flags = np.zeros(steps, np.bool_) if make is None else np.array(make(columns, steps), np.bool_)
        if steps and not flags[-1] and not any(np.asarray(end(columns, steps))[-1] for end in ends):
            flags[-1] = True
        return flags

    return made


def unless(make: Make, other: Make) -> Make:
    """Return a column of flags, without the steps at which another column has flags."""
    return lambda columns, steps: np.asarray(make(columns, steps)) & ~np.asarray(other(columns, steps))


def flattened(make: Make) -> Make:
    """A ragged column of vectors or matrices, whose numbers are listed one by one."""

    def made(columns: Columns, steps: int) -> Array:
        rows = ragged(make(columns, steps))
        return Ragged(rows.values.reshape(-1), rows.offsets * math.prod(rows.values.shape[1:]))

    return made


def padded(make: Make, width: int) -> Make:
    """`[n, width, ...]` rows of a ragged column with zeros behind."""

    def made(columns: Columns, steps: int) -> Array:
        rows = ragged(make(columns, steps))
        out = np.zeros((len(rows), width, *rows.values.shape[1:]), rows.dtype)
        out[np.arange(width) < rows.lengths[:, None]] = rows.values
        return out

    return made


def lengths(make: Make) -> Make:
    """`[n]` values in each row of a ragged column."""
    return lambda columns, steps: ragged(make(columns, steps)).lengths.astype(np.int64)


def ragged(array: Array) -> Ragged:
    """The rows of a ragged column."""
    if not isinstance(array, Ragged):
        raise SpecError(f"expected a ragged column, got an array of {array.dtype}{list(array.shape)}")
    return array
