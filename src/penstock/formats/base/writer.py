"""`Writer`: a dataset opened for appending episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode


class RowStream(ABC):
    """Takes rows of an episode while it is recorded, so that slow encoders need not wait for its end."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Paths of the columns whose rows it takes."""

    @abstractmethod
    def append(self, rows: Mapping[str, AnyArray]) -> None:
        """Take the next row."""

    @abstractmethod
    def discard(self) -> None:
        """Forget the rows, unless the episode was saved. A second call does nothing."""


class PartStart(NamedTuple):
    """Where a part begins in the whole dataset, of which several processes write parts."""

    episode: int
    step: int
    values: Mapping[str, int]


class Writer(ABC):
    """A dataset opened for appending.

    `write` returns after the episode is saved. Killing the process later does not lose it, and killing it earlier
    leaves the dataset unchanged. A writer is a context manager. Use one writer from one thread.

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> from pathlib import Path
        >>> from penstock.formats.base.format import named
        >>> episode = penstock.from_arrays({"rewards": np.arange(2.0)}, lengths=[2])[0]
        >>> with named("columns").create(Path(tempfile.mkdtemp()) / "demo", episode.spec) as writer:
        ...     writer.write(episode)
        0
    """

    @abstractmethod
    def write(self, episode: Episode) -> int:
        """Save one episode.

        Args:
            episode: Episode with the columns of the dataset.

        Returns:
            The number of the episode in the dataset.

        Raises:
            SpecError: The columns differ from the dataset's.
            DataError: The format cannot store a value.
            OSError: The disk is full. After any of these errors, the dataset is unchanged.
        """

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several episodes, with one commit if the format can. Memory: one episode at a time.

        Args:
            episodes: Episodes with the columns of the dataset.

        Returns:
            The numbers of the episodes in the dataset.
        """
        return [self.write(episode) for episode in episodes]

    def begin_at(self, start: PartStart) -> None:
        """Make an empty dataset a part of another one, see `Format.begin_part`: the next episode has these numbers.

        The default does nothing: joining the parts numbers their episodes.

        Args:
            start: Where the part begins in the whole dataset.
        """

    @abstractmethod
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset's metadata, atomically.

        Args:
            metadata: New entries.
        """

    @abstractmethod
    def close(self) -> None:
        """Flush everything to the disk and close the files. A second call does nothing."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
