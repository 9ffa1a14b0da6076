"""Plain `.npz` files of arrays whose names say what they are: Minari's, D4RL's, imitation's or il-representations'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, ClassVar

import numpy as np

from penstock.containers.npz import MAX_BYTES, NpzArchive, npz_names
from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.spec import Align, Field
from penstock.errors import FormatError
from penstock.formats.base.account import Account, LeftOut, unused_files
from penstock.formats.base.ends import (
    COLUMN_NAMES,
    EpisodeEnds,
    MarkArray,
    Meaning,
    check_meanings,
    find_ends,
    meaning_of,
)
from penstock.formats.base.findings import Finding
from penstock.formats.base.infos import plain
from penstock.formats.demos.source import DemoColumn, DemoSource, Kind, continues, follows, held, nameable
from penstock.kernels.rows import RowMap

# What `names` may call arrays that mark ends.
MARKS: Mapping[str, Meaning] = {
    "terminations": "termination",
    "truncations": "truncation",
    "episode_ends": "end",
    "lengths": "lengths",
    "indices": "cuts",
    "offsets": "offsets",
    "episode_starts": "start",
}
NUMBERS = "biufc"


class PlainKind(Kind):
    """An `.npz` file with arrays of known names. See docs/formats/demos.md."""

    name: ClassVar[str] = "npz"
    description: ClassVar[str] = "plain .npz (observations, actions, rewards, ...)"
    options: ClassVar[tuple[str, ...]] = ("names", "lengths", "ends", "max_bytes")

    def recognises(self, path: Path) -> bool:
        """Whether a zip archive has arrays that are observations and actions, by their names."""
        names = npz_names(path)
        return bool(_called("observations", names)) and bool(_called("actions", names))

    def open(self, path: Path, **options: Any) -> DemoSource:
        """As `read_npz` does, with its options."""
        return read_npz(path, **options)

    def check(self, path: Path, *, deep: bool, **options: Any) -> Iterator[Finding]:
        """Look for members whose bytes are not what was written; not `deep`, only whether the file opens."""
        for name in NpzArchive(path, options.get("max_bytes", MAX_BYTES)).damaged() if deep else ():
            yield Finding("checksum", name, "checksum of the member is wrong")
        self.open(path, **options).close()


def read_npz(
    path: Path,
    *,
    names: Mapping[str, str] | None = None,
    lengths: Sequence[int] | None = None,
    ends: Mapping[str, Meaning] | None = None,
    max_bytes: int = MAX_BYTES,
) -> DemoSource:
    """The episodes of one archive; docs/formats/demos.md describes the options."""
    called = dict(names or {})
    if wrong := sorted(called.keys() - COLUMN_NAMES.keys() - MARKS.keys()):
        raise TypeError(f"expected names for {[*COLUMN_NAMES, *MARKS]}, got {wrong}")
    counts = None if lengths is None else list(lengths)
    meanings: dict[str, Meaning] = dict(ends or {})
    reading = _PlainArchive(path, NpzArchive(path, max_bytes), called, counts, meanings)
    columns = reading.columns()
    reopen = (partial(read_npz, names=called, lengths=counts, ends=meanings, max_bytes=max_bytes), (path,))
    account = reading.account()
    return DemoSource(path, columns, reading.offsets, reopen=reopen, metadata=reading.metadata, account=account)


def _called(column: str, names: set[str]) -> list[str]:
    """Names of a column in a file with these names; more than one is ambiguous."""
    for group in COLUMN_NAMES[column]:
        if matches := [name for name in group if name in names]:
            return matches
    return []


class _PlainArchive:
    """One archive: which array is which, where its episodes end, and the columns they make."""

    def __init__(
        self,
        path: Path,
        archive: NpzArchive,
        names: Mapping[str, str],
        lengths: list[int] | None,
        meanings: Mapping[str, Meaning],
    ) -> None:
        self._path, self._archive = path, archive
        self._arrays: dict[str, AnyArray] = {}
        self._left_out: list[LeftOut] = []
        self.metadata: dict[str, Any] = {}
        self._names = {column: name for column in COLUMN_NAMES if (name := self._name(column, names)) is not None}
        if missing := {"observations", "actions"} - self._names.keys():
            expected = {column: [n for group in COLUMN_NAMES[column] for n in group] for column in sorted(missing)}
            message = f"expected arrays called {expected}, got {list(archive)}; say which with `names`"
            raise FormatError(message, path=path)
        self.n = len(self._array(self._names["actions"]))
        self._ends = self._find_ends(lengths, self._meanings(names, meanings))
        self.offsets = self._ends.offsets

    def _name(self, column: str, names: Mapping[str, str]) -> str | None:
        if column in names:
            return names[column]
        name = _called(column, set(self._archive) - set(names.values()))
        if len(name) > 1:
            message = f"expected one array for {column}, got {name}; say which with `names={{{column!r}: ...}}`"
            raise FormatError(message, path=self._path)
        return name[0] if name else None

    def _array(self, name: str) -> AnyArray:
        """An array of numbers with rows, which is read once."""
        if name in self._arrays:
            return self._arrays[name]
        if name not in self._archive.members:
            raise FormatError(f"expected an array {name!r}, got {list(self._archive)}", path=self._path)
        if self._archive.header(name).dtype.kind not in NUMBERS:
            message = f"expected numbers, got {self._archive.header(name).dtype}"
            raise FormatError(message, path=self._path, where=name)
        array = self._archive.array(name)
        if not array.ndim:
            raise FormatError("expected rows, got a single number", path=self._path, where=name)
        self._arrays[name] = array
        return array

    def _meanings(self, names: Mapping[str, str], ends: Mapping[str, Meaning]) -> dict[str, Meaning]:
        """What arrays mark, as the options say; of an array of OGBench, which has no rewards, as its maker does."""
        check_meanings(ends, self._archive)
        meanings: dict[str, Meaning] = {name: MARKS[mark] for mark, name in names.items() if mark in MARKS}
        meanings |= ends
        if missing := [name for name in meanings if name not in self._archive.members]:
            raise FormatError(f"expected an array {missing[0]!r}, got {list(self._archive)}", path=self._path)
        if "rewards" not in self._names and "terminals" in self._archive.members:
            meanings.setdefault("terminals", "end")
        return meanings

    def _find_ends(self, lengths: list[int] | None, meanings: Mapping[str, Meaning]) -> EpisodeEnds:
        """Where episodes end, as the caller says, as arrays mark, or as the rows of observations tell."""
        marks = {
            name: mark
            for name in self._archive
            if name not in self._names.values() and (mark := self._mark(name)) is not None
        }
        known = any(meaning_of(name, meanings) not in (None, "unused", "mask") for name in marks)
        one_more = len(self._array(self._names["observations"])) == self.n + 1
        if lengths is None and one_more and not known:
            lengths = [self.n]
        breaks = self._breaks if "next_observations" in self._names else None
        ends = find_ends(marks, self.n, path=self._path, meanings=meanings, lengths=lengths, breaks=breaks)
        if not ends.sentence:
            message = "expected an array that marks where episodes end, such as 'episode_ends' or 'terminations', "
            message += f"got {list(self._archive)}; say it with `lengths`, or what an array marks with `ends`"
            raise FormatError(message, path=self._path)
        return ends

    def _mark(self, name: str) -> MarkArray | None:
        """An array of numbers or text that is read when it is needed; None for others, which are left out later."""
        try:
            header = self._archive.header(name)
        except FormatError:
            return None
        if header.dtype.kind not in f"{NUMBERS}U":
            return None
        read = self._archive.array if header.dtype.kind == "U" else self._array
        return MarkArray(header.shape, header.dtype.newbyteorder("="), lambda a, b: read(name)[a:b])

    def _breaks(self) -> BoolArray | None:
        """`[n - 1]` whether a next observation is not the observation of the row after it."""
        before, after = (self._array(self._names[name]) for name in ("observations", "next_observations"))
        if len(before) != self.n or before.shape != after.shape or before.dtype != after.dtype:
            return None
        return ~follows(held(after), held(before), self.n)

    def _misfit(self, name: str, array: AnyArray, expected: str) -> FormatError:
        return FormatError(f"expected {expected}, got {array.dtype}{list(array.shape)}", path=self._path, where=name)

    def columns(self) -> dict[str, DemoColumn]:
        """Observations first, then actions, rewards and ends, then all else that has fitting rows."""
        out = self._observations()
        out["actions"] = held(self._array(self._names["actions"]))
        if "rewards" in self._names:
            out["rewards"] = self._rewards()
        out["terminations"], out["truncations"] = held(self._ends.terminations), held(self._ends.truncations)
        taken = {*self._names.values(), *self._ends.consumed}
        for name in [name for name in self._archive if name not in taken]:
            entry = self._misfit_of(name, out)
            if entry is not None:
                self._left_out.append(entry)
            elif self._archive.header(name).shape:
                out[name] = held(self._array(name), self._aligns()[len(self._array(name))])
            else:
                self.metadata[name] = plain(self._archive.array(name)[()])
        return out

    def account(self) -> Account:
        used = {name: column for column, name in self._names.items() if name != column}
        entries = {
            entry.where: entry for entry in (*self._ends.left_out, *self._left_out, *outside_entries(self._archive))
        }
        return Account(tuple(entries.values()), used, self._ends.sentence)

    def _rewards(self) -> DemoColumn:
        rewards = self._array(self._names["rewards"])
        if len(rewards) != self.n:
            raise self._misfit(self._names["rewards"], rewards, f"{self.n} rows, one an action")
        return held(rewards.reshape(self.n) if rewards.shape == (self.n, 1) else rewards)

    def _observations(self) -> dict[str, DemoColumn]:
        array = self._array(self._names["observations"])
        if len(array) not in (self.n, self.n + len(self.offsets) - 1):
            expected = f"{self.n} rows, or {self.n + len(self.offsets) - 1} with the last of every episode"
            raise self._misfit(self._names["observations"], array, expected)
        if len(array) != self.n:  # next observations are the row after
            return {"observations": held(array, "boundary")}
        before = held(array)
        if "next_observations" not in self._names:
            return {"observations": before}
        array = self._array(self._names["next_observations"])
        if len(array) != self.n:
            raise self._misfit(self._names["next_observations"], array, f"{self.n} rows")
        after = held(array)
        alike = before.field == after.field and (np.diff(self.offsets) > 0).all()
        if alike and continues(after, before, self.offsets):
            return {"observations": self._boundary(before, after)}
        return {"observations": before, "next_observations": after}

    def _boundary(self, before: DemoColumn, after: DemoColumn) -> DemoColumn:
        """The observations of each episode and the last of its next ones, both in place."""
        if not isinstance(before.rows, RowMap) or not isinstance(after.rows, RowMap):
            raise TypeError("expected rows of arrays")
        lengths, width = np.diff(self.offsets), before.field.row_bytes
        rows = np.stack([lengths, np.ones_like(lengths)], axis=1).reshape(-1)
        offset = np.stack([self.offsets[:-1], self.offsets[1:] - 1], axis=1).reshape(-1) * width
        buffers = [before.rows.buffers[0], after.rows.buffers[0]]
        placed = RowMap.build(buffers, rows, np.tile(np.arange(2), len(lengths)), offset, width)
        return DemoColumn(Field(before.field.dtype, before.field.shape, "boundary"), placed)

    def _aligns(self) -> dict[int, Align]:
        """Alignment of an array by its rows."""
        episodes = len(self.offsets) - 1
        return {episodes: "episode", self.n + episodes: "boundary", self.n: "step"}

    def _misfit_of(self, name: str, columns: Mapping[str, DemoColumn]) -> LeftOut | None:
        """Why an array is no column under its name; None if it is one number or text, or has rows that fit."""
        try:
            header = self._archive.header(name)
        except FormatError as error:  # a structure, or no array
            return unread_member(name, error)
        if not header.shape and header.dtype.kind in f"{NUMBERS}U":
            return None
        if header.dtype.kind not in NUMBERS:
            return LeftOut("array", name, "unsupported-dtype", f"expected numbers, got {header.dtype}")
        if not nameable(name, [*columns, *self._archive]) or name in columns:
            message = "expected a name that a column can have next to the others; rename the array"
            return LeftOut("array", name, "unused-array", message)
        if header.shape[0] not in self._aligns():
            expected = " or ".join(map(str, sorted(self._aligns())))
            return LeftOut("array", name, "other-length", f"expected {expected} rows, got {header.shape[0]}")
        return None


def unread_member(name: str, error: FormatError) -> LeftOut:
    """The entry of a member that is no array of numbers, text or objects: of another file, or of an array."""
    entry = unused_files([name], "arrays .npy")[0]
    return entry if PurePath(name).suffix or entry.reason == "hidden" else LeftOut.of_error("member", name, error)


def outside_entries(archive: NpzArchive) -> list[LeftOut]:
    """Entries of the bytes before the first member and behind the end of the archive: another one may be there."""
    message = "expected one archive in the file, got {} bytes {} it, which are not read; copy them to another file"
    return [
        LeftOut("bytes", f"byte {begin}", "behind-the-end", message.format(stop - begin, side))
        for side, begin, stop in archive.outside()
    ]
