"""Metadata of episodes: entries that are read at first use, and columns of the entries that are numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np

from penstock.core.arrays import AnyArray

_PLAIN = frozenset((bool, int, float))


class MetadataSource(Protocol):
    """Something that reads metadata of episodes, such as a `Source`."""

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Return the metadata of episodes."""
        ...


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
    names = dict.fromkeys(name for entry in stored for name, value in entry.items() if _is_number(value))
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
