"""A writer that keeps episodes in memory: for short recordings, and to look at what a collector does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.episode import Episode
from penstock.formats.base.writer import Writer


class MemoryWriter(Writer):
    """Keeps what is written in the list `episodes`, and the dataset's metadata in `metadata`.

    >>> writer = MemoryWriter()
    >>> writer.episodes
    []
    """

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.metadata: dict[str, Any] = {}

    def write(self, episode: Episode) -> int:
        """Keep one episode, not copied; returns its number."""
        self.episodes.append(episode)
        return len(self.episodes) - 1

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries."""
        self.metadata.update(metadata)

    def close(self) -> None:
        """Nothing to do: the episodes stay."""
