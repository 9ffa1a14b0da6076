"""Bases of sources: `StateSource`, whose properties come from one state, and `OverlaySource` over another source.

A `SourceState` is built when a dataset is opened. It has the spec, offsets, fingerprint and metadata, and a reader for
each column. Nothing in it changes, so threads read it without a lock. `refresh` builds another state and replaces the
old one by one assignment; a source that closes its files drops the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import Ragged, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Align, Spec
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account
from penstock.formats.base.pieces import RemoteRows, RowReader, spread
from penstock.formats.base.source import Source, check_values
from penstock.kernels.rows import RowMap


class ArrayReader(Protocol):
    """Reads the rows of an array column."""

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Read rows, as `Source.read_array`."""
        ...


@runtime_checkable
class ViewReader(Protocol):
    """An `ArrayReader` of rows that may be in memory, or in a mapped file, as they are."""

    def view(self, first: int, n: int, dtype: np.dtype[Any]) -> ByteArray | None:
        """Return the bytes of rows `first : first + n` without a copy, or None where that cannot be."""
        ...


@runtime_checkable
class RemoteReader(Protocol):
    """Reader of a column that says which bytes behind a URL a read fetches."""

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return ranges, as `Source.remote_ranges`."""
        ...


class RaggedReader(Protocol):
    """Reads the rows of a ragged column."""

    @property
    def value_offsets(self) -> IntArray:
        """Offsets of the rows, as `Source.value_offsets`."""
        ...

    def read_ragged(self, selection: Selection) -> Ragged:
        """Read rows, as `Source.read_ragged`."""
        ...

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        """Read values that were checked to exist, as `Source.read_values`."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceState:
    """State of an opened dataset."""

    spec: Spec
    offsets: IntArray
    digest: str | Callable[[], str]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arrays: Mapping[str, ArrayReader] = field(default_factory=dict[str, ArrayReader])
    ragged: Mapping[str, RaggedReader] = field(default_factory=dict[str, RaggedReader])
    account: Account = field(default_factory=Account)

    @cached_property
    def fingerprint(self) -> str:
        """Digest that changes whenever the data changes."""
        return self.digest if isinstance(self.digest, str) else self.digest()


S_co = TypeVar("S_co", bound=SourceState, covariant=True)


class StateSource(Source, Generic[S_co]):
    """Source with the properties and columns of its state.

    A subclass assigns `_state` in `__init__`, and again in `refresh`. It assigns None in `close` if that closes files.
    It overrides what its readers do not do.

    Example:
        >>> import numpy as np
        >>> from penstock.core.spec import Field
        >>> class Ones(StateSource[SourceState]):
        ...     def __init__(self, steps):
        ...         rows = GatheredColumn(RowMap.of(np.ones(steps)))
        ...         spec, offsets = Spec({"rewards": Field(np.dtype("float64"))}), np.array([0, steps])
        ...         self._state = SourceState(spec=spec, offsets=offsets, digest=str(steps), arrays={"rewards": rows})
        >>> Ones(2).episode(0).rewards.tolist()
        [1.0, 1.0]
    """

    _state: S_co | None

    @property
    def state(self) -> S_co:
        """The present state."""
        if self._state is None:
            message = "expected an open source, got one that was closed; open it again"
            raise FormatError(message, path=self.location)
        return self._state

    @property
    @override
    def spec(self) -> Spec:
        return self.state.spec

    @property
    @override
    def offsets(self) -> IntArray:
        return self.state.offsets

    @property
    @override
    def fingerprint(self) -> str:
        return self.state.fingerprint

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        return self.state.metadata

    @property
    @override
    def account(self) -> Account:
        return self.state.account.with_left_out(self.unfinished)

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        reader = self.state.arrays.get(column)
        if reader is None:
            raise KeyError(f"{type(self).__name__} has no array column {column!r}")
        reader.read(selection, out)

    @override
    def view_array(self, column: str, first: int, n: int) -> AnyArray | None:
        reader, field = self.state.arrays.get(column), self.spec[column]
        raw = reader.view(first, n, field.dtype) if isinstance(reader, ViewReader) else None
        if raw is None or not raw.size or raw.ctypes.data % field.dtype.alignment:
            return None
        return raw.view(field.dtype).reshape(n, *field.shape)

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        state = self.state
        reader = state.arrays.get(column) or state.ragged.get(column)
        return reader.remote_ranges(selection) if isinstance(reader, RemoteReader) else []

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        reader = self.state.ragged.get(column)
        return super().read_ragged(column, selection) if reader is None else reader.read_ragged(selection)

    def value_offsets(self, column: str) -> IntArray:
        """Return the offsets that the reader of the column has; without one, `Source` counts them."""
        reader = self.state.ragged.get(column)
        return super().value_offsets(column) if reader is None else reader.value_offsets

    @override
    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        reader = self.state.ragged.get(column)
        if reader is None:
            super().read_values(column, selection, out)
            return
        check_values(column, reader.value_offsets, selection)
        reader.read_values(selection, out)


@dataclass(frozen=True, eq=False)
class GatheredColumn:
    """Array column that is read by one gather of its rows."""

    rows: RowReader
    repair_bools: bool = False

    def read(self, selection: Selection, out: AnyArray) -> None:
        raw = out.reshape(-1).view(np.uint8)
        self.rows.gather(selection.start, selection.length, selection.destination, raw)
        if not self.repair_bools or out.dtype != np.bool_ or not out.size:
            return
        if selection.complete:
            np.not_equal(raw, 0, out=out.reshape(-1))
        else:
            cells = raw.reshape(len(out), -1)
            places = ranges(selection.destination, selection.length)
            cells[places] = cells[places] != 0

    def view(self, first: int, n: int, dtype: np.dtype[Any]) -> ByteArray | None:
        """View rows of a `RowMap`, except where bools have to be repaired."""
        repaired = self.repair_bools and dtype == np.bool_
        return self.rows.view(first, n) if isinstance(self.rows, RowMap) and not repaired else None

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        return self.rows.remote_ranges(selection.start, selection.length) if isinstance(self.rows, RemoteRows) else []


@dataclass(frozen=True, eq=False)
class RaggedColumn:
    """Ragged column in memory."""

    rows: Ragged

    @property
    def value_offsets(self) -> IntArray:
        return self.rows.offsets

    def read_ragged(self, selection: Selection) -> Ragged:
        """Gather rows. Spans are ordered by place, so the values are in the order of the grid."""
        return spread(self.rows.take(ranges(selection.start, selection.length)), selection)

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        raw = out.reshape(-1).view(np.uint8)
        self._values.gather(selection.start, selection.length, selection.destination, raw)

    @cached_property
    def _values(self) -> RowMap:
        return RowMap.of(np.ascontiguousarray(self.rows.values))


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
