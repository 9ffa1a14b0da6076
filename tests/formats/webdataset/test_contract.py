"""The contracts of sources and writers, for one archive, folders of them, compressed ones, and the seed's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.formats.webdataset import FORMAT
from penstock.testing.examples import EMPTY, FLAT, IMAGES, NESTED, NUMBERS, RAGGED, Example
from penstock.testing.sources import SourceContract
from penstock.testing.writers import WriterContract


def stored(path: Path, episodes: Sequence[Episode], **options: Any) -> Path:
    with FORMAT.create(path, episodes[0].spec, {"author": "me"}, **options) as writer:
        assert writer.write_all(episodes) == list(range(len(episodes)))
    return path


class TestOneArchive(SourceContract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(stored(path / "data.tar", episodes))


class TestManyArchives(SourceContract):
    examples = (NESTED, RAGGED, EMPTY)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        folder = stored(path / "data", episodes, shard_episodes=1)
        assert len(list(folder.glob("*.tar"))) == len(episodes)
        return FORMAT.open(folder)


class TestCompressed(SourceContract):
    examples = (IMAGES, RAGGED)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        folder = stored(path / "data", episodes, shard_bytes=1, compression="gzip")
        assert len(list(folder.glob("*.tgz"))) == len(episodes)
        return FORMAT.open(folder, cache=path / "cache")


class TestPattern(SourceContract):
    examples = (RAGGED,)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        folder = stored(path / "data", episodes, shard_episodes=1, compression="zstd")
        return FORMAT.open(folder / f"shard-{{000000..{len(episodes) - 1:06d}}}.tar.zst")


@dataclass(frozen=True, eq=False)
class Ending(Example):
    """Episodes that end where, and only where, their last step is done."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        return [ended(episode) for episode in super().episodes(seed)]

    def __repr__(self) -> str:
        return self.name


def ended(episode: Episode) -> Episode:
    last, cut = np.arange(len(episode)) == len(episode) - 1, np.bool_(episode.id % 2 == 0)
    flags = {"terminations": last & ~cut, "truncations": last & cut}
    return Episode(episode.spec, {**episode.columns, **flags}, episode.id, episode.metadata)


SEED = tuple(Ending(e.name, e.spec, e.lengths) for e in (FLAT, IMAGES, NESTED, NUMBERS))


class TestSeedLayout(SourceContract):
    examples = SEED

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(stored(path / "data.tar", episodes, layout="seed"))


class TestSeedShards(SourceContract):
    examples = SEED[:1]

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(stored(path / "data", episodes, layout="seed", shard_episodes=2))


class TestWriter(WriterContract):
    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path, spec, metadata, shard_episodes=2)

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path)

    def open(self, path: Path) -> Source:
        return FORMAT.open(path)


class TestWriterOfOneArchive(TestWriter):
    examples = (RAGGED,)

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        return FORMAT.create(path.with_suffix(".tar"), spec, metadata)

    def append(self, path: Path) -> Writer:
        return FORMAT.append(path.with_suffix(".tar"))

    def open(self, path: Path) -> Source:
        return FORMAT.open(path.with_suffix(".tar"))
