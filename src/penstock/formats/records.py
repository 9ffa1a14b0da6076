"""Records of other libraries as a source: any object with `__len__` and `__getitem__`, read in place."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.columns import SEPARATOR, Columns
from penstock.core.narrowing import is_array, is_mapping, is_tuple
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError
from penstock.formats.base.source import Source, check_values
from penstock.kernels.rows import RowMap

KEPT = 8  # sets of records that are kept, so that all columns of a batch cost one look at its records
FIRST = 16  # records that are looked at to find out what there is
BLOCK = 4096  # records that are read at a time to find out the lengths of all


class RandomAccess(Protocol):
    """Protocol of a source of records: Grain's `RandomAccessDataSource`, a list, or a map-style PyTorch dataset."""

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def __getitem__(self, index: int, /) -> Any: ...


class MadeSource(Source):
    """Records that `make` of a subclass computes when they are read, all columns at once, each an episode."""

    parses: ClassVar[bool] = False  # records are made by code of the user, whose errors stay what they are

    def __init__(self, records: int) -> None:
        self._offsets = np.arange(records + 1)
        self._kept = Cache(KEPT)

    @abstractmethod
    def make(self, numbers: IntArray) -> Columns:
        """Compute all columns of some records."""

    @property
    def offsets(self) -> IntArray:
        """`[n + 1]` int64: every record is an episode of one step."""
        return self._offsets

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        numbers, chosen = _chosen(selection)
        rows = RowMap.of(np.asarray(self._made(numbers)[column]))
        rows.gather(chosen.start, chosen.length, chosen.destination, out.reshape(-1).view(np.uint8))

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        numbers, chosen = _chosen(selection)
        values, rows = self._made(numbers).ragged(column), chosen.rows().ravel()
        lengths = np.zeros(len(rows), np.int64)
        lengths[rows >= 0] = values.lengths[rows[rows >= 0]]
        return Ragged(values.take(rows[rows >= 0]).values, offsets_of(lengths))

    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Compute the records that contain the values, and gather."""
        offsets = self.value_offsets(column)
        check_values(column, offsets, selection)
        real = selection.length > 0
        start, length = selection.start[real], selection.length[real]
        first, last = (np.searchsorted(offsets, ends, side="right") - 1 for ends in (start, start + length - 1))
        numbers = _numbers(first, last + 1 - first)
        column_values = self._made(numbers).ragged(column)
        begin = column_values.offsets[np.searchsorted(numbers, first)] + start - offsets[first]
        values = RowMap.of(np.ascontiguousarray(column_values.values))
        values.gather(begin, length, selection.destination[real], out.reshape(-1).view(np.uint8))

    def _made(self, numbers: IntArray) -> Columns:
        return self._kept.get(numbers.tobytes(), lambda: (self.make(numbers), 1))


class RecordSource(MadeSource):
    """Source of the records of any object with `__len__` and `__getitem__`.

    Records are dicts (nested; a tuple counts as a dict with the keys "0", "1", and so on) of numbers, arrays, lists of
    numbers, text and bytes. Each record is an episode of one step. Numbers and arrays of one shape are step columns.
    Arrays whose first axes vary in length, bytes (as uint8) and text are ragged columns aligned with episodes. Their
    lengths are known after all records were read, which happens when they are first needed. The first 16 records define
    the columns.
    """

    def __init__(
        self,
        source: RandomAccess,
        columns: Sequence[str] | Mapping[str, Field] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(len(source))
        self._source, self._named = source, fingerprint
        self._spec = _spec(source, columns)
        self._values: dict[str, IntArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, dict(self._spec.fields), self._named)

    @property
    @override
    def spec(self) -> Spec:
        return self._spec

    @property
    def fingerprint(self) -> str:
        """A digest of the columns and the fingerprint that was given, or the source's `repr` and length."""
        named = f"{len(self)} {self._source!r}" if self._named is None else self._named
        return hashlib.sha256(f"{self._spec.fingerprint} {named}".encode()).hexdigest()

    @override
    def make(self, numbers: IntArray) -> Columns:
        records = [dict(_leaves(item, number)) for number, item in self._items(numbers)]
        return Columns(
            {path: _column(path, field, records, numbers) for path, field in self._spec.items()}, len(numbers)
        )

    def value_offsets(self, column: str) -> IntArray:
        """`[n + 1]` int64 where the values of each record begin. Cost: the first time, all records are read."""
        if not self._spec[column].ragged:
            raise KeyError(f"column {column!r} is not ragged")
        if not self._values:
            ragged = [path for path, field in self._spec.items() if field.ragged]
            parts = [self.make(np.arange(a, min(a + BLOCK, len(self)))) for a in range(0, len(self), BLOCK)]
            none = np.zeros(0, np.int64)
            lengths = {path: np.concatenate([none, *(part.ragged(path).lengths for part in parts)]) for path in ragged}
            self._values = {path: offsets_of(counts) for path, counts in lengths.items()}
        return self._values[column]

    def _items(self, numbers: IntArray) -> Iterator[tuple[int, Any]]:
        order = numbers.tolist()
        many = getattr(self._source, "__getitems__", None)
        return zip(order, many(order) if many and order else (self._source[i] for i in order), strict=True)


