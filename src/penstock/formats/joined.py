"""`JoinedSource`: the episodes of several datasets one after the other, as one dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.narrowing import is_array
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Spec
from penstock.errors import SpecError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account, joined_accounts
from penstock.formats.base.pieces import RowPieces, cut, spread
from penstock.formats.base.source import Source, check_values

PART = "part"
"""Entry of each episode's metadata with the number of its dataset."""


class JoinedSource(Source):
    """Datasets with the same columns, one after the other. Global rows count through all parts."""

    parses: ClassVar[bool] = False

    def __init__(self, parts: Sequence[Source], names: Sequence[str]) -> None:
        self.parts = tuple(parts)
        self.names = tuple(names)
        self._spec = _common_spec(self.parts, self.names)
        self._first = offsets_of([len(part) for part in self.parts])  # first episode of each part, and the end
        steps = [np.diff(part.offsets) for part in self.parts]
        self._offsets = offsets_of(np.concatenate(steps))
        episodes = np.arange(len(self._offsets))
        bounds = {"step": self._offsets, "boundary": self._offsets + episodes, "episode": episodes}
        self._rows: dict[str, IntArray] = {align: rows[self._first] for align, rows in bounds.items()}
        self._values: dict[str, IntArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parts, self.names)

    @property
    @override
    def spec(self) -> Spec:
        return self._spec

    @property
    @override
    def offsets(self) -> IntArray:
        return self._offsets

    @property
    @override
    def fingerprint(self) -> str:
        text = "joined " + " ".join(part.fingerprint for part in self.parts)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    @override
    def metadata(self) -> dict[str, Any]:
        entries = [part.metadata for part in self.parts]
        common = {k: v for k, v in entries[0].items() if all(k in each and _equal(each[k], v) for each in entries)}
        parts = [
            {
                **{key: value for key, value in each.items() if key not in common},
                "name": name,
                "episodes": len(part),
                "steps": part.steps,
            }
            for part, name, each in zip(self.parts, self.names, entries, strict=True)
        ]
        return {**common, "parts": parts}

    @property
    @override
    def account(self) -> Account:
        return joined_accounts([part.account for part in self.parts], self.names, self._first[:-1].tolist())

    def part_of(self, episodes: Sequence[int] | IntArray) -> IntArray:
        """Return the number of the part of each episode, `[n]` int64."""
        return np.searchsorted(self._first, np.asarray(episodes, np.int64), side="right") - 1

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        for number, mine in self._by_part(column, selection):
            self.parts[number].read_array(column, mine, out)

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        parts = self._by_part(column, selection)
        return [wanted for number, mine in parts for wanted in self.parts[number].remote_ranges(column, mine)]

    def _by_part(self, column: str, selection: Selection) -> Iterator[tuple[int, Selection]]:
        """Each part that has rows of a selection, and these rows."""
        align = self._spec[column].align
        pieces = cut(self._rows[align], selection.start, selection.length, selection.destination)
        for number in map(int, np.unique(pieces.run)):
            mine = pieces.take(pieces.run == number)
            yield number, self._selection(number, align, mine, selection.shape)

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        field = self._spec[column]
        pieces = cut(self._rows[field.align], selection.start, selection.length, selection.start)
        rows = [Ragged(np.empty((0, *field.shape), field.dtype), np.zeros(1, np.int64))]
        for number, mine in _runs(pieces):
            ends = offsets_of(mine.length)
            packed = mine._replace(destination=ends[:-1])
            chosen = self._selection(number, field.align, packed, (1, int(ends[-1])))
            rows.append(self.parts[number].read_ragged(column, chosen))
        return spread(Ragged.concatenate(rows), selection)

    def _selection(self, number: int, align: Align, pieces: RowPieces, shape: tuple[int, int]) -> Selection:
        """Rows of a part, in its own numbers."""
        start = pieces.start - self._rows[align][number] + int(self.parts[number].rows_between(align, 0, 0)[0])
        return Selection(np.zeros_like(start), start, pieces.length, pieces.destination, shape)

    @override
    def value_offsets(self, column: str) -> IntArray:
        if column not in self._values:
            lengths = [np.diff(part.value_offsets(column)) for part in self.parts]
            self._values[column] = offsets_of(np.concatenate(lengths))
        return self._values[column]

    @override
    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        offsets = self.value_offsets(column)
        check_values(column, offsets, selection)
        first = offsets[self._rows[self._spec[column].align]]
        pieces = cut(first, selection.start, selection.length, selection.destination)
        for number in map(int, np.unique(pieces.run)):
            mine = pieces.take(pieces.run == number)
            start = mine.start - first[number] + int(self.parts[number].value_offsets(column)[0])
            part = Selection(np.zeros_like(start), start, mine.length, mine.destination, selection.shape)
            self.parts[number].read_values(column, part, out)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        numbers = np.asarray(episodes, np.int64)
        part = self.part_of(numbers)
        entries: list[dict[str, Any]] = [{} for _ in episodes]
        for number in map(int, np.unique(part)):
            places = np.flatnonzero(part == number)
            inside = (numbers[places] - self._first[number]).tolist()
            for place, entry in zip(places.tolist(), self.parts[number].episode_metadata(inside), strict=True):
                entries[place] = {**entry, PART: number}
        return entries

    @override
    def close(self) -> None:
        for part in self.parts:
            part.close()


def _runs(pieces: RowPieces) -> list[tuple[int, RowPieces]]:
    """Consecutive pieces of the same part together, in order."""
    edges = [0, *(np.flatnonzero(np.diff(pieces.run)) + 1).tolist(), len(pieces.run)]
    return [(int(pieces.run[a]), pieces.take(slice(a, b))) for a, b in pairwise(edges) if b > a]


def _common_spec(parts: Sequence[Source], names: Sequence[str]) -> Spec:
    first = parts[0].spec
    for part, name in zip(parts[1:], names[1:], strict=True):
        differ = [path for path in {**first, **part.spec} if first.fields.get(path) != part.spec.fields.get(path)]
        if differ:
            fields = {path: (first.fields.get(path), part.spec.fields.get(path)) for path in differ[:3]}
            raise SpecError(
                f"expected the columns of {names[0]} in {name} too, got other fields of {differ}: {fields}; open each "
                "alone, and mix them with penstock.mix(..., union=True)"
            )
    spaces = [
        getattr(first, name) if all(getattr(part.spec, name) == getattr(first, name) for part in parts) else None
        for name in ("observation_space", "action_space")
    ]
    return Spec(first.fields, *spaces)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.array_equal(a, b) if is_array(a) else a == b)
