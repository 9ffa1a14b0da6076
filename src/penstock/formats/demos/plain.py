"""Plain `.npz` files of arrays whose names say what they are: Minari's, D4RL's, imitation's or il-representations'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.core.spec import Align, Field
from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock.formats.demos.archive import MAX_BYTES, NpzArchive, npz_names
from penstock.formats.demos.kind import Kind
from penstock.formats.demos.source import DemoColumn, DemoSource, continues, held, left_out_of, nameable
from penstock.kernels.rows import RowMap

# What each column may be called; of the groups, the first of which the file has a name counts.
NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "observations": (("observations", "observation", "obs"), ("states", "state")),
    "next_observations": (("next_observations", "next_observation", "next_obs", "obs2"), ("next_states", "next_state")),
    "actions": (("actions", "action", "acts", "act", "acs"),),
    "rewards": (("rewards", "reward", "rews", "rew"),),
    "terminations": (("terminations", "terminals", "terminal", "dones", "done"),),
    "truncations": (("truncations", "timeouts"),),
}
CUTS = ("episode_ends", "lengths", "indices", "offsets", "episode_starts")
NUMBERS = "biufc"


class PlainKind(Kind):
    """An `.npz` file with arrays of known names. See docs/formats/demos.md.

    >>> PlainKind().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "npz"
    description: ClassVar[str] = "plain .npz (observations, actions, rewards, ...)"
    options: ClassVar[tuple[str, ...]] = ("names", "lengths", "max_bytes")

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
    max_bytes: int = MAX_BYTES,
) -> DemoSource:
    """The episodes of one archive.

    `names` says what the file calls a column, where that is none of `NAMES`: `names={"observations": "x"}`.
    `lengths` says how many steps the episodes have, where the file does not. `max_bytes` bounds what is inflated.

    Raises `FormatError` for damaged data and arrays that do not fit together, `TypeError` for `names` of other columns.
    """
    called = dict(names or {})
    if wrong := sorted(called.keys() - NAMES.keys() - set(CUTS)):
        raise TypeError(f"expected names for {[*NAMES, *CUTS]}, got {wrong}")
    counts = None if lengths is None else list(lengths)
    reading = _PlainArchive(path, NpzArchive(path, max_bytes), called, counts)
    columns = reading.columns()
    reopen = (partial(read_npz, names=called, lengths=counts, max_bytes=max_bytes), (path,))
    metadata = left_out_of(reading.left_out)
    return DemoSource(path, columns, reading.offsets, reopen=reopen, metadata=metadata)


def _called(column: str, names: set[str]) -> list[str]:
    """Names of a column in a file with these names; more than one is ambiguous."""
    for group in NAMES[column]:
        if matches := [name for name in group if name in names]:
            return matches
    return []


