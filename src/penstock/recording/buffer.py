"""Buffers for open episodes, written step by step.

A value is copied when it is stored, so an environment may reuse its arrays. Storing is one assignment into a buffer
that doubles. Spaces are inspected once, when the buffer is made, and not at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from typing_extensions import override

from penstock.core import spaces
from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.narrowing import is_array, is_listed
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import leaf_field
from penstock.core.spec import Field
from penstock.errors import DataError
from penstock.kernels.bounds import DTYPES

Store = Callable[[int, Any], None]

# Values that a column accepts besides its own dtype: none; Python numbers, which have no width; all that round to it.
Cast = Literal["exact", "python", "any"]

FIRST_ROWS = 64
HANDOVER_BYTES = 1 << 20  # above this, a closing episode takes the buffer itself, which saves the second copy

# The Python types that fit a dtype exactly besides the dtype's own scalar.
_NATIVE: dict[np.dtype[Any], type] = {np.dtype("f8"): float, np.dtype("i8"): int, np.dtype("?"): bool}


class ArrayColumn:
    """Growing column of arrays with one dtype and shape."""

    __slots__ = ("array", "cast", "dtype", "path", "shape")

    def __init__(self, path: str, dtype: np.dtype[Any], shape: tuple[int, ...], cast: Cast = "python") -> None:
        self.path = path
        self.cast = cast
        self.adopt(np.empty((FIRST_ROWS, *shape), dtype))

    def adopt(self, array: AnyArray) -> None:
        """Use another array for the rows, perhaps of another dtype or shape."""
        self.array = array
        self.dtype: np.dtype[Any] = array.dtype
        self.shape: tuple[int, ...] = array.shape[1:]

    def store(self, i: int, value: Any) -> None:
        """Copy a value into a row."""
        if type(value) is not np.ndarray or value.dtype is not self.dtype or value.shape != self.shape:
            value = self.fit(i, value)
        try:
            self.array[i] = value
        except IndexError:
            self.reserve(i + 1)
            self.array[i] = value

    def has_kind(self, value: Any) -> bool:
        """Return whether a value has the column's dtype, so that it is stored as it is."""
        return type(value) is np.ndarray and value.dtype is self.dtype

    def widen(self, dtype: np.dtype[Any]) -> None:
        """Change the dtype of all rows."""
        self.adopt(self.array.astype(dtype))

    def fit(self, i: int, value: Any) -> AnyArray:
        """Return a value as an array of the column's dtype and shape."""
        array = _as_array(self.path, i, value)
        if array.shape != self.shape:
            raise DataError(f"expected {self.path} of shape {self.shape}, got {array.shape} - at row {i}")
        if array.dtype == self.dtype or self._casts(value, array):
            return array.astype(self.dtype, copy=False)
        raise DataError(
            f"expected {self.path} of {self.dtype}, got {array.dtype} - at row {i}; convert it where it is made "
            "(dtypes='cast' rounds observations and actions, record_infos=True widens infos)"
        )

    def _casts(self, value: Any, array: AnyArray) -> bool:
        python = self.cast == "python" and isinstance(value, (bool, int, float, list, tuple))
        if not (python or self.cast == "any"):
            return False
        if array.dtype.kind in "bui" and self.dtype.kind in "ui":
            return np.array_equal(array.astype(self.dtype), array)
        return np.can_cast(array.dtype, self.dtype, "same_kind")  # never a float for an int

    def reserve(self, rows: int) -> None:
        """Reserve rows, at least twice the current number. Cost: one copy of the buffer."""
        if rows > len(self.array):
            grown = np.empty((max(rows, 2 * len(self.array)), *self.shape), self.dtype)
            grown[: len(self.array)] = self.array
            self.adopt(grown)

    def take(self, n: int, carry: bool = False) -> AnyArray:
        """Return the first rows, which then belong to the caller."""
        if n > len(self.array):  # the last rows were not stored
            self.reserve(n)
        taken = self.array[:n]
        if taken.nbytes <= HANDOVER_BYTES:
            taken = taken.copy()
        else:
            self.adopt(np.empty((FIRST_ROWS, *self.shape), self.dtype))
        if carry:
            self.array[0] = taken[n - 1]
        return taken

    def cut(self, lo: int, hi: int, env: int) -> AnyArray:
        """Return a copy of rows of one environment, for a column of batches."""
        return self.array[lo:hi, env].copy()

    def merge(self, row: int, mask: BoolArray) -> None:
        """Copy values of row `row + 1` to row `row`, for some environments."""
        self.array[row, mask] = self.array[row + 1, mask]

    def shift(self, lo: int, hi: int) -> None:
        """Move rows to the front."""
        self.array[: hi - lo] = self.array[lo:hi]


