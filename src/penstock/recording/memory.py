"""`MemoryWriter`: a writer that stores episodes in memory, for short recordings and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from penstock.core.episode import Episode
from penstock.formats.base.writer import Writer


class MemoryWriter(Writer):
    """Writer that stores episodes in the list `episodes`, and the dataset's metadata in `metadata`."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.metadata: dict[str, Any] = {}

    def write(self, episode: Episode) -> int:
        """Store one episode without a copy, and return its number."""
        self.episodes.append(episode)
        return len(self.episodes) - 1

    @override
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.metadata.update(metadata)

    def close(self) -> None:
        """Do nothing. The episodes stay in memory."""
