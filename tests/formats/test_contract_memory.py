"""The contract of sources, for episodes in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.core.episode import Episode
from penstock.formats.base.source import Source
from penstock.formats.memory import MemorySource
from penstock.testing.sources import SourceContract


class TestMemory(SourceContract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return MemorySource.from_episodes(episodes)
