"""Buffers that one open episode, or the open episodes of a vectorised environment, are written into step by step.

A value is copied when it is stored, so that an environment may reuse its arrays. Storing is one assignment into a
buffer that doubles: what a space needs is looked up once, when the buffer is made, never per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.core import spaces
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import DataError
from penstock.record.spaces import leaf_field

Store = Callable[[int, Any], None]
Row = npt.NDArray[Any]

# What a column takes besides its own dtype: nothing; Python numbers, which have no width; any that can be rounded.
Cast = Literal["exact", "python", "any"]

FIRST_ROWS = 64
HANDOVER_BYTES = 1 << 20  # above this, a closing episode takes the buffer itself, which saves the second copy

# The Python types that fit a dtype exactly besides the dtype's own scalar.
_NATIVE: dict[np.dtype[Any], type] = {np.dtype("f8"): float, np.dtype("i8"): int, np.dtype("?"): bool}


class ArrayColumn:
    """Rows of one dtype and shape; `cast` says which other dtypes are taken.

    >>> column = ArrayColumn("observations", np.dtype("float32"), (2,))
    >>> column.store(0, np.ones(2, "float32"))
    >>> column.take(1)
    array([[1., 1.]], dtype=float32)
    """

    __slots__ = ("array", "cast", "dtype", "path", "shape")

    def __init__(self, path: str, dtype: np.dtype[Any], shape: tuple[int, ...], cast: Cast = "python") -> None:
        self.path, self.dtype, self.shape, self.cast = path, dtype, shape, cast
        self.array: Row = np.empty((FIRST_ROWS, *shape), dtype)

    def store(self, i: int, value: Any) -> None:
        """Copy `value` into row `i`. Raises `DataError` if its dtype or shape is another."""
        if type(value) is not np.ndarray or value.dtype is not self.dtype or value.shape != self.shape:
            value = self.fit(i, value)
        try:
            self.array[i] = value
        except IndexError:
            self.reserve(i + 1)
            self.array[i] = value

    def fit(self, i: int, value: Any) -> Row:
        """`value` as an array of this column's dtype and shape. Raises `DataError` if it cannot be."""
        array = _as_array(self.path, i, value)
        if array.shape != self.shape:
            raise DataError(f"expected {self.path} of shape {self.shape}, got {array.shape} - at row {i}")
        if array.dtype == self.dtype or self._casts(value, array):
            return array.astype(self.dtype, copy=False)
        raise DataError(
            f"expected {self.path} of {self.dtype}, got {array.dtype} - at row {i}; convert it where it is made "
            "(dtypes='cast' rounds observations and actions, record_infos='union' widens infos)"
        )

    def _casts(self, value: Any, array: Row) -> bool:
        python = self.cast == "python" and isinstance(value, (bool, int, float, list, tuple))
        if not (python or self.cast == "any"):
            return False
        if array.dtype.kind in "bui" and self.dtype.kind in "ui":
            return np.array_equal(array.astype(self.dtype), array)
        return np.can_cast(array.dtype, self.dtype, "same_kind")  # never a float for an int

    def reserve(self, rows: int) -> None:
        """Room for `rows`, at least doubled. Cost: one copy of what is held."""
        if rows > len(self.array):
            grown = np.empty((max(rows, 2 * len(self.array)), *self.shape), self.dtype)
            grown[: len(self.array)] = self.array
            self.array = grown

    def take(self, n: int, carry: bool = False) -> Row:
        """The first `n` rows, which are the caller's; the next episode starts with the last of them if `carry`."""
        self.reserve(n)
        taken = self.array[:n]
        if taken.nbytes <= HANDOVER_BYTES:
            taken = taken.copy()
        else:
            self.array = np.empty((FIRST_ROWS, *self.shape), self.dtype)
        if carry:
            self.array[0] = taken[n - 1]
        return taken

    def cut(self, lo: int, hi: int, env: int) -> Row:
        """A copy of rows `lo:hi` of one environment, where a row holds a batch of them."""
        return self.array[lo:hi, env].copy()

    def merge(self, row: int, mask: npt.NDArray[np.bool_]) -> None:
        """Take over the values of row `row + 1` in row `row`, for the environments of the mask."""
        self.array[row, mask] = self.array[row + 1, mask]

    def shift(self, lo: int, hi: int) -> None:
        """Move rows `lo:hi` to the front."""
        self.array[: hi - lo] = self.array[lo:hi]


class ScalarColumn(ArrayColumn):
    """Rows that are one number each.

    >>> column = ScalarColumn("rewards", np.dtype("float64"), cast="any")
    >>> column.store(0, 1)
    >>> column.take(1)
    array([1.])
    """

    __slots__ = ("natives",)

    def __init__(self, path: str, dtype: np.dtype[Any], cast: Cast = "python") -> None:
        super().__init__(path, dtype, (), cast)
        self.natives = (_NATIVE.get(dtype, dtype.type), dtype.type)

    def store(self, i: int, value: Any) -> None:
        """Put `value` into row `i`. Raises `DataError` if it is no number of the column's dtype."""
        if type(value) not in self.natives:
            value = self.fit(i, value)
        try:
            self.array[i] = value
        except IndexError:
            self.reserve(i + 1)
            self.array[i] = value
        except OverflowError:
            raise DataError(f"expected {self.path} of {self.dtype}, got {value} - at row {i}") from None


