"""The contract of sources, for a tar, a folder, and records of version 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.errors import DataError
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_chess.formats.lc0 import FORMAT, SPEC


@dataclass(frozen=True, eq=False)
class Games(Example):
    """Random games, with the metadata that reading them gives."""

    file: str = ""
    member: bool = False

    def episodes(self, seed: int = 0) -> list[Episode]:
        found = super().episodes(seed)
        return [Episode(e.spec, e.columns, e.id, self._told(e)) for e in found]

    def _told(self, episode: Episode) -> dict[str, object]:
        name = f"training.{episode.id:09d}.gz"
        return {
            "file": self.file if self.member else name,
            "member": name if self.member else None,
            "frames": len(episode),
            "version": 7,
        }

    def __repr__(self) -> str:
        return self.name


class Contract(SourceContract):
    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """Frames and versions; the names are none."""
        table = source.table()
        assert table["frames"].tolist() == table["total_steps"].tolist() == [len(episode) for episode in episodes]
        assert table["version"].tolist() == [7] * len(episodes)
        assert "member" not in table


class TestArchive(Contract):
    examples: ClassVar[Sequence[Example]] = (Games("tar", SPEC, (3, 1, 7, 2), "games.tar", True),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        with FORMAT.create(path / "games.tar", SPEC) as writer:
            assert writer.write_all(episodes) == list(range(len(episodes)))
        return FORMAT.open(path / "games.tar")


class TestFolder(Contract):
    examples: ClassVar[Sequence[Example]] = (Games("folder", SPEC, (2, 5, 1)),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        with FORMAT.create(path / "games", SPEC) as writer:
            writer.write_all(episodes)
        return FORMAT.open(path / "games", cache_bytes=3 * 8396)  # less than all


def test_other_values_of_options_are_refused(tmp_path: Path) -> None:
    FORMAT.create(tmp_path / "games", SPEC).close()
    for option in ("missing_st", "order", "damaged"):
        with pytest.raises(DataError, match=option):
            FORMAT.open(tmp_path / "games", **{option: "?"})
    assert len(FORMAT.open(tmp_path / "games")) == 0
    assert np.array_equal(FORMAT.open(tmp_path / "games").offsets, [0])
