"""`FrameTable`: columns of a dataset, with the operations of `datasets.Dataset` that programs use on `hf_dataset`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.ragged import Array, Ragged
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.info import CAMERAS, Feature
from penstock_mirrors.lerobot.reading import tensor_of, values_of

TableFormat = Literal["torch", "numpy"] | None


class FrameTable:
    """Table with a row for each frame, without video, as LeRobot's `hf_dataset`. Rows stay on disk until
    they are read.

    `table[5]` is a dict, `table[2:5]` and `table[[2, 4]]` are dicts of lists, `table["action"]` is a list of all rows.
    Values are tensors, images `[channels, height, width]` from 0 to 1, text `str`.
    """

    def __init__(self, samples: MapDataset, features: Mapping[str, Feature]) -> None:
        self._samples = samples
        self._features = dict(features)
        self._rows: IntArray = np.arange(len(samples))
        self._format: TableFormat = "torch"

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for first in range(0, len(self), _READ):
            yield from self._items(np.arange(first, min(first + _READ, len(self))))

    def __getitem__(self, key: str | int | slice | Sequence[int]) -> Any:
        """Read a column, a row, or rows."""
        if isinstance(key, str):
            if key not in self._features:
                raise KeyError(f"no column {key!r}; there are {self.column_names}")
            return self._columns([key], np.arange(len(self)))[key]
        if isinstance(key, slice):
            return self._columns(self.column_names, np.arange(len(self))[key])
        if isinstance(key, Sequence):
            return self._columns(self.column_names, self._numbers(key))
        return self._items(self._numbers([key]))[0]

    def __repr__(self) -> str:
        return f"FrameTable({len(self)} rows, columns={self.column_names})"

    @property
    def column_names(self) -> list[str]:
        return list(self._features)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """`dtype` and `shape` of each column."""
        return {name: {"dtype": each.dtype, "shape": each.shape} for name, each in self._features.items()}

    @property
    def num_rows(self) -> int:
        return len(self)

    @property
    def num_columns(self) -> int:
        return len(self._features)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_rows, self.num_columns

    def select(self, indices: Sequence[int]) -> Self:
        """Return a table of some rows, in the given order."""
        table = copy(self)
        table._rows = self._rows[self._numbers(indices)]
        return table

    def select_columns(self, column_names: str | Sequence[str]) -> Self:
        names = self._known(column_names)
        table = copy(self)
        table._features = {name: self._features[name] for name in names}
        return table

    def remove_columns(self, column_names: str | Sequence[str]) -> Self:
        """Return a table without some columns."""
        without = self._known(column_names)
        return self.select_columns([name for name in self._features if name not in without])

    def filter(self, function: Callable[[Mapping[str, Any]], Any]) -> Self:
        """Return a table of the rows for which a function is true. Only columns that the function uses are read."""
        cached: dict[str, Any] = {}
        chosen = [i for i in range(len(self)) if function(_LazyRow(self, i, cached))]
        return self.select(chosen)

    def unique(self, column: str) -> list[Any]:
        """Return the different values of a column of single numbers or text, in the order of their first rows."""
        return list(dict.fromkeys(self.with_format(None)[column]))

    def with_format(self, type: TableFormat) -> Self:  # the name of the argument is LeRobot's
        if type not in ("torch", "numpy", None):
            raise ArgumentError(f"expected format 'torch', 'numpy' or None, got {type!r}")
        table = copy(self)
        table._format = type
        return table

    def _known(self, names: str | Sequence[str]) -> list[str]:
        wanted = [names] if isinstance(names, str) else list(names)
        if unknown := [name for name in wanted if name not in self._features]:
            raise ArgumentError(f"no columns {unknown}; there are {self.column_names}")
        return wanted

    def _numbers(self, keys: Sequence[int]) -> IntArray:
        numbers = np.array([operator.index(each) for each in keys], np.int64)
        if ((numbers < -len(self)) | (numbers >= len(self))).any():
            raise IndexError(f"expected rows within 0:{len(self)}, got {numbers.tolist()}")
        return numbers % max(len(self), 1)

    def _items(self, numbers: IntArray) -> list[dict[str, Any]]:
        columns = self._columns(self.column_names, numbers)
        return [{name: rows[i] for name, rows in columns.items()} for i in range(len(numbers))]

    def _columns(self, names: Sequence[str], numbers: IntArray) -> dict[str, Any]:
        """Read some rows of some columns, as a list or array for each."""
        if not names:
            return {}
        features = {name: self._features[name] for name in names}
        batch = self._samples.select_columns(*(each.path for each in features.values()))[self._rows[numbers]]
        return {name: self._formatted(each, batch.flat[each.path]) for name, each in features.items()}

    def _formatted(self, feature: Feature, rows: Array) -> Any:
        if isinstance(rows, Ragged):
            return values_of(feature, rows)
        if self._format == "torch":
            return list(tensor_of(feature, rows))
        values = rows[..., 0] if feature.shape == (1,) else np.asarray(rows)
        if self._format == "numpy":
            return values
        if feature.dtype in CAMERAS:
            picture = require("PIL.Image", "images")
            return [picture.fromarray(each) for each in values]
        return values.tolist()


class _LazyRow(Mapping[str, Any]):
    """One row of a table, whose columns are read when they are asked for: numbers for all rows at once."""

    def __init__(self, table: FrameTable, number: int, cached: dict[str, Any]) -> None:
        self._table = table
        self._number = number
        self._cached = cached

    def __getitem__(self, name: str) -> Any:
        if name in self._table.features and self._table.features[name]["dtype"] in CAMERAS:
            return self._table.select_columns(name)[self._number][name]
        if name not in self._cached:
            self._cached[name] = self._table[name]
        return self._cached[name][self._number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return self._table.num_columns


_READ = 1024  # rows that iteration reads at a time