class TextColumn:
    """Rows that are strings.

    >>> column = TextColumn("observations")
    >>> column.store(0, "go left")
    >>> column.take(1).strings()
    ['go left']
    """

    __slots__ = ("path", "values")

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: list[str] = []

    def store(self, i: int, value: Any) -> None:
        """Put `value` into row `i`; rows left out before it are empty. Raises `DataError` if it is not text."""
        if len(self.values) < i:
            self.reserve(i)
        self.values[i:] = (_as_text(self.path, i, value),)

    def reserve(self, rows: int) -> None:
        """Fill up to `rows` with empty strings."""
        self.values.extend([""] * (rows - len(self.values)))

    def take(self, n: int, carry: bool = False) -> Ragged:
        """The first `n` rows; the next episode starts with the last of them if `carry`."""
        self.reserve(n)
        taken = self.values[:n]
        self.values = taken[-1:] if carry else []
        return Ragged.from_strings(taken)


class TextBatchColumn:
    """Rows that are a string for each of `n` environments."""

    __slots__ = ("n", "path", "values")

    def __init__(self, path: str, n: int) -> None:
        self.path, self.n = path, n
        self.values: list[tuple[str, ...]] = []

    def store(self, i: int, value: Any) -> None:
        """Put the strings of all environments into row `i`."""
        if not isinstance(value, (tuple, list, np.ndarray)) or len(value) != self.n:
            raise DataError(f"expected {self.path} as {self.n} strings, got {_short(value)} - at row {i}")
        self.values[i:] = (tuple(_as_text(self.path, i, text) for text in value),)

    def cut(self, lo: int, hi: int, env: int) -> Ragged:
        """Rows `lo:hi` of one environment."""
        return Ragged.from_strings(row[env] for row in self.values[lo:hi])

    def merge(self, row: int, mask: npt.NDArray[np.bool_]) -> None:
        """Take over the strings of row `row + 1` in row `row`, for the environments of the mask."""
        old, new = self.values[row], self.values[row + 1]
        self.values[row] = tuple(b if takes else a for a, b, takes in zip(old, new, mask, strict=True))

    def shift(self, lo: int, hi: int) -> None:
        """Move rows `lo:hi` to the front."""
        self.values = self.values[lo:hi]


Column = ArrayColumn | TextColumn
BatchColumn = ArrayColumn | TextBatchColumn
AnyColumn = TypeVar("AnyColumn", Column, BatchColumn)


def column_for(path: str, field: Field, cast: Cast = "python") -> Column:
    """An empty column for the rows of a field."""
    if field.kind == "text":
        return TextColumn(path)
    return ArrayColumn(path, field.dtype, field.shape, cast) if field.shape else ScalarColumn(path, field.dtype, cast)


def batch_column_for(path: str, field: Field, n: int, cast: Cast = "python") -> BatchColumn:
    """An empty column whose rows hold the rows of `n` environments side by side."""
    return TextBatchColumn(path, n) if field.kind == "text" else ArrayColumn(path, field.dtype, (n, *field.shape), cast)


def storer(
    space: spaces.Space, path: str, make: Callable[[str, Field], AnyColumn], columns: dict[str, AnyColumn]
) -> Store:
    """A function that stores a whole value of `space`, and (in `columns`) the column of every leaf that it fills."""
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
        if not isinstance(value, (tuple, list)) or len(value) != len(stores):
            raise DataError(f"expected {path} as a tuple of {len(stores)}, got {_short(value)} - at row {i}")
        for store_leaf, leaf in zip(stores, value, strict=True):
            store_leaf(i, leaf)

    return store


class EpisodeBuffer:
    """The columns of one open episode.

    `store_observation(0, first)` begins; step `i` is `store_action(i, ...)` before the environment moves,
    `store_reward(i, ...)` and `store_observation(i + 1, ...)` after, and then `steps = i + 1`: a step that failed
    half-way is overwritten by the next. `take` closes: terminations and truncations are made there, for only the
    last row of either can be True.
    """

    __slots__ = ("_actions", "_observations", "_reward", "steps", "store_action", "store_observation", "store_reward")

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, cast: Cast = "python") -> None:
        def make(path: str, field: Field) -> Column:
            return column_for(path, field, cast)

        self.steps = 0
        self._observations: dict[str, Column] = {}
        self._actions: dict[str, Column] = {}
        self._reward = ScalarColumn("rewards", np.dtype(np.float64), cast="any")
        self.store_observation = storer(observation_space, "observations", make, self._observations)
        self.store_action = storer(action_space, "actions", make, self._actions)
        self.store_reward = self._reward.store

    def take(self, terminated: bool, truncated: bool, carry: bool = False) -> dict[str, Array]:
        """The columns of the episode; with `carry` the next one begins with its last observation."""
        n, self.steps = self.steps, 0
        columns: dict[str, Array] = {path: c.take(n + 1, carry) for path, c in self._observations.items()}
        columns.update({path: c.take(n) for path, c in self._actions.items()})
        return {**columns, "rewards": self._reward.take(n), **ends(n, terminated, truncated)}


def ends(n: int, terminated: bool, truncated: bool) -> dict[str, Array]:
    """The columns `terminations` and `truncations` of an episode of `n` steps.

    >>> ends(2, True, False)["terminations"].tolist()
    [False, True]
    """
    columns = {"terminations": np.zeros(n, np.bool_), "truncations": np.zeros(n, np.bool_)}
    columns["terminations"][-1:], columns["truncations"][-1:] = terminated, truncated
    return dict(columns)


def _as_array(path: str, i: int, value: Any) -> Row:
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
