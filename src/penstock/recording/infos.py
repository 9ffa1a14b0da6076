"""Columns for values with unknown names: infos, and extras of a step hook.

With the policy `"union"`, every key of the first episode is a column. A step without the key has NaN, 0, False or "",
and False in the mask column. Arrays of varying shape in the first episode are padded to the largest, with a column for
the shape of each. With `"error"`, the first dict defines the columns, and another key, shape or dtype is an error.

A key with "/" is a path, as in files of the Minari standard. A list of strings has a text column for each item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from penstock.core.columns import under
from penstock.core.narrowing import is_array, is_dict, is_listed
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Align, Field
from penstock.errors import DataError, SpecError
from penstock.recording.buffer import ArrayColumn, Column, TextColumn, column_for

Policy = Literal["error", "union"]

MASK = "infos_mask"
SHAPE = "infos_shape"

_TOLERATE = "infos whose keys come and go need record_infos=True, extras must be given at every step"
_EXAMPLE = "columns are fixed by the first episode: pass info_example with every key that may come"


class InfoSchema:
    """Columns of all infos of a dataset. `fix` makes them final."""

    def __init__(
        self, policy: Policy, prefix: str = "infos", align: Align = "boundary", reserved: tuple[str, ...] = ()
    ) -> None:
        self.policy: Policy = policy
        self.align: Align = align
        self.prefix, self.reserved = prefix, reserved
        self.fields: dict[str, Field] = {}
        self.varying: set[str] = set()  # columns of arrays whose shape is recorded
        self.fixed = False

    def all_fields(self) -> dict[str, Field]:
        if self.policy == "error":
            return dict(self.fields)
        masks = {self.mask(path): Field(np.dtype(np.bool_), (), self.align) for path in self.fields}
        ranks = {path: len(field.shape) for path, field in self.fields.items() if path in self.varying}
        shapes = {self.shape(path): Field(np.dtype(np.int64), (rank,), self.align) for path, rank in ranks.items()}
        return self.fields | masks | shapes

    def mask(self, path: str) -> str:
        return MASK + path.removeprefix(self.prefix)

    def shape(self, path: str) -> str:
        """Return the path of the column with the shapes of a column."""
        return SHAPE + path.removeprefix(self.prefix)

    def add(self, path: str, i: int, value: Any) -> Field:
        if path in self.fields:  # another environment's infos decided it
            return self.fields[path]
        if self.fixed:
            raise self.unknown(i, path)
        other = next((known for known in self.fields if under(known, path) or under(path, known)), None)
        if other is not None:
            raise DataError(f"expected a value or further keys, got both {other} and {path} - at row {i}")
        self.fields[path] = field_of(path, i, value, self.align)
        return self.fields[path]

    def unknown(self, i: int, path: str) -> DataError:
        return DataError(
            f"expected {self.prefix or 'extras'} with the columns {list(self.fields)}, got {path} too - at row {i}; "
            + (_TOLERATE if self.policy == "error" else _EXAMPLE)
        )

    def missing(self, i: int, path: str) -> DataError:
        """Return the error for a row without a column."""
        return DataError(f"expected a value for {path}, got none - at row {i}; {_TOLERATE}")


class InfoColumns:
    """Infos of one open episode, as columns of a schema. Several may share a schema."""

    def __init__(self, schema: InfoSchema) -> None:
        self.schema = schema
        self._leaves: dict[str, _Leaf] = {}
        self.found: set[str] = set()  # columns that a key leads to
        self._root = _Node(self, schema.prefix)

    def store(self, i: int, info: Any) -> None:
        schema = self.schema
        if i == 0:
            for leaf in self._leaves.values():
                leaf.clear()
        self._root.store(i, info)
        if schema.policy == "error":
            schema.fixed = True
            if len(self._leaves) != len(schema.fields):  # the first info of a further environment lacks some
                raise schema.missing(i, next(path for path in schema.fields if path not in self._leaves))

    def take(self, n: int, carry: bool = False) -> dict[str, Array]:
        """Return the first rows of every column. The columns of the first episode become final for the dataset."""
        columns: dict[str, Array] = {}
        for path, field in self.schema.fields.items():
            leaf = self._leaves.get(path) or self.leaf(path, field)
            columns |= leaf.take(n, carry, field)
        self.schema.fixed = True
        return columns

    def leaf(self, path: str, field: Field) -> _Leaf:
        kind = _MaskedLeaf if self.schema.policy == "union" else _Leaf
        self._leaves[path] = kind(self.schema, path, column_for(path, field, "exact"))
        return self._leaves[path]

    def has(self, key: str) -> bool:
        """Return whether there is a column at or below a first key."""
        return any(child == key or child.startswith(f"{key}/") for child in self._root.children)


class _Node:
    """A dict in the tree of infos."""

    __slots__ = ("children", "owner", "path")

    def __init__(self, owner: InfoColumns, path: str) -> None:
        self.owner, self.path = owner, path
        self.children: dict[str, Any] = {}  # _Node or _Leaf

    def below(self, key: str) -> str:
        return f"{self.path}/{key}" if self.path else key

    def store(self, i: int, info: Any) -> None:
        if not is_dict(info):
            if info is None and self.owner.schema.policy == "union":
                return
            raise DataError(f"expected {self.path or 'extras'} as a dict, got {type(info).__name__} - at row {i}")
        for key, value in info.items():
            child = self.children.get(key)
            if child is None:
                if _is_nothing(value, self.owner.schema.policy):
                    continue
                child = self._discover(i, key, value)
            child.store(i, value)
        if len(info) != len(self.children) and self.owner.schema.policy == "error":
            self._refuse_missing(i, info)

    def _discover(self, i: int, key: Any, value: Any) -> _Node | _Leaf:
        parts = key.split("/") if type(key) is str else [""]
        if not all(parts) or (self.path == "" and parts[0] in self.owner.schema.reserved):
            raise DataError(
                f"expected keys that are strings, perhaps with '/' between them, and not the standard's, got {key!r} - "
                f"at {self.path or 'extras'}, row {i}"
            )
        path, schema = self.below(key), self.owner.schema
        if path in self.owner.found:
            raise DataError(f"expected one value for {path}, got a second one by the key {key!r} - at row {i}")
        if schema.fixed and not any(under(path, known) for known in schema.fields):
            raise schema.unknown(i, path)
        if isinstance(value, dict):
            child: _Node | _Leaf = _Node(self.owner, path)
        elif is_texts(value):
            child = _TextRows(self.owner, path)
        else:
            child = self.owner.leaf(path, schema.add(path, i, value))
            self.owner.found.add(path)
        self.children[key] = child
        return child

    def _refuse_missing(self, i: int, info: Mapping[str, Any]) -> None:
        for key in self.children:
            if key not in info:
                raise self.owner.schema.missing(i, self.below(key))


class _TextRows(_Node):
    """A list of strings, with a text column for each item."""

    __slots__ = ()

    def store(self, i: int, info: Any) -> None:
        if info is not None and not ((is_listed(info) or is_array(info)) and np.ndim(info) == 1):
            raise DataError(f"expected {self.path} as a list of strings, got {type(info).__name__} - at row {i}")
        super().store(i, None if info is None else {str(item): text for item, text in enumerate(info)})


class _Leaf:
    """One column with a value in every row."""

    __slots__ = ("column", "path", "rows", "schema", "store")

    def __init__(self, schema: InfoSchema, path: str, column: Column) -> None:
        self.schema = schema
        self.path = path
        self.column = column
        self.rows: list[int] = []  # those given, where rows may lack
        self.store = column.store

    def clear(self) -> None:
        """Forget an episode that was not taken."""
        self.rows.clear()
        if isinstance(self.column, TextColumn):
            self.column.values.clear()

    def take(self, n: int, carry: bool, field: Field) -> dict[str, Array]:
        return {self.path: self.column.take(n, carry)}


class _MaskedLeaf(_Leaf):
    """One column with optional rows, whose arrays may have several shapes."""

    __slots__ = ("shapes",)

    def __init__(self, schema: InfoSchema, path: str, column: Column) -> None:
        super().__init__(schema, path, column)
        self.shapes: dict[int, tuple[int, ...]] = {}  # of rows that are not of the column's shape, or may not be
        self.store = self._store

    def clear(self) -> None:
        super().clear()
        self.shapes.clear()

    def _store(self, i: int, value: Any) -> None:
        if value is None:
            return
        if isinstance(self.column, ArrayColumn):
            if not self.column.has_kind(value):
                value = self._widened(self.column, i, value)
            if self.column.shape:
                value = self._reshaped(self.column, i, value)
        self.column.store(i, value)
        self.rows.append(i)

    def _widened(self, column: ArrayColumn, i: int, value: Any) -> Any:
        """`value` in the column's dtype, after widening the column if that is still possible."""
        if isinstance(value, str):
            return value
        dtype = field_of(self.path, i, value, self.schema.align).dtype
        if dtype == column.dtype:
            return value
        field = self.schema.fields[self.path]
        common = np.promote_types(dtype, field.dtype)
        if common != field.dtype and self.schema.fixed:
            raise DataError(f"expected {self.path} of {field.dtype}, got {dtype} - at row {i}; {_EXAMPLE}")
        self.schema.fields[self.path] = Field(common, field.shape, field.align)
        column.widen(common)
        return np.asarray(value).astype(common)

    def _reshaped(self, column: ArrayColumn, i: int, value: Any) -> Any:
        """`value` padded to the shape of the column, which grows until the end of the first episode."""
        array = np.asarray(value)
        if column.shape != self.schema.fields[self.path].shape:  # another environment's rows are larger
            self._grow(column, self.schema.fields[self.path].shape)
        if array.shape == column.shape and self.path not in self.schema.varying:
            return value
        if array.ndim != len(column.shape) or not array.ndim:
            return value  # the column says what it expects
        largest = tuple(map(max, array.shape, column.shape))
        if self.schema.fixed and (self.path not in self.schema.varying or largest != column.shape):
            raise DataError(
                f"expected {self.path} of shape {column.shape}, got {array.shape} - at row {i}; whether shapes vary, "
                "and the largest, is fixed by the first episode and by info_example"
            )
        if largest != column.shape:
            self._grow(column, largest)
        self.schema.varying.add(self.path)
        self.shapes[i] = array.shape
        row = np.full(column.shape, np.nan if column.dtype.kind in "fc" else 0, column.dtype)
        row[tuple(map(slice, array.shape))] = array
        return row

    def _grow(self, column: ArrayColumn, shape: tuple[int, ...]) -> None:
        """Pad the existing rows, and set the new shape of the dataset's column."""
        field = self.schema.fields[self.path]
        grown = np.full((len(column.array), *shape), np.nan if column.dtype.kind in "fc" else 0, column.dtype)
        grown[(slice(None), *map(slice, column.shape))] = column.array
        for row in self.rows:
            self.shapes.setdefault(row, column.shape)
        column.adopt(grown)
        self.schema.fields[self.path] = Field(field.dtype, shape, field.align)

    def take(self, n: int, carry: bool, field: Field) -> dict[str, Array]:
        given = np.zeros(n, np.bool_)
        given[[row for row in self.rows if row < n]] = True
        shapes = self._take_shapes(n, carry) if self.path in self.schema.varying else {}
        self.rows = [0] if carry and given[n - 1] else []
        values = self.column.take(n, carry)
        if not isinstance(values, Ragged):
            values = values.astype(field.dtype, copy=False)  # another environment may have widened the column
            values[~given] = np.nan if field.dtype.kind in "fc" else 0
        return {self.path: values, self.schema.mask(self.path): given, **shapes}

    def _take_shapes(self, n: int, carry: bool) -> dict[str, Array]:
        column = self.column
        shapes = np.zeros((n, len(self.schema.fields[self.path].shape)), np.int64)
        if isinstance(column, ArrayColumn):
            if column.shape != self.schema.fields[self.path].shape:  # another environment's rows are larger
                self._grow(column, self.schema.fields[self.path].shape)
            for row in self.rows:
                if row < n:
                    shapes[row] = self.shapes.get(row, column.shape)
        self.shapes = {0: tuple(shapes[n - 1].tolist())} if carry and n - 1 in self.shapes else {}
        return {self.schema.shape(self.path): shapes}


