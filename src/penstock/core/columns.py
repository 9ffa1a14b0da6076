"""`Columns`: a nested dict of arrays with a common first axis; `LazyColumns` reads each when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.html import columns_table, page
from penstock.core.narrowing import is_mapping, is_tuple
from penstock.core.ragged import Array, Ragged
from penstock.errors import SpecError, suggestion

SEPARATOR = "/"


class Columns(Mapping[str, AnyArray]):
    """A nested dict of arrays that share their first axis, addressed by paths such as `"observations/image"`.

    A path that has several columns below it gives a `Columns` of them. For a type checker every path gives an array;
    `group` and `ragged` give the other two with their types. Iteration yields the flat paths, in the order of
    insertion. Arrays are not copied.

    Args:
        tree: Arrays `[n, ...]` or `Ragged`, by path, or in nested dicts and tuples. Item `i` of a tuple has the key
            `"i"`.
        n: Number of rows. The default is the length of the first array.

    Raises:
        SpecError: The arrays differ in length.
        KeyError: When read, there is no column at a path.

    Example:
        >>> import numpy as np
        >>> batch = Columns({"observations": {"p": np.zeros((4, 2)), "q": np.ones(4)}, "rewards": np.arange(4)})
        >>> batch["rewards"].tolist(), batch["observations/q"].shape, batch["observations"]["q"].shape
        ([0, 1, 2, 3], (4,), (4,))
        >>> batch.n, list(batch)
        (4, ['observations/p', 'observations/q', 'rewards'])
    """

    __slots__ = ("flat", "n")

    flat: dict[str, Array]
    n: int

    def __init__(self, tree: Mapping[str, Any], n: int | None = None) -> None:
        self.flat = flatten(tree)
        lengths = {path: len(array) for path, array in self.flat.items()}
        self.n = next(iter(lengths.values()), 0) if n is None else n
        wrong = {path: length for path, length in lengths.items() if length != self.n}
        if wrong:
            raise SpecError(f"expected every column to have {self.n} rows, got {wrong}")

    @classmethod
    def of_flat(cls, flat: dict[str, Array], n: int) -> Columns:
        """Make columns from flat paths, without any check.

        Args:
            flat: Arrays by path, each with `n` rows.
            n: Number of rows.
        """
        columns = cls.__new__(cls)
        columns.flat, columns.n = flat, n
        return columns

    def __getitem__(self, path: str) -> AnyArray:
        value: Any = self._find(path)
        return value

    def ragged(self, path: str) -> Ragged:
        """Return a column whose rows differ in length, typed as what it is.

        Args:
            path: Path of the column.

        Raises:
            KeyError: There is no column at the path.
            SpecError: The column is an array, or there are several below the path.

        Example:
            >>> Columns({"text": Ragged.from_strings(["go", "left"])}).ragged("text").strings()
            ['go', 'left']
        """
        value = self._find(path)
        if not isinstance(value, Ragged):
            raise SpecError(f"expected {path!r} to be a Ragged column, got {type(value).__name__}")
        return value

    def group(self, path: str) -> Columns:
        """Return the columns below a path, typed as what they are.

        Args:
            path: Path that several columns are below, such as `"observations"`.

        Raises:
            KeyError: There is no column below the path.
            SpecError: The path is that of one column.

        Example:
            >>> list(Columns({"observations": {"p": np.zeros(2), "q": np.ones(2)}}).group("observations"))
            ['p', 'q']
        """
        value = self._find(path)
        if not isinstance(value, Columns):
            raise SpecError(f"expected several columns below {path!r}, got one column")
        return value

    def _find(self, path: str) -> Array | Columns:
        if path in self.flat:
            return self.flat[path]
        prefix = path + SEPARATOR
        inner = {p[len(prefix) :]: a for p, a in self.flat.items() if p.startswith(prefix)}
        if not inner:
            raise KeyError(f"no column {path!r}{suggestion(path, self.flat)}; there are {list(self.flat)}")
        return Columns(inner)

    def __iter__(self) -> Iterator[str]:
        return iter(self.flat)

    def __len__(self) -> int:
        return len(self.flat)

    def __contains__(self, path: object) -> bool:
        return path in self.flat or any(p.startswith(f"{path}{SEPARATOR}") for p in self.flat)

    def __repr__(self) -> str:
        inside = ", ".join(f"{p}: {a.dtype}{list(a.shape)}" for p, a in self.flat.items())
        return f"Columns({inside})"

    def _repr_html_(self) -> str:
        return page(type(self).__name__, f"{self.n:,} rows, {self.nbytes:,} bytes", columns_table(self.flat))

    @property
    def nbytes(self) -> int:
        """Total size of the arrays in bytes."""
        return sum(a.nbytes for a in self.flat.values())

    def tree(self) -> dict[str, Any]:
        """Return the arrays as nested dicts.

        Example:
            >>> Columns({"a/b": np.zeros(1)}).tree()
            {'a': {'b': array([0.])}}
        """
        return nest(self.flat)

    def take(self, rows: IntArray | slice) -> Columns:
        """Take rows of every column. An index array copies them; a slice of arrays does not.

        Args:
            rows: `[m]` int64 row numbers, or a slice.

        Example:
            >>> Columns({"a": np.arange(3)}).take(slice(1, 3))["a"].tolist()
            [1, 2]
        """
        flat: dict[str, Array] = {path: array[rows] for path, array in self.flat.items()}
        n = len(range(self.n)[rows]) if isinstance(rows, slice) else len(rows)
        return Columns.of_flat(flat, n)

    def row(self, i: int) -> dict[str, Any]:
        """Return one row as a nested dict.

        Args:
            i: Row number.

        Example:
            >>> Columns({"a": np.arange(3)}).row(1)
            {'a': np.int64(1)}
        """
        return nest({p: a[i] for p, a in self.flat.items()})

    def map(self, fn: Callable[[Array], Any]) -> Columns:
        """Apply a function to every array.

        Args:
            fn: Called with each array. The results must have equal lengths.

        Example:
            >>> Columns({"a": np.arange(3)}).map(np.sqrt)["a"].dtype
            dtype('float64')
        """
        return Columns({p: fn(a) for p, a in self.flat.items()})

    def merged(self, other: Mapping[str, Any]) -> Columns:
        """Return these columns together with others.

        Args:
            other: Columns to add. They replace columns with the same path.

        Raises:
            SpecError: The columns differ in length.

        Example:
            >>> sorted(Columns({"a": np.zeros(2)}).merged({"b": np.ones(2)}))
            ['a', 'b']
        """
        return Columns({**self.flat, **flatten(other)})


def flatten(tree: Mapping[str, Any]) -> dict[str, Array]:
    """Turn a nested dict into a dict of paths."""
    flat: dict[str, Array] = {}
    for key, value in tree.items():
        if is_tuple(value):
            value = {str(i): v for i, v in enumerate(value)}  # noqa: PLW2901
        if isinstance(value, Columns):
            value = value.flat  # noqa: PLW2901
        if is_mapping(value):
            flat.update({f"{key}{SEPARATOR}{inner}": a for inner, a in flatten(value).items()})
        else:
            flat[key] = value if isinstance(value, (np.ndarray, Ragged)) else np.asarray(value)
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a dict of paths into nested dicts, the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(SEPARATOR)
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def under(prefix: str, path: str) -> bool:
    """Return whether a path is `prefix` or below it."""
    return path == prefix or path.startswith(prefix + SEPARATOR)


class LazyColumns(Columns):
    """Columns of which only those are read that are used. Another use of one does not read it again."""

    __slots__ = ("_names", "_read", "_values")

    def __init__(self, names: Sequence[str], n: int, read: Callable[[Sequence[str]], dict[str, Array]]) -> None:
        self._names = tuple(names)
        self._read = read
        self._values: dict[str, Array] = {}
        self.n = n

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Paths that were read so far."""
        return tuple(self._values)

    @property
    def flat(self) -> dict[str, Array]:  # pyright: ignore[reportIncompatibleVariableOverride] - read at first use
        """All columns by path, which reads them."""
        return self._of(self._names)

    def _of(self, names: Sequence[str]) -> dict[str, Array]:
        if missing := [name for name in names if name not in self._values]:
            self._values.update(self._read(missing))
        return {name: self._values[name] for name in names}

    @override
    def _find(self, path: str) -> Array | Columns:
        names = [name for name in self._names if under(path, name)]
        if not names:
            raise KeyError(f"no column {path!r}{suggestion(path, self._names)}; there are {list(self._names)}")
        return Columns.of_flat(self._of(names), self.n)._find(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, path: object) -> bool:
        return any(under(str(path), name) for name in self._names)
