"""`FilledSource`: a source with the columns of a union; the columns that it lacks have one value everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Ragged, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.formats.base.source import Source, check_values
from penstock.formats.base.state import OverlaySource
from penstock.plan.base import chained


class FilledSource(OverlaySource):
    """A dataset with more columns, and with its name in the metadata of every episode."""

    def __init__(self, base: Source, spec: Spec, values: Mapping[str, Any], name: str) -> None:
        super().__init__(base, spec)
        self.name = name
        self._values = dict(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return FilledSource, (self.base, self._spec, self._values, self.name)

    @property
    @override
    def fingerprint(self) -> str:
        return chained(
            self.base.fingerprint, f"filled {self.name!r} {self._spec.fingerprint} {sorted(self._values.items())!r}"
        )

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        if column in self.base.spec:
            super().read_array(column, selection, out)
        else:
            out[ranges(selection.destination, selection.length)] = self._values[column]

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        if column in self.base.spec:
            return super().read_ragged(column, selection)
        field = self._spec[column]
        cells = selection.shape[0] * selection.shape[1]
        return Ragged(np.empty((0, *field.shape), field.dtype), np.zeros(cells + 1, np.int64))

    @override
    def value_offsets(self, column: str) -> IntArray:
        if column in self.base.spec:
            return super().value_offsets(column)
        return np.zeros(len(self.rows(self._spec[column].align)), np.int64)

    @override
    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        if column in self.base.spec:
            super().read_values(column, selection, out)
        else:
            check_values(column, self.value_offsets(column), selection)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return [{**entries, "source": self.name} for entries in self.base.episode_metadata(episodes)]
