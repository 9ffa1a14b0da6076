"""The contract of sources, for every way to store."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged, offsets_of
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_driving.formats.l5kit import DTYPES, FORMAT, SPEC, WIDTHS


@dataclass(frozen=True, eq=False)
class Drives(Example):
    """Random scenes: frames of up to four agents and faces."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        rng = np.random.default_rng(seed)
        return [self._drive(rng, steps, e) for e, steps in enumerate(self.lengths)]

    def _drive(self, rng: np.random.Generator, steps: int, e: int) -> Episode:
        columns: dict[str, Any] = {
            "timestamp": rng.integers(1 << 60, size=steps),
            "ego_translation": rng.normal(size=(steps, 3)),
            "ego_rotation": rng.normal(size=(steps, 3, 3)),
        }
        counts = {table: rng.integers(5, size=steps) for table in ("agents", "tl_faces")}
        for path, width in WIDTHS.items():
            lengths = counts[path.split("/")[0]] * width
            dtype, n = SPEC[path].dtype, int(lengths.sum())
            values = rng.choice(["face", "né", ""], n) if dtype.kind == "U" else rng.normal(size=n) * 100
            values = np.abs(values) if dtype.kind == "u" else values
            columns[path] = Ragged(values.astype(dtype), offsets_of(lengths))
        metadata = {
            "host": f"host-{e}",
            "start_time": int(rng.integers(1 << 60)),
            "end_time": int(rng.integers(1 << 60)),
        }
        return Episode(SPEC, columns, e, metadata)

    def __repr__(self) -> str:
        return self.name


class Contract(SourceContract):
    examples: ClassVar[Sequence[Example]] = (Drives("drives", SPEC, (3, 1, 7, 2)), Drives("empty", SPEC, (0, 2, 0, 0)))
    options: ClassVar[dict[str, Any]] = {}
    opening: ClassVar[dict[str, Any]] = {}

    def written(self, path: Path, episodes: Sequence[Episode]) -> Path:
        with FORMAT.create(path / "drive", SPEC, **self.options) as writer:
            assert writer.write_all(episodes) == list(range(len(episodes)))
        return path / "drive"

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(self.written(path, episodes), **self.opening)

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """Times are columns; the host is text."""
        table = source.table()
        assert table["start_time"].tolist() == [episode.metadata["start_time"] for episode in episodes]
        assert table["total_steps"].tolist() == [len(episode) for episode in episodes]
        assert "host" not in table


class TestZarr(Contract):
    pass


class TestSmallChunks(Contract):
    options: ClassVar[dict[str, Any]] = {"chunk_rows": 2, "compressor": "zlib"}
    opening: ClassVar[dict[str, Any]] = {"cache_bytes": 3000}


class TestUncompressed(Contract):
    options: ClassVar[dict[str, Any]] = {"chunk_rows": {"frames": 3, "agents": 4}, "compressor": None}


class TestNpy(Contract):
    options: ClassVar[dict[str, Any]] = {"layout": "npy"}


class TestArchive(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        folder = self.written(path, episodes)
        with zipfile.ZipFile(path / "drive.zip", "w") as archive:
            for file in folder.rglob("*"):
                if file.is_file():
                    archive.write(file, str(file.relative_to(path)))
        assert FORMAT.recognises(path / "drive.zip")
        return FORMAT.open(path / "drive.zip")


def test_the_arrays_on_disk_have_their_names(tmp_path: Path) -> None:
    TestZarr().written(tmp_path, Contract.examples[0].episodes())
    assert {file.name for file in (tmp_path / "drive").iterdir()} == {*DTYPES, ".zgroup", ".zattrs"}