def is_texts(value: Any) -> bool:
    """Return whether a value is a list, tuple or 1-D array of at least one string."""
    listed = is_listed(value) or (is_array(value) and value.ndim == 1)
    return listed and len(value) > 0 and all(isinstance(item, str) for item in value)


def _is_nothing(value: Any, policy: Policy) -> bool:
    """Whether a value without a known column gives no information about one."""
    if isinstance(value, dict):
        return not value
    return policy == "union" and (value is None or (isinstance(value, (list, tuple)) and not value))


def field_of(path: str, i: int, value: Any, align: Align) -> Field:
    """Return the field of a column from its first value."""
    if isinstance(value, str):
        return Field(np.dtype(np.uint8), (), align, "text")
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"expected {path} as a number, an array of numbers, a string or a dict of these, "
            f"got {type(value).__name__} - at row {i}; leave it out with a step hook"
        )
    return Field(array.dtype, array.shape, align)


def make_infos(record: bool | Policy, example: Mapping[str, Any] | None) -> InfoSchema | None:
    """Return the schema for an argument `record_infos`, or None if infos are not recorded."""
    if record is False:
        if example is not None:
            raise SpecError("expected no info_example without record_infos")
        return None
    if record not in (True, "error", "union"):
        raise SpecError(f"expected record_infos to be False, True, 'union' or 'error', got {record!r}")
    schema = InfoSchema("error" if record == "error" else "union")
    if example is not None:
        InfoColumns(schema).store(0, dict(example))
    return schema
