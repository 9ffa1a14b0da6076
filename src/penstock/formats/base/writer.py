"""A writer: it takes closed episodes and makes each of them last."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.episode import Episode


class Writer(ABC):
    """A dataset opened for appending. An episode handed to `write` is saved when the call returns: killing the
    process afterwards does not lose it, and killing it before leaves the dataset as it was.

    Usable as a context manager. One writer is used by one thread.
    """

    @abstractmethod
    def write(self, episode: Episode) -> int:
        """Save one episode; returns its number in the dataset.

        Raises `SpecError` if its columns are not the dataset's, `DataError` for values the format has no place for,
        and `OSError` if the disk is full; the dataset is then as it was before the call.
        """

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several episodes, by formats that can with one commit for all. Memory: one episode at a time."""
        return [self.write(episode) for episode in episodes]

    @abstractmethod
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset's metadata, atomically."""

    @abstractmethod
    def close(self) -> None:
        """Finish: what was written is flushed to the disk itself. Closing twice is fine."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
