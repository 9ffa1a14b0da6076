"""`Episodes`: the table of episodes that a plan uses, one row for each.

The table has numbers only: source, index, first step row and length of each episode. Metadata and the extents of ragged
columns are functions that read them when a transform asks for them, so that opening a dataset stays cheap. Choosing
episodes makes a smaller table without gaps, and chains the digest of the chosen rows to the fingerprint.

A row may be a part of a stored episode: the steps between two excluded spans. Samples never cross the end of a row, so
they read no excluded step, and no plan has to know about exclusions.

All episodes of a source, in order, need no table: `SourceEpisodes` refers to the offsets of the source, which may be a
mapped file. A table of chosen episodes has 32 bytes for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns, LazyColumns, under
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.errors import PlanError, StateError, suggestion
from penstock.files.user_cache import SHARED_BYTES, shared_arrays
from penstock.formats.base.returns import RETURN, returns_of
from penstock.formats.base.source import Source
from penstock.kernels.locate import FEW, Groups, OffsetGroups
from penstock.plan.outputs import RowSpace

_LONGEST_BLOCK = 1 << 16  # episodes whose lengths are looked at together

Extents = Callable[[str], tuple[IntArray, IntArray]]


def _empty_table() -> Columns:
    return Columns({})


def _no_extents(column: str) -> tuple[IntArray, IntArray]:
    raise KeyError(f"no ragged column {column!r}")


def _no_stored(column: str) -> Array:
    raise KeyError(f"no stored column {column!r}")


@dataclass(frozen=True, eq=False)
class Episodes:
    """Dense table of `E` episodes, in order."""

    source: IntArray
    index: IntArray
    start: IntArray
    length: IntArray
    aligns: Mapping[str, Align]
    fingerprint: str
    table: Callable[[], Columns] = field(default=_empty_table, repr=False)
    ragged: tuple[str, ...] = ()
    extents: Extents = field(default=_no_extents, repr=False)
    stored: Callable[[str], Array] = field(default=_no_stored, repr=False)
    reason: str = field(default="there are no episodes", repr=False)
    first_step: IntArray | None = field(default=None, repr=False)

    @classmethod
    @overload
    def of(cls, source: Source) -> Episodes: ...
    @classmethod
    @overload
    def of(cls, source: Source, first: int) -> Episodes | None: ...
    @classmethod
    def of(cls, source: Source, first: int | None = None) -> Episodes | None:
        n = len(source) if first is None else first
        fingerprint = source.fingerprint if first is None else source.fingerprint_of(first)
        if fingerprint is None:
            return None
        return SourceEpisodes(source, n, fingerprint)

    def __len__(self) -> int:
        return len(self.index)

    def described(self, asked: Iterable[str] = (), table: Columns | None = None) -> Columns:
        """Return what is known of each episode: metadata, stored columns, and `return`, the sum of the rewards.

        Columns and rewards are read when they are used. Metadata with the name `return` stay. Text of the metadata is
        looked for under the names that are asked for. `table`: that of `table()`, where it was read already.
        """
        table = self.table() if table is None else table
        stored = [path for path, align in self.aligns.items() if align == "episode" and path not in table]
        if self.aligns.get("rewards") == "step" and RETURN not in (*table, *stored):
            stored.append(RETURN)

        def read(names: Sequence[str]) -> dict[str, Array]:
            known = {**table.flat, **texts}
            return {name: known[name] if name in known else self.stored(name) for name in names}

        texts: dict[str, Array] = {}
        for name in asked:
            if name not in table and name not in stored and name not in self.aligns:
                with suppress(PlanError, KeyError):
                    texts[name] = self.stored(name)
        return LazyColumns([*table, *stored, *texts], len(self), read)

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return int(self.length.sum())

    @property
    def longest(self) -> int:
        """Steps of the longest episode, 0 without episodes."""
        return int(self.length.max(initial=0))

    def rows_at(self, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return source, index, start and length of rows of the table, each `[n]` int64."""
        return self.source[numbers], self.index[numbers], self.start[numbers], self.length[numbers]

    def rows_of(self, source: int, episodes: IntArray) -> IntArray:
        """Return the rows of the table with some episodes of a source, ascending. Cost: a pass over the table."""
        return np.flatnonzero((self.source == source) & np.isin(self.index, episodes))

    def extent_of(self, align: RowSpace, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first row of each row of the table in a row space, `[n]`, and the one after its last."""
        _, index, start, length = self.rows_at(rows)
        first = {"step": start, "boundary": start + index, "episode": index}[align]
        return first, first + {"step": length, "boundary": length + 1, "episode": np.ones_like(length)}[align]

    def groups(self, room: int, stride: int) -> Groups | OffsetGroups:
        """Return the samples of all episodes: `ceil((T - room) / stride)` of an episode of `T` steps, or none."""
        known = self.source, self.index, self.start, self.length
        key = f"{self.fingerprint} {len(self)} {room} {stride}"
        return Groups.shared(key, lambda: self._samples_of(room, stride), *known)

    def _samples_of(self, room: int, stride: int) -> IntArray:
        return np.maximum(0, -(-(self.length - room) // stride))

    def with_table(self, table: Callable[[], Columns]) -> Episodes:
        return Episodes(
            self.source,
            self.index,
            self.start,
            self.length,
            self.aligns,
            self.fingerprint,
            table,
            self.ragged,
            self.extents,
            self.stored,
            self.reason,
            self.first_step,
        )

    def take(self, chosen: IntArray, why: str) -> Episodes:
        """Return rows of the table."""
        rows = np.ascontiguousarray(chosen, np.int64)
        digest = hashlib.sha256(f"{self.fingerprint} {why} ".encode())
        digest.update(rows.data)
        return ChosenEpisodes(self, rows, digest.hexdigest(), why)

    def parts(self, chosen: IntArray, first: IntArray, length: IntArray, why: str) -> Episodes:
        """Return parts of rows of the table. A row may have several, or none."""
        whole = self.take(chosen, why)
        digest = hashlib.sha256(whole.fingerprint.encode() + first.tobytes() + length.tobytes()).hexdigest()
        return Episodes(
            whole.source,
            whole.index,
            whole.start + first,
            length,
            whole.aligns,
            digest,
            _EpisodeParts(whole.table, length).table,
            whole.ragged,
            whole.extents,
            whole.stored,
            whole.reason,
            first if whole.first_step is None else whole.first_step + first,
        )

    def columns(self, prefix: str) -> list[str]:
        """Return the columns at or below a path."""
        paths = [path for path in self.aligns if under(prefix, path)]
        if not paths:
            raise PlanError(
                f"expected a column among {list(self.aligns)}, got {prefix!r}{suggestion(prefix, self.aligns)}"
            )
        return paths

    def boundary(self, prefix: str) -> list[str]:
        """Return the columns at or below a path, which must be boundary columns."""
        columns = self.columns(prefix)
        other = {path: self.aligns[path] for path in columns if self.aligns[path] != "boundary"}
        if other:
            raise PlanError(f"expected {prefix!r} to have T + 1 rows for T steps (align 'boundary'), got {other}")
        return columns


class ChosenEpisodes(Episodes):
    """Some rows of a table. Large tables are mapped files, which the processes of a machine share."""

    def __init__(self, table_of: Episodes, rows: IntArray, fingerprint: str, why: str) -> None:
        arrays = _chosen_arrays(table_of, rows, fingerprint)
        known = _EpisodeSubset(table_of, arrays["rows"])
        reason = f"{why} keeps none of {len(table_of):,} episodes" if len(table_of) else table_of.reason
        super().__init__(
            arrays["source"],
            arrays["index"],
            arrays["start"],
            arrays["length"],
            table_of.aligns,
            fingerprint,
            known.table,
            table_of.ragged,
            known.extents,
            known.stored,
            reason,
            arrays.get("first_step"),
        )
        vars(self).update(chosen_from=(table_of, why))

    chosen_from: tuple[Episodes, str]

    def __reduce__(self) -> tuple[type[ChosenEpisodes], tuple[Episodes, IntArray, str, str]]:
        """Send the row numbers alone: another process makes, or maps, the rest."""
        table_of, why = self.chosen_from
        rows: IntArray = vars(self)["table"].__self__.rows
        return type(self), (table_of, rows, self.fingerprint, why)


_COLUMNS = ("source", "index", "start", "length")


def _chosen_arrays(table: Episodes, rows: IntArray, fingerprint: str) -> Mapping[str, IntArray]:
    """Rows of a table, and what is known of each, in shared memory if they are many."""

    def make() -> dict[str, IntArray]:
        arrays = {"rows": rows, **dict(zip(_COLUMNS, table.rows_at(rows), strict=True))}
        return arrays if table.first_step is None else {**arrays, "first_step": table.first_step[rows]}

    if rows.nbytes * (1 + len(_COLUMNS)) < SHARED_BYTES:
        return make()
    return shared_arrays(f"episodes {fingerprint} {len(rows)}", make)


class SourceEpisodes(Episodes):
    """All episodes of a source, or the first ones, in order: the offsets of the source are the table.

    The arrays of the table are made if something asks for them; windows, sequences and their packs of many episodes do
    not.
    """

    offsets: IntArray
    """`[E + 1]` int64 first step of each episode, and the end."""

    def __init__(self, known: Source, n: int, fingerprint: str) -> None:
        aligns: dict[str, Align] = {path: column.align for path, column in known.spec.items()}
        ragged = tuple(path for path, f in known.spec.items() if f.kind == "ragged" and f.align == "episode")
        metadata = _SourceMetadata(known, n)
        vars(self).update(
            known=known,
            offsets=known.offsets[: n + 1],
            aligns=aligns,
            fingerprint=fingerprint,
            table=metadata.table,
            ragged=ragged,
            extents=metadata.extents,
            stored=metadata.stored,
            reason="the dataset has no episodes",
            first_step=None,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def source(self) -> IntArray:  # pyright: ignore[reportIncompatibleVariableOverride] - made at first use
        """`[E]` zeros."""
        return np.zeros(len(self), np.int64)

    @cached_property
    def index(self) -> IntArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`[E]` numbers of the episodes."""
        return np.arange(len(self))

    @cached_property
    def start(self) -> IntArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`[E]` first step row of each episode."""
        return self.offsets[:-1]

    @cached_property
    def length(self) -> IntArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`[E]` steps of each episode."""
        return np.diff(self.offsets)

    @property
    @override
    def steps(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    @property
    @override
    def longest(self) -> int:
        blocks = range(0, len(self), _LONGEST_BLOCK)
        return max((int(np.diff(self.offsets[lo : lo + _LONGEST_BLOCK + 1]).max()) for lo in blocks), default=0)

    @override
    def rows_at(self, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        start = self.offsets[numbers]
        return np.zeros_like(start), np.array(numbers, np.int64), start, self.offsets[numbers + 1] - start

    @override
    def rows_of(self, source: int, episodes: IntArray) -> IntArray:
        return episodes[(episodes >= 0) & (episodes < len(self))] if source == 0 else episodes[:0]

    @override
    def groups(self, room: int, stride: int) -> Groups | OffsetGroups:
        """Return the samples of all episodes. Few episodes have a table, which a cache has, and is searched faster."""
        if len(self) > FEW:
            return OffsetGroups.of(self.offsets, room, stride)
        return Groups.of(self._samples_of(room, stride), self.source, self.index, self.start, self.length)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the source has too: a process that opens the same data maps the same offsets."""
        shared = ("offsets", "source", "index", "start", "length")
        ends = len(self), int(self.offsets[0]), int(self.offsets[-1])
        return {name: value for name, value in vars(self).items() if name not in shared} | {"ends": ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        n, first, last = state.pop("ends")
        offsets: IntArray = state["known"].offsets[: n + 1]
        if len(offsets) != n + 1 or offsets[0] != first or offsets[-1] != last:
            raise StateError(f"expected {n} episodes of steps {first} to {last - 1}, got data that changed; plan again")
        vars(self).update(state, offsets=offsets)


@dataclass(frozen=True, eq=False)
class _SourceMetadata:
    """Metadata and extents of the first `n` episodes of a source."""

    source: Source
    n: int

    def table(self) -> Columns:
        return self.source.table().take(slice(0, self.n))

    def extents(self, column: str) -> tuple[IntArray, IntArray]:
        cuts = self.source.value_offsets(column)[: self.n + 1]
        return cuts[:-1], np.diff(cuts)

    def stored(self, column: str) -> Array:
        if column == RETURN and column not in self.source.spec:
            returns = returns_of(self.source)
            if returns is None:
                raise PlanError(f"expected one reward a step for {RETURN!r}, got {self.source.spec['rewards']}")
            return returns[: self.n]
        if column not in self.source.spec:
            return self._texts(column)
        field, every = self.source.spec[column], Selection.consecutive(0, self.n)
        if field.ragged:
            return self.source.read_ragged(column, every)
        out = np.empty((self.n, *field.shape), field.dtype)
        if self.n:
            self.source.read_array(column, every, out)
        return out

    def _texts(self, name: str) -> Ragged:
        """Text that the metadata have under a name, which is empty for episodes without it."""
        values = [entries.get(name) for entries in self.source.episode_metadata(range(self.n))]
        if not any(isinstance(value, str) for value in values):
            raise PlanError(f"expected a stored column or text in the metadata, got {name!r}")
        return Ragged.from_strings([value if isinstance(value, str) else "" for value in values])


@dataclass(frozen=True, eq=False)
class _EpisodeSubset:
    """Metadata and extents of some rows of the table."""

    episodes: Episodes
    rows: IntArray

    def table(self) -> Columns:
        return self.episodes.table().take(self.rows)

    def extents(self, column: str) -> tuple[IntArray, IntArray]:
        start, length = self.episodes.extents(column)
        return start[self.rows], length[self.rows]

    def stored(self, column: str) -> Array:
        return self.episodes.stored(column)[self.rows]


@dataclass(frozen=True, eq=False)
class _EpisodeParts:
    """Metadata of parts of episodes: that of the episode, with the steps of the part."""

    whole: Callable[[], Columns]
    length: IntArray

    def table(self) -> Columns:
        table = self.whole()
        return Columns.of_flat({**table.flat, "total_steps": self.length}, len(self.length))
