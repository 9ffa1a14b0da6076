"""Observation and action spaces as plain data: Gymnasium's spaces, without Gymnasium.

Their JSON is the JSON of the Minari standard (`Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Text`, `Tuple`,
`Dict`). A composite space names its leaves by path: key `k` of a `Dict` is `"k"`, item `i` of a `Tuple` is `"i"`.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_listed
from penstock.core.ragged import Array, Ragged
from penstock.errors import SpecError

INT64 = np.dtype("int64")
CELLS = 1 << 27  # cells that bounds given as one number are spread over, which costs memory
_NUMBERS = "biufc"  # NumPy kinds that a space may have


class Space(ABC):
    """Set of possible values. Abstract; the concrete spaces are final and frozen.

    Example:
        >>> space = Space.from_json({"type": "Discrete", "dtype": "int64", "start": 0, "n": 4})
        >>> space.contains(np.array([0, 3, 4])).tolist()
        [True, True, False]
    """

    type: ClassVar[str]

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the Minari standard, as a plain dict."""

    @abstractmethod
    def contains(self, rows: Array) -> BoolArray:
        """Return which rows are members of the space.

        Args:
            rows: `[n, ...]` values of a leaf column.

        Returns:
            `[n]` bool.

        Raises:
            SpecError: The space is composite; ask its leaves.
        """

    def leaves(self) -> Iterator[tuple[str, Space]]:
        """Yield path and space of every leaf, in order. A leaf itself has the path `""`."""
        yield "", self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and _canonical(self) == _canonical(other)

    def __hash__(self) -> int:
        return hash(_canonical(self))

    @staticmethod
    def from_json(data: Mapping[str, Any] | str) -> Space:
        """Make a space from the JSON of the Minari standard.

        Args:
            data: A dict, or its JSON text.

        Raises:
            SpecError: The type is unknown, or fields are missing or wrong.

        Example:
            >>> Space.from_json('{"type": "Discrete", "dtype": "int64", "start": 0, "n": 4}')
            Discrete(n=4, start=0)
        """
        try:
            plain = json.loads(data) if isinstance(data, str) else data
            return _READERS[plain["type"]](plain)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(
                f"expected a space of type {', '.join(_READERS)} as the Minari standard writes it, "
                f"got {_short(data)}: {error}"
            ) from error


