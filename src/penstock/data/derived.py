"""`DerivedSource`: a source with one column more, which a function computes from whole episodes.

`DerivedColumn` says what is computed, and `DerivedValues` computes it and keeps the values. `DerivedSource` overlays
another source: it has all columns of that source and the new one, and each read goes to the one that has the column. So
windows, packs, mixes and loaders treat a derived column as a stored one.

Values are a function of the episode alone. So they do not depend on threads, ranks, the order of reads, or on whether
they were kept, and the fingerprint of the source is the fingerprint below, chained with the digest of the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.data.derived_column import DerivedColumn
from penstock.data.derived_values import DerivedValues
from penstock.files.remote import Wanted
from penstock.formats.base.source import Source
from penstock.formats.base.state import OverlaySource
from penstock.plan.base import chained


class DerivedSource(OverlaySource):
    """Source with the columns of another source, and one that is computed from its episodes."""

    def __init__(self, base: Source, column: DerivedColumn, memory: int | None = None) -> None:
        fields = {**base.spec.fields, column.name: column.field}
        super().__init__(base, Spec(fields, base.spec.observation_space, base.spec.action_space))
        self.column = column
        self._values = DerivedValues(base, column, memory)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.column, self._values.memory)

    @property
    @override
    def fingerprint(self) -> str:
        return self._chained(self.base.fingerprint)

    def fingerprint_of(self, episodes: int) -> str | None:
        """Digest of the first episodes and the function."""
        below = self.base.fingerprint_of(episodes)
        return None if below is None else self._chained(below)

    def _chained(self, below: str) -> str:
        return chained(below, (self.column.name, self.column.fingerprint))

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Read from the source below, or gather computed values. The first such read computes them."""
        if column == self.column.name:
            self._values.read(selection, out)
        else:
            super().read_array(column, selection, out)

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        return [] if column == self.column.name else super().remote_ranges(column, selection)

    def episode(self, e: int) -> Episode:
        """Read one episode. Its own values alone are computed, if they are not known."""
        return self._extended(self.base.episode(e))

    def episodes(self, order: Iterable[int] | None = None) -> Iterator[Episode]:
        """Iterate over episodes of the source below, with computed values."""
        return map(self._extended, self.base.episodes(order))

    def _extended(self, episode: Episode) -> Episode:
        value = self._values.of_episode(episode)
        columns = {**episode.columns, self.column.name: value}
        return Episode.trusted(self._spec, columns, episode.id, episode.metadata)

    def table(self) -> Columns:
        """Return the table of the source below. A column of one number an episode is a column of it too."""
        table, column = self.base.table(), self.column.field
        if column.align != "episode" or column.shape or column.dtype.kind not in "biuf" or self.column.name in table:
            return table
        n = table.n
        values = np.empty(n, column.dtype)
        self._values.read(Selection.consecutive(0, n), values)
        return Columns.of_flat({**table.flat, self.column.name: values}, n)

    def close(self) -> None:
        """Close the source below and the kept values."""
        self._values.close()
        super().close()
