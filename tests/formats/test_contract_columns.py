"""The contracts of sources and writers, for column stores: one segment, many segments, appended, compacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.formats.columns import FORMAT
from penstock.formats.columns.compact import compact
from penstock.testing.examples import EMPTY, IMAGES, NESTED, NUMBERS, RAGGED
from penstock.testing.sources import SourceContract
from penstock.testing.writers import WriterContract


def stored(path: Path, episodes: Sequence[Episode], writers: int) -> Path:
    """A store that so many writers filled in turn, a segment each."""
    held: list[Writer] = [FORMAT.create(path / "store", episodes[0].spec)]
    held += [FORMAT.append(path / "store") for _ in range(writers - 1)]
    for e, episode in enumerate(episodes):
        assert held[e % writers].write(episode) == e
    for writer in held:
        writer.close()
    return path / "store"


class TestOneSegment(SourceContract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(stored(path, episodes, 1))


class TestSegments(SourceContract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(stored(path, episodes, 2))


class TestCompacted(SourceContract):
    examples = (NESTED, EMPTY)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        compact(stored(path, episodes, 3), path / "compact")
        assert len(list((path / "compact" / "segments").iterdir())) == 1
        return FORMAT.open(path / "compact")


class TestPacked(SourceContract):
    examples = (IMAGES, NUMBERS, RAGGED, EMPTY)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        first = FORMAT.create(path / "store", episodes[0].spec, compression=6, block_steps=2)
        with first, FORMAT.append(path / "store") as second:
            for e, episode in enumerate(episodes):
                assert (first, second)[e % 2].write(episode) == e
        return FORMAT.open(path / "store")


class TestPackedWriter(WriterContract):
    several = True
    growing = True

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path, spec, metadata, compression=1, block_steps=3)

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path)

    def open(self, path: Path) -> Source:
        return FORMAT.open(path)


class TestWriter(WriterContract):
    several = True
    growing = True

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path, spec, metadata)

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path)

    def open(self, path: Path) -> Source:
        return FORMAT.open(path)


class TestSyncedWriter(TestWriter):
    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path, spec, metadata, sync="episode")

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path, sync="episode")