@dataclass(frozen=True, eq=False)
class Box(Space):
    """Arrays of one shape and dtype, with bounds for every cell.

    Args:
        low: Lower bounds, `shape`; `-inf` where unbounded.
        high: Upper bounds, `shape`; `inf` where unbounded.
        dtype: Dtype of the values.

    Raises:
        SpecError: The bounds have different shapes, or the dtype is not numeric.

    Example:
        >>> import numpy as np
        >>> box = Box(np.zeros(2), np.ones(2), np.dtype("float32"))
        >>> box.contains(np.array([[0.5, 0.5], [2, 0]], "float32")).tolist()
        [True, False]
        >>> Box(np.zeros((3, 84, 84)), np.full((3, 84, 84), 255), np.dtype("uint8"))
        Box(0, 255, (3, 84, 84), uint8)
    """

    low: AnyArray
    high: AnyArray
    dtype: np.dtype[Any]

    type: ClassVar[str] = "Box"

    def __post_init__(self) -> None:
        set_fields(self, dtype=_number_dtype(self.dtype))
        low, high = (np.asarray(bound) for bound in (self.low, self.high))
        if low.shape != high.shape:
            raise SpecError(f"expected low and high of one shape, got {low.shape} and {high.shape}")
        set_fields(self, low=low.astype(self.dtype), high=high.astype(self.dtype))

    def __repr__(self) -> str:
        return f"Box({_span(self.low)}, {_span(self.high)}, {self.shape}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return self.low.shape

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the Minari standard, with a number for every bound."""
        bounds = {"low": self.low.tolist(), "high": self.high.tolist()}
        return {"type": "Box", "dtype": str(self.dtype), "shape": list(self.shape), **bounds}

    def contains(self, rows: Array) -> BoolArray:
        """Return which rows have the shape and are within the bounds. NaN is not."""
        values = np.asarray(rows)
        if values.shape[1:] != self.shape:
            return np.zeros(len(values), np.bool_)
        return _every((values >= self.low) & (values <= self.high))


@dataclass(frozen=True, eq=False)
class Discrete(Space):
    """Integers from `start` to `start + n - 1`.

    Args:
        n: Number of values.
        start: Smallest value. The default is 0.
        dtype: Dtype of the values. The default is int64.

    Raises:
        SpecError: The dtype is not numeric.

    Example:
        >>> import numpy as np
        >>> Discrete(3).contains(np.array([0, 3])).tolist()
        [True, False]
    """

    n: int
    start: int = 0
    dtype: np.dtype[Any] = field(default=np.dtype("int64"), repr=False)

    type: ClassVar[str] = "Discrete"

    def __post_init__(self) -> None:
        set_fields(self, dtype=_number_dtype(self.dtype))

    @override
    def to_json(self) -> dict[str, Any]:
        return {"type": "Discrete", "dtype": str(self.dtype), "start": int(self.start), "n": int(self.n)}

    @override
    def contains(self, rows: Array) -> BoolArray:
        values = np.asarray(rows)
        return (values >= self.start) & (values < self.start + self.n)


@dataclass(frozen=True, eq=False)
class MultiDiscrete(Space):
    """Arrays of integers, each from `start` to `start + nvec - 1`.

    Args:
        nvec: Number of values of each cell, with the shape of a value.
        start: Smallest value of each cell, with the same shape. The default is 0.
        dtype: Dtype of the values. The default is int64.

    Raises:
        SpecError: The shapes differ, or the dtype is not numeric.

    Example:
        >>> import numpy as np
        >>> MultiDiscrete(np.array([2, 3])).contains(np.array([[1, 2], [2, 0]])).tolist()
        [True, False]
    """

    nvec: AnyArray
    start: AnyArray | None = None
    dtype: np.dtype[Any] = INT64

    type: ClassVar[str] = "MultiDiscrete"

    def __post_init__(self) -> None:
        set_fields(self, dtype=_number_dtype(self.dtype))
        nvec = np.asarray(self.nvec, self.dtype)
        start = np.zeros_like(nvec) if self.start is None else np.asarray(self.start, self.dtype)
        if nvec.shape != start.shape:
            raise SpecError(f"expected nvec and start of one shape, got {nvec.shape} and {start.shape}")
        set_fields(self, nvec=nvec, start=start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return self.nvec.shape

    @override
    def to_json(self) -> dict[str, Any]:
        numbers = {"nvec": self.nvec.tolist(), "start": np.asarray(self.start).tolist()}
        return {"type": "MultiDiscrete", "dtype": str(self.dtype), **numbers}

    def contains(self, rows: Array) -> BoolArray:
        """Return which rows have the shape and are in the ranges."""
        values = np.asarray(rows)
        if values.shape[1:] != self.shape:
            return np.zeros(len(values), np.bool_)
        inside = (values >= self.start) & (values < np.asarray(self.start) + self.nvec)
        return _every(inside)


@dataclass(frozen=True, eq=False)
class MultiBinary(Space):
    """Arrays of zeros and ones, stored as int8.

    Args:
        n: Length or shape of a value.

    Example:
        >>> MultiBinary((2, 2)).shape
        (2, 2)
    """

    n: int | tuple[int, ...]

    type: ClassVar[str] = "MultiBinary"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return self.n if isinstance(self.n, tuple) else (self.n,)

    @override
    def to_json(self) -> dict[str, Any]:
        return {"type": "MultiBinary", "n": list(self.n) if isinstance(self.n, tuple) else int(self.n)}

    def contains(self, rows: Array) -> BoolArray:
        """Return which rows have the shape and only zeros and ones."""
        values = np.asarray(rows)
        if values.shape[1:] != self.shape:
            return np.zeros(len(values), np.bool_)
        return _every((values == 0) | (values == 1))


@dataclass(frozen=True, eq=False)
class Text(Space):
    """Strings with a range of lengths and a set of characters.

    Args:
        max_length: Most characters of a string.
        min_length: Fewest characters of a string. The default is 1.
        charset: Allowed characters. The default is digits and ASCII letters.

    Example:
        >>> Text(5, charset="ab").contains(Ragged.from_strings(["ab", "abc", ""])).tolist()
        [True, False, False]
    """

    max_length: int
    min_length: int = 1
    charset: str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    type: ClassVar[str] = "Text"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the Minari standard, with sorted characters."""
        lengths = {"max_length": int(self.max_length), "min_length": int(self.min_length)}
        return {"type": "Text", **lengths, "charset": _in_order(self.charset)}

    def contains(self, rows: Array) -> BoolArray:
        """Return which rows have an allowed length and only allowed characters."""
        if not isinstance(rows, Ragged):
            return np.zeros(len(rows), np.bool_)
        allowed = set(self.charset)
        lengths = range(self.min_length, self.max_length + 1)
        return np.array([len(s) in lengths and allowed.issuperset(s) for s in rows.strings()], np.bool_)


@dataclass(frozen=True, eq=False)
class Tuple(Space):
    """Fixed sequence of spaces. The leaves of item `i` have paths below `"i"`.

    Args:
        spaces: Spaces of the items.

    Example:
        >>> [path for path, _ in Tuple((Discrete(2), Discrete(3))).leaves()]
        ['0', '1']
    """

    spaces: tuple[Space, ...]

    type: ClassVar[str] = "Tuple"

    @override
    def to_json(self) -> dict[str, Any]:
        return {"type": "Tuple", "subspaces": [space.to_json() for space in self.spaces]}

    @override
    def leaves(self) -> Iterator[tuple[str, Space]]:
        for i, space in enumerate(self.spaces):
            yield from _below(str(i), space)

    def contains(self, rows: Array) -> BoolArray:
        """Raise `SpecError`: ask the leaves."""
        raise SpecError("a Tuple has no column; ask each of its leaves")


