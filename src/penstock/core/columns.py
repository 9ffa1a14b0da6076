"""Columns: the unit that data moves in, a nested dict of arrays that share their first axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, Ragged
from penstock.errors import SpecError

SEPARATOR = "/"


class Columns(Mapping[str, Any]):
    """A nested dict of arrays that share their first axis, addressed by paths such as `"observations/image"`.

    Built from flat paths or from nested dicts and tuples (item `i` of a tuple has the key `"i"`). Values are
    NumPy arrays `[n, ...]` or `Ragged`. Reading a path that holds several columns gives a `Columns` of them.
    Arrays are not copied. Iterating gives the flat paths, in the order of insertion.

    Raises `SpecError` if lengths differ, and `KeyError` for a path that is not there.

    >>> batch = Columns({"observations": {"p": np.zeros((4, 2)), "q": np.ones(4)}, "rewards": np.arange(4)})
    >>> list(batch)
    ['observations/p', 'observations/q', 'rewards']
    >>> batch["observations"]["q"].shape, batch["observations/q"].shape, batch.n
    ((4,), (4,), 4)
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
        """Columns from flat paths to arrays that the caller knows to have `n` rows each; nothing is checked."""
        made = cls.__new__(cls)
        made.flat, made.n = flat, n
        return made

    def __getitem__(self, path: str) -> Any:
        if path in self.flat:
            return self.flat[path]
        prefix = path + SEPARATOR
        inner = {p[len(prefix) :]: a for p, a in self.flat.items() if p.startswith(prefix)}
        if not inner:
            raise KeyError(f"no column {path!r}; there are {list(self.flat)}")
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

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(a.nbytes for a in self.flat.values())

    def tree(self) -> dict[str, Any]:
        """The same arrays as plain nested dicts.

        >>> Columns({"a/b": np.zeros(1)}).tree()
        {'a': {'b': array([0.])}}
        """
        return nest(self.flat)

    def take(self, rows: npt.NDArray[np.int64] | slice) -> Columns:
        """The given rows of every column. Cost: a copy for an index array, none for a slice of arrays."""
        flat: dict[str, Array] = {path: array[rows] for path, array in self.flat.items()}
        n = len(range(self.n)[rows]) if isinstance(rows, slice) else len(rows)
        return Columns.of_flat(flat, n)

    def row(self, i: int) -> dict[str, Any]:
        """Row `i` as a nested dict, for people to look at.

        >>> Columns({"a": np.arange(3)}).row(1)
        {'a': np.int64(1)}
        """
        return nest({p: a[i] for p, a in self.flat.items()})

    def map(self, fn: Callable[[Array], Any]) -> Columns:
        """`fn` applied to every array; the results must share their first axis again."""
        return Columns({p: fn(a) for p, a in self.flat.items()})

    def merged(self, other: Mapping[str, Any]) -> Columns:
        """These columns and `other`'s; where both have a path, `other` wins.

        >>> sorted(Columns({"a": np.zeros(2)}).merged({"b": np.ones(2)}))
        ['a', 'b']
        """
        return Columns({**self.flat, **flatten(other)})


def flatten(tree: Mapping[str, Any]) -> dict[str, Array]:
    """Paths to arrays of a nested dict (tuples count as dicts with keys `"0"`, `"1"`, ...).

    >>> list(flatten({"a": (np.zeros(1), {"b": np.zeros(1)})}))
    ['a/0', 'a/1/b']
    """
    flat: dict[str, Array] = {}
    for key, value in tree.items():
        if isinstance(value, tuple):
            value = {str(i): v for i, v in enumerate(value)}  # noqa: PLW2901
        if isinstance(value, Columns):
            value = value.flat  # noqa: PLW2901
        if isinstance(value, Mapping):
            flat.update({f"{key}{SEPARATOR}{inner}": a for inner, a in flatten(value).items()})
        else:
            flat[key] = value if isinstance(value, (np.ndarray, Ragged)) else np.asarray(value)
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`, with dicts for every level.

    >>> nest({"a/b": 1, "c": 2})
    {'a': {'b': 1}, 'c': 2}
    """
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(SEPARATOR)
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def under(prefix: str, path: str) -> bool:
    """Whether `path` is `prefix` itself or lies below it.

    >>> under("observations", "observations/image"), under("obs", "observations")
    (True, False)
    """
    return path == prefix or path.startswith(prefix + SEPARATOR)