class VectorColumn(ArrayColumn):
    """Growing column of arrays with one axis.

    A memory view compares dtype and shape itself when values are assigned to a part of it, at half of the cost. It
    knows plain numbers alone.
    """

    __slots__ = ("cells", "width")

    @override
    def adopt(self, array: AnyArray) -> None:
        super().adopt(array)
        self.cells: Any = array.reshape(-1).data if array.dtype in DTYPES else None
        self.width = array.shape[1]

    @override
    def store(self, i: int, value: Any) -> None:
        # Behind the last row the part has no values, so an empty array would fit it.
        if self.cells is not None and type(value) is np.ndarray and value.size:
            start = i * self.width
            try:
                self.cells[start : start + self.width] = value
                return
            except ValueError:  # of another dtype or shape, or behind the last row
                pass
        super().store(i, value)


class ScalarColumn(ArrayColumn):
    """Growing column of numbers."""

    __slots__ = ("cells", "natives")

    @override
    def adopt(self, array: AnyArray) -> None:
        super().adopt(array)
        native = _NATIVE.get(self.dtype)
        self.natives = frozenset((self.dtype.type, native or self.dtype.type))
        # A memory view takes a number in half the time, but knows none of the other dtypes.
        self.cells: Any = array if native is None else array.data

    @override
    def has_kind(self, value: Any) -> bool:
        return type(value) in self.natives

    @override
    def store(self, i: int, value: Any) -> None:
        """Copy a number into a row. Raises `DataError` if its dtype does not fit."""
        if type(value) not in self.natives:
            value = self.fit(i, value)
        try:
            self.cells[i] = value
        except IndexError:
            self.reserve(i + 1)
            self.store(i, value)
        except (OverflowError, ValueError):  # by an array, by a memory view
            raise DataError(f"expected {self.path} of {self.dtype}, got {value} - at row {i}") from None


class TextColumn:
    """Growing column of strings."""

    __slots__ = ("path", "values")

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: list[str] = []

    def store(self, i: int, value: Any) -> None:
        """Store a string in a row. Skipped rows before it are empty."""
        if len(self.values) < i:
            self.reserve(i)
        self.values[i:] = (_as_text(self.path, i, value),)

    def reserve(self, rows: int) -> None:
        """Append empty strings."""
        self.values.extend([""] * (rows - len(self.values)))

    def take(self, n: int, carry: bool = False) -> Ragged:
        """Return the first rows."""
        self.reserve(n)
        taken = self.values[:n]
        self.values = taken[-1:] if carry else []
        return Ragged.from_strings(taken)


class TextBatchColumn:
    """Growing column with a string for each of `n` environments."""

    __slots__ = ("n", "path", "values")

    def __init__(self, path: str, n: int) -> None:
        self.path, self.n = path, n
        self.values: list[tuple[str, ...]] = []

    def store(self, i: int, value: Any) -> None:
        """Store the strings of all environments in a row."""
        if not (is_listed(value) or is_array(value)) or len(value) != self.n:
            raise DataError(f"expected {self.path} as {self.n} strings, got {_short(value)} - at row {i}")
        self.values[i:] = (tuple(_as_text(self.path, i, text) for text in value),)

    def cut(self, lo: int, hi: int, env: int) -> Ragged:
        return Ragged.from_strings(row[env] for row in self.values[lo:hi])

    def merge(self, row: int, mask: BoolArray) -> None:
        """Copy strings of row `row + 1` to row `row`, for some environments."""
        old, new = self.values[row], self.values[row + 1]
        self.values[row] = tuple(b if takes else a for a, b, takes in zip(old, new, mask, strict=True))

    def shift(self, lo: int, hi: int) -> None:
        """Move rows to the front."""
        self.values = self.values[lo:hi]


Column = ArrayColumn | TextColumn
BatchColumn = ArrayColumn | TextBatchColumn
AnyColumn = TypeVar("AnyColumn", Column, BatchColumn)


def column_for(path: str, field: Field, cast: Cast = "python") -> Column:
    """Make an empty column for a field."""
    if field.kind == "text":
        return TextColumn(path)
    make = (ScalarColumn, VectorColumn, ArrayColumn)[min(len(field.shape), 2)]
    return make(path, field.dtype, field.shape, cast)


def batch_column_for(path: str, field: Field, n: int, cast: Cast = "python") -> BatchColumn:
    """Make an empty column for a field, with the rows of `n` environments in each row."""
    return TextBatchColumn(path, n) if field.kind == "text" else ArrayColumn(path, field.dtype, (n, *field.shape), cast)


