"""`CachedSource`: a source with one column that is kept decoded in the user's cache.

The values equal the values of the source below, so its fingerprint stays, and a saved run continues with or without the
cache. They are kept by `StoredValues`, as a derived column that is the column itself: one process decodes, a killed one
is continued, and the least recently used columns make room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.spec import ALIGNS, Spec
from penstock.data.derived import DerivedSource
from penstock.data.derived_column import DerivedColumn
from penstock.data.derived_values import StoredValues
from penstock.data.episode_function import EpisodeFunction, EpisodeRows
from penstock.errors import SpecError, suggestion
from penstock.formats.base.source import Source


class CachedSource(DerivedSource):
    """Source whose column `name` is read from the user's cache. The first read fills the cache."""

    def __init__(self, base: Source, name: str) -> None:
        if name not in base.spec.fields:
            raise SpecError(f"expected columns among {list(base.spec)}, got {name!r}{suggestion(name, base.spec)}")
        field = base.spec[name]
        if field.ragged:
            raise SpecError(f"expected a column whose rows have one shape, got {name!r} of kind {field.kind!r}")
        function = EpisodeFunction(
            partial(_rows_of, name), {name: ALIGNS}, field.align, field.dtype, field.shape, f"cached({name!r})"
        )
        super().__init__(base, DerivedColumn(name, function, field, f"the column {name!r}", False, (name,)), memory=0)
        self.opened = base.opened  # another process has the same values, with or without the cache

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.column.name)

    def fill(self) -> int:
        """Decode the whole column into the cache, unless it is there."""
        if self.nbytes:
            values = self.stored_values()
            values.fill()
            values.close()
        return self.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the column."""
        rows = self.rows(self.column.field.align)
        return int(rows[-1] - rows[0]) * self.column.field.row_bytes

    def stored_values(self, parent: Path | None = None) -> StoredValues:
        """Return the cache of the column, to be filled in parts."""
        return StoredValues(self.base, self.column, self.rows(self.column.field.align), parent)

    @override
    def episode(self, e: int) -> Episode:
        return Source.episode(self, e)

    @override
    def episodes(self, order: Iterable[int] | None = None) -> Iterator[Episode]:
        return Source.episodes(self, order)

    @override
    def _chained(self, below: str) -> str:
        return below


def picture_columns(spec: Spec) -> list[str]:
    """Return the paths of the columns of pictures: uint8, with three axes a row."""
    return [name for name, field in spec.items() if field.dtype == np.uint8 and len(field.shape) == 3]


def _rows_of(name: str, rows: EpisodeRows) -> AnyArray:
    return np.asarray(rows[name])