class _PlainArchive:
    """One archive: which array is which, where its episodes end, and the columns they make."""

    def __init__(self, path: Path, archive: NpzArchive, names: Mapping[str, str], lengths: list[int] | None) -> None:
        self._path, self._archive = path, archive
        self.left_out: set[str] = set()
        self._names = {column: name for column in NAMES if (name := self._name(column, names)) is not None}
        cuts = {cut: names.get(cut, cut) for cut in CUTS}
        self._cuts = {cut: name for cut, name in cuts.items() if name in archive.members or cut in names}
        if missing := {"observations", "actions"} - self._names.keys():
            expected = {column: [n for group in NAMES[column] for n in group] for column in sorted(missing)}
            message = f"expected arrays called {expected}, got {list(archive)}; say which with `names`"
            raise FormatError(message, path=path)
        self.n = len(self._array(self._names["actions"]))
        self._flags = {c: self._flag(c) for c in ("terminations", "truncations") if c in self._names}
        self.offsets = self._episodes(lengths)

    def _name(self, column: str, names: Mapping[str, str]) -> str | None:
        if column in names:
            return names[column]
        name = _called(column, set(self._archive) - set(names.values()))
        if len(name) > 1:
            message = f"expected one array for {column}, got {name}; say which with `names={{{column!r}: ...}}`"
            raise FormatError(message, path=self._path)
        return name[0] if name else None

    def _array(self, name: str) -> AnyArray:
        if name not in self._archive.members:
            raise FormatError(f"expected an array {name!r}, got {list(self._archive)}", path=self._path)
        if self._archive.header(name).dtype.kind not in NUMBERS:
            message = f"expected numbers, got {self._archive.header(name).dtype}"
            raise FormatError(message, path=self._path, where=name)
        array = self._archive.array(name)
        if not array.ndim:
            raise FormatError("expected rows, got a single number", path=self._path, where=name)
        return array

    def _flag(self, column: str) -> BoolArray:
        name = self._names[column]
        array = self._array(name)
        if array.size == len(array) == self.n:
            return np.asarray(array.reshape(self.n) != 0)
        if column == "terminations" and array.ndim == 1 and len(array) < self.n:
            return self._of_episodes(np.asarray(array != 0))
        raise self._misfit(name, array, f"{self.n} rows of one number, one an action")

    def _of_episodes(self, ended: BoolArray) -> BoolArray:
        """Flags of steps from flags of episodes, as imitation keeps them."""
        offsets = self._stated()
        if offsets is None or len(ended) != len(offsets) - 1:
            raise self._misfit(self._names["terminations"], ended, f"{self.n} rows, one an action")
        flags = np.zeros(self.n, np.bool_)
        real = np.diff(offsets) > 0
        flags[(offsets[1:] - 1)[real]] = ended[real]
        return flags

    def _misfit(self, name: str, array: AnyArray, expected: str) -> FormatError:
        return FormatError(f"expected {expected}, got {array.dtype}{list(array.shape)}", path=self._path, where=name)

    def _episodes(self, lengths: list[int] | None) -> IntArray:
        """`[E + 1]` where episodes begin, as the caller says, as the file says, or as its flags do."""
        stated = self._stated()
        if lengths is not None:
            return self._sound(offsets_of(np.array(lengths, np.int64)), "lengths")
        if stated is not None:
            return stated
        if len(self._array(self._names["observations"])) == self.n + 1:
            return np.array([0, self.n], np.int64)
        if not self._flags:
            message = f"expected one of {[*CUTS, *NAMES['terminations'][0], *NAMES['truncations'][0]]} to tell where "
            message += f"episodes end, got {list(self._archive)}; say it with `lengths`"
            raise FormatError(message, path=self._path)
        ends = np.logical_or.reduce(list(self._flags.values()))
        ends[-1:] = True
        return np.concatenate([[0], np.flatnonzero(ends) + 1]).astype(np.int64)

    def _stated(self) -> IntArray | None:
        stated = {cut: self._sound(self._offsets(cut, name), name) for cut, name in self._cuts.items()}
        if len({offsets.tobytes() for offsets in stated.values()}) > 1:
            raise FormatError(f"expected {list(stated)} to agree where episodes end", path=self._path)
        return next(iter(stated.values()), None)

    def _offsets(self, cut: str, name: str) -> IntArray:
        array = self._array(name)
        if array.ndim != 1 or (array.dtype.kind not in "biu" and array.size):
            raise self._misfit(name, array, "a row of whole numbers")
        if cut == "episode_starts":
            if len(array) != self.n:
                raise self._misfit(name, array, f"{self.n} flags")
            return np.concatenate([np.flatnonzero(array), [self.n]]).astype(np.int64)
        numbers = array.astype(np.int64)
        if cut == "lengths":
            return offsets_of(numbers)
        if cut == "offsets":
            return numbers
        # `indices` are the cuts between episodes, as of np.split; `episode_ends` the end of the last one too.
        return np.concatenate([[0], numbers, [self.n] if cut == "indices" else []]).astype(np.int64)

    def _sound(self, offsets: IntArray, name: str) -> IntArray:
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != self.n or (np.diff(offsets) < 0).any():
            message = f"expected episodes that follow one another and have {self.n} steps together, as many as actions"
            raise FormatError(message, path=self._path, where=name)
        return offsets

    def columns(self) -> dict[str, DemoColumn]:
        """Observations first, then actions, rewards and ends, then all else that has fitting rows."""
        out = self._observations()
        out["actions"] = held(self._array(self._names["actions"]))
        if "rewards" in self._names:
            out["rewards"] = self._rewards()
        out.update(self._ends())
        taken = {*self._names.values(), *self._cuts.values()}
        for name in [name for name in self._archive if name not in taken]:
            column = self._other(name) if nameable(name, [*out, *self._archive]) and name not in out else None
            if column is None:
                self.left_out.add(name)
            else:
                out[name] = column
        return out

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
        if len(array) != self.n:
            if "next_observations" in self._names:
                self.left_out.add(self._names["next_observations"])  # the row after says the same
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

    def _ends(self) -> dict[str, DemoColumn]:
        """The flags as they are; where there are no truncations, an end that is not terminal is one."""
        none = np.zeros(self.n, np.bool_)
        terminations = self._flags.get("terminations", none)
        truncations = self._flags.get("truncations")
        if truncations is None or len(self.offsets) > 1:
            ended = none.copy()
            ended[(self.offsets[1:] - 1)[np.diff(self.offsets) > 0]] = True
            ended &= ~terminations
            truncations = ended if truncations is None else truncations | ended
        return {"terminations": held(terminations), "truncations": held(truncations)}

    def _other(self, name: str) -> DemoColumn | None:
        """A column under its name, if it has one row a step, boundary or episode."""
        try:
            header = self._archive.header(name)
        except FormatError:
            return None  # a structure, or no array: named as left out
        episodes = len(self.offsets) - 1
        aligns: dict[int, Align] = {episodes: "episode", self.n + episodes: "boundary", self.n: "step"}
        rows = header.shape[0] if header.shape else -1
        if header.dtype.kind not in NUMBERS or rows not in aligns:
            return None
        return held(self._archive.array(name), aligns[rows])