def storer(
    space: spaces.Space, path: str, make: Callable[[str, Field], AnyColumn], columns: dict[str, AnyColumn]
) -> Store:
    """Return a function that stores a whole value of a space, and add the column of every leaf to `columns`."""
    match space:
        case spaces.Dict():
            keys = {key: storer(inner, f"{path}/{key}", make, columns) for key, inner in space.spaces.items()}
            return _dict_storer(path, keys)
        case spaces.Tuple():
            return _tuple_storer(path, [storer(s, f"{path}/{i}", make, columns) for i, s in enumerate(space.spaces)])
        case _:
            columns[path] = make(path, leaf_field(space, "step"))
            return columns[path].store


def _dict_storer(path: str, stores: dict[str, Store]) -> Store:
    parts = list(stores.items())

    def store(i: int, value: Any) -> None:
        if not hasattr(value, "keys") or value.keys() != stores.keys():
            raise DataError(f"expected {path} as a dict with the keys {list(stores)}, got {_short(value)} - at row {i}")
        for key, store_leaf in parts:
            store_leaf(i, value[key])

    return store


def _tuple_storer(path: str, stores: list[Store]) -> Store:
    def store(i: int, value: Any) -> None:
        if not is_listed(value) or len(value) != len(stores):
            raise DataError(f"expected {path} as a tuple of {len(stores)}, got {_short(value)} - at row {i}")
        for store_leaf, leaf in zip(stores, value, strict=True):
            store_leaf(i, leaf)

    return store


class EpisodeBuffer:
    """Columns of one open episode.

    `store_observation(0, first)` starts an episode. Step `i` is `store_action(i, ...)` before the environment steps,
    then `store_reward(i, ...)` and `store_observation(i + 1, ...)`, and finally `steps = i + 1`. An incomplete step is
    thus overwritten by the next. `take` closes the episode and adds terminations and truncations, of which only the
    last row can be True.
    """

    __slots__ = ("_actions", "_observations", "_reward", "steps", "store_action", "store_observation", "store_reward")

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, cast: Cast = "python") -> None:
        def make(path: str, field: Field) -> Column:
            return column_for(path, field, cast)

        self.steps = 0
        self._observations: dict[str, Column] = {}
        self._actions: dict[str, Column] = {}
        self._reward = ScalarColumn("rewards", np.dtype(np.float64), (), cast="any")
        self.store_observation = storer(observation_space, "observations", make, self._observations)
        self.store_action = storer(action_space, "actions", make, self._actions)
        self.store_reward = self._reward.store

    def observation_rows(self, i: int, paths: Sequence[str]) -> dict[str, AnyArray]:
        """Return views of a row of some array columns of observations."""
        columns = ((path, self._observations[path]) for path in paths)
        return {path: column.array[i] for path, column in columns if isinstance(column, ArrayColumn)}

    def boundary_rows(self, i: int) -> dict[str, AnyArray]:
        """Return views of a row of the observations, `[1, ...]`. A text column has none."""
        columns = self._observations.items()
        return {path: column.array[i : i + 1] for path, column in columns if isinstance(column, ArrayColumn)}

    def step_rows(self, i: int, terminated: bool, truncated: bool) -> dict[str, AnyArray]:
        """Return views of the values of a step and of the observation after it, `[1, ...]`."""
        columns = self._actions.items()
        rows = {path: column.array[i : i + 1] for path, column in columns if isinstance(column, ArrayColumn)}
        flags = {"terminations": np.array([terminated]), "truncations": np.array([truncated])}
        return {**rows, "rewards": self._reward.array[i : i + 1], **flags, **self.boundary_rows(i + 1)}

    def take(self, terminated: bool, truncated: bool, carry: bool = False) -> dict[str, Array]:
        n, self.steps = self.steps, 0
        columns: dict[str, Array] = {}
        for path, column in self._observations.items():
            columns[path] = column.take(n + 1, carry)
        for path, column in self._actions.items():
            columns[path] = column.take(n)
        columns["rewards"] = self._reward.take(n)
        columns.update(ends(n, terminated, truncated))
        return columns


def ends(n: int, terminated: bool, truncated: bool) -> dict[str, Array]:
    """Return the columns `terminations` and `truncations` of an episode."""
    columns: dict[str, Array] = {}
    for path, flag in (("terminations", terminated), ("truncations", truncated)):
        columns[path] = flags = np.zeros(n, np.bool_)
        if flag and n:
            flags[n - 1] = True
    return columns


def _as_array(path: str, i: int, value: Any) -> AnyArray:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"expected {path} as an array, got {_short(value)} - at row {i}: {error}") from error


def _as_text(path: str, i: int, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"expected {path} as a string, got {_short(value)} - at row {i}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"expected {path} as text that UTF-8 can hold, got {value!r} - at row {i}") from error
    return str(value)


def _short(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 100 else text[:100] + '...'}"