def _spec(source: RandomAccess, columns: Sequence[str] | Mapping[str, Field] | None) -> Spec:
    known = dict(columns) if isinstance(columns, Mapping) else {}
    names = None if columns is None else list(columns)
    if names is not None and len(known) == len(names) and names:
        return Spec(known)
    first = [dict(_leaves(source[i], i)) for i in range(min(FIRST, len(source)))]
    if not first:
        raise SpecError("expected at least one record, or a Field for every column; got none")
    names = list(first[0]) if names is None else names
    return Spec({path: _field(path, [_leaf(path, record, i) for i, record in enumerate(first)]) for path in names})


def _field(path: str, values: list[Any]) -> Field:
    kinds = {type(v) if isinstance(v, (str, bytes)) else np.ndarray for v in values}
    if len(kinds) > 1:
        names = sorted(kind.__name__ for kind in kinds)
        raise SpecError(f"expected {path} to be of one kind, got {names} in the first records")
    if not is_array(values[0]):
        return Field(np.dtype(np.uint8), (), "episode", "text" if isinstance(values[0], str) else "ragged")
    dtype = np.result_type(*{v.dtype for v in values})
    shapes: set[tuple[int, ...]] = {v.shape for v in values}
    first = values[0].shape
    if len(shapes) == 1:
        return Field(dtype, first)
    if {len(shape) for shape in shapes} == {0} or len({shape[1:] for shape in shapes}) > 1:
        wanted = f"expected {path} to have one shape, or shapes that differ in the first axis alone"
        raise SpecError(f"{wanted}, got {sorted(shapes)} in the first records")
    return Field(dtype, first[1:], "episode", "ragged")


def _column(path: str, field: Field, records: Sequence[Mapping[str, Any]], numbers: IntArray) -> Array:
    values = [_leaf(path, record, number) for record, number in zip(records, numbers.tolist(), strict=True)]
    for value, number in zip(values, numbers.tolist(), strict=True):
        _check(path, field, value, number)
    if field.kind == "text":
        return Ragged.from_strings(values)
    if not field.ragged:
        out = np.empty((len(values), *field.shape), field.dtype)
        for i, value in enumerate(values):
            out[i] = value
        return out
    rows = [np.frombuffer(v, np.uint8) if isinstance(v, bytes) else v for v in values]
    all_rows = np.concatenate([*rows, np.zeros((0, *field.shape), field.dtype)])
    return Ragged(all_rows.astype(field.dtype, copy=False), offsets_of([len(row) for row in rows]))


def _check(path: str, field: Field, value: Any, number: int) -> None:
    if isinstance(value, str):
        fits = field.kind == "text"
    elif isinstance(value, bytes):
        fits = field.kind == "ragged" and field.dtype == np.uint8
    else:
        inner = value.shape[1:] if field.ragged else value.shape
        shaped = inner == field.shape and value.ndim == len(field.shape) + field.ragged
        fits = field.kind != "text" and shaped and np.can_cast(value.dtype, field.dtype, "safe")
    if not fits:
        got = f"{value.dtype}{list(value.shape)}" if is_array(value) else type(value).__name__
        inner = f" rows of {list(field.shape)}" if field.shape else ""
        expected = f"{field.kind}{inner}" if field.ragged else f"{field.dtype}{list(field.shape)}"
        raise SpecError(
            f"expected {path} as {expected} of {field.dtype}, got {got} - at record {number}; "
            "`columns` can say what it is"
        )


def _leaf(path: str, record: Mapping[str, Any], number: int) -> Any:
    """One value as an array, text or bytes."""
    if path not in record:
        raise SpecError(f"expected {path}, got a record with {sorted(record)} - at record {number}")
    value = record[path]
    if isinstance(value, (str, bytes)):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # rows of unequal lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biufcmM":
        raise SpecError(f"expected {path} as numbers, text or bytes, got {type(value).__name__} - at record {number}")
    return array


def _leaves(item: Any, number: int, before: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of a nested record."""
    if is_tuple(item):
        item = {str(i): value for i, value in enumerate(item)}
    if not is_mapping(item):
        raise SpecError(f"expected a dict, got {type(item).__name__} - at record {number}")
    for key, value in item.items():
        path = f"{before}{key}"
        if isinstance(value, (Mapping, tuple)):
            yield from _leaves(value, number, path + SEPARATOR)
        else:
            yield path, value


def _chosen(selection: Selection) -> tuple[IntArray, Selection]:
    """The records that are read, sorted, and the selection of them among those."""
    numbers = _numbers(selection.start, selection.length)
    start = np.searchsorted(numbers, selection.start)
    start[selection.length == 0] = 0
    return numbers, Selection(selection.source, start, selection.length, selection.destination, selection.shape)


def _numbers(first: IntArray, count: IntArray) -> IntArray:
    """`[m]` the numbers in the ranges `first : first + count`, each once, sorted."""
    places = offsets_of(count)
    return np.unique(np.arange(places[-1], dtype=np.int64) + np.repeat(first - places[:-1], count))
