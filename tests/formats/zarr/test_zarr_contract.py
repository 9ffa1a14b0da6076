"""The contracts of sources and writers, for every way to store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import imagecodecs.numcodecs
import numpy as np

from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.base.source import Source
from penstock.formats.zarr import FORMAT, ZarrWriter, pack_zip
from penstock.testing.examples import FLAT, IMAGES, NESTED, NUMBERS, RAGGED, Example
from penstock.testing.sources import SourceContract
from penstock.testing.writers import WriterContract


class Contract(SourceContract):
    examples: ClassVar[Sequence[Example]] = (NESTED, NUMBERS, RAGGED)
    options: ClassVar[dict[str, Any]] = {}
    opening: ClassVar[dict[str, Any]] = {}

    def written(self, path: Path, episodes: Sequence[Episode]) -> Path:
        with FORMAT.create(path / "buffer", episodes[0].spec, **self.options) as writer:
            assert writer.write_all(episodes) == list(range(len(episodes)))
        return path / "buffer"

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        return FORMAT.open(self.written(path, episodes), **self.opening)


class TestFolder(Contract):
    pass


class TestVersion3(Contract):
    examples: ClassVar[Sequence[Example]] = (RAGGED,)
    options: ClassVar[dict[str, Any]] = {"zarr_format": 3, "chunk_rows": 3, "compressor": "gzip"}


class TestSmallChunks(Contract):
    """Hardly anything stays decoded."""

    examples: ClassVar[Sequence[Example]] = (RAGGED,)
    options: ClassVar[dict[str, Any]] = {"chunk_rows": 2, "compressor": "zlib"}
    opening: ClassVar[dict[str, Any]] = {"cache_bytes": 100}


class TestUncompressed(Contract):
    examples: ClassVar[Sequence[Example]] = (FLAT,)
    options: ClassVar[dict[str, Any]] = {"compressor": None, "chunk_rows": 5}


class TestJpegXL(Contract):
    """Pictures are JPEG-XL without loss."""

    examples: ClassVar[Sequence[Example]] = (IMAGES,)
    options: ClassVar[dict[str, Any]] = {"compressor": "jpegxl"}

    def test_the_original_codec_decodes_the_pictures(self, tmp_path: Path) -> None:
        episodes = IMAGES.episodes()
        path = self.written(tmp_path, episodes)
        config = json.loads((path / "data/obs/.zarray").read_text())["compressor"]
        codec = imagecodecs.numcodecs.Jpegxl(**{name: value for name, value in config.items() if name != "id"})
        first = codec.decode((path / "data/obs/0.0.0.0").read_bytes())
        np.testing.assert_array_equal(first, episodes[0].columns["observations"][0])


class TestArchive(Contract):
    examples: ClassVar[Sequence[Example]] = (RAGGED,)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        archive = pack_zip(self.written(path, episodes), path / "buffer.zip")
        assert FORMAT.recognises(archive)
        return FORMAT.open(archive)


class TestWriter(WriterContract):
    examples: ClassVar[Sequence[Example]] = (NUMBERS, RAGGED)
    options: ClassVar[dict[str, Any]] = {}

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> ZarrWriter:
        return FORMAT.create(path, spec, metadata, **self.options)

    def append(self, path: Path) -> ZarrWriter:
        return FORMAT.append(path)

    def open(self, path: Path) -> Source:
        return FORMAT.open(path)


class TestWriterOfVersion3(TestWriter):
    examples: ClassVar[Sequence[Example]] = (RAGGED,)
    options: ClassVar[dict[str, Any]] = {"zarr_format": 3, "chunk_rows": 2, "compressor": None}


class TestWriterOfJpegXL(TestWriter):
    examples: ClassVar[Sequence[Example]] = (IMAGES,)
    options: ClassVar[dict[str, Any]] = {"compressor": "jpegxl"}
