"""The episodes that a plan may choose from: a dense table of integers, one row an episode."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns, under
from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.formats.base.source import Source

Int = npt.NDArray[np.int64]


Extents = Callable[[str], tuple[Int, Int]]


def _empty_table() -> Columns:
    return Columns({})


def _no_extents(column: str) -> tuple[Int, Int]:
    raise KeyError(f"no ragged column {column!r}")


@dataclass(frozen=True, eq=False)
class Episodes:
    """`[E]` episodes in their order: episode `index[e]` of source `source[e]`, whose `length[e]` steps begin at
    step row `start[e]`. `aligns` tells the alignment of every column; `table` gives the metadata columns, one row
    an episode, read only if a condition asks. `ragged` are the ragged columns of numbers with one row an episode;
    `extents(column)` tells where the values of that row begin, `[E]`, and how many there are, `[E]`. `reason` says why
    there are no episodes, where there are none.

    >>> from penstock.formats.memory import MemorySource
    >>> from penstock.core.spec import Field, Spec
    >>> spec = Spec({"rewards": Field(np.dtype("f8"))})
    >>> Episodes.of(MemorySource(spec, {"rewards": np.zeros(5)}, np.array([0, 2, 5]))).length.tolist()
    [2, 3]
    """

    source: Int
    index: Int
    start: Int
    length: Int
    aligns: Mapping[str, Align]
    fingerprint: str
    table: Callable[[], Columns] = field(default=_empty_table, repr=False)
    ragged: tuple[str, ...] = ()
    extents: Extents = field(default=_no_extents, repr=False)
    reason: str = field(default="there are no episodes", repr=False)

    @classmethod
    @overload
    def of(cls, source: Source) -> Episodes: ...
    @classmethod
    @overload
    def of(cls, source: Source, first: int) -> Episodes | None: ...
    @classmethod
    def of(cls, source: Source, first: int | None = None) -> Episodes | None:
        """All episodes of one source; or the `first` so many, None if the source cannot tell their fingerprint."""
        n = len(source) if first is None else first
        fingerprint = source.fingerprint if first is None else source.fingerprint_of(first)
        if fingerprint is None:
            return None
        aligns: dict[str, Align] = {path: column.align for path, column in source.spec.items()}
        offsets = source.offsets[: n + 1]
        ragged = tuple(path for path, f in source.spec.items() if f.kind == "ragged" and f.align == "episode")

        known = _Known(source, n)
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
        """How many steps all episodes have together."""
        return int(self.length.sum())

    def take(self, chosen: Int, why: str) -> Episodes:
        """The chosen rows, in that order. `why` goes into the fingerprint, beside the rows themselves."""
        rows = np.asarray(chosen, np.int64)
        known = _Taken(self, rows)
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
        )

    def columns(self, prefix: str) -> list[str]:
        """The columns at or below `prefix`. Raises `PlanError` if there are none."""
        found = [path for path in self.aligns if under(prefix, path)]
        if not found:
            raise PlanError(f"expected a column among {list(self.aligns)}, got {prefix!r}")
        return found

    def boundary(self, prefix: str) -> list[str]:
        """The columns at or below `prefix`, all of them boundary columns. Raises `PlanError` otherwise."""
        found = self.columns(prefix)
        other = {path: self.aligns[path] for path in found if self.aligns[path] != "boundary"}
        if other:
            raise PlanError(f"expected {prefix!r} to have T + 1 rows for T steps (align 'boundary'), got {other}")
        return found


@dataclass(frozen=True, eq=False)
class _Known:
    """What the source knows of its first `n` episodes."""

    source: Source
    n: int

    def table(self) -> Columns:
        return self.source.table().take(slice(0, self.n))

    def extents(self, column: str) -> tuple[Int, Int]:
        cuts = self.source.value_offsets(column)[: self.n + 1]
        return cuts[:-1], np.diff(cuts)


@dataclass(frozen=True, eq=False)
class _Taken:
    """What is known of some rows of a table of episodes."""

    episodes: Episodes
    rows: Int

    def table(self) -> Columns:
        return self.episodes.table().take(self.rows)

    def extents(self, column: str) -> tuple[Int, Int]:
        start, length = self.episodes.extents(column)
        return start[self.rows], length[self.rows]
