"""`OverlaySource`: base of sources with the episodes of another source, and more columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Align, Spec
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account
from penstock.formats.base.source import Source


class OverlaySource(Source):
    """Source that reads from another source. A subclass has `fingerprint`, and reads the columns that it adds."""

    parses: ClassVar[bool] = False  # `base` guards its own reads, and errors of added columns are not about a file

    def __init__(self, base: Source, spec: Spec) -> None:
        self.base = base
        self.location = base.location
        self._spec = spec

    @property
    @override
    def spec(self) -> Spec:
        return self._spec

    @property
    @override
    def offsets(self) -> IntArray:
        return self.base.offsets

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        return self.base.metadata

    @property
    @override
    def account(self) -> Account:
        return self.base.account

    @property
    @override
    def extent(self) -> tuple[int, int]:
        return self.base.extent

    @override
    def rows(self, align: Align) -> IntArray:
        return self.base.rows(align)

    @override
    def rows_between(self, align: Align, first: int, last: int) -> IntArray:
        return self.base.rows_between(align, first, last)

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        self.base.read_array(column, selection, out)

    @override
    def view_array(self, column: str, first: int, n: int) -> AnyArray | None:
        return self.base.view_array(column, first, n) if column in self.base.spec else None

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        return self.base.remote_ranges(column, selection) if column in self.base.spec else []

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        return self.base.read_ragged(column, selection)

    @override
    def value_offsets(self, column: str) -> IntArray:
        return self.base.value_offsets(column)

    @override
    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        self.base.read_values(column, selection, out)

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return self.base.episode_metadata(episodes)

    @override
    def refresh(self) -> bool:
        return self.base.refresh()

    @override
    def close(self) -> None:
        self.base.close()