@dataclass(frozen=True, eq=False)
class Dict(Space):
    """Spaces by name. The leaves of key `k` have paths below `"k"`.

    Args:
        spaces: Space of each key. A key is not empty and has no "/".

    Raises:
        SpecError: A key is empty or has a "/".

    Example:
        >>> [path for path, _ in Dict({"arm": Dict({"x": Discrete(2)})}).leaves()]
        ['arm/x']
    """

    spaces: Mapping[str, Space]

    type: ClassVar[str] = "Dict"

    def __post_init__(self) -> None:
        for key in self.spaces:
            if "/" in key or key == "":
                raise SpecError(
                    f"expected keys without '/', got {key!r}; rename it, paths are made of keys joined by '/'"
                )

    @override
    def to_json(self) -> dict[str, Any]:
        return {"type": "Dict", "subspaces": {key: space.to_json() for key, space in self.spaces.items()}}

    @override
    def leaves(self) -> Iterator[tuple[str, Space]]:
        for key, space in self.spaces.items():
            yield from _below(key, space)

    def contains(self, rows: Array) -> BoolArray:
        """Raise `SpecError`: ask the leaves."""
        raise SpecError("a Dict has no column; ask each of its leaves")


def _below(key: str, space: Space) -> Iterator[tuple[str, Space]]:
    for path, leaf in space.leaves():
        yield (f"{key}/{path}" if path else key), leaf


def _every(inside: AnyArray) -> BoolArray:
    """Whether all cells of each row are inside, `[n]` bool."""
    return np.logical_and.reduce(inside.reshape(len(inside), -1), axis=1)


def _span(bound: AnyArray) -> str:
    """A bound in few words: its one value, or the smallest and the largest."""
    if not bound.size:
        return "none"
    least, most = bound.min(), bound.max()
    return str(least) if least == most else f"{least} to {most}"


def _number_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    number_dtype = np.dtype(dtype)
    if number_dtype.kind not in _NUMBERS or number_dtype.subdtype is not None:
        raise SpecError(f"expected a dtype of numbers, got {number_dtype}")
    return number_dtype


@lru_cache(maxsize=16)  # all of Unicode takes half a second to sort, and is asked for whenever specs are compared
def _in_order(charset: str) -> str:
    return "".join(sorted(set(charset)))


def _canonical(space: Space) -> Any:
    """A value that is equal for equal spaces. Bounds are compared as bytes, 1,000x faster than as JSON."""
    match space:
        case Box(low, high, dtype):
            return "Box", dtype.str, low.shape, (low + 0).tobytes(), (high + 0).tobytes()  # -0.0 is 0.0
        case Tuple(spaces):
            return "Tuple", tuple(_canonical(inner) for inner in spaces)
        case Dict(spaces):
            return "Dict", frozenset((name, _canonical(inner)) for name, inner in spaces.items())
        case _:
            return json.dumps(space.to_json(), sort_keys=True)


def _short(data: object) -> str:
    text = data if isinstance(data, str) else repr(data)
    return text if len(text) <= 200 else text[:200] + "..."


def _read_box(data: Mapping[str, Any]) -> Space:
    dtype, shape = _number_dtype(data["dtype"]), tuple(int(s) for s in data["shape"])
    return Box(_bound(data["low"], dtype, shape), _bound(data["high"], dtype, shape), dtype)


def _bound(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """Bound of a box, `shape`. A single number is the bound of every cell."""
    bound = np.asarray(value, dtype)
    if bound.size == 0 and 0 in shape and bound.shape == shape[: bound.ndim]:
        bound = bound.reshape(shape)  # lists end at the first empty one: bounds of (3, 0, 2) say (3, 0)
    if bound.shape not in ((), shape):
        raise SpecError(f"expected bounds of shape {shape}, got {bound.shape}")
    if bound.shape == () and math.prod(shape) > CELLS:
        raise SpecError(f"expected one number to be the bound of at most {CELLS} cells, got {math.prod(shape)}")
    return np.broadcast_to(bound, shape)


def _read_multi_discrete(data: Mapping[str, Any]) -> Space:
    return MultiDiscrete(data["nvec"], data.get("start"), _number_dtype(data.get("dtype", "int64")))


def _read_multi_binary(data: Mapping[str, Any]) -> Space:
    n = data["n"]
    return MultiBinary(tuple(int(i) for i in n) if is_listed(n) else int(n))


def _read_text(data: Mapping[str, Any]) -> Space:
    return Text(int(data["max_length"]), int(data["min_length"]), str(data["charset"]))


_READERS: dict[str, Callable[[Mapping[str, Any]], Space]] = {
    "Box": _read_box,
    "Discrete": lambda data: Discrete(
        int(data["n"]), int(data.get("start", 0)), _number_dtype(data.get("dtype", "int64"))
    ),
    "MultiDiscrete": _read_multi_discrete,
    "MultiBinary": _read_multi_binary,
    "Text": _read_text,
    "Tuple": lambda data: Tuple(tuple(Space.from_json(s) for s in data["subspaces"])),
    "Dict": lambda data: Dict({str(k): Space.from_json(s) for k, s in data["subspaces"].items()}),
}
