"""Metadata of datasets and episodes: entries read at first use, columns of numbers, lines of JSON, merged figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_listed, is_mapping, is_scalar
from penstock.errors import DataError, FormatError

FIGURES = ("count", "min", "max", "mean", "std")
_PLAIN = frozenset((bool, int, float))
AT_ONCE = 1024  # episodes of one read
_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))
_STRINGS = frozenset((str,))
_LARGEST = 1 << 31
_encode = json.JSONEncoder(separators=(",", ":")).encode


class MetadataSource(Protocol):
    """Something that reads metadata of episodes, such as a `Source`."""

    def __len__(self) -> int:
        """Number of episodes."""
        ...

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]: ...


@final
class LazyMetadata(Mapping[str, Any]):
    """Metadata of one episode, read at first use."""

    __slots__ = ("_episode", "_held", "_source")

    def __init__(self, source: MetadataSource, episode: int) -> None:
        self._source, self._episode = source, episode
        self._held: dict[str, Any] | None = None

    def _read(self) -> dict[str, Any]:
        if self._held is None:
            self._held = self._source.episode_metadata([self._episode])[0]
        return self._held

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self._read(),)


def stated_rate(metadata: Mapping[str, Any]) -> float | None:
    """Return the steps a second that the metadata of a dataset state under `fps`."""
    rate = metadata.get("fps")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= sys.float_info.max:
        return None
    return float(rate)


def number_columns(stored: Sequence[Mapping[str, Any]]) -> dict[str, AnyArray]:
    """Return each entry that is a number in some episode as a column."""
    names = dict.fromkeys(name for entry in filter(None, stored) for name, value in entry.items() if _is_number(value))
    return {name: _number_column([entry.get(name) for entry in stored]) for name in names}


def _is_number(value: object) -> bool:
    return type(value) in _PLAIN or isinstance(value, (int, float, np.integer, np.floating, np.bool_))


def _number_column(values: list[Any]) -> AnyArray:
    types = set(map(type, values))  # one look at each value: one an episode
    if all(issubclass(t, (int, np.integer)) for t in types):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            return np.array([_float(v) for v in values], np.float64)
    return np.array([_float(v) if _is_number(v) else np.nan for v in values], np.float64)


def _float(value: Any) -> float:
    """A number as float. Integers beyond the range of floats, which JSON allows, become infinite."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def merged_figures(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the figures of two sets of rows together, from the figures of each, weighted by `count`."""
    both = (one, other)
    counts = [each["count"].reshape((1,) * np.ndim(one["mean"])) for each in both]
    total = one["count"] + other["count"]
    with np.errstate(invalid="ignore"):  # infinite values have an infinite mean, and no deviation
        mean = (one["mean"] * counts[0] + other["mean"] * counts[1]) / total
        squares = [
            (each["std"] ** 2 + (each["mean"] - mean) ** 2) * count for each, count in zip(both, counts, strict=True)
        ]
    return {
        "min": np.minimum(one["min"], other["min"]),
        "max": np.maximum(one["max"], other["max"]),
        "mean": mean,
        "std": np.sqrt((squares[0] + squares[1]) / total),
        "count": total,
    }


def json_line(metadata: Mapping[str, Any]) -> bytes:
    """One line of JSON, with its end."""
    text = _encode(metadata if _is_plain(metadata) else plain_metadata(metadata)).encode() + b"\n"
    if len(text) > _LARGEST:
        raise DataError(f"expected metadata of at most {_LARGEST} bytes, got {len(text)}; store it as a column")
    return text


def _is_plain(metadata: Mapping[str, Any]) -> bool:
    """Whether `plain_metadata` would change nothing, as for most episodes. Cost: a sixth of it."""
    known = _STRINGS.issuperset(map(type, metadata)) and _AS_THEY_ARE.issuperset(map(type, metadata.values()))
    return known and type(metadata) is dict


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same with NumPy numbers as numbers, and arrays and tuples as lists. Values that JSON changes are refused."""
    try:
        return {_key(key): _plain(value) for key, value in metadata.items()}
    except RecursionError:
        raise DataError("expected metadata that is not nested without end") from None


def _plain(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if is_array(value) or is_scalar(value):
        return _plain_numbers(value)
    if is_mapping(value):
        return {_key(key): _plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [_plain(inner) for inner in value]
    raise DataError(f"expected metadata that JSON can hold, got {type(value).__name__} {str(value)[:100]}")


def _plain_numbers(value: np.ndarray | np.generic) -> Any:  # pyright: ignore[reportMissingTypeArgument]
    if value.dtype.kind not in "biufU":
        raise DataError(f"expected metadata that JSON can hold, got an array of {value.dtype}; store it as a column")
    return value.tolist()


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise DataError(f"expected the keys of metadata to be strings, got {key!r}")
    return key


def each_metadata(source: MetadataSource) -> Iterator[tuple[int, dict[str, Any] | FormatError]]:
    """Yield the number of each episode, and its metadata or the error that reading them is."""
    count = len(source)
    ranges = [(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)][::-1]
    while ranges:
        first, last = ranges.pop()
        try:
            entries: list[dict[str, Any]] = source.episode_metadata(range(first, last))
        except FormatError as error:
            if last - first == 1:
                yield first, error
            else:
                middle = (first + last) // 2
                ranges += [(middle, last), (first, middle)]
        else:
            yield from zip(range(first, last), entries, strict=True)
