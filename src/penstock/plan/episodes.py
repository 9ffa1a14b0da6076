"""`Episodes`: the table of episodes that a plan uses, one row for each.

The table has numbers only: source, index, first step row and length of each episode. Metadata and the extents of ragged
columns are functions that read them when a transform asks for them, so that opening a dataset stays cheap. Choosing
episodes makes a smaller table without gaps, and chains the digest of the chosen rows to the fingerprint.

A row may be a part of a stored episode: the steps between two excluded spans. Samples never cross the end of a row, so
they read no excluded step, and no plan has to know about exclusions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns, under
from penstock.core.spec import Align
from penstock.errors import PlanError, suggestion
from penstock.formats.base.source import Source

Extents = Callable[[str], tuple[IntArray, IntArray]]


def _empty_table() -> Columns:
    return Columns({})


def _no_extents(column: str) -> tuple[IntArray, IntArray]:
    raise KeyError(f"no ragged column {column!r}")


@dataclass(frozen=True, eq=False)
class Episodes:
    """Dense table of `E` episodes, in order.

    Args:
        source: `[E]` int64 number of each episode's source.
        index: `[E]` int64 number of each episode in its source.
        start: `[E]` int64 first step row of each episode.
        length: `[E]` int64 steps of each episode.
        aligns: Alignment of each column.
        fingerprint: Digest of the episodes.
        table: Returns the metadata columns, one row for each episode. It is called only if a condition needs them.
        ragged: Names of the ragged numeric columns with one row for each episode.
        extents: `extents(column)` returns the first value `[E]` and the number of values `[E]` of these rows.
        reason: Why there are no episodes, for messages.
        first_step: `[E]` int64 number of the first step of each row in its stored episode. The default is None: 0, all
            rows are whole episodes.

    Example:
        >>> import numpy as np, penstock
        >>> penstock.from_arrays({"rewards": np.zeros(5)}, lengths=[2, 3]).episodes.length.tolist()
        [2, 3]
    """

    source: IntArray
    index: IntArray
    start: IntArray
    length: IntArray
    aligns: Mapping[str, Align]
    fingerprint: str
    table: Callable[[], Columns] = field(default=_empty_table, repr=False)
    ragged: tuple[str, ...] = ()
    extents: Extents = field(default=_no_extents, repr=False)
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
        """Return all episodes of a source, or the first ones.

        Args:
            source: The source.
            first: Number of episodes. The default is None: all.

        Returns:
            The table, or None if the source does not know the fingerprint of its first episodes.
        """
        n = len(source) if first is None else first
        fingerprint = source.fingerprint if first is None else source.fingerprint_of(first)
        if fingerprint is None:
            return None
        aligns: dict[str, Align] = {path: column.align for path, column in source.spec.items()}
        offsets = source.offsets[: n + 1]
        ragged = tuple(path for path, f in source.spec.items() if f.kind == "ragged" and f.align == "episode")

        known = _SourceEpisodes(source, n)
        return cls(
            np.zeros(n, np.int64),
            np.arange(n),
            offsets[:-1],
            np.diff(offsets),
            aligns,
            fingerprint,
            known.table,
            ragged,
            known.extents,
            "the dataset has no episodes",
        )

    def __len__(self) -> int:
        return len(self.index)

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return int(self.length.sum())

    def take(self, chosen: IntArray, why: str) -> Episodes:
        """Return rows of the table.

        Args:
            chosen: `[n]` row numbers, in the new order.
            why: The operation, which becomes part of the fingerprint together with the rows.
        """
        rows = np.asarray(chosen, np.int64)
        known = _EpisodeSubset(self, rows)
        digest = hashlib.sha256(f"{self.fingerprint} {why} ".encode() + rows.tobytes()).hexdigest()
        return Episodes(
            self.source[rows],
            self.index[rows],
            self.start[rows],
            self.length[rows],
            self.aligns,
            digest,
            known.table,
            self.ragged,
            known.extents,
            f"{why} keeps none of {len(self):,} episodes" if len(self) else self.reason,
            None if self.first_step is None else self.first_step[rows],
        )

    def parts(self, chosen: IntArray, first: IntArray, length: IntArray, why: str) -> Episodes:
        """Return parts of rows of the table. A row may have several, or none.

        Args:
            chosen: `[n]` row numbers.
            first: `[n]` int64 first step of each part, counted in its row.
            length: `[n]` int64 steps of each part.
            why: The operation, which becomes part of the fingerprint together with the parts.
        """
        whole = self.take(chosen, why)
        digest = hashlib.sha256(whole.fingerprint.encode() + first.tobytes() + length.tobytes()).hexdigest()
        return replace(
            whole,
            start=whole.start + first,
            length=length,
            fingerprint=digest,
            table=_EpisodeParts(whole.table, length).table,
            first_step=first if whole.first_step is None else whole.first_step + first,
        )

    def columns(self, prefix: str) -> list[str]:
        """Return the columns at or below a path.

        Args:
            prefix: Path of a column or of a group of columns.

        Raises:
            PlanError: There are none.
        """
        paths = [path for path in self.aligns if under(prefix, path)]
        if not paths:
            raise PlanError(
                f"expected a column among {list(self.aligns)}, got {prefix!r}{suggestion(prefix, self.aligns)}"
            )
        return paths

    def boundary(self, prefix: str) -> list[str]:
        """Return the columns at or below a path, which must be boundary columns.

        Args:
            prefix: Path of a column or of a group of columns.

        Raises:
            PlanError: There are none, or one is not a boundary column.
        """
        columns = self.columns(prefix)
        other = {path: self.aligns[path] for path in columns if self.aligns[path] != "boundary"}
        if other:
            raise PlanError(f"expected {prefix!r} to have T + 1 rows for T steps (align 'boundary'), got {other}")
        return columns


@dataclass(frozen=True, eq=False)
class _SourceEpisodes:
    """Metadata and extents of the first `n` episodes of a source."""

    source: Source
    n: int

    def table(self) -> Columns:
        return self.source.table().take(slice(0, self.n))

    def extents(self, column: str) -> tuple[IntArray, IntArray]:
        cuts = self.source.value_offsets(column)[: self.n + 1]
        return cuts[:-1], np.diff(cuts)


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


@dataclass(frozen=True, eq=False)
class _EpisodeParts:
    """Metadata of parts of episodes: that of the episode, with the steps of the part."""

    whole: Callable[[], Columns]
    length: IntArray

    def table(self) -> Columns:
        table = self.whole()
        return Columns.of_flat({**table.flat, "total_steps": self.length}, len(self.length))
