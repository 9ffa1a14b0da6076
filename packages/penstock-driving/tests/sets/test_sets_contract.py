"""The contract of sources, for every data set of scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import penstock
from penstock.core.episode import Episode
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_driving.formats.l5kit import SPEC
from sets.writing import Drives, write


class Contract(SourceContract):
    opening: ClassVar[dict[str, Any]] = {}

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        name = self.examples[0].name
        return penstock.open(write(name, path, episodes), **self.opening).source

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """Times are columns."""
        table = source.table()
        assert table["start_time"].tolist() == [episode.metadata["start_time"] for episode in episodes]
        assert table["total_steps"].tolist() == [len(episode) for episode in episodes]


class TestArgoverse2(Contract):
    examples: ClassVar[Sequence[Example]] = (Drives("argoverse2", SPEC, (3, 1, 5)),)


class TestWaymo(Contract):
    examples: ClassVar[Sequence[Example]] = (Drives("waymo", SPEC, (3, 1, 5)),)


class TestNuPlan(Contract):
    examples: ClassVar[Sequence[Example]] = (Drives("nuplan", SPEC, (3, 1, 5)),)
    opening: ClassVar[dict[str, Any]] = {"cache_bytes": 1000}  # scenes are read again


class TestPy123D(Contract):
    examples: ClassVar[Sequence[Example]] = (Drives("py123d", SPEC, (3, 1, 5)),)
